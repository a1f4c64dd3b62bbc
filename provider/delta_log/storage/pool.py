"""Opens many tables through few clients: a client costs memory, connections and a tenth of a second."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from delta_log.storage.opening import is_on_disk, open_storage
from delta_log.storage.schemes import store_of
from delta_log.storage.storage import Storage


class StoragePool:
    """Opens storages that share one client for each bucket or container; any thread may use it.

    :param storage_options: as for :func:`~delta_log.storage.opening.open_storage`. The pool drops ``lock``, because its
        storages are for reading.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = {name: value for name, value in (storage_options or {}).items() if name != "lock"}
        self._opened: dict[tuple[str, str], Storage] = {}
        self._lock = threading.Lock()

    def open(self, table_uri: str) -> Storage:
        """
        :raises InvalidRequest: no store has this scheme, or its package is missing.
        """
        if is_on_disk(table_uri):
            return open_storage(table_uri, self._options)
        store = store_of(table_uri)
        with self._lock:
            known = self._opened.get(store)
            if known is None:
                known = self._opened[store] = open_storage(table_uri, self._options)
                return known
        from delta_log.storage.remote import RemoteStorage

        if isinstance(known, RemoteStorage):
            return known.beside(table_uri)
        return open_storage(table_uri, self._options)
