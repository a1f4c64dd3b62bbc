"""Tables that other programs write to while a fleet is maintained, and the rows that each must hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from delta_maintenance.fleet.account.night import Night

_ROWS = 10
#: The part of the statements that delete, and the rows that each looks at.
_DELETIONS, _DELETED_SPAN = 0.3, 15


class LostToConflict(Exception):
    """A statement that failed because another writer had committed first."""


class Writer(Protocol):
    """A program that writes to a table. A statement that raises has changed nothing."""

    def append(self, table: str, first: int, end: int) -> None:
        """Add rows with these ids."""

    def delete(self, table: str, first: int, end: int) -> None:
        """Delete the rows with these ids."""


class DeltaRs:
    """delta-rs, with storage options of its own."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = dict(options or {})

    def append(self, table: str, first: int, end: int) -> None:
        rows = pa.table({"id": pa.array(range(first, end), pa.int64())})
        self._carry_out(
            lambda: write_deltalake(table, rows, mode="append", storage_options=self._options or None)
        )

    def delete(self, table: str, first: int, end: int) -> None:
        self._carry_out(lambda: self.opened(table).delete(f"id >= {first} and id < {end}"))

    def ids(self, table: str) -> list[int]:
        """The rows, as delta-rs reads them."""
        return sorted(self.opened(table).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def keep_no_removed_files(self, table: str) -> None:
        """Shorten the retention, since no test waits a week. Nobody may write to such a table while it is vacuumed."""
        properties = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        self.opened(table).alter.set_table_properties(properties)

    def opened(self, table: str) -> DeltaTable:
        return DeltaTable(table, storage_options=self._options or None)

    @staticmethod
    def _carry_out(statement: Callable[[], object]) -> None:
        try:
            statement()
        except CommitFailedError as error:
            raise LostToConflict(str(error)) from error


class DeltaSpark:
    """delta-spark, in a session of this process."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def append(self, table: str, first: int, end: int) -> None:
        self._carry_out(f"INSERT INTO delta.`{table}` SELECT id FROM range({first}, {end})")

    def delete(self, table: str, first: int, end: int) -> None:
        self._carry_out(f"DELETE FROM delta.`{table}` WHERE id >= {first} AND id < {end}")

    def _carry_out(self, statement: str) -> None:
        from pyspark.errors import PySparkException

        try:
            self._session.sql(statement).collect()
        except PySparkException as error:
            if "CONCURRENT" not in str(error).upper():
                raise
            raise LostToConflict(str(error)) from error


@dataclass(slots=True)
class WrittenTable:
    """A table, its writer, and the rows that it must hold.

    :param commits: number of statements that succeeded; ``failed`` has the message of each that did not.
    """

    address: str
    writer: Writer
    ids: set[int] = field(default_factory=set)
    commits: int = 0
    failed: list[str] = field(default_factory=list)
    _next: int = 0

    def append(self) -> None:
        first, end = self._next, self._next + _ROWS
        self._next = end
        if self._succeeds(lambda: self.writer.append(self.address, first, end)):
            self.ids |= set(range(first, end))

    def delete(self, numbers: random.Random) -> None:
        first = numbers.randrange(max(self._next, 1))
        end = first + _DELETED_SPAN
        if self._succeeds(lambda: self.writer.delete(self.address, first, end)):
            self.ids -= set(range(first, end))

    def write(self, numbers: random.Random) -> None:
        """Make one statement."""
        if numbers.random() < _DELETIONS:
            self.delete(numbers)
        else:
            self.append()

    def _succeeds(self, statement: Callable[[], None]) -> bool:
        try:
            statement()
        except LostToConflict as error:
            self.failed.append(str(error))
            return False
        self.commits += 1
        return True


def unannounced(deleted: Iterable[str], night: Night, earlier: Iterable[Night]) -> list[str]:
    """The deleted files that no VACUUM of this night has deleted, or whose deletion no earlier night has announced.

    :param deleted: addresses of data files.
    """
    announced = {
        table for one in earlier for table, names in one.decision.announced.items() if "vacuum" in names
    }
    vacuumed = {outcome.table for outcome in night.outcomes if outcome.run.operation == "vacuum"}
    expected = announced & vacuumed
    return [file for file in deleted if not any(file.startswith(f"{table}/") for table in expected)]
