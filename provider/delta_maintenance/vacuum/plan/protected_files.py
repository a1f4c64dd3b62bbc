"""The files that VACUUM must not delete, as columns of keys.

1. Every live file of the snapshot, and the file of its deletion vector.
2. The file and the deletion vector of every tombstone that has not expired. A tombstone expires if both its timestamp and
   the time of its commit are before the cutoff. The timestamp is set before the commit, and may be missing.
3. Every file and deletion vector of a version that the table or the request keeps
   (:func:`delta_maintenance.vacuum.commit_reader.kept_files`).
4. A live file is protected whatever was removed: the removal of (path, old vector) does not apply to (path, new vector).

Keys are decoded and normalised paths, so that every spelling of a path gives the same key. VACUUM deletes nothing outside
of the root. The addresses of files there are kept all the same, since one may be a second name of the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.data.deletion_vector import vector_location
from delta_log.log.actions import Action, DeletionVector
from delta_log.log.data_path import ExternalFile, decode_paths
from delta_log.snapshot.snapshot import Snapshot
from delta_maintenance.listing.key_columns import may_begin, may_contain
from delta_maintenance.listing.sorted_keys import KeyHashes

#: A file that the log names, and the last time at which it was needed by the log.
MENTION_SCHEMA = pa.schema([("key", pa.string()), ("time_ms", pa.int64())])
NO_KEYS = pa.chunked_array([], pa.string())


@dataclass(frozen=True, eq=False)
class ProtectedFiles:
    """What the log protects, and what it does not protect any more.

    :param live: keys of live files below the root, and of their deletion vectors.
    :param removed: keys of unexpired tombstones, and of their deletion vectors; some may be in ``live``, too.
    :param expired: files that were removed before the cutoff, below and outside of the root: :data:`MENTION_SCHEMA`, each
        key once.
    :param external: addresses of live, unexpired or kept files outside of the root.
    :param kept: keys that only a version to keep needs: they are neither in ``live`` nor in ``removed``.
    """

    live: pa.ChunkedArray
    removed: pa.ChunkedArray
    expired: pa.Table
    external: frozenset[str]
    num_external_live: int
    kept: pa.ChunkedArray

    @property
    def keys(self) -> pa.ChunkedArray:
        return pa.chunked_array([*self.live.chunks, *self.removed.chunks, *self.kept.chunks], pa.string())

    @cached_property
    def key_hashes(self) -> KeyHashes:
        """The hashes of :attr:`keys`."""
        return KeyHashes.of(self.keys)

    @property
    def num_keys(self) -> int:
        return len(self.live) + len(self.removed) + len(self.kept)


def protected_files(
    snapshot: Snapshot,
    recent: pa.Table,
    cutoff_ms: int,
    table_uri: str,
    of_kept_versions: pa.ChunkedArray = NO_KEYS,
) -> ProtectedFiles:
    """Work out what a snapshot, the recent commits and the versions to keep protect.

    :param recent: what the commits since the cutoff name, from :func:`mentions_of`.
    :param of_kept_versions: files of the versions to keep, each key once.
    :raises CorruptLog: a path or a deletion vector in the log is invalid.
    """
    live = live_and_vector_keys(snapshot, table_uri)
    tombstones = snapshot.tombstones(["key", "deletion_timestamp", "deletion_vector"])
    removed = pa.concat_tables([_mentions(tombstones, table_uri), recent])
    vectors = tombstones.column("deletion_vector")
    if recent.num_rows or vectors.null_count < len(vectors):  # otherwise no key comes twice
        removed = removed.group_by("key").aggregate([("time_ms", "max")]).rename_columns(MENTION_SCHEMA.names)
    unexpired = pc.greater_equal(removed.column("time_ms"), cutoff_ms)
    live, live_elsewhere = _split(live)
    kept, kept_elsewhere = _split(_chunked(removed.filter(unexpired).column("key")))
    of_kept_versions, versions_elsewhere = _split(of_kept_versions)
    external = set(live_elsewhere.to_pylist())
    # Expired files outside of the root need not be split off: they match no listed file.
    return ProtectedFiles(
        live,
        kept,
        removed.filter(pc.invert(unexpired)),
        frozenset(external.union(kept_elsewhere.to_pylist(), versions_elsewhere.to_pylist())),
        len(external),
        _without(of_kept_versions, _joined(live, kept)),
    )


def live_and_vector_keys(snapshot: Snapshot, table_uri: str) -> pa.ChunkedArray:
    """Collect the live files of a snapshot and their deletion vectors."""
    return keys_with_vectors(snapshot.files(["key", "deletion_vector"]), table_uri)


def keys_with_vectors(files: pa.Table, table_uri: str) -> pa.ChunkedArray:
    """Collect some files and their deletion vectors."""
    return _joined(files.column("key"), vector_keys(files.column("deletion_vector"), table_uri))


def keys_in_scope(snapshot: Snapshot, predicate: pc.Expression, table_uri: str) -> pa.ChunkedArray:
    """Select the tombstones of some partitions: their files and deletion vectors."""
    return keys_with_vectors(snapshot.tombstones(["key", "deletion_vector"], predicate), table_uri)


def mentions_of(actions: Sequence[Action], commit_time_ms: int, table_uri: str) -> pa.Table:
    """Extract the data files and deletion vectors that a commit names, each with the last time at which it was needed."""
    found = [action.add or action.remove for action in actions]
    files = [file for file in found if file is not None]
    removed_ms = [getattr(file, "deletionTimestamp", None) or 0 for file in files]
    times = [max(commit_time_ms, time) for time in removed_ms]
    keys = decode_paths(pa.array([file.path for file in files], pa.string()), table_uri)
    vectors = [vector_key(file.deletionVector, table_uri) for file in files]
    all_keys = pa.concat_arrays([keys, pa.array(vectors, pa.string())])
    table = pa.table([all_keys, pa.array(times * 2, pa.int64())], schema=MENTION_SCHEMA)
    return table.filter(pc.is_valid(table.column("key")))


def vector_keys(vectors: pa.ChunkedArray, table_uri: str) -> pa.ChunkedArray:
    """Compute the files of a column of deletion vectors. Absent and inline vectors have none and are left out."""
    found = vectors.filter(_is_stored(vectors))
    if not len(found):
        return pa.chunked_array([], pa.string())
    names = pc.binary_join_element_wise(
        pc.struct_field(found, "storageType"), pc.struct_field(found, "pathOrInlineDv"), "\x00"
    )
    distinct = pa.chunked_array(names).combine_chunks().dictionary_encode()
    keys = []
    for name in distinct.dictionary.to_pylist():
        kind, _, path = name.partition("\x00")
        keys.append(_address(DeletionVector(kind, path, 0, 0), table_uri))
    return pa.chunked_array([pa.array(keys, pa.string()).take(distinct.indices)])


def _is_stored(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask the deletion vectors that are there and lie in a file of their own."""
    is_inline = pc.equal(pc.struct_field(vectors, "storageType"), "i")
    return pc.and_(pc.is_valid(vectors), pc.invert(pc.fill_null(is_inline, False)))


def vector_key(vector: DeletionVector | None, table_uri: str) -> str | None:
    """Compute the file of a deletion vector; ``None`` if the vector is absent or inline."""
    return None if vector is None else _address(vector, table_uri)


def _address(vector: DeletionVector, table_uri: str) -> str | None:
    location = vector_location(vector, table_uri)
    return location.uri if isinstance(location, ExternalFile) else location


def _mentions(tombstones: pa.Table, table_uri: str) -> pa.Table:
    times = pc.fill_null(tombstones.column("deletion_timestamp"), 0)
    vectors = tombstones.column("deletion_vector")
    stored = _is_stored(vectors)
    return pa.concat_tables(
        [
            pa.table([tombstones.column("key"), times], schema=MENTION_SCHEMA),
            pa.table([vector_keys(vectors, table_uri), times.filter(stored)], schema=MENTION_SCHEMA),
        ]
    )


def _joined(keys: pa.ChunkedArray, more: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*keys.chunks, *more.chunks], pa.string())


def _chunked(keys: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    return keys if isinstance(keys, pa.ChunkedArray) else pa.chunked_array([keys], pa.string())


def _without(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others))) if len(keys) else keys


def _split(keys: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Split keys below the root from addresses outside of it (:func:`~delta_log.log.data_path.is_external`)."""
    chunks = [chunk for chunk in keys.chunks if len(chunk)]
    if not any(may_contain(chunk, (b"://",)) or may_begin(chunk, b"/") for chunk in chunks):
        return pa.chunked_array(chunks, pa.string()), pa.chunked_array([], pa.string())
    external = pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))
    return keys.filter(pc.invert(external)), keys.filter(external)
