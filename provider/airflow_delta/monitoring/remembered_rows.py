"""Remembers the rows of tables that nothing was told of since they were made.

A fleet of thousands of tables is sorted and counted as a whole for each request, and few of its tables have news.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_delta.monitoring.fleet import row_of

#: Tables of which a row is kept. Beyond it all are made anew.
_MOST = 50_000


class RememberedRows:
    """Makes rows as :func:`~airflow_delta.monitoring.fleet.row_of` does, and gives the last row of a table again if it is made of
    the same objects. Callers must not change it.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[list[list[Any]], dict[str, Any]]] = {}

    def __call__(self, table: str, *told: Iterable[Any]) -> dict[str, Any]:
        """
        :param told: the further arguments of the row; records never change.
        """
        made_of = [list(some) for some in told]
        held = self._held.get(table)
        if held is not None and _are_same(held[0], made_of):
            return held[1]
        row = row_of(table, *made_of)
        if len(self._held) >= _MOST:
            self._held.clear()
        self._held[table] = made_of, row
        return row


def _are_same(some: list[list[Any]], others: list[list[Any]]) -> bool:
    return len(some) == len(others) and all(
        len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))
        for a, b in zip(some, others, strict=True)
    )
