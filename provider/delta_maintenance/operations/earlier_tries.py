"""What earlier tries of one run have left, by its manifests: how a killed run goes on where it stopped.

A manifest stays until its run is over, so each one tells, held against the table as it is now, where its bin stands:

============  =====================================================  ==============================
committed     its files are live                                     not planned again, and counted
finished      its sources are live, row ids and all; the table       committed as it is
              still wants its files as they were written; they are
              complete and unnamed
stale         anything else: somebody changed the sources, or what   planned anew
              decides how files are written, meanwhile
============  =====================================================  ==============================

Nothing is deleted here: another try of the same run may be about to commit what looks stale
(:mod:`delta_maintenance.operations.orphans` knows when that is impossible).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.actions import decode_actions
from delta_log.history import normalise
from delta_log.log_path import commit_key
from delta_log.log_segment import list_log
from delta_log.snapshot import Snapshot
from delta_log.storage import Storage
from delta_maintenance.plan.optimize import PriorWork
from delta_maintenance.rewrite.bin import is_complete, manifests_of
from delta_maintenance.rewrite.task import BinManifest, SourceFile

#: In ``commitInfo.tags``: the run that a commit belongs to, and the number of its batch, from 1 on.
RUN_TAG, BATCH_TAG = "delta-maintenance.run", "delta-maintenance.batch"


@dataclass(frozen=True, slots=True)
class EarlierTries:
    """
    :param num_batches: that are committed, and ``version`` of the last of them.
    """

    committed: tuple[BinManifest, ...] = ()
    finished: tuple[BinManifest, ...] = ()
    stale: tuple[BinManifest, ...] = ()
    num_batches: int = 0
    version: int | None = None

    @property
    def manifests(self) -> list[BinManifest]:
        return [*self.committed, *self.finished, *self.stale]

    def prior_work(self) -> PriorWork:
        """What the plan has to know of it."""
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


def earlier_tries(storage: Storage, run_id: str, snapshot: Snapshot, rewrite_tag: str) -> EarlierTries:
    """Look; one LIST where there is nothing.

    :param rewrite_tag: of the files that would be written now. Whatever was committed before the snapshot is no conflict
        any more, so a bin that was written for another schema has to be told by this.
    """
    manifests = manifests_of(storage, run_id)
    if not manifests:
        return EarlierTries()
    live = live_files(snapshot, manifests)
    committed, finished, stale = [], [], []
    for manifest in manifests:
        if manifest.outputs and all(output.key in live for output in manifest.outputs):
            committed.append(manifest)
        elif (
            _is_wanted(manifest, rewrite_tag)
            and all(live.get(source.key) == identity_of(source) for source in manifest.sources)
            and is_complete(manifest, storage)
        ):
            finished.append(manifest)
        else:
            stale.append(manifest)
    version, batches = _last_batch(storage, run_id, snapshot) if committed else (None, 0)
    return EarlierTries(tuple(committed), tuple(finished), tuple(stale), batches, version)


def _is_wanted(manifest: BinManifest, rewrite_tag: str) -> bool:
    return manifest.rewrite_tag == rewrite_tag


#: Size, deletion vector, first row id and the version that gave it.
Identity = tuple[int, str | None, int | None, int | None]


def live_files(snapshot: Snapshot, manifests: Iterable[BinManifest]) -> dict[str, Identity]:
    """Of all files that the manifests speak of, those that are live: size, deletion vector and row ids by key."""
    wanted = [source.key for manifest in manifests for source in manifest.sources]
    wanted += [output.key for manifest in manifests for output in manifest.outputs]
    files = snapshot.files(
        ("path", "key", "size", "deletion_vector", "base_row_id", "default_row_commit_version")
    )
    rows = files.filter(pc.is_in(files.column("key"), value_set=pa.array(wanted, pa.string()))).to_pylist()
    return {
        row["key"]: identity_of(
            SourceFile(
                row["path"],
                row["key"],
                row["size"],
                deletion_vector=row["deletion_vector"],
                base_row_id=row["base_row_id"],
                default_row_commit_version=row["default_row_commit_version"],
            )
        )
        for row in rows
    }


def identity_of(source: SourceFile) -> Identity:
    """What must not have changed for a source to be the file that was read."""
    return (
        source.size_bytes,
        source.deletion_vector_id,
        source.base_row_id,
        source.default_row_commit_version,
    )


def _last_batch(storage: Storage, run_id: str, snapshot: Snapshot) -> tuple[int | None, int]:
    """The newest commit of the run, and the number of its batch; the log may not hold it any more."""
    commits = list_log(storage).commits
    for version in sorted((v for v in commits if v <= snapshot.version), reverse=True):
        try:
            actions = decode_actions(storage.read(commit_key(version)), commit_key(version))
        except FileNotFoundError:
            break  # cleaned meanwhile, and everything older with it
        info = next((a.commitInfo for a in actions if a.commitInfo is not None), {})
        tags = normalise(info, commits[version]).get("tags")
        if isinstance(tags, dict) and tags.get(RUN_TAG) == run_id:
            number = str(tags.get(BATCH_TAG, ""))
            return version, int(number) if number.isdecimal() and len(number) <= 9 else 1
    return None, 0
