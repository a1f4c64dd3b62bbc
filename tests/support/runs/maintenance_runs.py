"""Running OPTIMIZE and REORG PURGE in this process, and what a test does to a table meanwhile: with the real code."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from delta_log import Table
from delta_log.data.deletion_vector import write_deletion_vectors
from delta_log.data.row_bitmap import RowBitmap
from delta_log.log.actions import Add, DeletionVector, Protocol, Remove
from delta_log.runtime import Runtime
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.engine.choice import EngineChoice
from delta_maintenance.engine.engine import BinResult, Engine
from delta_maintenance.engine.engines import EngineFactory
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.job_context import JobContext
from delta_maintenance.optimize import run as optimize
from delta_maintenance.progress import ProgressReporter, SilentProgress
from delta_maintenance.rewrite.bin import manifests_of
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

#: One key for all runs of the tests, so that each try continues where an earlier try of its run stopped.
RUN_KEY = RunKey("5e" * 32)


def run(  # noqa: PLR0913 - each is an option of its own, by keyword
    table: Path | Table,
    operation: str = "optimize",
    *,
    run_id: str = "run",
    engine: Engine | None = None,
    transaction: TransactionId | None = None,
    dry_run: bool = False,
    runtime: Runtime | None = None,
    progress: ProgressReporter | None = None,
    run_key: RunKey = RUN_KEY,
    **options: Any,
) -> JobReport:
    """One run on the local engine, or the one given."""
    opened = table if isinstance(table, Table) else Table(str(table))
    spec = JobSpec(
        operation,
        opened.uri,
        run_id,
        options,
        engine="local",
        transaction=transaction,
        dry_run=dry_run,
    )
    return run_spec(spec, opened, engine, progress=progress, runtime=runtime, run_key=run_key)


@dataclass(frozen=True)
class GivenEngine(EngineFactory):
    """Chooses the engine of a test."""

    engine: Engine = field(default_factory=lambda: LocalEngine({}))

    def choose(self, planned_bytes: int) -> EngineChoice:
        return EngineChoice("local", "for the test")

    def make(self, name: str) -> Engine:
        return self.engine


def run_spec(
    spec: JobSpec,
    table: Table,
    engine: Engine | None = None,
    *,
    progress: ProgressReporter | None = None,
    runtime: Runtime | None = None,
    run_key: RunKey = RUN_KEY,
) -> JobReport:
    """Run an ``optimize`` or a ``purge`` on the local engine, or the one given; its errors are raised."""
    runtime = runtime or Runtime()
    context = JobContext(
        table,
        progress or SilentProgress(),
        runtime,
        GivenEngine(spec, engine=engine or LocalEngine({})),
        run_key,
        runtime.now_ms(),
    )
    return optimize.run(spec, context)


def manifests(table: Path, run_id: str = "run") -> list[BinManifest]:
    """Those that a run has left, by the proof of :data:`RUN_KEY`."""
    return manifests_of(Table(str(table)).storage, RUN_KEY, run_id)[0]


class WatchedEngine:
    """The local engine with one bin after the other; notes which it is given, and lets the test do something after each.

    :param after: gets the number of bins that are finished.
    """

    name = "local"

    def __init__(self, after: Callable[[int], object] | None = None) -> None:
        self.given: list[str] = []
        self._after = after

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        self.given += [task.bin_id for task in tasks]
        number = 0
        for task in tasks:
            for result in LocalEngine({}).run([task], progress, run_key):
                yield result
                number += 1
                if self._after is not None:
                    self._after(number)


def enable_deletion_vectors(table: Path) -> None:
    """As ``ALTER TABLE`` does it; delta-rs would list features that the table does not use."""
    opened = Table(str(table))
    snapshot = opened.snapshot()
    properties = {**snapshot.properties, "delta.enableDeletionVectors": "true"}
    features = ["deletionVectors"]
    change = Change(
        "SET TBLPROPERTIES",
        protocol=Protocol(3, 7, features, [*features, "appendOnly", "invariants"]),
        metadata=msgspec.structs.replace(snapshot.metadata, configuration=properties),
    )
    Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change)


def removal_of(row: Mapping[str, Any]) -> Remove:
    """Another writer's removal of a live file.

    :param row: of ``Snapshot.files()``.
    """
    vector = row["deletion_vector"]
    return Remove(
        path=row["path"],
        deletionTimestamp=1,
        dataChange=True,
        extendedFileMetadata=True,
        partitionValues=dict(row["partition_values"]),
        size=row["size"],
        deletionVector=None if vector is None else DeletionVector(**vector),
    )


def mark_deleted(table: Path, positions: Mapping[str, Iterable[int]]) -> int:
    """Rows of files, by key and position, get deletion vectors in one commit; gives its version.

    A file without statistics gets a vector all the same.
    """
    opened = Table(str(table))
    snapshot = opened.snapshot()
    groups = []
    for row in snapshot.files().to_pylist():
        if row["key"] not in positions:
            continue
        bitmap = RowBitmap(sorted(positions[row["key"]]))
        (descriptor,) = write_deletion_vectors(opened.storage, [bitmap], uuid.uuid4())
        added = Add(
            path=row["path"],
            partitionValues=dict(row["partition_values"]),
            size=row["size"],
            modificationTime=row["modification_time"],
            dataChange=True,
            stats=_loose(row["stats"]),
            tags=dict(row["tags"]) if row["tags"] else None,
            deletionVector=descriptor,
            clusteringProvider=row["clustering_provider"],
        )
        groups.append(FileGroup([added], [removal_of(row)]))
    assert len(groups) == len(positions)
    change = Change("DELETE", groups)
    return Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change).version


def remove_files(table: Path, prefix: str) -> int:
    """As an overwriting writer does it: the files whose keys begin so leave the table in one commit; gives its version."""
    opened = Table(str(table))
    snapshot = opened.snapshot()
    files = snapshot.files().to_pylist()
    removed = [removal_of(row) for row in files if row["key"].startswith(prefix)]
    change = Change("DELETE", [FileGroup([], removed)])
    return Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change).version


def _loose(stats: str | None) -> str | None:
    return None if stats is None else json.dumps({**json.loads(stats), "tightBounds": False})


def drop_column(table: Path, name: str) -> int:
    """As ``ALTER TABLE … DROP COLUMN`` does it: the schema forgets a column, the files do not; gives the version."""
    opened = Table(str(table))
    snapshot = opened.snapshot()
    schema = json.loads(snapshot.metadata.schemaString)
    schema["fields"] = [field for field in schema["fields"] if field["name"] != name]
    metadata = msgspec.structs.replace(snapshot.metadata, schemaString=json.dumps(schema))
    change = Change("DROP COLUMNS", metadata=metadata)
    return Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change).version


def keys(table: Path) -> list[str]:
    """Returns the keys of the live files, sorted."""
    found: list[str] = Table(str(table)).snapshot().files(["key"]).column("key").to_pylist()
    return sorted(found)
