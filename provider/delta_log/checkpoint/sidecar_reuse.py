"""The state of a version as existing sidecars of the newest checkpoint, and rows that have to be written.

Protocol section "V2 Spec". The newest checkpoint serves only if this package wrote it. The commits after it tell what
is new and what is superseded. A sidecar is untouched if its key filter excludes all keys that the commits name;
otherwise the paths of the sidecar are read. Sidecars that another writer's log cleanup may soon delete are written anew,
since that cleanup may have listed the checkpoints before the new one was there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_log.arrow.content_digest import ContentDigest
from delta_log.arrow.prefetch import map_stream
from delta_log.checkpoint.key_filter import short_hashes
from delta_log.checkpoint.sidecar_layout import Layout, OldSidecar, Run, lay_out
from delta_log.checkpoint.sidecar_tags import SidecarTags, read_filter, tags_of
from delta_log.checkpoint.state import COLUMNS, CheckpointState, FileAction
from delta_log.errors import CorruptLog
from delta_log.log.action_columns import SEPARATOR
from delta_log.log.actions import Sidecar
from delta_log.log.checkpoint_reader import CheckpointReader
from delta_log.log.log_replay import ReplayedCommits
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.snapshot.live_files import FileActions
from delta_log.snapshot.replayed_log import complete_adds
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import log_retention_ms, readable


class SidecarReuse(Struct, frozen=True):
    """The sidecars that the next checkpoint names again, and how its other rows are read.

    :ivar layouts: one layout for live files and one for tombstones.
    """

    layouts: dict[FileAction, Layout]
    _state: CheckpointState
    _reader: CheckpointReader
    _tail: ReplayedCommits
    _storage: Storage
    _tags_by_key: dict[str, SidecarTags]

    @property
    def kept(self) -> list[OldSidecar]:
        return [part for layout in self.layouts.values() for part in layout if isinstance(part, OldSidecar)]

    def tags(self, old: OldSidecar) -> SidecarTags:
        return self._tags_by_key[old.key]

    def rows(self, action: FileAction, run: Run) -> Iterator[pa.RecordBatch]:
        """The actions of a run, completed and without expired tombstones."""
        tail = self._tail if run.takes_new else _without_own(self._tail, action)
        part = _Part(self._reader, [(old.key, self._tags_by_key[old.key]) for old in run.sidecars])
        batches = FileActions(action, tail, part, self._storage.uri).batches(action, COLUMNS[action])
        return map(complete_adds, batches) if action == "add" else self._state.unexpired(batches)


def find_reuse(
    storage: Storage, snapshot: Snapshot, now_ms: int, form: str, sidecar_actions: int
) -> SidecarReuse | None:
    """Find the sidecars that can be named again; ``None``: none can, and all rows have to be written.

    :param form: the form of the sidecars to write, see :func:`~delta_log.checkpoint.sidecar_tags.form_of`.
    :param sidecar_actions: maximum number of actions in each of these sidecars.
    """
    based = _on_newest_checkpoint(storage, snapshot)
    if based is None or based.base is None:
        return None
    snapshot, (reader, tail) = based, based.base
    found = [tags_of(sidecar) for sidecar in reader.other.sidecars]
    if not found or None in found or reader.has_inline_files:
        return None
    tags_by_key = {
        key: tags for key, tags in zip(reader.sidecar_keys, found, strict=True) if tags is not None
    }
    state = CheckpointState.of(snapshot, now_ms)
    examiner = _Examiner(storage, reader, tail, state, tags_by_key, _may_vanish_ms(snapshot, now_ms), form)
    sidecars = zip(reader.sidecar_keys, reader.other.sidecars, strict=True)
    examined = list(map_stream(examiner.examine, sidecars, max(2, storage.concurrency)))
    if not any(old is not None and old.stays for old in examined):
        return None
    layouts: dict[FileAction, Layout] = {}
    news: dict[FileAction, int] = {"add": len(tail.adds), "remove": len(tail.removes)}
    for action, new in news.items():
        of_action = [old for old in examined if old is not None and tags_by_key[old.key].action == action]
        layouts[action] = lay_out(of_action, new, sidecar_actions)
    reuse = SidecarReuse(layouts, state, reader, tail, storage, tags_by_key)
    return None if missing(storage, reuse.kept) else reuse


def missing(storage: Storage, kept: Sequence[OldSidecar]) -> list[str]:
    """The keys of those sidecars that are gone, or have another size."""
    found = storage.head_many([old.key for old in kept])
    return [
        old.key
        for old, info in zip(kept, found, strict=True)
        if info is None or info.size != old.sidecar.sizeInBytes
    ]


def _on_newest_checkpoint(storage: Storage, snapshot: Snapshot) -> Snapshot | None:
    """A snapshot of the same version, read from the newest checkpoint; ``None``: it is missing or cannot be read."""
    version = snapshot.version
    listed = [
        c for c in list_log(storage, snapshot.checkpoint_version or 0).checkpoints if c.version <= version
    ]
    if not listed:
        return None
    if snapshot.base is None or snapshot.base[0].checkpoint.files[0].key != listed[-1].files[0].key:
        snapshot = Snapshot(storage, find_log_segment(storage, version))
    base = snapshot.base
    # The sidecars of an older checkpoint may be deleted at any time.
    return snapshot if base and base[0].checkpoint.files[0].key == listed[-1].files[0].key else None


def _may_vanish_ms(snapshot: Snapshot, now_ms: int) -> int:
    """Sidecars written before this time may soon be deleted by a log cleanup."""
    retention_ms = readable(log_retention_ms, snapshot.properties)
    # Where the property is not a duration, another program's cleanup may take any duration for it.
    return now_ms if retention_ms is None else now_ms - retention_ms // 2


@dataclass(frozen=True, slots=True)
class _Examiner:
    """Finds out how many rows of a sidecar still count.

    :ivar _identities: all identities that the commits name, in the order of ``_hashes``.
    :ivar _hashes: sorted hashes of their keys.
    """

    storage: Storage
    reader: CheckpointReader
    tail: ReplayedCommits
    state: CheckpointState
    tags_by_key: dict[str, SidecarTags]
    may_vanish_ms: int
    form: str
    _identities: list[str] = field(init=False)
    _hashes: npt.NDArray[np.uint32] = field(init=False)

    def __post_init__(self) -> None:
        identities = [*self.tail.adds, *self.tail.removes]
        keys = [identity.partition(SEPARATOR)[0] for identity in identities]
        hashes = short_hashes(pa.array(keys, pa.string()))
        # Looking up sorted hashes is several times as fast.
        order = np.argsort(hashes)
        object.__setattr__(self, "_identities", [identities[at] for at in order.tolist()])
        object.__setattr__(self, "_hashes", hashes[order])

    def examine(self, sidecar: tuple[str, Sidecar]) -> OldSidecar | None:
        """``None``: no row of the sidecar counts any more."""
        key, action = sidecar
        tags = self.tags_by_key[key]
        superseded = self._superseded(key, tags)
        if tags.rows == superseded:
            return None
        stays = not superseded and tags.form == self.form and action.modificationTime > self.may_vanish_ms
        if tags.action == "remove":
            oldest_ms, newest_ms = tags.deletions_ms or (0, 0)
            if newest_ms <= self.state.expiry_ms:
                return None
            stays = stays and oldest_ms > self.state.expiry_ms
        return OldSidecar(key, action, tags.rows - superseded, stays)

    def _superseded(self, key: str, tags: SidecarTags) -> int:
        """How many rows of the sidecar the newer commits supersede."""
        tail = self._concerning(key, tags)
        if not tail.has_files:
            return 0
        part = _Part(self.reader, [(key, None)])
        files = FileActions(tags.action, tail, part, self.storage.uri)
        left: int = sum(batch.num_rows for batch in files.batches(tags.action, ("key", "deletion_vector")))
        own = tail.adds if tags.action == "add" else tail.removes
        if part.rows != tags.rows:
            raise CorruptLog(key, f"it has {part.rows} actions, and was written with {tags.rows}")
        return part.rows - (left - len(own))

    def _concerning(self, key: str, tags: SidecarTags) -> ReplayedCommits:
        """The newer commits, reduced to files that the sidecar may hold."""
        filter_ = read_filter(self.storage, key, tags) if self._identities else None
        if filter_ is None:
            return self.tail
        named = [self._identities[at] for at in np.flatnonzero(filter_.may_hold(self._hashes)).tolist()]
        adds, removes = self.tail.adds, self.tail.removes
        return ReplayedCommits(
            adds={name: adds[name] for name in named if name in adds},
            removes={name: removes[name] for name in named if name in removes},
        )


class _Part(Struct):
    """Some sidecars of a checkpoint as a source of file actions.

    Where the tags of a sidecar are given, whole rows are read and compared with the digest in the tags.
    """

    reader: CheckpointReader
    sidecars: list[tuple[str, SidecarTags | None]]
    rows: int = 0

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = 1 << 14
    ) -> Iterator[pa.RecordBatch]:
        for key, tags in self.sidecars:
            digest = ContentDigest()
            for batch in self.reader.batches_of([key], action, columns, batch_rows):
                self.rows += batch.num_rows
                if tags is not None:
                    digest.update(batch.select(list(COLUMNS[tags.action])))
                yield batch
            if tags is not None and digest.text() != tags.content:
                raise CorruptLog(
                    key,
                    "it does not hold what it held when it was written, so no checkpoint is made from it",
                    "Remove the checkpoint that names it, and write a new one from the commits or from an older checkpoint.",
                )


def _without_own(tail: ReplayedCommits, action: FileAction) -> ReplayedCommits:
    """Commits that supersede the same files and add nothing."""
    known = dict.fromkeys([*tail.adds, *tail.removes])
    return ReplayedCommits(removes=known) if action == "add" else ReplayedCommits(adds=known)  # type: ignore[arg-type]
