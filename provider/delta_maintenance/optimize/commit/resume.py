"""Finds what earlier tries of a run have finished, so that a killed run resumes where it stopped.

A manifest stays until its run is over. Compared with the table as it is now, it tells the state of its bin:

============  =====================================================  ==============================
committed     its files are live, with this rewriter's mark          not planned again, and counted
finished      its sources are live, and in every fact what the log   committed as it is
              says of them; the plan would give them this bin's id;
              its counts of rows agree with the log and with the
              footers of its files, which are complete and unnamed
stale         anything else: the sources changed meanwhile, or what  planned anew
              decides how files are written
============  =====================================================  ==============================

Only manifests with the proof of the run's key count (:mod:`delta_maintenance.rewrite.manifest.manifest_file`). Other files beside them
are counted and left alone.

Nothing is deleted here, since another try of the run may be about to commit a bin that looks stale
(:mod:`delta_maintenance.optimize.commit.orphans` decides when that is impossible).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.prefetch import map_ordered
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.snapshot.commit_info import normalise
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.transaction.conflict import RUN_TAG
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_id import bin_id_of
from delta_maintenance.optimize.plan.budget import PriorWork
from delta_maintenance.optimize.plan.candidates import num_records_of
from delta_maintenance.optimize.plan.plan import source_of
from delta_maintenance.partitions.partition_groups import partition_groups
from delta_maintenance.rewrite.bin import CountRows, is_complete, manifests_of, rows_by_footer
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import REWRITE_TAG, BinManifest, OutputFile, SourceFile

#: In ``commitInfo.tags``: the run that a commit belongs to, and the number of its batch, from 1 on.
BATCH_TAG = "delta-maintenance.batch"
_BATCH = re.compile(r"[0-9]{1,9}")


class EarlierTries(Struct, frozen=True):
    """
    :param num_batches: number of batches that are committed; ``version``: the version of the last batch.
    :param num_foreign: files among the manifests that this run did not write.
    """

    committed: tuple[BinManifest, ...] = ()
    finished: tuple[BinManifest, ...] = ()
    stale: tuple[BinManifest, ...] = ()
    num_batches: int = 0
    version: int | None = None
    num_foreign: int = 0

    @property
    def manifests(self) -> list[BinManifest]:
        return [*self.committed, *self.finished, *self.stale]

    def taken_over(self) -> dict[str, int] | None:
        """The member ``earlier_tries`` of a report; ``None``: nothing was finished."""
        done = [*self.committed, *self.finished]
        if not done:
            return None
        return {
            "bins": len(done),
            "files": sum(len(manifest.sources) for manifest in done),
            "bytes": sum(manifest.bytes_in for manifest in done),
        }

    def prior_work(self) -> PriorWork:
        """The part of it that the plan needs."""
        done = [*self.committed, *self.finished]
        return PriorWork(
            keys=[
                *(source.key for manifest in self.finished for source in manifest.sources),
                *(output.key for manifest in self.committed for output in manifest.outputs),
            ],
            bin_ids=frozenset(manifest.bin_id for manifest in self.manifests),
            num_files=sum(len(manifest.sources) for manifest in done),
            num_bytes=sum(manifest.bytes_in for manifest in done),
        )


def find_earlier_tries(
    storage: Storage,
    run_id: str,
    run_key: RunKey,
    snapshot: Snapshot,
    rewrite_tag: str,
    options: OptimizeOptions | None = None,
    count_rows: CountRows = rows_by_footer,
) -> EarlierTries:
    """Read the manifests of a run and compare them with a snapshot. Without manifests, this costs one LIST.

    :param rewrite_tag: tag of the files that would be written now. A commit before the snapshot causes no conflict any more, so
        only the tag tells that a bin was written for another schema.
    :param options: options of this try. A bin that an earlier try finished with other promises is done again.
    :raises NewerManifest: a newer release works on this run.
    """
    manifests, num_foreign = manifests_of(storage, run_key, run_id)
    if not manifests:
        return EarlierTries(num_foreign=num_foreign)
    live, options = _Live.of(snapshot, manifests), options or OptimizeOptions()
    committed = [manifest for manifest in manifests if live.has_committed(manifest)]
    done = {manifest.bin_id for manifest in committed}
    planned = [
        manifest
        for manifest in manifests
        if manifest.bin_id not in done
        and _is_wanted(manifest, rewrite_tag, options)
        and live.would_plan(manifest)
    ]
    finished = _disjoint(_whole(planned, snapshot, storage, count_rows))
    done |= {manifest.bin_id for manifest in finished}
    stale = [manifest for manifest in manifests if manifest.bin_id not in done]
    version, batches = _last_batch(storage, run_id, snapshot) if committed else (None, 0)
    return EarlierTries(
        tuple(committed), tuple(finished), tuple(stale), batches, version, num_foreign=num_foreign
    )


def _is_same_file(source: SourceFile, live: SourceFile | None) -> bool:
    """Compare all facts of the log; row counts are compared elsewhere."""
    return replace(source, num_records=None) == live


def _is_wanted(manifest: BinManifest, rewrite_tag: str, options: OptimizeOptions) -> bool:
    """Tell whether a bin was finished under the settings and promises of this try."""
    wanted = rewrite_tag, options.verify, options.rewrite
    # Without its rows' places, a bin cannot take over what others delete.
    is_mapped = not options.remap or manifest.source_rows or manifest.row_map is not None
    return (manifest.rewrite_tag, manifest.verify, manifest.rewrite) == wanted and bool(is_mapped)


class _Live(Struct, frozen=True):
    """The live files among those that some manifests name.

    :param files: live files by key; ``partitions`` holds the number of each file's partition.
    """

    files: Mapping[str, SourceFile]
    partitions: Mapping[str, int]

    @classmethod
    def of(cls, snapshot: Snapshot, manifests: Iterable[BinManifest]) -> _Live:
        rows = _live_rows(snapshot, manifests)
        codes = partition_groups(rows.column("partition_values"), snapshot.partition_schema)
        return cls(_sources_of(rows), dict(zip(rows.column("key").to_pylist(), codes.tolist(), strict=True)))

    def has_committed(self, manifest: BinManifest) -> bool:
        """Whether the bin's new files are in the table, written by this rewriter."""
        found = [self.files.get(output.key) for output in manifest.outputs]
        return bool(found) and all(
            file is not None
            and (file.path, file.size_bytes) == (output.path, output.size_bytes)
            and (file.tags or {}).get(REWRITE_TAG) == manifest.rewrite_tag
            for file, output in zip(found, manifest.outputs, strict=True)
        )

    def would_plan(self, manifest: BinManifest) -> bool:
        """Whether a plan would contain this bin, and its files are what a rewrite would write."""
        return (
            all(_is_same_file(source, self.files.get(source.key)) for source in manifest.sources)
            and len({self.partitions[source.key] for source in manifest.sources}) == 1
            and manifest.partition_values == manifest.sources[0].partition_values
            and manifest.bin_id == bin_id_of(manifest.rewrite_tag, manifest.sources, manifest.num_outputs)
            and len(manifest.outputs) <= manifest.num_outputs
            and all(
                output.key not in self.files and output.tags.get(REWRITE_TAG) == manifest.rewrite_tag
                for output in manifest.outputs
            )
        )


def _whole(
    manifests: Sequence[BinManifest], snapshot: Snapshot, storage: Storage, count_rows: CountRows
) -> list[BinManifest]:
    """The manifests whose files exist, are named by no tombstone, and hold the live rows of the sources."""
    if not manifests:
        return []
    counts = _num_records(snapshot, [source.key for manifest in manifests for source in manifest.sources])
    wanted = [key for manifest in manifests for key in _keys(manifest.outputs)]
    removed = snapshot.tombstones(("key",)).column("key")
    named = set(removed.filter(pc.is_in(removed, value_set=pa.array(wanted, pa.string()))).to_pylist())

    def is_whole(manifest: BinManifest) -> bool:
        return (
            named.isdisjoint(_keys(manifest.outputs))
            and manifest.miscounts([counts.get(source.key) for source in manifest.sources]) is None
            and is_complete(manifest, storage, count_rows)
        )

    whole = map_ordered(is_whole, manifests, storage.concurrency)
    return [manifest for manifest, is_so in zip(manifests, whole, strict=True) if is_so]


def _disjoint(manifests: Sequence[BinManifest]) -> list[BinManifest]:
    """The manifests that share no file with an earlier one. Two tries may have put a file into different bins."""
    found, taken = [], set[str]()
    for manifest in manifests:
        keys = {*_keys(manifest.sources), *_keys(manifest.outputs)}
        if taken.isdisjoint(keys):
            taken |= keys
            found.append(manifest)
    return found


def _num_records(snapshot: Snapshot, keys: Sequence[str]) -> dict[str, int]:
    """Physical rows of some live files, by key, if their statistics tell."""
    wanted, found = pa.array(keys, pa.string()), {}
    for batch in snapshot.file_batches(["key", "stats"]):
        chosen = batch.filter(pc.is_in(batch.column("key"), value_set=wanted))
        for key, stats in zip(*chosen.to_pydict().values(), strict=True):
            count = -1 if stats is None else num_records_of(stats)
            if count >= 0:
                found[key] = count
    return found


def _keys(files: Iterable[SourceFile | OutputFile]) -> list[str]:
    return [file.key for file in files]


_FACTS = (
    "path",
    "key",
    "size",
    "partition_values",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
    "tags",
)


def _live_rows(snapshot: Snapshot, manifests: Iterable[BinManifest]) -> pa.Table:
    wanted = [key for manifest in manifests for key in (*_keys(manifest.sources), *_keys(manifest.outputs))]
    files = snapshot.files(_FACTS)
    return files.filter(pc.is_in(files.column("key"), value_set=pa.array(wanted, pa.string())))


def _sources_of(rows: pa.Table) -> dict[str, SourceFile]:
    return {row["key"]: source_of(row, -1) for row in rows.to_pylist()}


def live_files(snapshot: Snapshot, manifests: Iterable[BinManifest]) -> dict[str, SourceFile]:
    """The live files among those that some manifests name, by key."""
    return _sources_of(_live_rows(snapshot, manifests))


def identity_of(source: SourceFile) -> tuple[int, str | None, int | None, int | None]:
    """The facts that a source keeps while it is the file that was read."""
    return (
        source.size_bytes,
        source.deletion_vector_id,
        source.base_row_id,
        source.default_row_commit_version,
    )


def _last_batch(storage: Storage, run_id: str, snapshot: Snapshot) -> tuple[int | None, int]:
    """The newest commit of the run and the number of its batch; ``None`` and 0 if the log no longer holds it."""
    commits = list_log(storage).commits
    for version in sorted((v for v in commits if v <= snapshot.version), reverse=True):
        try:
            actions = decode_commit(storage.read(commit_key(version)), commit_key(version))
        except FileNotFoundError:
            break  # cleaned meanwhile, and everything older with it
        info = next((a.commitInfo for a in actions if a.commitInfo is not None), {})
        tags = normalise(info, commits[version]).get("tags")
        if isinstance(tags, dict) and tags.get(RUN_TAG) == run_id:
            number = str(tags.get(BATCH_TAG, ""))
            return version, int(number) if _BATCH.fullmatch(number) else 1
    return None, 0
