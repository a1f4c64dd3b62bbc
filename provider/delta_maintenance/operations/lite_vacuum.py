"""The lite VACUUM's candidates: what the log's own commits removed, from where the last vacuum stopped to the cutoff.

Nothing is listed, so it costs what has happened since, not what the table holds; and it finds neither orphans nor empty
directories. It needs every commit since the last vacuum, and refuses where some were cleaned. On a disk each file is
looked at right away; on an object store, where that is a request for each, not before it is about to be deleted.

``_last_vacuum_info`` remembers the newest version whose removals are all deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from delta_log.actions import decode_actions
from delta_log.file_path import address_of, is_external
from delta_log.log_path import LOG_DIRECTORY, LogFile
from delta_log.storage import Storage
from delta_maintenance.plan.hidden_names import HiddenNames
from delta_maintenance.plan.key_columns import directories_of
from delta_maintenance.plan.protected_files import vector_key
from delta_maintenance.plan.vacuum import VacuumRefused
from delta_maintenance.plan.vacuum_listing import LISTING_SCHEMA, Listing

LAST_VACUUM_INFO = f"{LOG_DIRECTORY}/_last_vacuum_info"
_SETTLED = "latestCommitVersionOutsideOfRetentionWindow"


def last_settled_version(storage: Storage) -> int | None:
    """Up to which version a vacuum has deleted everything that was removed; ``None``: nobody noted it."""
    try:
        found = json.loads(storage.read(LAST_VACUUM_INFO)).get(_SETTLED)
    except (FileNotFoundError, ValueError, AttributeError):
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
    files = [commits[version] for version in wanted]
    sizes: dict[str, int | None] = {}
    for file, body in zip(files, storage.read_many([file.key for file in files]), strict=True):
        removals = _removals(body)
        for action in decode_actions(removals, file.key) if removals else ():
            if action.remove is not None:
                sizes[address_of(action.remove.path, storage.uri)] = action.remove.size
                vector = vector_key(action.remove.deletionVector, storage.uri)
                if vector is not None:
                    sizes.setdefault(vector, None)
            elif action.cdc is not None:
                sizes[address_of(action.cdc.path, storage.uri)] = action.cdc.size
    found = sorted(key for key in sizes if not is_external(key) and not hidden.hides(key))
    columns = [
        pa.array(found, pa.string()),
        pa.array([sizes[key] for key in found], pa.int64()),
        pa.nulls(len(found), pa.int64()),
    ]
    return Listing(pa.table(columns, schema=LISTING_SCHEMA), num_directories=len(directories_of(columns[0])))


def _removals(body: bytes) -> bytes:
    """The lines of a commit that may hold what it removed: in one that adds a million files, there are few."""
    if b'"remove"' not in body and b'"cdc"' not in body:
        return b""
    return b"\n".join(line for line in body.splitlines() if b'"remove"' in line or b'"cdc"' in line)


def not_behind_links(storage: Storage, files: pa.Table) -> pa.Table:
    """Of some files that were not listed, those to which no link leads."""
    keys = files.column("key").to_pylist()
    is_plain = [led == key for key, led in zip(keys, storage.followed(keys), strict=True)]
    return files.filter(pa.array(is_plain, pa.bool_()))
