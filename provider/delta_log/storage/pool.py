"""Many tables through few clients: a client library's session costs memory, connections and a tenth of a second."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from delta_log.storage.storage import Storage, is_on_disk, open_storage


class StoragePool:
    """Storages that share a client for each bucket or container. Any thread may call these.

    :param storage_options: as of :func:`~delta_log.storage.storage.open_storage`. A lock is left out: the pool's storages are
        for reading.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = {name: value for name, value in (storage_options or {}).items() if name != "lock"}
        self._opened: dict[tuple[str, str], Storage] = {}
        self._lock = threading.Lock()

    def open(self, table_uri: str) -> Storage:
        """
        :raises InvalidRequest: no such kind of store, or its package is missing.
        """
        if is_on_disk(table_uri):
            return open_storage(table_uri, self._options)
        address = urlsplit(table_uri)
        store = (address.scheme, address.netloc)
        with self._lock:
            known = self._opened.get(store)
            if known is None:
                known = self._opened[store] = open_storage(table_uri, self._options)
                return known
        from delta_log.storage.remote import RemoteStorage

        return (
            known.beside(table_uri)
            if isinstance(known, RemoteStorage)
            else open_storage(table_uri, self._options)
        )
