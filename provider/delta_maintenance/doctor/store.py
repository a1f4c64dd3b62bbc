"""Checks of a table's store, by doing what jobs do there: list, create under a condition, read, overwrite and delete.

The probes lie in the table's hidden directory ``_maintenance``, which readers and VACUUM do not see. They are deleted again; where
deleting is what fails, some bytes stay, and the check says where.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from delta_log.catalog.lookup import locate, opening_options
from delta_log.errors import NotATable, StorageError
from delta_log.runtime import Runtime
from delta_log.storage.access_denied import identity_of
from delta_log.storage.opening import open_storage
from delta_log.storage.schemes import kind_of, scheme_of
from delta_log.storage.storage import Storage
from delta_log.storage.store_clock import CLOCK_MARGIN_MS
from delta_log.storage.table_uri import is_name
from delta_log.table import Table
from delta_maintenance.doctor.check import FAILURE, OK, WARNING, Check, Examination

_DIRECTORY = "_maintenance"
_LOG = "_delta_log"
_NEED_A_PROBE = ("store.read", "store.overwrite", "store.clock", "store.delete")
_AFTER_OPENING = ("store.list", "store.create", *_NEED_A_PROBE, "table")

#: By family of stores and action, the right that the action needs. On a disk, the rights are the permissions of the directory.
_RIGHTS = {
    "s3": {
        "list": "s3:ListBucket on the bucket",
        "read": "s3:GetObject on the table's objects",
        "write": "s3:PutObject on the table's objects",
        "delete": "s3:DeleteObject on the table's objects",
    },
    "gs": {
        "list": "storage.objects.list on the bucket",
        "read": "storage.objects.get",
        "write": "storage.objects.create (and storage.objects.delete, to overwrite)",
        "delete": "storage.objects.delete",
    },
    "abfs": {
        "list": "Storage Blob Data Reader on the container",
        "read": "Storage Blob Data Reader on the container",
        "write": "Storage Blob Data Contributor on the container",
        "delete": "Storage Blob Data Contributor on the container",
    },
}
_ON_DISK = {
    "list": "the right to read the table's directory",
    "read": "the right to read its files",
    "write": "the right to write into the table's directory",
    "delete": "the right to write into the table's directory",
}


def examine_store(
    examination: Examination, address: str, storage_options: Mapping[str, Any], runtime: Runtime
) -> None:
    """Check one table's store with real requests; the table itself is only read. A name is looked up in its catalog first."""
    found: list[str] = []
    opened: list[Storage] = []

    def looked_up() -> str:
        found.append(locate(address, storage_options))
        return f"{address} is at {found[0]}"

    given = address
    if is_name(address):
        if not examination.run("catalog", looked_up):
            examination.skip(["store.open", *_AFTER_OPENING], "it is not known where the table is")
            return
        address = found[0]
    storage_options = opening_options(given, storage_options)

    def open_() -> str:
        opened.append(open_storage(address, storage_options))
        return f"{opened[0].uri} by {identity_of(address, storage_options)}"

    if not examination.run("store.open", open_):
        examination.skip(_AFTER_OPENING, "the store cannot be opened")
        return
    storage = opened[0]
    rights = _rights_of(address)
    if not examination.run("store.list", lambda: _listed(storage), rights["list"]):
        examination.skip(_AFTER_OPENING[1:], "nothing is safe where listing fails")
        return
    _examine_writing(examination, storage, rights, runtime)
    examination.run("table", lambda: _table(address, storage_options))


def _examine_writing(
    examination: Examination, storage: Storage, rights: Mapping[str, str], runtime: Runtime
) -> None:
    directory = f"{_DIRECTORY}/doctor-{runtime.new_id()}"
    key, other = f"{directory}/probe", f"{directory}/overwritten"
    began_ms = runtime.now_ms()
    if not examination.run("store.create", lambda: _created(storage, key), rights["write"]):
        examination.skip(_NEED_A_PROBE, "there is no probe")
        return
    examination.run("store.read", lambda: _read(storage, key), rights["read"])
    examination.run("store.overwrite", lambda: _overwritten(storage, other), rights["write"])
    ended_ms = runtime.now_ms()
    examination.run("store.clock", lambda: _clock(storage, key, began_ms, ended_ms), rights["read"])
    examination.run("store.delete", lambda: _deleted(storage, (key, other), directory), rights["delete"])


def _listed(storage: Storage) -> str | Check:
    if storage.has_directories and not os.path.isdir(storage.uri):
        # A probe would make it.
        return Check("store.list", FAILURE, f"There is no directory {storage.uri}.", "Check the address.")
    first = next(iter(storage.list_from(_LOG)), None)
    return "the log can be listed" if first is not None else "the log can be listed, and is empty"


def _created(storage: Storage, key: str) -> str | Check:
    storage.require_writable()
    if not storage.put_if_absent(key, b"first"):
        return Check("store.create", FAILURE, f"{key} was there before it was written. Run again.")
    if storage.put_if_absent(key, b"second"):
        return Check(
            "store.create",
            FAILURE,
            "The store overwrote an object that should only have been created if it was absent. Two writers of the table would destroy "
            "each other's commits.",
            "Use a store or server with conditional writes, or have all writers coordinate through a lock table: storage option 'lock'.",
        )
    return "an object is created if it is absent, and is left alone if it is there"


def _read(storage: Storage, key: str) -> str | Check:
    if storage.read(key) == b"first" and storage.read(key, 1, 2) == b"ir":
        return "whole objects and ranges can be read"
    return Check("store.read", FAILURE, f"{key} does not hold what was written.")


def _overwritten(storage: Storage, key: str) -> str | Check:
    storage.put(key, b"first")
    storage.put(key, b"second")
    if storage.read(key) == b"second":
        return "an object can be overwritten"
    return Check("store.overwrite", FAILURE, f"{key} still has its first content after it was overwritten.")


def _deleted(storage: Storage, keys: tuple[str, ...], directory: str) -> str | Check:
    try:
        storage.delete(keys)
    except StorageError as error:
        return Check(
            "store.delete",
            WARNING,
            f"{error} OPTIMIZE and PURGE need no right to delete, but leave their probes and manifests; VACUUM and the cleanup of the "
            f"log fail. The probes are below {directory}.",
            f"Grant what deleting needs: {_rights_of(storage.uri)['delete']}.",
            {"error": type(error).__name__},
        )
    storage.remove_dir(directory)
    storage.remove_dir(_DIRECTORY)
    if any(storage.head(key) is not None for key in keys):
        return Check(
            "store.delete", WARNING, f"An object below {directory} is still there after its deletion."
        )
    return "objects can be deleted"


def _clock(storage: Storage, key: str, began_ms: int, ended_ms: int) -> Check:
    """Compare clocks: the store wrote the probe between the two times of this machine's clock."""
    found = storage.head(key)
    if found is None:
        return Check("store.clock", WARNING, "the probe is gone, so the clocks were not compared")
    ahead_ms = began_ms - found.modification_time_ms
    behind_ms = found.modification_time_ms - ended_ms
    facts = {"ahead_ms": max(0, ahead_ms), "behind_ms": max(0, behind_ms)}
    if ahead_ms > CLOCK_MARGIN_MS:
        return Check(
            "store.clock",
            FAILURE,
            f"This machine's clock is {_minutes(ahead_ms)} ahead of the store's. Young files look old, so VACUUM and the cleanup of the log "
            "refuse to work.",
            "Correct this machine's clock, for example with NTP.",
            facts,
        )
    if behind_ms > CLOCK_MARGIN_MS:
        return Check(
            "store.clock",
            WARNING,
            f"This machine's clock is {_minutes(behind_ms)} behind the store's. VACUUM deletes later than it could; a store may refuse "
            "signed requests.",
            "Correct this machine's clock, for example with NTP.",
            facts,
        )
    return Check("store.clock", OK, "this machine's clock and the store's agree", facts=facts)


def _table(address: str, storage_options: Mapping[str, Any]) -> str | Check:
    try:
        snapshot = Table(address, dict(storage_options) or None).snapshot()
    except NotATable as error:
        return Check("table", WARNING, str(error), "Give the address of a table, to have it read.")
    return f"version {snapshot.version}, {snapshot.num_files:,} files"


def _rights_of(address: str) -> Mapping[str, str]:
    kind = kind_of(scheme_of(address))
    return _ON_DISK if kind is None else _RIGHTS[kind.family]


def _minutes(milliseconds: int) -> str:
    return f"{milliseconds / 60_000:,.0f} minutes"
