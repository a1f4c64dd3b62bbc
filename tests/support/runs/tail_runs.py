"""Tables that event-driven DAGs follow, their writers, and which version ranges the DAG's runs were told.

The ranges come from the asset events that each run consumed. The writers, delta-rs and this provider, commit to the log
alone: a follower of the log reads no data file.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.support import ROOT

if TYPE_CHECKING:
    from tests.support.servers.s3 import S3Server

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from live_airflow import LiveAirflow, LiveAirflowError

__all__ = [
    "DataVersions",
    "LiveAirflow",
    "RunReader",
    "TailedTable",
    "ToldRanges",
    "Writers",
    "patiently",
    "place_of",
    "settle",
    "tailed_environment",
    "unpause",
]

_DAYS = ("2024-01-01", "2024-01-02")
_STATS = '{"numRecords":10}'


@dataclass
class TailedTable:
    """A table that a DAG follows.

    :param conn: the Airflow connection; ``None`` for a local disk.
    :param commits: number of commits by writer.
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
        """Appends a file or, without a data change, replaces one."""
        from delta_log import Table
        from delta_log.log.actions import Add, Remove
        from delta_log.runtime import Runtime
        from delta_log.table_config.features import Operation
        from delta_log.transaction.commit_body import Change, FileGroup
        from delta_log.transaction.transaction import Transaction

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

    def clean_log(self, keep: int) -> int:
        """Writes a checkpoint and deletes all but ``keep`` commits before it; returns how many were deleted."""
        from deltalake import DeltaTable

        from delta_log import Table
        from delta_log.log.file_names import commit_key
        from delta_log.log.log_segment import list_log

        table = DeltaTable(self.uri, storage_options=dict(self.delta_rs_options) or None)
        table.create_checkpoint()
        storage = Table(self.uri, self.storage_options).storage
        old = [version for version in list_log(storage).commits if version < table.version() - keep]
        storage.delete([commit_key(version) for version in old])
        return len(old)

    def _count(self, writer: str) -> None:
        self.commits[writer] = self.commits.get(writer, 0) + 1


@dataclass(frozen=True)
class ToldRange:
    """A range of versions that one asset event told a run.

    :param versions: those with a commit in the event.
    :param at: when Airflow stored the event.
    """

    first: int
    last: int
    versions: frozenset[int]
    with_data: bool
    cleaned: tuple[int, int] | None
    repeated: bool
    at: datetime

    @property
    def bounds(self) -> tuple[int, int]:
        return self.first, self.last

    @classmethod
    def of(cls, found: Mapping[str, Any], at: str) -> ToldRange:
        return cls(
            found["firstVersion"],
            found["lastVersion"],
            frozenset(commit["version"] for commit in found["commits"]),
            any(commit["dataChange"] for commit in found["commits"]),
            tuple(found["cleaned"]) if found["cleaned"] else None,
            found["repeated"],
            datetime.fromisoformat(at.replace("Z", "+00:00")),
        )


@dataclass
class ToldRanges:
    """All ranges that the runs of one DAG were told.

    :param ranges: in the order of the events.
    :param events: number of asset events.
    :param runs_without_data: number of runs whose events held neither a data change nor deleted commits.
    """

    ranges: list[ToldRange]
    runs: int
    events: int
    runs_without_data: int

    @property
    def cleaned(self) -> list[tuple[int, int]]:
        """First and last version of each range that an event reported as deleted from the log."""
        return sorted({one.cleaned for one in self.ranges if one.cleaned is not None})

    def missing(self, versions: Iterable[int]) -> list[int]:
        """Returns those of ``versions`` that no event mentioned."""
        known = {version for one in self.ranges for version in one.versions}
        gone = {version for first, last in self.cleaned for version in range(first, last + 1)}
        return sorted(set(versions) - known - gone)

    def breaks(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Returns pairs of neighbouring ranges with a gap or an overlap between them."""
        distinct = sorted({one.bounds for one in self.ranges})
        return [(a, b) for a, b in pairwise(distinct) if b[0] != a[1] + 1]

    def out_of_order(self) -> list[tuple[int, int]]:
        """Returns ranges whose first event came after that of a later range."""
        firsts = list(dict.fromkeys(one.bounds for one in self.ranges))
        return [b for a, b in pairwise(firsts) if b < a]

    def repeats(self) -> list[tuple[ToldRange, ToldRange]]:
        """Returns each range that was told again, as (earlier, repeated)."""
        earlier: dict[tuple[int, int], ToldRange] = {}
        found = []
        for one in self.ranges:
            if one.bounds in earlier:
                found.append((earlier[one.bounds], one))
            earlier[one.bounds] = one
        return found

    def unexplained_repeats(self, interruptions: Sequence[datetime]) -> list[tuple[int, int]]:
        """Returns repeated ranges that are not marked as such, or that no interruption in between explains."""
        return [
            again.bounds
            for before, again in self.repeats()
            if not again.repeated or not any(before.at <= moment <= again.at for moment in interruptions)
        ]


class RunReader:
    """Reads the events of one DAG's runs from Airflow. A run whose events had data is not read again."""

    def __init__(self, airflow: LiveAirflow, table: TailedTable) -> None:
        self._airflow, self._dag_id = airflow, f"tail_{table.name}"
        self._events: dict[int, list[ToldRange]] = {}
        self._has_data: dict[str, bool] = {}

    def read(self) -> ToldRanges:
        for run in self._all_runs():
            if self._has_data.get(run):
                continue
            path = f"/api/v2/dags/{self._dag_id}/dagRuns/{quote(run, safe='')}/upstreamAssetEvents"
            of_run = {
                event["id"]: [
                    ToldRange.of(one, event["timestamp"]) for one in event["extra"]["payload"]["found"]
                ]
                for event in patiently(self._airflow, "GET", path)["asset_events"]
            }
            self._events.update(of_run)
            told = [one for ranges in of_run.values() for one in ranges]
            self._has_data[run] = any(one.with_data or one.cleaned is not None for one in told)
        told = [one for _, ranges in sorted(self._events.items()) for one in ranges]
        without_data = sum(not has_data for has_data in self._has_data.values())
        return ToldRanges(told, len(self._has_data), len(self._events), without_data)

    def _all_runs(self) -> list[str]:
        runs: list[str] = []
        while True:
            path = f"/api/v2/dags/{self._dag_id}/dagRuns?limit=100&offset={len(runs)}&order_by=id"
            page = patiently(self._airflow, "GET", path)
            runs += [run["dag_run_id"] for run in page["dag_runs"]]
            if not page["dag_runs"] or len(runs) >= page["total_entries"]:
                return runs


def place_of(airflow: LiveAirflow, table: TailedTable) -> int:
    """Returns the version up to which Airflow has stored the watcher's progress, -1 if it has stored none."""
    (asset,) = patiently(airflow, "GET", f"/api/v2/assets?name_pattern={quote(_asset_name(table))}")["assets"]
    stored = patiently(airflow, "GET", f"/api/v2/assets/{asset['id']}/state-store?limit=100")
    values = [entry["value"] for entry in stored["asset_state_store"]]
    places = [value[table.uri] for value in values if isinstance(value, dict) and table.uri in value]
    return int(places[0][1]) if places else -1


def _asset_name(table: TailedTable) -> str:
    """Returns the asset's name in the DAG file `tail_cases.py`."""
    return f"tailed {table.name}"


def patiently(airflow: LiveAirflow, method: str, path: str, body: Any = None) -> Any:
    """Repeats a read-only or idempotent request: Airflow answers 500 about a run that it is just creating."""
    for _ in range(9):
        try:
            return airflow.call(method, path, body)
        except LiveAirflowError:
            time.sleep(1)
    return airflow.call(method, path, body)


class DataVersions:
    """Collects the versions that changed data from the commits themselves, before a cleanup deletes those."""

    def __init__(self, table: TailedTable) -> None:
        from delta_log import Table

        self._table = table
        self._storage = Table(table.uri, table.storage_options).storage
        self._lock = threading.Lock()
        self.latest = -1
        self.changing: set[int] = set()

    def gather(self) -> set[int]:
        from delta_log.log.file_names import commit_key

        with self._lock:
            while True:
                try:
                    body = self._storage.read(commit_key(self.latest + 1))
                except FileNotFoundError:
                    return self.changing
                self.latest += 1
                actions = [json.loads(line) for line in body.splitlines() if line.strip()]
                files = [a[kind] for a in actions for kind in ("add", "remove") if a.get(kind)]
                if any(file["dataChange"] for file in files):
                    self.changing.add(self.latest)


def tailed_environment(tables: Iterable[TailedTable]) -> dict[str, str]:
    """Returns the environment variables that the DAG file `tail_cases.py` reads."""
    described = [{"name": table.name, "uri": table.uri, "conn": table.conn} for table in tables]
    return {"TAILED_TABLES": json.dumps(described)}


class Writers:
    """Threads that commit to one table each until they are stopped.

    :param seconds_between: mean pause between two commits, by table.
    """

    def __init__(self, tables: Mapping[str, TailedTable], seconds_between: Mapping[str, float]) -> None:
        self._pace = seconds_between
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
            if number % 5 == 0:
                table.commit_by_ours(data_change=False)
            elif number % 2:
                table.append_by_delta_rs()
            else:
                table.commit_by_ours()


def settle(
    readers: Mapping[str, RunReader], versions: Mapping[str, DataVersions], seconds: float
) -> dict[str, ToldRanges]:
    """Waits until the runs were told every version that changed data, or the time is over; returns the ranges."""
    deadline = time.monotonic() + seconds
    found: dict[str, ToldRanges] = {}
    missing = list(readers)
    while True:
        found |= {name: readers[name].read() for name in missing}
        missing = [name for name in missing if found[name].missing(versions[name].gather())]
        if not missing or time.monotonic() > deadline:
            return found
        time.sleep(2)


def unpause(airflow: LiveAirflow, table: TailedTable, *, paused: bool = False) -> None:
    patiently(airflow, "PATCH", f"/api/v2/dags/tail_{table.name}", {"is_paused": paused})
