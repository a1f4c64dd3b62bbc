"""Waiting for new versions of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.sensors.base import DeltaTableSensor
from airflow_delta.sensors.baseline import Baselines
from airflow_delta.triggers.table_version import DeltaTableVersionTrigger
from delta_log.printable import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.triggers.table_wait import Outcome, TableWait
    from delta_log import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A reference to the output of another task renders to ``None`` where there is none.
_NOT_AWAITED = "other commits would end the wait than the ones that were meant"


def read_version(name: str, value: Any) -> int:
    version = -1 if arguments.text_of(value).strip() == "-1" else arguments.whole_number(value)
    if version is None:
        raise ValueError(f"{name}={arguments.quoted(value)} is not a version: a whole number from 0 on.")
    return version


def read_start(name: str, value: Any) -> int | str:
    return value if value in ("latest", "earliest") else read_version(name, value)


def read_moment(name: str, value: Any) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError:
        raise ValueError(f"{name}={value!r} is not a moment such as 2026-01-01T00:00:00+00:00.") from None
    if not 1 < moment.year < 9999:
        raise ValueError(f"{name}={value!r} is not a moment of the years 2 to 9998.")
    if moment.tzinfo is None:
        raise ValueError(f"{name}={value!r} has no time zone. Give one, such as +00:00.")
    return moment


def read_transaction(name: str, value: Any) -> tuple[str, int]:
    if isinstance(value, Sequence) and len(value) == 2:
        app_id, version = value
        number = arguments.whole_number(version)
        if isinstance(app_id, str) and app_id and number is not None:
            return app_id, number
    raise ValueError(f"{name}={arguments.quoted(value)} is not a pair of an application id and a version.")


def read_names(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{name}={value!r} is not a list of names.")  # noqa: TRY004 - as the other readers do
    return [str(member) for member in value]


def read_policy(name: str, value: Any) -> str:
    if value not in ("fail", "continue"):
        raise ValueError(f"{name}={value!r} is neither fail nor continue.")
    return str(value)


class DeltaTableVersionSensor(DeltaTableSensor):
    """Waits for commits to a Delta table; the XCom is the exact range of versions, with what each did.

    By default it waits for data that is newer than where the previous successful run of this task left off for this
    table, so that the ranges of successive runs join without a gap.

    :param start_from: where the first run starts: ``latest``, ``earliest`` or a version. (templated)
    :param baseline: wait for what is newer than this version, whatever earlier runs saw. (templated)
    :param version: wait for this version or a later one. (templated)
    :param newer_than: wait for a commit at or after this moment, with a time zone. (templated)
    :param transaction: ``(application id, version)``: wait until the table holds that ``txn`` or a later one; filters by
        data do not apply. (templated)
    :param data_change_only: maintenance does not count. (templated)
    :param operations: only these, such as ``["WRITE", "MERGE"]``. (templated)
    :param partitions: only commits that touched these: for each column a raw value or several. (templated)
    :param min_rows: wait until the commits have so many rows together. (templated)
    :param on_cleaned: ``fail``, or ``continue`` and say so in the XCom, where the log was cleaned past the baseline.
        (templated)

    Further parameters: :class:`~airflow_delta.sensors.base.DeltaTableSensor`.
    """

    template_fields: Sequence[str] = (
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
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaTableSensor.arguments,
        "start_from": Argument("start_from", read_start, required=True),
        "baseline": Argument("baseline", read_version, absence=_NOT_AWAITED),
        "version": Argument("version", read_version, absence=_NOT_AWAITED),
        "newer_than": Argument("newer_than", read_moment, absence=_NOT_AWAITED),
        "transaction": Argument("transaction", read_transaction, absence=_NOT_AWAITED),
        "data_change_only": Argument("data_change_only", arguments.read_switch, required=True),
        "operations": Argument("operations", read_names, absence=_NOT_AWAITED),
        "partitions": Argument("partitions", arguments.read_mapping, absence=_NOT_AWAITED),
        "min_rows": Argument("min_rows", arguments.read_count),
        "on_cleaned": Argument("on_cleaned", read_policy, required=True),
    }

    def __init__(  # noqa: PLR0913 - each is an option of its own, by keyword
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
        self._wait: TableWait | None = None
        self._trigger: DeltaTableVersionTrigger | None = None
        self.check_known()

    def look(self, context: Context) -> Outcome | None:
        from airflow_delta.triggers.table_wait import refusal
        from delta_log.errors import AccessDenied, StorageError, TableError

        if self._wait is None:
            try:
                there = self._begin(context)
            except (TableError, AccessDenied) as error:
                return refusal(error)
            except StorageError as error:
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
        """Find out where to look; and the outcome, where the table has what is asked for already."""
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
            # Whatever was cleaned, what is there now is of that version or a later one.
            on_cleaned="continue" if self.value_of("version") is not None else self.value_of("on_cleaned"),
        )
        self._wait = self._trigger.wait()
        return None

    def _baseline(self, context: Context, table: Table) -> int:
        """The version after which to look."""
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
