"""The lite VACUUM's candidates: what the log's own commits removed, from where the last vacuum stopped to the cutoff.

Nothing is listed, so it costs what has happened since, not what the table holds; and it finds neither orphans nor empty
directories. It needs every commit since the last vacuum, and refuses where some were cleaned. On a disk each file is
looked at right away; on an object store, where that is a request for each, not before it is about to be deleted.

``_last_vacuum_info`` remembers the newest version whose removals are all deleted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.actions import Action, decode_actions
from delta_log.log.data_path import decode_paths
from delta_log.log.file_names import LOG_DIRECTORY, LogFile
from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.key_columns import directories_of
from delta_maintenance.listing.listing import LISTING_SCHEMA, Listing
from delta_maintenance.vacuum.plan.protected_files import vector_key

LAST_VACUUM_INFO = f"{LOG_DIRECTORY}/_last_vacuum_info"
_SETTLED = "latestCommitVersionOutsideOfRetentionWindow"
_NAMED_SCHEMA = pa.schema([("key", pa.string()), ("size", pa.int64())])
_LINES_BYTES = 1 << 20


def last_settled_version(storage: Storage) -> int | None:
    """Up to which version a vacuum has deleted everything that was removed; ``None``: nobody noted it."""
    try:
        found = json.loads(storage.read(LAST_VACUUM_INFO)).get(_SETTLED)
    except (FileNotFoundError, ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def remember_settled_version(storage: Storage, version: int) -> None:
    """Note it, unless a later one is noted already."""
    known = last_settled_version(storage)
    if known is None or known < version:
        storage.put(LAST_VACUUM_INFO, json.dumps({_SETTLED: version}).encode())


def removed_files(
    storage: Storage, commits: Mapping[int, LogFile], settled_version: int | None, hidden: HiddenNames
) -> Listing:
    """What commits removed, and their change data, whether it is still there or not; sizes are those of the log.

    :param commits: all that the log holds.
    :param settled_version: the newest one that was committed before the cutoff.
    :raises VacuumRefused: commits since the last vacuum are missing.
    """
    last = last_settled_version(storage)
    first = 0 if last is None else last + 1
    wanted = range(first, 0 if settled_version is None else settled_version + 1)
    # Where the log begins later, what was cleaned from it is older than what is there.
    begins_later = first < min(commits, default=first + 1)
    missing = first if begins_later else next((version for version in wanted if version not in commits), None)
    if missing is not None:
        since = (
            "no vacuum has left a note of how far it came" if last is None else f"the last one came to {last}"
        )
        raise VacuumRefused(
            f"A lite vacuum needs every commit since the last vacuum; version {missing} is not in the log, and {since}. "
            "Nothing was deleted. Run a full vacuum once."
        )
    # Nothing was in the table before version 0, so it cannot have removed anything, and it is often the largest.
    files = [commits[version] for version in wanted if version]
    batches = [
        _named(decode_actions(removals, file.key), storage.uri)
        for file, removals in _removals(storage, files)
        if removals
    ]
    named = pa.Table.from_batches(batches, _NAMED_SCHEMA)
    # A deletion vector has no size in the log, and a file may be named often.
    once = named.group_by("key").aggregate([("size", "max")]).sort_by("key")
    keys = once.column("key").combine_chunks()
    external = pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))
    kept = pc.invert(pc.or_(external, hidden.mask(keys)))
    keys = keys.filter(kept)
    columns = [keys, once.column("size_max").filter(kept), pa.nulls(len(keys), pa.int64())]
    return Listing(pa.table(columns, schema=LISTING_SCHEMA), num_directories=len(directories_of(keys)))


def _named(actions: Sequence[Action], table_uri: str) -> pa.RecordBatch:
    """The files of removes and of change data, and the vectors of removes; addresses, if they are elsewhere."""
    files = [action.remove or action.cdc for action in actions]
    paths = decode_paths(pa.array([file.path for file in files if file is not None], pa.string()), table_uri)
    sizes = pa.array([file.size for file in files if file is not None], pa.int64())
    removes = [action.remove for action in actions if action.remove is not None]
    found = [vector_key(remove.deletionVector, table_uri) for remove in removes]
    vectors = pa.array([key for key in found if key is not None], pa.string())
    return pa.record_batch(
        [pa.concat_arrays([paths, vectors]), pa.concat_arrays([sizes, pa.nulls(len(vectors), pa.int64())])],
        schema=_NAMED_SCHEMA,
    )


def _removals(storage: Storage, files: Sequence[LogFile]) -> Iterator[tuple[LogFile, bytes]]:
    """Of each commit the lines that may hold what it removed: in one that adds a million files, there are few."""
    # On a disk a large commit need not be held.
    large = {file.key for file in files if storage.concurrency < 2 and file.info.size > _LINES_BYTES}
    bodies = storage.read_many([file.key for file in files if file.key not in large])
    for file in files:
        if file.key not in large:
            yield file, _removing(io.BytesIO(next(bodies)))
            continue
        with storage.open_read(file.key) as raw, io.BufferedReader(raw, _LINES_BYTES) as lines:
            yield file, _removing(lines)


def _removing(lines: Iterable[bytes]) -> bytes:
    # A line is one action, and most are seen by their beginning to be adds.
    rest = (line for line in lines if not line.startswith(b'{"add":{'))
    return b"".join(line for line in rest if b'"remove"' in line or b'"cdc"' in line)


def not_behind_links(storage: Storage, files: pa.Table) -> pa.Table:
    """Of some files that were not listed, those that are no symbolic links, and to which none leads.

    Where times are not known yet, the look at each file leaves such ones out
    (:meth:`~delta_log.storage.storage.Storage.sizes_and_times`).
    """
    is_known = pc.is_valid(files.column("modification_time_ms"))
    if not storage.has_directories or not pc.any(is_known, min_count=0).as_py():
        return files
    links = storage.symbolic_links(files.column("key").to_pylist())
    return files.filter(pa.array([link is None for link in links], pa.bool_()))
