"""Allowed roots: a fence around the addresses that a DAG, or a user who fills in its form, may name.

Roots are set in two places: in Airflow's configuration (``[delta] allowed_roots``), for every table of this provider, and in a
connection of type ``delta``, for what is opened with it. If both have roots, an address must lie below one of each, so a
connection can only narrow the fence. If neither has, there is no fence.

A value is a list of addresses, or text with commas or line breaks between them. A value that names no address is refused: most
likely a template came out empty, and the fence was meant to stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from delta_log.errors import InvalidRequest
from delta_log.storage.table_uri import TableUri, require_within

_SECTION, _OPTION = "delta", "allowed_roots"

AllowedRoots = Mapping[str, Sequence[str]]


def roots_of_setting() -> dict[str, tuple[str, ...]]:
    """The roots in Airflow's configuration."""
    value = conf.get(_SECTION, _OPTION, fallback=None)
    setting = f"Airflow's setting [{_SECTION}] {_OPTION}"
    return {} if value is None else {setting: read_roots(setting, value)}


def roots_of_connection(conn_id: str, value: Any) -> dict[str, tuple[str, ...]]:
    """The roots of a connection.

    :param value: the member of its extra; ``None`` if there is none.
    """
    connection = f"connection {conn_id!r}"
    return {} if value is None else {connection: read_roots(connection, value)}


def read_roots(set_by: str, value: Any) -> tuple[str, ...]:
    """The addresses in a value.

    :raises AirflowFailException: the value does not name roots.
    """
    members = re.split(r"[,\n]", value) if isinstance(value, str) else value
    if not isinstance(members, list | tuple) or not all(isinstance(member, str) for member in members):
        raise AirflowFailException(
            f"The {_OPTION} of {set_by} are neither a list of addresses nor a text with commas between them. "
            "Write for example s3://lake/sales, /data/lake."
        )
    roots = tuple(member.strip() for member in members if member.strip())
    if not roots:
        raise AirflowFailException(
            f"The {_OPTION} of {set_by} are set and name no address. Name one, or remove them to allow every address."
        )
    for root in roots:
        try:
            TableUri.parse(root)
        except InvalidRequest as error:
            raise AirflowFailException(
                f"The {_OPTION} of {set_by} hold one that is no root. {error}"
            ) from None
    return roots


def require_allowed(addresses: Sequence[str], allowed_roots: AllowedRoots) -> None:
    """
    :raises AirflowFailException: one of them lies outside of the roots; nothing was opened.
    """
    try:
        for address in addresses:
            require_within(address, allowed_roots)
    except InvalidRequest as error:
        raise AirflowFailException(f"{error} [{type(error).__name__}]") from None
