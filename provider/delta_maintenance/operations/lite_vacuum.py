"""The lite VACUUM's candidates: what the log's own commits removed, from where the last vacuum stopped to the cutoff.

No directory is listed whole, so it costs what has happened since, not what the table holds; and it finds neither
orphans nor empty directories. It needs every commit since the last vacuum, and refuses where some were cleaned.

``_last_vacuum_info`` remembers the newest version whose removals are all deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.actions import decode_actions
from delta_log.file_path import address_of, is_external
from delta_log.log_path import LOG_DIRECTORY, LogFile
from delta_log.storage import Storage
from delta_maintenance.plan.hidden_names import HiddenNames
from delta_maintenance.plan.protected_files import mentions_of
from delta_maintenance.plan.vacuum import VacuumRefused
from delta_maintenance.plan.vacuum_listing import LISTING_SCHEMA, Listing, ListingCollector, parents_of

LAST_VACUUM_INFO = f"{LOG_DIRECTORY}/_last_vacuum_info"
_SETTLED = "latestCommitVersionOutsideOfRetentionWindow"
#: So many files are looked at one by one, where that can be done side by side.
_FEW_FILES = 2_000


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
    """What commits removed, and their change data, whether it is still there or not.

    :param commits: all that the log holds.
    :param settled_version: the newest one that was committed before the cutoff.
    :raises VacuumRefused: commits since the last vacuum are missing.
    """
    earliest = min(commits)
    last = last_settled_version(storage)
    if earliest > 0 and (last is None or last + 1 < earliest):
        since = (
            "no vacuum has left a note of how far it came" if last is None else f"the last one came to {last}"
        )
        raise VacuumRefused(
            f"A lite vacuum needs every commit since the last vacuum; the log begins at version {earliest}, and {since}. "
            "Nothing was deleted. Run a full vacuum once."
        )
    first = 0 if last is None else last + 1
    wanted = [] if settled_version is None else range(first, settled_version + 1)
    files = [commits[version] for version in wanted]
    keys: set[str] = set()
    for file, body in zip(files, storage.read_many([file.key for file in files]), strict=True):
        actions = decode_actions(body, file.key)
        removes = [action for action in actions if action.remove is not None]
        keys.update(mentions_of(removes, 0, storage.uri).column("key").to_pylist())
        keys.update(address_of(action.cdc.path, storage.uri) for action in actions if action.cdc is not None)
    found = sorted(key for key in keys if not is_external(key) and not hidden.hides(key))
    unknown = pa.nulls(len(found), pa.int64())
    return Listing(pa.table([pa.array(found, pa.string()), unknown, unknown], schema=LISTING_SCHEMA))


def still_there(storage: Storage, files: pa.Table, hidden: HiddenNames) -> pa.Table:
    """Of some files that were not listed, those that are there, reached without any link."""
    if not files.num_rows or (not storage.has_directories and files.num_rows <= _FEW_FILES):
        return files
    directories = set()
    for parent in parents_of(files.column("key")):
        directory = parent
        while directory not in directories:
            directories.add(directory)
            directory = directory.rpartition("/")[0]
    collector = ListingCollector(hidden)
    for page in storage.list_tree(lambda met: [key for key in collector.enter(met) if key in directories]):
        collector.take(page)
    listed = collector.listing().files
    return listed.filter(pc.is_in(listed.column("key"), value_set=files.column("key")))
