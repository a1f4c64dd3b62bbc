"""The writers that the explorer runs, with the real transaction code, and the table that they write to.

Each actor states in :data:`EFFECTS` what its commit does to the rows of the table. The model knows nothing else about it.
Rows are names; the rows of a new file are named after its actor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import ConcurrentDelete
from delta_log.log.actions import Add, DeletionVector, DomainMetadata, Metadata, Protocol, Remove
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.managed.commit_catalog import CatalogState, RatifiedCommit
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import Transaction, find_transaction
from delta_maintenance.optimize.commit.batches import Batches, CommitDetails
from delta_maintenance.optimize.commit.compaction_tags import compaction_tags
from delta_maintenance.optimize.commit.gap_wait import GapWait
from delta_maintenance.optimize.commit.orphans import remove_orphans
from delta_maintenance.optimize.commit.remapping import Remapping
from delta_maintenance.optimize.commit.resume import EarlierTries, find_earlier_tries
from delta_maintenance.optimize.plan.bin_id import bin_id_of
from delta_maintenance.optimize.plan.plan import source_of
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.bin import forget, publish, read_manifest
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.manifest.row_map import NewPlaces, RowMapWriter, new_places
from delta_maintenance.rewrite.task import REWRITE_TAG, BinManifest, OutputFile, SourceFile
from delta_maintenance.vacuum.candidates import find_candidates
from delta_maintenance.vacuum.execution import execute_plan
from delta_maintenance.vacuum.options import VacuumOptions
from tests.support.explorer.history import Effect, Violation, hidden_rows
from tests.support.explorer.world import CATALOG, FIRST_MS, NOW_MS, STAGED, Actor, ActorStorage, Context

DAY_MS = 86_400_000
#: The only gate for writers that lets tables with row tracking pass.
GATE = Operation.CHECKPOINT
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
)
WIDER_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("x", "y")],
    }
)
#: Two looks at the log.
_LONGEST_WAIT_MS = 100
#: The run, and its key, of all tries of the actor that commits in batches.
_RUN, _RUN_KEY = "run", RunKey("5e" * 32)
FEATURES = ["deletionVectors", "domainMetadata", "inCommitTimestamp", "rowTracking"]
#: The row that an actor deletes which follows it: the last one of the first bin, so that rows before it may be hidden.
REBASED_ROW = "b2"
#: The rows of each file of the table, by path.
FILES = {"a": ["a1", "a2"], "b": ["b1", "b2"], "c": ["c1", "c2"]}


def table(properties: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """Three versions: three files; the removal long ago of a fourth, which still lies there; and one file more.

    Besides there is a file that no version names.
    """
    configuration = {"delta.enableInCommitTimestamps": "true", "delta.enableDeletionVectors": "true",
                     "delta.enableRowTracking": "true"}  # fmt: skip
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": FEATURES,
    }
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {**configuration, **(properties or {})},
    }
    adds = [
        _first_add(path, rows, base)
        for base, (path, rows) in enumerate({**FILES, "old": ["o1", "o2"]}.items())
    ]
    removed = {"path": "old", "size": 2, "deletionTimestamp": 1, "dataChange": True, "baseRowId": 6,
               "defaultRowCommitVersion": 0}  # fmt: skip
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark": 9}', "removed": False}
    first: list[dict[str, Any]] = [
        {"commitInfo": {"inCommitTimestamp": NOW_MS - DAY_MS, "operation": "WRITE"}},
        {"protocol": protocol},
        {"metaData": metadata},
        {"domainMetadata": mark},
        {"domainMetadata": {"domain": "clustering", "configuration": '["x"]', "removed": False}},
        *({"add": add} for add in adds),
    ]
    second = [
        {"commitInfo": {"inCommitTimestamp": NOW_MS - DAY_MS + 1, "operation": "DELETE"}},
        {"remove": removed},
    ]
    third = [
        {"commitInfo": {"inCommitTimestamp": NOW_MS - DAY_MS + 2, "operation": "WRITE"}},
        {"add": {**_first_add("d", ["d1", "d2"], 4), "defaultRowCommitVersion": 2}},
    ]
    objects = {
        f"_delta_log/{version:020d}.json": "".join(json.dumps(action) + "\n" for action in commit).encode()
        for version, commit in enumerate((first, second, third))
    }
    objects |= {path: json.dumps(rows).encode() for path, rows in FILES.items()}
    return objects | {"d": b'["d1", "d2"]', "old": b'["o1", "o2"]', "orphan": b"[]"}


def managed_table() -> dict[str, bytes]:
    """The same table in a catalog, which holds version 2 and was not told that it is published; and the staged file of a dead writer."""
    objects = table()
    first = objects[commit_key(0)].replace(b'"deletionVectors"', b'"catalogManaged", "deletionVectors"')
    held = RatifiedCommit(
        2, f"{2:020d}.held.json", len(objects[commit_key(2)]), FIRST_MS, NOW_MS - DAY_MS + 2
    )
    dead = [
        {"commitInfo": {"inCommitTimestamp": NOW_MS - DAY_MS + 3, "operation": "WRITE"}},
        {"add": {**_first_add("e", ["e1", "e2"], 5), "defaultRowCommitVersion": 3}},
    ]
    objects |= {
        commit_key(0): first,
        STAGED + held.file_name: objects.pop(commit_key(2)),
        f"{STAGED}{3:020d}.dead.json": "".join(json.dumps(action) + "\n" for action in dead).encode(),
        "e": b'["e1", "e2"]',
    }
    return objects | {CATALOG: msgspec.json.encode(CatalogState(2, (held,)))}


def _first_add(path: str, rows: list[str], number: int) -> dict[str, Any]:
    return {
        "path": path,
        "size": len(rows),
        "partitionValues": {},
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": len(rows)}),
        "baseRowId": 2 * number,
        "defaultRowCommitVersion": 0,
    }


# -- what the actors are made of ---------------------------------------------------------------------------------


def open_table(context: Context) -> Snapshot:
    return Snapshot(context.storage, find_log_segment(context.storage))


def commit(context: Context, snapshot: Snapshot, change: Change) -> int | None:
    """Commits and returns the version; ``None``: an earlier try had committed."""
    result = Transaction(context.storage, snapshot, GATE, context.runtime).commit(change)
    return None if result.already_done else result.version


def live_files(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    rows = snapshot.files().to_pylist()
    return {row["path"]: row for row in sorted(rows, key=lambda row: row["path"])}


def rows_of(context: Context, file: Mapping[str, Any]) -> dict[str, int | None]:
    """The rows of a file, with their stable ids.

    A data file never changes, so that reading it is not worth a place in the schedule.
    """
    vector = file["deletion_vector"]
    hidden = hidden_rows({"deletionVector": vector}) if vector else frozenset()
    given = json.loads(dict(file["tags"] or {}).get("ids", "{}"))
    return {
        row: given.get(row, file["base_row_id"] + position)
        for position, row in enumerate(json.loads(context.contents[file["path"]]))
        if row not in hidden
    }


def write_file(
    context: Context,
    snapshot: Snapshot,
    rows: Mapping[str, int | None],
    *,
    changes_rows: bool,
    tags: Mapping[str, str] | None = None,
) -> Add:
    """
    :param rows: with the stable ids of those that have one.
    """
    path = f"{context.runtime.new_id()}.file"
    with context.storage.open_write(path) as sink:
        sink.write(json.dumps(list(rows)).encode())
    known = {row: row_id for row, row_id in rows.items() if row_id is not None}
    return Add(
        path=path,
        size=len(rows),
        modificationTime=NOW_MS,
        dataChange=changes_rows,
        partitionValues={},
        stats=json.dumps({"numRecords": len(rows)}),
        tags={"schema": snapshot.metadata.schemaString, "ids": json.dumps(known), **(tags or {})},
    )


def removal(file: Mapping[str, Any], *, changes_rows: bool) -> Remove:
    vector = file["deletion_vector"]
    return Remove(
        path=file["path"],
        deletionTimestamp=NOW_MS,
        dataChange=changes_rows,
        extendedFileMetadata=True,
        partitionValues={},
        size=file["size"],
        deletionVector=DeletionVector(**vector) if vector else None,
        baseRowId=file["base_row_id"],
        defaultRowCommitVersion=file["default_row_commit_version"],
    )


def tagged(context: Context, operation: str, groups: list[FileGroup], **more: Any) -> Change:
    return Change(operation, groups, tags={"actor": context.name}, **more)


# -- the actors --------------------------------------------------------------------------------------------------


def compaction(context: Context) -> int | None:
    """Two bins: what began as a and b, and everything else. Done at most once, as a scheduled run is."""
    snapshot = open_table(context)
    identity = ("compaction", 1)
    if find_transaction(snapshot, context.storage, *identity) is not None:
        return None
    bins: list[list[dict[str, Any]]] = [[], []]
    for path, file in live_files(snapshot).items():
        bins[path not in ("a", "b")].append(file)
    groups = [_merged(context, snapshot, files) for files in bins if files]
    return commit(context, snapshot, tagged(context, "OPTIMIZE", groups, transaction=identity))


def _merged(
    context: Context, snapshot: Snapshot, files: list[dict[str, Any]], tags: Mapping[str, str] | None = None
) -> FileGroup:
    rows = {row: row_id for file in files for row, row_id in rows_of(context, file).items()}
    return FileGroup(
        [write_file(context, snapshot, rows, changes_rows=False, tags=tags)] if rows else [],
        [removal(file, changes_rows=False) for file in files],
    )


def remapping(context: Context) -> int | None:
    """A compaction of two bins that takes over what others delete of their files meanwhile."""
    snapshot = open_table(context)
    bins: list[list[dict[str, Any]]] = [[], []]
    for path, file in live_files(snapshot).items():
        bins[path not in ("a", "b")].append(file)
    groups = [_merged(context, snapshot, files) for files in bins if files]
    manifests = [
        _manifest(context, files, group) for files, group in zip(filter(None, bins), groups, strict=True)
    ]
    groups = [_telling(group, manifest) for group, manifest in zip(groups, manifests, strict=True)]
    remap = _remap(context, groups, manifests)
    return commit(context, snapshot, tagged(context, "OPTIMIZE", groups, remap=remap))


def _telling(group: FileGroup, manifest: BinManifest) -> FileGroup:
    """Let the removes of a compaction say where the rows went, as a run does."""
    tags = compaction_tags(manifest)
    removes = [replace(remove, tags=said or None) for remove, said in zip(group.removes, tags, strict=True)]
    return replace(group, removes=removes)


def layout(context: Context) -> int | None:
    """Moves the rows of all files into two new ones, leaves a row map, and takes over what others delete meanwhile."""
    snapshot = open_table(context)
    files = list(live_files(snapshot).values())
    rows = [row for file in files for row in rows_of(context, file).items()]
    numbers = [*range(1, len(rows), 2), *range(0, len(rows), 2)]
    half = len(rows) // 2
    adds = [
        write_file(context, snapshot, dict(rows[n] for n in part), changes_rows=False)
        for part in (numbers[:half], numbers[half:])
        if part
    ]
    group = FileGroup(adds, [removal(file, changes_rows=False) for file in files])
    manifest = _manifest(context, files, group)
    outputs = tuple(
        replace(output, num_records=add.size) for output, add in zip(manifest.outputs, adds, strict=True)
    )
    source_rows, token = manifest.source_rows, context.runtime.new_id()
    with RowMapWriter(context.storage, context.name, manifest.bin_id, token, source_rows) as row_map:
        row_map.add(np.array(numbers, np.uint64))
        manifest = replace(manifest, outputs=outputs, source_rows=(), row_map=row_map.finish())
    remap = _remap(context, [group], [manifest])
    return commit(context, snapshot, tagged(context, "OPTIMIZE", [group], remap=remap))


def _remap(context: Context, groups: list[FileGroup], manifests: list[BinManifest]) -> Remapping:
    def read(vector: DeletionVector, key: str) -> RowBitmap:
        hidden = vector.pathOrInlineDv.split("+")
        return RowBitmap([at for at, row in enumerate(json.loads(context.contents[key])) if row in hidden])

    def write(wanted: Sequence[tuple[OutputFile, RowBitmap]]) -> list[DeletionVector]:
        names = [[json.loads(context.contents[output.key])[at] for at in rows] for output, rows in wanted]
        return [DeletionVector("i", "+".join(sorted(hidden)), 4, len(hidden)) for hidden in names]

    def places(manifest: BinManifest) -> NewPlaces:
        return partial(new_places, manifest, context.storage)

    return Remapping(context.storage.uri, groups, manifests, read, write, places)


def waiting(context: Context) -> int | None:
    """A compaction that waits for a gap between statements of others, looking at the log a few times, and then commits."""
    snapshot, storage = open_table(context), context.storage
    bins: list[list[dict[str, Any]]] = [[], []]
    for path, file in live_files(snapshot).items():
        bins[path not in ("a", "b")].append(file)
    # Soon after the table's last DELETE, so that there is somebody to wait for.
    now_ms = NOW_MS - DAY_MS + 3

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        now_ms += max(1, round(1000 * seconds))

    runtime = replace(context.runtime, now_ms=lambda: now_ms, sleep=sleep)
    transaction = Transaction(storage, snapshot, GATE, runtime)
    gap = GapWait(transaction, storage, snapshot, _LONGEST_WAIT_MS, "commit", SilentProgress(), runtime)
    details = CommitDetails("OPTIMIZE", {}, context.name, {"actor": context.name}, None)
    run = Batches.after(EarlierTries(), transaction, details, None, SilentProgress(), runtime, None, gap)
    for number, files in enumerate(filter(None, bins)):
        group = _merged(context, snapshot, files)
        manifest = _as_written(context, _manifest(context, files, group), group)
        sources = tuple(source_of(file, -1) for file in files)
        run.add(replace(manifest, bin_id=f"bin {number}", sources=sources), more_to_come=not number)
    run.finish({})
    return run.version


def _manifest(context: Context, files: list[dict[str, Any]], group: FileGroup) -> BinManifest:
    """What the rewrite of a bin would have left."""
    rows = [len(json.loads(context.contents[file["path"]])) for file in files]
    live = sum(len(rows_of(context, file)) for file in files)
    sources = tuple(
        SourceFile(file["path"], file["path"], file["size"], deletion_vector=file["deletion_vector"])
        for file in files
    )
    outputs = tuple(OutputFile(add.path, add.path, add.size, NOW_MS, live) for add in group.adds)
    return BinManifest(
        "bin",
        context.name,
        {},
        sources,
        outputs,
        sum(rows),
        sum(rows) - live,
        live,
        1,
        source_rows=tuple(rows),
    )


def batches(context: Context) -> int | None:
    """Rewrites two bins and commits them one by one; a repeated try continues where the earlier one stopped."""
    snapshot, storage = open_table(context), context.storage
    identity = ("batches", 1)
    if find_transaction(snapshot, storage, *identity) is not None:
        return None
    earlier = find_earlier_tries(
        storage,
        _RUN,
        _RUN_KEY,
        snapshot,
        snapshot.metadata.schemaString,
        count_rows=_counts(context),
    )
    known = frozenset(earlier.prior_work().keys)
    bins: list[list[dict[str, Any]]] = [[], []]
    for path, file in live_files(snapshot).items():
        if path not in known:
            bins[path not in ("a", "b")].append(file)
    details = CommitDetails("OPTIMIZE", {}, _RUN, {"actor": context.name}, identity)
    transaction = Transaction(storage, snapshot, GATE, context.runtime)
    run = Batches.after(earlier, transaction, details, 1, SilentProgress(), context.runtime)
    manifests = [_rewritten(context, snapshot, files) for files in bins if files]
    for number, manifest in enumerate(manifests, 1):
        run.add(manifest, more_to_come=number < len(manifests))
    run.finish({})
    forget([*earlier.manifests, *manifests], storage)
    lost = [*earlier.stale, *(manifest for manifest, _ in run.dropped)]
    if lost:
        remove_orphans(lost, open_table(context), storage)
    return None if run.already_done or run.version == earlier.version else run.version


def _rewritten(context: Context, snapshot: Snapshot, files: list[dict[str, Any]]) -> BinManifest:
    """What the rewrite of a bin leaves: files of their true size, and the manifest of whichever try was first."""
    schema = snapshot.metadata.schemaString
    sources = tuple(source_of(file, -1) for file in files)
    bin_id = bin_id_of(schema, sources)
    finished = read_manifest(context.storage, _RUN_KEY, _RUN, bin_id, _counts(context))
    if finished is not None and finished.sources == sources:
        return finished
    group = _merged(context, snapshot, files, {REWRITE_TAG: schema})
    made = _as_written(context, _manifest(context, files, group), group)
    return publish(
        replace(made, bin_id=bin_id, run_id=_RUN, rewrite_tag=schema, sources=sources),
        context.storage,
        _RUN_KEY,
        _counts(context),
    )


def _as_written(context: Context, manifest: BinManifest, group: FileGroup) -> BinManifest:
    """A manifest with the size, the statistics and the tags of each new file."""
    outputs = tuple(
        replace(
            output, size_bytes=len(context.contents[output.key]), stats=add.stats or "", tags=add.tags or {}
        )
        for output, add in zip(manifest.outputs, group.adds, strict=True)
    )
    return replace(manifest, outputs=outputs)


def _counts(context: Context) -> Callable[[Storage, str], int]:
    """The files of the explorer are lists of their rows, not Parquet."""
    return lambda storage, key: len(json.loads(context.contents[key]))


def cluster(context: Context) -> int | None:
    """Divides the rows of all files between two new ones, by the clustering columns that it found."""
    snapshot = open_table(context)
    files = list(live_files(snapshot).values())
    rows = sorted((row, row_id) for file in files for row, row_id in rows_of(context, file).items())
    tags = {"clustered": snapshot.domain_metadata["clustering"]}
    adds = [
        write_file(context, snapshot, dict(part), changes_rows=False, tags=tags)
        for part in (rows[::2], rows[1::2])
        if part
    ]
    group = FileGroup(adds, [removal(file, changes_rows=False) for file in files])
    change = tagged(context, "OPTIMIZE", [group], rests_on_domains=frozenset({"clustering"}))
    return commit(context, snapshot, change)


def recluster(context: Context) -> int | None:
    """Changes the clustering columns."""
    domain = DomainMetadata("clustering", '["y"]')
    return commit(context, open_table(context), tagged(context, "CLUSTER BY", [], domains=[domain]))


def backfill(context: Context) -> int | None:
    """Gives a file new row ids and changes nothing else about it."""
    snapshot = open_table(context)
    file = live_files(snapshot).get("b")
    if file is None:
        return None
    again = _restored(file)
    again.dataChange, again.baseRowId, again.defaultRowCommitVersion = False, None, None
    return commit(context, snapshot, tagged(context, "ROW TRACKING BACKFILL", [FileGroup([again])]))


def append(context: Context) -> int | None:
    snapshot = open_table(context)
    add = write_file(context, snapshot, {f"{context.name}-row": None}, changes_rows=True)
    return commit(context, snapshot, tagged(context, "WRITE", [FileGroup([add])]))


def delete(context: Context) -> int | None:
    """Hides the row a1 by a deletion vector."""
    snapshot = open_table(context)
    found = _file_with(context, snapshot, "a1")
    return None if found is None else commit(context, snapshot, _hiding(context, found, "a1"))


def _hiding(context: Context, found: Mapping[str, Any], row: str) -> Change:
    """Return the change that hides a row of a file."""
    hidden = hidden_rows({"deletionVector": found["deletion_vector"]} if found["deletion_vector"] else {})
    vector = DeletionVector("i", "+".join(sorted({*hidden, row})), 4, len(hidden) + 1)
    again = Add(
        path=found["path"],
        size=found["size"],
        modificationTime=found["modification_time"],
        dataChange=True,
        partitionValues={},
        stats=found["stats"],
        tags=dict(found["tags"] or {}) or None,
        deletionVector=vector,
        baseRowId=found["base_row_id"],
        defaultRowCommitVersion=found["default_row_commit_version"],
    )
    return tagged(context, "DELETE", [FileGroup([again], [removal(found, changes_rows=True)])])


def rebasing(context: Context) -> int | None:
    """Hides the row b2 by a deletion vector. If it loses, it follows the row by what the log says, and tries again."""
    snapshot = open_table(context)
    found = _file_with(context, snapshot, REBASED_ROW)
    if found is None:
        return None
    place = Place(found["path"], json.loads(context.contents[found["path"]]).index(REBASED_ROW))
    while True:
        file = live_files(snapshot)[place.path]
        row = json.loads(context.contents[place.path])[place.position]
        try:
            return commit(context, snapshot, _hiding(context, file, row))
        except ConcurrentDelete:
            latest = open_table(context)
            for version in range(snapshot.version + 1, latest.version + 1):
                place = place.after(json_lines(context.storage.read(commit_key(version))), context.contents)
            snapshot = latest


class Place(NamedTuple):
    """A physical row of a data file, as a writer knows it that reads nothing but the log."""

    path: str
    position: int

    def after(self, commit: list[dict[str, Any]], contents: Mapping[str, bytes]) -> Place:
        """Return the place of the row after a commit.

        :param contents: data files; the names of rows in them are the model's spelling of deletion vectors.
        :raises ConcurrentDelete: the row is gone, or the commit does not say where it went.
        """
        removes = [a["remove"] for a in commit if "remove" in a and a["remove"]["path"] == self.path]
        adds = [a["add"] for a in commit if "add" in a and a["add"]["path"] == self.path]
        if adds and not self._is_hidden(adds[0], contents):
            return self
        if not removes and not adds:
            return self
        tags = removes[0].get("tags") or {} if removes else {}
        if adds or "compactedInto" not in tags or self._is_hidden(removes[0], contents):
            raise ConcurrentDelete(f"{self} is gone")
        (path,), (info,) = json.loads(tags["compactedInto"]), json.loads(tags["compactionInfo"])
        before = sum(Place(self.path, at)._is_hidden(removes[0], contents) for at in range(self.position))
        return Place(path, info["rowOffsetInTarget"] + self.position - before)

    def _is_hidden(self, file: Mapping[str, Any], contents: Mapping[str, bytes]) -> bool:
        return json.loads(contents[self.path])[self.position] in hidden_rows(file)


def json_lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def update(context: Context) -> int | None:
    """Writes the file that holds a2 anew, with a2x in its place."""
    snapshot = open_table(context)
    found = _file_with(context, snapshot, "a2")
    if found is None:
        return None
    rows = {"a2x" if row == "a2" else row: row_id for row, row_id in rows_of(context, found).items()}
    group = FileGroup(
        [write_file(context, snapshot, rows, changes_rows=True)], [removal(found, changes_rows=True)]
    )
    return commit(context, snapshot, tagged(context, "UPDATE", [group]))


def widen(context: Context) -> int | None:
    """Changes the schema."""
    snapshot = open_table(context)
    changed = Metadata(**{**_metadata(snapshot), "schemaString": WIDER_SCHEMA})
    return commit(context, snapshot, tagged(context, "ADD COLUMNS", [], metadata=changed))


def upgrade(context: Context) -> int | None:
    """Adds a feature to the protocol that this package does not know."""
    snapshot = open_table(context)
    protocol = Protocol(3, 7, ["deletionVectors"], [*FEATURES, "unheardOf"])
    return commit(context, snapshot, tagged(context, "UPGRADE", [], protocol=protocol))


def restore(context: Context) -> int | None:
    """Brings the rows of version 1 back."""
    snapshot = open_table(context)
    then = Snapshot(context.storage, find_log_segment(context.storage, 1))
    now, wanted = live_files(snapshot), live_files(then)
    same = {path for path in now if path in wanted and _vector(now[path]) == _vector(wanted[path])}
    adds = [_restored(file) for path, file in wanted.items() if path not in same]
    removes = [removal(file, changes_rows=True) for path, file in now.items() if path not in same]
    change = tagged(
        context, "RESTORE", [FileGroup(adds, removes)] if adds or removes else [], whole_table=True
    )
    return commit(context, snapshot, change)


def checkpoint(context: Context) -> int | None:
    snapshot = open_table(context)
    write_checkpoint(context.storage, snapshot, context.runtime)
    return snapshot.version


def vacuum(context: Context) -> int | None:
    """Deletes what no version of the last week needs: lists, then reads the log, says what it does, and does it."""
    snapshot = open_table(context)
    found = find_candidates(
        context.storage, open_storage, snapshot, VacuumOptions(), NOW_MS, SilentProgress()
    )
    tags = {"actor": context.name}
    return execute_plan(context.storage, found, SilentProgress(), context.runtime, tags).version


def replace_table(context: Context) -> int | None:
    """Drops the table, and makes another one with as many versions and the same id."""
    assert isinstance(context.storage, ActorStorage)
    context.storage.replace()
    return None


def replacement() -> dict[str, bytes]:
    """The table that comes in the place of the other."""
    return {
        key: body.replace(b'"path": "', b'"path": "new-') if key.startswith("_delta_log/") else body
        for old, body in table().items()
        for key in [old if old.startswith("_delta_log/") else f"new-{old}"]
    }


def _file_with(context: Context, snapshot: Snapshot, row: str) -> dict[str, Any] | None:
    return next((file for file in live_files(snapshot).values() if row in rows_of(context, file)), None)


def _vector(file: Mapping[str, Any]) -> str | None:
    return file["deletion_vector"]["pathOrInlineDv"] if file["deletion_vector"] else None


def _metadata(snapshot: Snapshot) -> dict[str, Any]:
    found = snapshot.metadata
    return {name: getattr(found, name) for name in found.__struct_fields__}


def _restored(file: Mapping[str, Any]) -> Add:
    return Add(
        path=file["path"],
        size=file["size"],
        modificationTime=file["modification_time"],
        dataChange=True,
        partitionValues={},
        stats=file["stats"],
        tags=dict(file["tags"] or {}) or None,
        deletionVector=DeletionVector(**file["deletion_vector"]) if file["deletion_vector"] else None,
        baseRowId=file["base_row_id"],
        defaultRowCommitVersion=file["default_row_commit_version"],
    )


def effect_of(name: str) -> Effect:
    """What a commit of an actor does to the rows of the table."""
    kind = name.partition(".")[0]

    def effect(rows: frozenset[str], versions: list[frozenset[str]]) -> frozenset[str]:
        if kind == "append":
            return rows | {f"{name}-row"}
        if kind == "restore":
            return versions[1]
        gone, came = {
            "delete": ("a1", None),
            "update": ("a2", "a2x"),
            REBASING: (REBASED_ROW, None),
        }.get(kind, (None, None))
        if gone is not None and gone not in rows:
            raise Violation(f"{name} was committed although {gone} was gone")
        return (rows - {gone} | {came}) - {None}  # type: ignore[return-value]

    return effect


ACTORS: dict[str, Actor] = {
    "compaction": compaction,
    "remapping": remapping,
    "batches": batches,
    "cluster": cluster,
    "append": append,
    "delete": delete,
    "update": update,
    "widen": widen,
    "recluster": recluster,
    "backfill": backfill,
    "upgrade": upgrade,
    "restore": restore,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
}
#: Waits for a gap before it commits; searched beside some other actors, in searches of its own.
WAITING = "waiting"
#: Gives the rows another order; searched beside other actors in searches of its own, too.
LAYOUT = "layout"
#: Deletes a row, and follows it by the tags of a compaction that wins; searched in searches of its own, too.
REBASING = "rebasing"
#: Replaces the whole table; searched beside each other actor, in searches of its own.
REPLACE = "replace"
#: Actors that are searched on a managed table, too.
MANAGED = ("compaction", "append", "delete", "checkpoint", "vacuum")
#: Actors that may be repeated: the explorer starts them again after their process died.
RESTARTED = frozenset({"compaction", "batches", "checkpoint", "vacuum"})
