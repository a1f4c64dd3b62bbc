"""The files of a lite VACUUM: what the commits removed, from where the last vacuum stopped up to the cutoff.

Nothing is listed. So the cost depends on what has happened since the last vacuum, and not on the size of the table. In
return, orphans and empty directories are not found. Every commit since the last vacuum is needed; if a log cleanup has
deleted one of them, the vacuum is refused. On a disk each file is looked at right away. On an object store, where a look
is a request, it is looked at just before it is deleted.

``_last_vacuum_info`` holds the newest version up to which all removed files have been deleted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.actions import Action, decode_commit
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
    """Read up to which version a vacuum has deleted all removed files; ``None`` if no vacuum has noted it."""
    try:
        found = json.loads(storage.read(LAST_VACUUM_INFO)).get(_SETTLED)
    except (FileNotFoundError, ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def remember_settled_version(storage: Storage, version: int) -> None:
    """Note up to which version all removed files are deleted, unless a later version is noted already."""
    known = last_settled_version(storage)
    if known is None or known < version:
        storage.put(LAST_VACUUM_INFO, json.dumps({_SETTLED: version}).encode())


def removed_files(
    storage: Storage, commits: Mapping[int, LogFile], settled_version: int | None, hidden: HiddenNames
) -> Listing:
    """Collect the files that commits removed, and their change data, whether these are still there or not.

    :param commits: all commits of the log.
    :param settled_version: the newest version that was committed before the cutoff.
    :return: a listing with the sizes that the log gives, and without times.
    :raises VacuumRefused: commits since the last vacuum are missing.
    """
    files = _unsettled_commits(commits, last_settled_version(storage), settled_version)
    batches = [
        _named(decode_commit(removals, file.key), storage.uri)
        for file, removals in _removals(storage, files)
        if removals
    ]
    named = pa.Table.from_batches(batches, _NAMED_SCHEMA)
    # A file can be named several times; a deletion vector has no size in the log.
    once = named.group_by("key").aggregate([("size", "max")]).sort_by("key")
    keys = once.column("key").combine_chunks()
    external = pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))
    kept = pc.invert(pc.or_(external, hidden.mask(keys)))
    keys = keys.filter(kept)
    columns = [keys, once.column("size_max").filter(kept), pa.nulls(len(keys), pa.int64())]
    return Listing(pa.table(columns, schema=LISTING_SCHEMA), num_directories=len(directories_of(keys)))


def _unsettled_commits(
    commits: Mapping[int, LogFile], last: int | None, settled_version: int | None
) -> list[LogFile]:
    """Select the commits after the last vacuum and up to the settled version.

    :param last: the version that the last vacuum noted.
    :raises VacuumRefused: a commit is missing.
    """
    first = 0 if last is None else last + 1
    wanted = range(first, 0 if settled_version is None else settled_version + 1)
    # A commit that was cleaned from the log is older than those that are left. So it is settled, even if they are not.
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
    # Version 0 is skipped: it cannot have removed anything, and it is often the largest commit.
    return [commits[version] for version in wanted if version]


def _named(actions: Sequence[Action], table_uri: str) -> pa.RecordBatch:
    """Extract the files of ``remove`` and ``cdc`` actions, and the deletion vectors of ``remove`` actions.

    :return: keys below the root; a file elsewhere is given by its address.
    """
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
    """Read the lines of each commit that may be ``remove`` or ``cdc`` actions; a commit that adds files has few of them."""
    # On a disk, a large commit is read line by line, so that it is never in memory as a whole.
    large = {file.key for file in files if storage.concurrency < 2 and file.info.size > _LINES_BYTES}
    bodies = storage.read_many([file.key for file in files if file.key not in large])
    for file in files:
        if file.key not in large:
            yield file, _removing(io.BytesIO(next(bodies)))
            continue
        with storage.open_read(file.key) as raw, io.BufferedReader(raw, _LINES_BYTES) as lines:
            yield file, _removing(lines)


def _removing(lines: Iterable[bytes]) -> bytes:
    # A line is one action. The cheap test of its beginning excludes most adds.
    rest = (line for line in lines if not line.startswith(b'{"add":{'))
    return b"".join(line for line in rest if b'"remove"' in line or b'"cdc"' in line)
