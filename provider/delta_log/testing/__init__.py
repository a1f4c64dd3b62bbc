"""Doubles and contracts at the seams of :mod:`delta_log`, for tests of this project and of its users."""

from delta_log.testing.storage_contract import Fault as Fault
from delta_log.testing.storage_contract import FaultyStorage as FaultyStorage
from delta_log.testing.storage_contract import MemoryStorage as MemoryStorage
from delta_log.testing.storage_contract import StorageContract as StorageContract
from delta_log.testing.storage_contract import TornListings as TornListings
