"""Opens the storage of an address: a disk, a store of :data:`~delta_log.storage.schemes.STORES`, or any that fsspec knows.

The class of a store is loaded by its entry there. S3 alone is named here, since a lock may stand before it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from delta_log.errors import InvalidRequest
from delta_log.storage.access_denied import identity_of
from delta_log.storage.ambient_options import without_identity
from delta_log.storage.schemes import S3, StoreKind, kind_of, opened_kind, scheme_of, store_of
from delta_log.storage.storage import Storage
from delta_log.storage.table_uri import is_name, local_path, one_spelling, require_no_credentials


def is_on_disk(table_uri: str) -> bool:
    """Whether an address is a path or a ``file`` URI."""
    return scheme_of(table_uri) in ("", "file")


def open_storage(table_uri: str, storage_options: Mapping[str, Any] | None = None) -> Storage:
    """Open the store of a table.

    :param table_uri: a local path, ``file://…`` or any URI that fsspec knows (``s3://``, ``gs://``, ``abfs://`` …).
    :param storage_options: options of the store, as docs/reference/stores.md lists them; for any other scheme, options of the fsspec
        file system.
    :raises InvalidRequest: no store has this scheme, its package is missing, or the address carries credentials.
    """
    require_no_credentials(table_uri)
    local_path(table_uri)  # refuses what is neither a path nor a URI
    table_uri = _with_plain_scheme(table_uri)
    if is_name(table_uri):
        raise InvalidRequest(
            f"{table_uri} is a name in a catalog, and a place is asked for here. Give a path, or a URI such as s3://bucket/table."
        )
    if opened_kind(scheme_of(table_uri)) is None and kind_of(scheme_of(table_uri)) is not None:
        # An alias, which no client library knows: s3n, wasb, wasbs.
        table_uri = one_spelling(table_uri)
    options = dict(storage_options or {})
    managed_by = options.pop("managed_by", None)
    if managed_by is not None:
        return with_catalog(open_storage(table_uri, options), managed_by)
    lock = options.pop("lock", None)
    if lock is not None:
        return open_locked(table_uri, options, lock)
    scheme = scheme_of(table_uri)
    if opened_kind(scheme) is None:
        # No catalog gives out credentials for such a store.
        options.pop("vended", None)
    if scheme in ("", "file"):
        from delta_log.storage.local.local_storage import LocalStorage

        return LocalStorage(unquote(urlsplit(table_uri).path) if scheme else table_uri)
    kind = opened_kind(scheme)
    if kind is None:
        from delta_log.storage.remote import RemoteStorage

        return RemoteStorage(table_uri, options)
    return _open_object_store(kind, table_uri, options)


def with_catalog(storage: Storage, managed_by: Any) -> Storage:
    """Return a storage whose commits go through a catalog, as far as the catalog manages the table. This asks no catalog.

    :param managed_by: value of the storage option ``managed_by``; ``None``: there is no such catalog.
    """
    if managed_by is None:
        return storage
    # Imported here, since few tables are opened so.
    from delta_log.storage.managed.managed_storage import ManagedStorage
    from delta_log.storage.vending.unity_commits import unity_commits

    return ManagedStorage(storage, unity_commits(storage.uri, managed_by))


def _open_object_store(kind: StoreKind, table_uri: str, options: Mapping[str, Any]) -> Storage:
    """Open a store with the identity that the options have, or with credentials that a catalog gives out."""
    vended = options.get("vended")
    if vended is None:
        own: Storage = _implementation(kind, table_uri)(table_uri, options)
        return own
    # Imported here, since few tables are opened so.
    from delta_log.storage.vending.vended_credentials import vended_credentials

    source = vended_credentials(vended)
    settings = {**without_identity(table_uri, options), **kind.unsigned}
    storage = _implementation(kind, table_uri)(table_uri, settings)
    storage.sign(lambda: source.fetch(table_uri), identity_of(table_uri, options))
    signed: Storage = storage
    return signed


def _implementation(kind: StoreKind, table_uri: str) -> Any:
    """
    :raises InvalidRequest: a package is missing.
    """
    module, name = kind.implementation
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise InvalidRequest(
            f"{table_uri} needs a package that is not installed ({error}). Install airflow-provider-delta[{kind.extra}]."
        ) from error


def _with_plain_scheme(address: str) -> str:
    """Return an address with its scheme in lower case, as client libraries want it.

    :raises InvalidRequest: it names no place in a store.
    """
    scheme, separator, rest = address.partition("://")
    if not separator or scheme_of(address) in ("", "file"):
        return address
    scheme = scheme.lower()
    if not rest.strip("/") or (kind_of(scheme) is not None and rest.startswith("/")):
        raise InvalidRequest(
            f"The address {address!r} names no bucket or container. Give one, as in s3://bucket/table; if the address comes from a "
            "template, look at what the template renders to."
        )
    return f"{scheme}://{rest}"


def open_locked(table_uri: str, options: Mapping[str, Any], lock: object) -> Storage:
    """Open a table on S3 whose commits go through a DynamoDB table.

    :param options: options of the S3 file system.
    :param lock: the storage option ``lock``; see :class:`~delta_log.storage.lock.dynamodb_lock.LockOptions`.
    :raises InvalidRequest: the table is not on S3, or the option is wrong.
    """
    if scheme_of(table_uri) not in S3.schemes:
        raise InvalidRequest(
            f'{table_uri} is not on S3, and the storage option "lock" is for S3 alone: no other writer would look at '
            "it. Leave it out."
        )
    from delta_log.storage.lock.dynamodb_lock import DynamoDBLock, LockOptions
    from delta_log.storage.lock.locked import LockedStorage

    asked = LockOptions.from_mapping(lock, options)
    return LockedStorage(
        _open_object_store(S3, table_uri, options),
        DynamoDBLock(table_uri, asked),
        conditional_put=asked.conditional_put,
    )


class StoragePool:
    """Opens storages that share one client for each bucket or container; any thread may use it.

    A client costs memory, connections and a tenth of a second.

    :param storage_options: options as for :func:`~delta_log.storage.opening.open_storage`. The pool drops ``lock``, because
        its storages are for reading.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = {name: value for name, value in (storage_options or {}).items() if name != "lock"}
        self._opened: dict[tuple[str, ...], Storage] = {}
        self._lock = threading.Lock()

    def open(self, table_uri: str, own: Mapping[str, Any] | None = None) -> Storage:
        """
        :param own: options of this table alone (:data:`~delta_log.storage.schemes.NAMED_TABLE_OPTIONS`). No other table shares a client
            with ``vended``.
        :raises InvalidRequest: no store has this scheme, or its package is missing.
        """
        if own:
            return self._open_named(table_uri, own)
        if is_on_disk(table_uri):
            return open_storage(table_uri, self._options)
        store = store_of(table_uri)
        with self._lock:
            known = self._opened.get(store)
            if known is None:
                known = self._opened[store] = open_storage(table_uri, self._options)
                return known
        if opened_kind(scheme_of(table_uri)) is None:
            return open_storage(table_uri, self._options)
        from delta_log.storage.objects.object_store import ObjectStorage

        assert isinstance(known, ObjectStorage)
        return known.beside(table_uri)

    def _open_named(self, table_uri: str, own: Mapping[str, Any]) -> Storage:
        place = ("named", table_uri, json.dumps(own, sort_keys=True))
        shared = None if "vended" in own else self.open(table_uri)
        with self._lock:
            known = self._opened.get(place)
            if known is None:
                opened = shared or open_storage(table_uri, {**self._options, "vended": own["vended"]})
                known = self._opened[place] = with_catalog(opened, own.get("managed_by"))
            return known
