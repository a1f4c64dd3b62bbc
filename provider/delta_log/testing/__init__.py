"""Storages for tests, and the tests of a storage: for this project and for projects that build on it.

* :class:`MemoryStorage` keeps every promise of :class:`~delta_log.storage.storage.Storage` in memory;
* :class:`FaultyStorage` wraps any storage and fails at the call that a test chooses;
* :class:`StorageContract` holds the tests that every storage has to pass;
* :mod:`delta_log.testing.fake_catalogs` has catalogs that a thread of the test serves, and
  :mod:`delta_log.testing.catalog_contract` the tests that a catalog has to pass;
* :mod:`delta_log.testing.commit_contract` has the tests that a catalog has to pass that ratifies commits.
"""

from delta_log.testing.faulty_storage import Fault as Fault
from delta_log.testing.faulty_storage import FaultyStorage as FaultyStorage
from delta_log.testing.faulty_storage import TornListings as TornListings
from delta_log.testing.memory_storage import MemoryStorage as MemoryStorage
from delta_log.testing.storage_contract import StorageContract as StorageContract
