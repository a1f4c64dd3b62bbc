"""Waiting for new versions of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta.operators.arguments import Members, by_attribute
from airflow_delta.sensors.base import DeltaTableSensor
from airflow_delta.sensors.baseline import Baselines
from airflow_delta.triggers.table_version import DeltaTableVersionTrigger
from delta_log.printable import printable
from delta_maintenance.options import (
    Choice,
    Count,
    Kind,
    Option,
    Switch,
    shown,
    text_of,
    whole_number,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.triggers.table_wait import Outcome, TableWait
    from delta_log import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What an absent argument would mean. A reference to another task's output renders to ``None`` if there is no output.
_NOT_AWAITED = "other commits would end the wait than the ones that were meant"


class _Version(Kind):
    """A version of a table; -1 stands for what was before the first."""

    def read(self, value: Any) -> int:
        version = -1 if text_of(value).strip() == "-1" else whole_number(value)
        if version is None:
            raise ValueError(f"{shown(value)} is not a version: a whole number from 0 on.")
        return version


class _Start(_Version):
    def read(self, value: Any) -> Any:
        return value if value in ("latest", "earliest") else super().read(value)


class _Moment(Kind):
    def read(self, value: Any) -> datetime:
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(text_of(value).strip())
        except ValueError:
            raise ValueError(f"{shown(value)} is not a moment such as 2026-01-01T00:00:00+00:00.") from None
        if not 1 < moment.year < 9999:
            raise ValueError(f"{shown(value)} is not a moment of the years 2 to 9998.")
        if moment.tzinfo is None:
            raise ValueError(f"{shown(value)} has no time zone. Give one, such as +00:00.")
        return moment


class _Transaction(Kind):
    def read(self, value: Any) -> tuple[str, int]:
        if isinstance(value, Sequence) and len(value) == 2:
            app_id, version = value
            number = whole_number(version)
            if isinstance(app_id, str) and app_id and number is not None:
                return app_id, number
        raise ValueError(f"{shown(value)} is not a pair of an application id and a version.")


class _Names(Kind):
    def read(self, value: Any) -> list[str]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{shown(value)} is not a list of names.")  # noqa: TRY004 - as other kinds do
        return [str(member) for member in value]


class DeltaTableVersionSensor(DeltaTableSensor):
    """Waits for commits to a Delta table; the XCom is the exact range of versions, with what each did.

    By default it waits for data that is newer than where the previous successful run of this task left off for this
    table, so that the ranges of successive runs join without a gap.

    The sensor also takes the arguments of :class:`~airflow_delta.sensors.base.DeltaTableSensor`.

    :param start_from: start of the first run: ``latest``, ``earliest`` or a version. (templated)
    :param baseline: version after which commits count, whatever earlier runs saw. (templated)
    :param version: version to wait for; a later one counts, too. (templated)
    :param newer_than: moment, with a time zone, at or after which a commit counts. (templated)
    :param transaction: pair (application id, version): the sensor waits until the table holds that txn or a later one; filters by
        data do not apply. (templated)
    :param data_change_only: switch to wait for changes of data, not for maintenance. (templated)
    :param operations: names of the only operations that count, such as ``["WRITE", "MERGE"]``. (templated)
    :param partitions: raw value or values for each column of the partitions that a commit must touch to count. (templated)
    :param min_rows: number of rows that the commits must have together. (templated)
    :param on_cleaned: reaction to a log that was cleaned past the baseline: ``fail``, or ``continue`` and say so in the XCom.
        (templated)
    """

    arguments = by_attribute(
        *DeltaTableSensor.arguments.values(),
        Option(
            "start_from",
            _Start(),
            "where the first run starts: latest, earliest or a version",
            argument_default="latest",
        ),
        Option(
            "baseline",
            _Version(),
            "wait for what is newer than this version, whatever earlier runs saw",
            absence=_NOT_AWAITED,
        ),
        Option("version", _Version(), "wait for this version or a later one", absence=_NOT_AWAITED),
        Option(
            "newer_than",
            _Moment(),
            "wait for a commit at or after this moment, with a time zone",
            absence=_NOT_AWAITED,
        ),
        Option(
            "transaction",
            _Transaction(),
            "(application id, version): wait until the table holds that txn or a later one; filters by data do not "
            "apply",
            absence=_NOT_AWAITED,
        ),
        Option(
            "data_change_only",
            Switch(),
            "wait for changes of data, not for maintenance",
            argument_default=True,
        ),
        Option("operations", _Names(), 'count only these, such as ["WRITE", "MERGE"]', absence=_NOT_AWAITED),
        Option(
            "partitions",
            Members(),
            "count only commits that touched these: for each column a raw value or several",
            absence=_NOT_AWAITED,
        ),
        Option("min_rows", Count("rows"), "wait until the commits have this many rows together"),
        Option(
            "on_cleaned",
            Choice(("fail", "continue")),
            "where the log was cleaned past the baseline, fail, or continue and say so in the XCom",
            argument_default="fail",
        ),
    )
    template_fields = (
        *DeltaTableSensor.template_fields,
        "start_from",
        "baseline",
        "version",
        "newer_than",
        "transaction",
        "data_change_only",
        "operations",
        "partitions",
        "min_rows",
        "on_cleaned",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"partitions": "json"}

    _wait: TableWait | None = None
    _trigger: DeltaTableVersionTrigger | None = None

    def __init__(
        self,
        *,
        start_from: int | str = "latest",
        baseline: int | str | None = None,
        version: int | str | None = None,
        newer_than: datetime | str | None = None,
        transaction: tuple[str, int] | None = None,
        data_change_only: bool | str = True,
        operations: Sequence[str] | None = None,
        partitions: Mapping[str, Any] | None = None,
        min_rows: int | str | None = None,
        on_cleaned: str = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.start_from = start_from
        self.baseline = baseline
        self.version = version
        self.newer_than = newer_than
        self.transaction = transaction
        self.data_change_only = data_change_only
        self.operations = operations
        self.partitions = partitions
        self.min_rows = min_rows
        self.on_cleaned = on_cleaned
        self.check_known()

    def look(self, context: Context) -> Outcome | None:
        from airflow_delta.triggers.table_wait import refusal
        from delta_log.errors import AccessDenied, NotInCatalog, StorageError, TableError

        if self._wait is None:
            try:
                there = self._begin(context)
            except NotInCatalog as error:
                self.log.info("%s Waiting for it.", error)
                return None
            except (TableError, AccessDenied) as error:
                return refusal(error)
            except StorageError as error:
                if not error.retryable:
                    return refusal(error)
                self.log.warning("%s Trying again.", error)
                return None
            if there is not None:
                return there
        assert self._wait is not None
        return self._wait.look()

    def can_defer(self) -> bool:
        return self._trigger is not None

    def trigger(self) -> DeltaTableVersionTrigger:
        assert self._trigger is not None
        return self._trigger

    def result(self, context: Context, outcome: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = outcome["range"]
        Baselines(context, self.value_of("table")).remember(found["firstVersion"], found["lastVersion"])
        self.log.info(
            "%s: versions %d to %d, of which %d count.",
            printable(found["table"]),
            found["firstVersion"],
            found["lastVersion"],
            found["numCommits"],
        )
        return found

    def _begin(self, context: Context) -> Outcome | None:
        """Decide where to begin; returns an outcome if the table already has what the sensor waits for."""
        from airflow_delta.hooks.delta_table import DeltaTableHook

        table = DeltaTableHook(self.value_of("delta_conn_id")).get_table(self.value_of("table"))
        transaction, data_change_only = self.value_of("transaction"), self.value_of("data_change_only")
        if transaction is not None:
            data_change_only = False
            there = self._transaction_in(table, transaction)
            if there is not None:
                return there
        moment = self.value_of("newer_than")
        awaited = {
            "version": self.value_of("version"),
            "newer_than_ms": None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1),
            "transaction": None if transaction is None else list(transaction),
        }
        awaited = {name: value for name, value in awaited.items() if value is not None}
        self._trigger = DeltaTableVersionTrigger(
            self.value_of("table"),
            self.value_of("delta_conn_id"),
            max(self.poke_interval, 0.1),
            data_change_only=data_change_only,
            operations=self.value_of("operations"),
            partitions=self.value_of("partitions"),
            min_rows=self.value_of("min_rows") or 0,
            baseline=self._baseline(context, table),
            awaited=awaited or None,
            # Cleaned commits do not matter: the table has that version or a later one.
            on_cleaned="continue" if self.value_of("version") is not None else self.value_of("on_cleaned"),
        )
        self._wait = self._trigger.wait()
        return None

    def _baseline(self, context: Context, table: Table) -> int:
        """The version after which to look for commits."""
        from delta_log.tail.commit_follower import start_position

        asked: dict[str, Callable[[Any], int]] = {
            "baseline": int,
            "version": lambda version: int(version) - 1,
            "newer_than": lambda moment: _version_before(table, moment),
            "transaction": lambda _: start_position(table.storage, "latest"),
        }
        for name, version_before in asked.items():
            value = self.value_of(name)
            if value is not None:
                return version_before(value)
        baselines = Baselines(context, self.value_of("table"))
        known = baselines.recall()
        if known is not None:
            self.log.info("The previous successful run left off at version %d.", known)
            return known
        position = baselines.begun()
        if position is None:
            position = start_position(table.storage, self.value_of("start_from"))
            baselines.begin(position)
        self.log.info("No earlier run is known; looking for what comes after version %d.", position)
        return position

    def _transaction_in(self, table: Table, transaction: tuple[str, int]) -> Outcome | None:
        from delta_log.errors import NotATable
        from delta_log.tail.version_range import VersionRange

        app_id, version = transaction
        try:
            snapshot = table.snapshot()
        except NotATable:
            return None
        if snapshot.transactions.get(app_id, -1) < version:
            return None
        held = snapshot.transactions[app_id]
        self.log.info("%s holds version %d of %s.", printable(self.table), held, printable(app_id))
        here = VersionRange(snapshot.version, snapshot.version, ())
        return {"status": "found", "range": here.to_dict(self.value_of("table"))}


def _version_before(table: Table, moment: datetime) -> int:
    """The newest version before a moment; -1 where the table is younger."""
    from delta_log.errors import NotATable, VersionNotFound

    try:
        return table.snapshot(timestamp=moment - timedelta(milliseconds=1)).version
    except NotATable:
        return -1
    except VersionNotFound as error:
        latest = table.snapshot()
        return latest.version if latest.timestamp < moment else error.earliest - 1
