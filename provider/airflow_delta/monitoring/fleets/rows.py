"""The tables of a night that a reader asked for: choice, order, groups, and CSV. Pure functions of a view."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from delta_log.printable import printable
from delta_maintenance.fleet.account.view import TableNight
from delta_maintenance.units import DAY_MS

#: In the order of urgency; the others follow.
_URGENT = ("failed", "unread", "stopped", "refused", "approval", "never_fits", "not_begun", "over_budget")
_LAST = ("healthy",)


class TablesQuery(Struct, frozen=True):
    """What a reader asked for; empty: everything.

    :param state: state of the tables, ``late``, or ``unhealthy``.
    :param search: part of the address, of the owner or of a reason.
    :param prefix: the beginning of the address.
    :param owner: ``-``: tables without an owner.
    :param idle_days: tables that no other program has written to for so many days, as far as the survey has read the log.
    """

    state: str = ""
    search: str = ""
    prefix: str = ""
    owner: str = ""
    idle_days: int = 0
    sort: str = "urgency"
    descending: bool = False
    offset: int = 0
    limit: int = 50


def counts_of(tables: Iterable[TableNight], now_ms: int) -> dict[str, int]:
    """Numbers of tables by state, which add up, and beside them of tables that are ``unhealthy`` and ``late``."""
    found: Counter[str] = Counter()
    for one in tables:
        found[one.state] += 1
        found["unhealthy"] += one.unhealthy_since_ms is not None
        found["late"] += is_late(one, now_ms)
    return dict(found)


def is_late(table: TableNight, now_ms: int) -> bool:
    return table.deadline_ms is not None and table.deadline_ms < now_ms


def chosen(tables: Iterable[TableNight], query: TablesQuery, now_ms: int) -> list[TableNight]:
    """The tables that a reader asked for, in order; those without the figure to sort by come last, either way."""
    found = sorted(
        (one for one in tables if _is_chosen(one, query, now_ms)),
        key=lambda one: one.table,
    )
    key = SORTS[query.sort]
    known = [one for one in found if key(one) is not None]
    known.sort(key=key, reverse=query.descending)
    return known + [one for one in found if key(one) is None]


def _is_chosen(table: TableNight, query: TablesQuery, now_ms: int) -> bool:
    return (
        _has_state(table, query.state, now_ms)
        and table.table.startswith(query.prefix)
        and (not query.owner or (table.owner or "-") == query.owner)
        and (not query.idle_days or _is_idle(table, now_ms - query.idle_days * DAY_MS))
        and (not query.search or _tells(table, query.search.casefold()))
    )


def _has_state(table: TableNight, state: str, now_ms: int) -> bool:
    if state == "late":
        return is_late(table, now_ms)
    if state == "unhealthy":
        return table.unhealthy_since_ms is not None
    return not state or table.state == state


def _is_idle(table: TableNight, since_ms: int) -> bool:
    """Only of a table whose newest write is known can that be said."""
    return table.written_ms is not None and table.written_ms < since_ms


def _tells(table: TableNight, text: str) -> bool:
    told = (table.table, table.owner or "", *(one.why for one in table.left))
    return any(text in one.casefold() for one in told)


def _urgency(table: TableNight) -> tuple[int, float]:
    order = (*_URGENT, "", *_LAST)
    place = order.index(table.state if table.state in order else "")
    return place, -table.value


def _figure(name: str) -> Callable[[TableNight], Any]:
    return lambda table: getattr(table, name)


#: By the name of an order, its key.
SORTS: dict[str, Callable[[TableNight], Any]] = {
    "urgency": _urgency,
    "gain": lambda table: table.value or None,
    **{
        name: _figure(name)
        for name in (
            "table",
            "size_bytes",
            "num_files",
            "small_files",
            "reclaimable_bytes",
            "written_ms",
            "unhealthy_since_ms",
        )
    },
}


# -- groups ----------------------------------------------------------------------------------------------------------


class Group(Struct, frozen=True):
    """Tables of one owner, or of one directory.

    :param name: the owner, ``-`` for none, or the directory with a slash at its end.
    """

    name: str
    num_tables: int
    num_unhealthy: int
    num_failed: int
    num_done: int
    small_files: int
    size_bytes: int
    reclaimable_bytes: int


def groups_of(tables: Iterable[TableNight], by: str) -> list[Group]:
    """
    :param by: ``owner`` or ``prefix``.
    :return: the groups, those with the most unhealthy tables first.
    """
    found: dict[str, list[TableNight]] = {}
    for one in tables:
        name = (one.owner or "-") if by == "owner" else directory_of(one.table)
        found.setdefault(name, []).append(one)
    return sorted((total_of(*item) for item in found.items()), key=lambda one: (-one.num_unhealthy, one.name))


def directory_of(table: str) -> str:
    return table.rstrip("/").rpartition("/")[0] + "/"


def total_of(name: str, tables: Sequence[TableNight]) -> Group:
    return Group(
        name=name,
        num_tables=len(tables),
        num_unhealthy=sum(one.unhealthy_since_ms is not None for one in tables),
        num_failed=sum(one.state == "failed" for one in tables),
        num_done=sum(one.state == "done" for one in tables),
        small_files=sum(one.small_files or 0 for one in tables),
        size_bytes=sum(one.size_bytes or 0 for one in tables),
        reclaimable_bytes=sum(one.reclaimable_bytes or 0 for one in tables),
    )


# -- CSV -------------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "table",
    "state",
    "owner",
    "why",
    "done",
    "forecast_read_bytes",
    "read_bytes",
    "forecast_seconds",
    "seconds",
    "saved_files",
    "saved_bytes",
    "due_next",
    "gain",
    "unhealthy_since_ms",
    "deadline_ms",
    "written_ms",
    "num_files",
    "size_bytes",
    "small_files",
    "reclaimable_bytes",
)
#: A program for spreadsheets takes a text that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(tables: Iterable[TableNight]) -> Iterator[str]:
    """Lines of CSV, the first with the names of the columns. What is not known is empty."""
    yield _line(_COLUMNS)
    for one in tables:
        yield _line([_cell(value) for value in _values(one)])


def _values(one: TableNight) -> list[Any]:
    done = one.done
    return [
        one.table,
        one.state,
        one.owner,
        " ".join([*(work.message for work in done if work.message), *(left.why for left in one.left)]),
        " ".join(f"{work.operation}:{work.status}" for work in done),
        sum(work.forecast.read_bytes for work in done),
        sum(work.outcome.read_bytes for work in done),
        sum(work.forecast.worker_seconds for work in done),
        sum(work.outcome.worker_seconds for work in done),
        sum(work.saved_files for work in done),
        sum(work.saved_bytes for work in done),
        " ".join(work.operation for work in one.due_next),
        one.value,
        one.unhealthy_since_ms,
        one.deadline_ms,
        one.written_ms,
        one.num_files,
        one.size_bytes,
        one.small_files,
        one.reclaimable_bytes,
    ]


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _line(values: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(values)
    return buffer.getvalue()
