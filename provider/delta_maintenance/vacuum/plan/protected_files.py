"""Which files VACUUM must not delete, as columns of keys.

1. Every live file of the snapshot, and the file of its deletion vector.
2. The same of every tombstone that has not expired: at the cutoff or later it was removed, by its own timestamp or by
   the time of the commit, whichever is later. A timestamp is set before the commit, and may be missing.
3. A remove of (path, old vector) never speaks for (path, new vector): what is live is protected whatever was removed.

Keys are decoded and normalised paths, so that every spelling of a file is the same. A file outside of the root
is none of ours; its name is kept all the same, since an address may be the root's under another name.
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
from delta_maintenance.listing.key_hashes import KeyHashes

#: A file that the log says was needed, and when it says so last.
MENTION_SCHEMA = pa.schema([("key", pa.string()), ("time_ms", pa.int64())])


@dataclass(frozen=True, eq=False)
class ProtectedFiles:
    """
    :param live: keys of live files and their deletion vectors, below the root.
    :param removed: keys of tombstones that have not expired, and their deletion vectors; some may be in ``live`` too.
    :param expired: what the log says was removed before the cutoff: :data:`MENTION_SCHEMA`, each key once; outside of the
        root, too.
    :param external: addresses outside of the root that are live or not expired.
    """

    live: pa.ChunkedArray
    removed: pa.ChunkedArray
    expired: pa.Table
    external: frozenset[str]
    num_external_live: int

    @property
    def keys(self) -> pa.ChunkedArray:
        return pa.chunked_array([*self.live.chunks, *self.removed.chunks], pa.string())

    @cached_property
    def key_hashes(self) -> KeyHashes:
        """Of :attr:`keys`."""
        return KeyHashes.of(self.keys)

    @property
    def num_keys(self) -> int:
        return len(self.live) + len(self.removed)


def protected_files(snapshot: Snapshot, recent: pa.Table, cutoff_ms: int, table_uri: str) -> ProtectedFiles:
    """
    :param recent: what the commits since the cutoff mention, from :func:`mentions_of`.
    :raises CorruptLog: a path or a deletion vector of the log has no meaning.
    """
    files = snapshot.files(["key", "deletion_vector"])
    live = _joined(files.column("key"), vector_keys(files.column("deletion_vector"), table_uri))
    tombstones = snapshot.tombstones(["key", "deletion_timestamp", "deletion_vector"])
    removed = pa.concat_tables([_mentions(tombstones, table_uri), recent])
    vectors = tombstones.column("deletion_vector")
    if recent.num_rows or vectors.null_count < len(vectors):  # else each file was removed once
        removed = removed.group_by("key").aggregate([("time_ms", "max")]).rename_columns(MENTION_SCHEMA.names)
    unexpired = pc.greater_equal(removed.column("time_ms"), cutoff_ms)
    live, live_elsewhere = _split(live)
    kept, kept_elsewhere = _split(_chunked(removed.filter(unexpired).column("key")))
    external = set(live_elsewhere.to_pylist())
    # Expired ones outside of the root match nothing that is listed.
    return ProtectedFiles(
        live,
        kept,
        removed.filter(pc.invert(unexpired)),
        frozenset(external.union(kept_elsewhere.to_pylist())),
        len(external),
    )


def keys_in_scope(snapshot: Snapshot, predicate: pc.Expression, table_uri: str) -> pa.ChunkedArray:
    """Files that the log knows as removed from certain partitions, and their deletion vectors."""
    found = snapshot.tombstones(["key", "deletion_vector"], predicate)
    return _joined(found.column("key"), vector_keys(found.column("deletion_vector"), table_uri))


def mentions_of(actions: Sequence[Action], commit_time_ms: int, table_uri: str) -> pa.Table:
    """Every data file and deletion vector that a commit names, with the time until which it was needed at least."""
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
    """The files of a column of deletion vectors, null where there is none, or an inline one."""
    stored = pc.and_(
        pc.is_valid(vectors), pc.fill_null(pc.not_equal(pc.struct_field(vectors, "storageType"), "i"), True)
    )
    found = vectors.filter(stored)
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


def vector_key(vector: DeletionVector | None, table_uri: str) -> str | None:
    """The file of a deletion vector; ``None``: there is none."""
    return None if vector is None else _address(vector, table_uri)


def _address(vector: DeletionVector, table_uri: str) -> str | None:
    location = vector_location(vector, table_uri)
    return location.uri if isinstance(location, ExternalFile) else location


def _mentions(tombstones: pa.Table, table_uri: str) -> pa.Table:
    times = pc.fill_null(tombstones.column("deletion_timestamp"), 0)
    vectors = tombstones.column("deletion_vector")
    stored = pc.and_(
        pc.is_valid(vectors), pc.fill_null(pc.not_equal(pc.struct_field(vectors, "storageType"), "i"), True)
    )
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


def _split(keys: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Keys below the root, and addresses outside of it (:func:`~delta_log.log.data_path.is_external`)."""
    chunks = [chunk for chunk in keys.chunks if len(chunk)]
    if not any(may_contain(chunk, (b"://",)) or may_begin(chunk, b"/") for chunk in chunks):
        return pa.chunked_array(chunks, pa.string()), pa.chunked_array([], pa.string())
    external = pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))
    return keys.filter(pc.invert(external)), keys.filter(external)
