"""Passes what a notifier has to say to the notifiers that send it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf

from airflow_delta.monitoring.fleet import shown
from airflow_delta.monitoring.page_address import path_of_table

if TYPE_CHECKING:
    from airflow.sdk import Context

#: A notifier of a provider, or any other function of the context.
Send = Callable[[Any], Any]


def as_list(notifiers: Send | Sequence[Send]) -> list[Send]:
    """
    :raises ValueError: there is none.
    """
    found = [notifiers] if callable(notifiers) else list(notifiers)
    if not found or not all(map(callable, found)):
        raise ValueError(
            "notifiers must be a notifier such as SmtpNotifier(…), another function of the context, or a list of these; got "
            f"{notifiers!r}."
        )
    return found


def send(notifiers: Sequence[Send], context: Context, table: str, **members: Any) -> None:
    """Send what there is to say about a table, see :func:`send_all`."""
    send_all(notifiers, context, {**_names(table), **members})


def send_all(notifiers: Sequence[Send], context: Context, said: Mapping[str, Any]) -> None:
    """Call each notifier with the context and, as its member ``delta``, what there is to say.

    :raises Exception: what the first of them raised, after all others were called.
    """
    faults: list[Exception] = []
    for notifier in notifiers:
        try:
            # A notifier of Airflow fills in its own templates for good, and one process may notify of several tasks.
            copy(notifier)({**context, "delta": dict(said)})
        except Exception as error:  # noqa: BLE001 - one that fails must not silence the others
            faults.append(error)
    if faults:
        raise faults[0]


def _names(table: str) -> dict[str, str]:
    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    page = f"{base}{path_of_table(table)}" if base.startswith("http") else ""
    return {"table": shown(table), "name": shown(table.rstrip("/").rpartition("/")[2] or table), "page": page}
