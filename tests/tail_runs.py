"""Writers of tailed tables, and the reckoning: were a DAG's runs told of every version that changed data, and why twice?

Runs are asked for the asset events that they consumed. Commits are made in the log alone, by delta-rs and by ours; no
data file has to exist for a tail. delta-spark writes rows.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.s3 import S3Server

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from live_airflow import LiveAirflow, LiveAirflowError  # noqa: E402

__all__ = [
    "ROOT",
    "DataVersions",
    "LiveAirflow",
    "Reckoning",
    "TailedTable",
    "Writers",
    "reckon",
    "settle",
    "tailed_environment",
    "unpause",
]

_DAYS = ("2024-01-01", "2024-01-02")
_STATS = '{"numRecords":10}'


@dataclass
class TailedTable:
    """One table, and what was committed to it.

    :param conn: an Airflow connection, ``None`` for a local disk.
    """

    name: str
    uri: str
    conn: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    delta_rs_options: Mapping[str, str] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def on_s3(cls, name: str, bucket: str, server: S3Server, conn: str) -> TailedTable:
        return cls(name, f"s3://{bucket}/{name}", conn, server.storage_options, server.delta_rs_options)

    def create(self) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable

        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        DeltaTable.create(
            self.uri, schema, partition_by=["day"], storage_options=dict(self.delta_rs_options) or None
        )

    def append_by_delta_rs(self) -> None:
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction

        table = DeltaTable(self.uri, storage_options=dict(self.delta_rs_options) or None)
        day = random.choice(_DAYS)
        add = AddAction(f"{uuid.uuid4()}.parquet", 100, {"day": day}, 1, True, _STATS)
        table.create_write_transaction([add], "append", table.schema(), partition_by=["day"])
        self._count("delta-rs")

    def commit_by_ours(self, *, data_change: bool = True) -> None:
        """An append, or one file in the place of another."""
        from delta_log import Table
        from delta_log.actions import Add, Remove
        from delta_log.change import Change, FileGroup
        from delta_log.runtime import Runtime
        from delta_log.table_features import Operation
        from delta_log.transaction import Transaction

        table = Table(self.uri, self.storage_options)
        snapshot = table.snapshot()
        day: dict[str, str | None] = {"day": random.choice(_DAYS)}
        add = Add(
            f"{uuid.uuid4()}.parquet", 100, 1, dataChange=data_change, partitionValues=day, stats=_STATS
        )
        removes: list[Remove] = []
        if not data_change:
            old = next(
                (f for f in snapshot.files(["path", "partition_values"]).to_pylist() if f["path"]), None
            )
            if old is None:
                return
            values = dict(old["partition_values"])
            add.partitionValues = values
            removes.append(Remove(old["path"], 1, dataChange=False, partitionValues=values))
        change = Change("WRITE" if data_change else "OPTIMIZE", [FileGroup([add], removes)])
        Transaction(table.storage, snapshot, Operation.OPTIMIZE, Runtime()).commit(change)
        self._count("ours" if data_change else "ours, maintenance")

    def append_by_spark(self, session: SparkSession) -> None:
        rows = session.range(10).coalesce(1).selectExpr("id", f"'{random.choice(_DAYS)}' AS day")
        rows.write.format("delta").mode("append").save(self.uri)
        self._count("delta-spark")

    def clean_log(self, keep: int) -> int:
        """A checkpoint, and the commits before it gone but for some; how many are gone."""
        from deltalake import DeltaTable

        from delta_log import Table
        from delta_log.log_path import commit_key
        from delta_log.log_segment import list_log

        table = DeltaTable(self.uri, storage_options=dict(self.delta_rs_options) or None)
        table.create_checkpoint()
        storage = Table(self.uri, self.storage_options).storage
        old = [version for version in list_log(storage).commits if version < table.version() - keep]
        storage.delete([commit_key(version) for version in old])
        return len(old)

    def _count(self, writer: str) -> None:
        self.commits[writer] = self.commits.get(writer, 0) + 1


@dataclass
class Reckoning:
    """What the runs of one DAG were told.

    :param ranges: first and last version of each, in the order of the events.
    :param runs_without_data: runs whose events hold no commit that changed data.
    """

    ranges: list[tuple[int, int]]
    told: set[int]
    runs: int
    events: int
    runs_without_data: int
    marked_repeats: int

    @property
    def repeats(self) -> int:
        return len(self.ranges) - len(set(self.ranges))

    def missing(self, versions: Iterable[int]) -> list[int]:
        return sorted(set(versions) - self.told)

    def overlaps(self) -> list[tuple[int, int]]:
        """Ranges that share versions with another one, and are not the same."""
        distinct = sorted(set(self.ranges))
        return [b for a, b in pairwise(distinct) if b[0] <= a[1]]


def reckon(airflow: LiveAirflow, table: TailedTable) -> Reckoning:
    dag_id = f"tail_{table.name}"
    found = Reckoning([], set(), 0, 0, 0, 0)
    events: dict[int, list[dict[str, Any]]] = {}
    for run in _all_runs(airflow, dag_id):
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run, safe='')}/upstreamAssetEvents"
        of_run = _patiently(airflow, path)["asset_events"]
        told = {event["id"]: event["extra"]["payload"]["found"] for event in of_run}
        events.update(told)
        changes = [
            commit["dataChange"] for ranges in told.values() for one in ranges for commit in one["commits"]
        ]
        found.runs += 1
        found.runs_without_data += not any(changes)
    for payload in (payload for _, ranges in sorted(events.items()) for payload in ranges):
        found.ranges.append((payload["firstVersion"], payload["lastVersion"]))
        found.told.update(commit["version"] for commit in payload["commits"])
        found.marked_repeats += payload["repeated"]
    found.events = len(events)
    return found


def _patiently(airflow: LiveAirflow, path: str) -> Any:
    """Airflow answers 500 about a run that it is just creating."""
    for _ in range(9):
        try:
            return airflow.call("GET", path)
        except LiveAirflowError:
            time.sleep(1)
    return airflow.call("GET", path)


def _all_runs(airflow: LiveAirflow, dag_id: str) -> list[str]:
    runs: list[str] = []
    while True:
        page = _patiently(airflow, f"/api/v2/dags/{dag_id}/dagRuns?limit=100&offset={len(runs)}")
        runs += [run["dag_run_id"] for run in page["dag_runs"]]
        if not page["dag_runs"] or len(runs) >= page["total_entries"]:
            return runs


class DataVersions:
    """Which versions of a table changed data, gathered now and then, since logs are cleaned."""

    def __init__(self, table: TailedTable) -> None:
        from delta_log import Table

        self._table = Table(table.uri, table.storage_options)
        self._next = 0
        self.changing: set[int] = set()

    def gather(self) -> set[int]:
        for commit in self._table.tail(self._next, data_change_only=False, poll_interval_seconds=None):
            self._next = commit.version + 1
            if commit.data_change:
                self.changing.add(commit.version)
        return self.changing


def tailed_environment(tables: Iterable[TailedTable]) -> dict[str, str]:
    """For the DAG file `tail_cases.py`."""
    described = [{"name": table.name, "uri": table.uri, "conn": table.conn} for table in tables]
    return {"TAILED_TABLES": json.dumps(described)}


class Writers:
    """Commit to tables until they are stopped, each table at its own pace; a commit that fails is not made.

    :param seconds_between: of each table.
    :param session: of delta-spark; every tenth commit to a local table is its.
    """

    def __init__(self, tables: Mapping[str, TailedTable], seconds_between: Mapping[str, float]) -> None:
        self._tables, self._pace = tables, seconds_between
        self.session: SparkSession | None = None
        self.failures = 0
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=[table]) for table in tables.values()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _write(self, table: TailedTable) -> None:
        number = 0
        while not self._stopped.wait(self._pace[table.name] * random.uniform(0.5, 1.5)):
            number += 1
            try:
                if self.session is not None and table.conn is None and number % 10 == 0:
                    table.append_by_spark(self.session)
                elif number % 5 == 0:
                    table.commit_by_ours(data_change=False)
                elif number % 2:
                    table.append_by_delta_rs()
                else:
                    table.commit_by_ours()
            except Exception:
                # Lost to another writer, or the store was down; what was committed is seen in the log.
                self.failures += 1


def settle(
    airflow: LiveAirflow,
    tables: Mapping[str, TailedTable],
    versions: Mapping[str, DataVersions],
    seconds: float,
) -> dict[str, Reckoning]:
    """What the runs were told, when all was told or the time is over."""
    deadline = time.monotonic() + seconds
    found: dict[str, Reckoning] = {}
    missing = list(tables)
    while True:
        found |= {name: reckon(airflow, tables[name]) for name in missing}
        missing = [name for name in missing if found[name].missing(versions[name].gather())]
        if not missing or time.monotonic() > deadline:
            return found
        time.sleep(2)


def unpause(airflow: LiveAirflow, table: TailedTable, *, paused: bool = False) -> None:
    airflow.call("PATCH", f"/api/v2/dags/tail_{table.name}", {"is_paused": paused})
