"""Committing a bin whose sources lost rows meanwhile: its new files get deletion vectors for those rows.

Without remapping, a bin is left out of the commit if another writer deletes one row of one of its sources. With remapping,
which is an option, the deletion is translated to the new files. This is repeated after each conflict, on the files that are
live then:

1. The table still allows deletion vectors, and no Iceberg compatibility feature forbids them.
2. Each source is live, with the vector that it was read with or one that hides more; or it is gone altogether, and so
   are all rows that came from it. Where rows came back (RESTORE), the new files lack them, and the bin is left out.
3. Each source is the file that was read: its size and its row ids are unchanged.
4. The commit removes each source as it is live *now*. Removing it as it was read would leave it in the table, beside its
   copy.
5. The new files have as many live rows as the sources.

Where a layout has moved the rows, the bin's row map tells where they are (:mod:`delta_maintenance.rewrite.manifest.row_map`).

The statistics of the new files become wide bounds. No row changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.arrow.prefetch import map_ordered
from delta_log.data.deletion_vector import (
    read_deletion_vector,
    write_deletion_vectors,
)
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import ConcurrentDelete, DeltaLogError
from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.log.data_path import address_of
from delta_log.stats.wide_bounds import with_wide_bounds
from delta_log.storage.storage import Storage
from delta_log.table_config.features import writes_deletion_vectors
from delta_log.transaction.commit_body import FileGroup
from delta_log.transaction.conflict import Head
from delta_maintenance.optimize.commit.compaction_tags import without_compaction_tags
from delta_maintenance.rewrite.manifest.row_map import (
    NewPlaces,
    NotRemappable,
    SourceRows,
    new_places,
    remapped,
)
from delta_maintenance.rewrite.task import BinManifest, OutputFile
from delta_maintenance.rewrite.task import SourceFile as Source

#: If more than this part of the written rows is deleted already, the bin is better planned again.
_WORTHLESS = 0.5

#: The rows that a vector of the file with this key hides.
ReadVector = Callable[[DeletionVector, str], RowBitmap]
#: Where a layout has put the rows of a bin.
PlacesOf = Callable[[BinManifest], NewPlaces]
#: A vector for each of some outputs, none of them empty, in a file of its own where it needs one.
WriteVectors = Callable[[Sequence[tuple[OutputFile, RowBitmap]]], Sequence[DeletionVector]]


class VectorFiles(Struct, frozen=True):
    """Deletion vectors as they are stored. Each is read once: a remapping is repeated after each conflict.

    :param new_id: a fresh UUID, as text, for each file.
    """

    storage: Storage
    new_id: Callable[[], str]
    _known: dict[str, RowBitmap] = field(default_factory=dict)

    def read(self, vector: DeletionVector, key: str) -> RowBitmap:
        if vector.unique_id not in self._known:
            self._known[vector.unique_id] = read_deletion_vector(vector, self.storage)
        return self._known[vector.unique_id]

    def read_ahead(self, manifests: Sequence[BinManifest]) -> None:
        """Read the vectors that the sources of some bins had when they were rewritten, many at a time.

        Then a remapping reads only what changed since. What cannot be read now is left to the remapping.
        """
        sources = [source for manifest in manifests for source in manifest.sources]
        vectors = [
            DeletionVector(**source.deletion_vector)
            for source in sources
            if source.deletion_vector is not None
        ]
        with suppress(DeltaLogError, OSError):
            for _ in map_ordered(lambda vector: self.read(vector, ""), vectors, self.storage.concurrency):
                pass

    def new_places(self, manifest: BinManifest) -> NewPlaces:
        return partial(new_places, manifest, self.storage)

    def write(self, wanted: Sequence[tuple[OutputFile, RowBitmap]]) -> Sequence[DeletionVector]:
        bitmaps = [rows for _, rows in wanted]
        return write_deletion_vectors(self.storage, bitmaps, UUID(self.new_id()))


class Remapping(Struct):
    """Makes the groups of one commit anew; :attr:`delta_log.transaction.commit_body.Change.remap`.

    :param groups: groups of the change; ``manifests``: the manifests of the bins that they commit, in the order of the groups.
    :ivar done: manifests that are committed in place of the given ones, by number, with their sources as they were last.
    """

    table_uri: str
    groups: Sequence[FileGroup]
    manifests: Sequence[BinManifest]
    read: ReadVector
    write: WriteVectors
    new_places: PlacesOf
    done: dict[int, BinManifest] = field(default_factory=dict)

    def __call__(self, number: int, head: Head, live: Mapping[str, Sequence[Add | Remove]]) -> FileGroup:
        """
        :param head: the version that the commit would follow.
        :param live: live states in that version of each source that another commit touched, by key.
        :raises ConcurrentDelete: the deletions cannot be translated; nothing was committed.
        """
        manifest, group = self.manifests[number], self.groups[number]
        try:
            return self._made_anew(number, manifest, group, head, live)
        except NotRemappable as error:
            self.done.pop(number, None)
            raise ConcurrentDelete(
                f"Lost to a concurrent commit: files of bin {manifest.bin_id} were changed, and its new files cannot take "
                f"that over: {error}. The table is intact; run again to plan anew.",
                version=head.version,
            ) from error

    def _made_anew(
        self,
        number: int,
        manifest: BinManifest,
        group: FileGroup,
        head: Head,
        live: Mapping[str, Sequence[Add | Remove]],
    ) -> FileGroup:
        _check_table(head)
        row_map = manifest.row_map
        source_rows = manifest.source_rows if row_map is None else row_map.source_rows
        if len(source_rows) != len(manifest.sources):
            raise NotRemappable("the try that rewrote them did not note where their rows went")
        removes: list[Remove] = []
        sources: list[SourceRows] = []
        kept: list[Source] = []
        for source, remove, rows in zip(manifest.sources, group.removes, source_rows, strict=True):
            key = address_of(remove.path, self.table_uri)
            read = self._rows(remove, key)
            found = live.get(key, (remove,))
            if not found:
                sources.append(SourceRows(rows, read, None))
                continue
            if len(found) > 1:
                raise NotRemappable(f"{key} is live under two deletion vectors")
            now = found[0]
            _check_file(key, remove, now)
            sources.append(SourceRows(rows, read, self._rows(now, key) if now is not remove else read))
            removes.append(_removal_of(now, remove))
            kept.append(replace(source, deletion_vector=msgspec.to_builtins(now.deletionVector)))
        places = None if row_map is None else self.new_places(manifest)
        dead = remapped(sources, [output.num_records for output in manifest.outputs], places)
        written, gone = sum(output.num_records for output in manifest.outputs), sum(map(len, dead))
        if not removes or gone > _WORTHLESS * written:
            raise NotRemappable(f"{gone} of the {written} rows that were written are deleted by now")
        self.done[number] = replace(manifest, sources=tuple(kept))
        return FileGroup(self._with_vectors(manifest.outputs, group.adds, dead), removes)

    def _rows(self, file: Add | Remove, key: str) -> RowBitmap:
        return self.read(file.deletionVector, key) if file.deletionVector is not None else RowBitmap(())

    def _with_vectors(
        self, outputs: Sequence[OutputFile], adds: Sequence[Add], dead: Sequence[RowBitmap]
    ) -> list[Add]:
        # An output of which nothing is left is not added at all.
        left = [
            (add, output, rows)
            for add, output, rows in zip(adds, outputs, dead, strict=True)
            if len(rows) < output.num_records
        ]
        wanted = [(output, rows) for _, output, rows in left if rows]
        vectors = iter(self.write(wanted) if wanted else ())
        return [
            msgspec.structs.replace(
                add, deletionVector=next(vectors), stats=with_wide_bounds(add.stats, output.num_records)
            )
            if rows
            else add
            for add, output, rows in left
        ]


def _check_table(head: Head) -> None:
    if not writes_deletion_vectors(head.protocol, head.metadata.properties):
        raise NotRemappable(
            "the table does not let deletion vectors be written: delta.enableDeletionVectors is not true, or an Iceberg compatibility "
            "property forbids them"
        )


def _check_file(key: str, read: Remove, now: Add | Remove) -> None:
    """Check that a live file is the one that was read."""
    if read.size is not None and now.size is not None and read.size != now.size:
        raise NotRemappable(f"{key} had {read.size} bytes and has {now.size}")
    before = (read.baseRowId, read.defaultRowCommitVersion)
    if before != (now.baseRowId, now.defaultRowCommitVersion):
        raise NotRemappable(f"{key} was given new row ids")


def _removal_of(now: Add | Remove, read: Remove) -> Remove:
    """The removal of a live file, which may have another deletion vector than when it was read.

    The tags of a compaction count rows by the vector of the removal. So a bin that was made anew has none.
    """
    return msgspec.structs.replace(
        read,
        path=now.path,
        partitionValues=now.partitionValues,
        tags=without_compaction_tags(now.tags),
        deletionVector=now.deletionVector,
    )
