"""What a survey knows from the last one, in one small file on a disk or in an object store.

The file is a line with the format's number, and a compressed msgpack document. It is a cache: without it the next survey reads all
tables. So a file that is damaged, or of another format, is told of and begun anew. A file of something else is refused, since writing would
destroy it.

It holds addresses, facts and properties of tables, without credentials.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from delta_log.catalog.lookup import without_catalogs
from delta_log.errors import InvalidRequest
from delta_log.redaction import redact_uri
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import FileInfo
from delta_log.storage.table_uri import one_spelling, require_absolute
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.progress import ProgressReporter

_NAME = b"delta-maintenance survey "
_HEADER = _NAME + b"1\n"
#: More than a hundred thousand tables take.
_MOST_BYTES = 1 << 30


class KnownTable(Struct, frozen=True):
    """A table as a survey has found it.

    :param location: address at which it was read.
    :param log_digest: digest of the listing of its log, before the facts were read.
    :param limits_digest: digest of the options with which the facts were read.
    :param last_commit: file of the newest commit; ``None``: a log cleanup has deleted it.
    """

    surveyed: SurveyedTable
    location: str
    log_digest: bytes
    limits_digest: bytes
    last_commit: FileInfo | None


class SurveyMemory(Struct, frozen=True):
    """The tables that are known, by their addresses."""

    tables: Mapping[str, KnownTable] = {}

    def without(self, tables: Collection[str]) -> SurveyMemory:
        """Forget tables, so that the next survey reads them: deletions of files leave no trace in the log."""
        return replace(self, tables={name: one for name, one in self.tables.items() if name not in tables})


class SurveyMemoryFile:
    """The place of a memory.

    :param place: absolute path or URI of the file.
    :param storage_options: options of the store.
    :raises InvalidRequest: the address is relative, names no file, or carries credentials.
    """

    def __init__(self, place: str, storage_options: Mapping[str, Any] | None = None) -> None:
        require_absolute(place)
        self.uri = one_spelling(place)
        directory, _, self._name = self.uri.rpartition("/")
        self._storage = open_storage(directory or "/", without_catalogs(storage_options))

    def read(self, progress: ProgressReporter) -> SurveyMemory:
        """Return what the file has; nothing is known where there is none, or where it is of no use.

        :param progress: reporter that is told why a file is of no use.
        :raises InvalidRequest: the file is something else.
        :raises StorageError: it cannot be read.
        """
        try:
            data = self._storage.read(self._name)
        except FileNotFoundError:
            return SurveyMemory()
        if not data.startswith(_NAME):
            raise InvalidRequest(
                f"{redact_uri(self.uri)} is not the memory of a survey, and would be overwritten. Nothing was written. Give another address, "
                "or delete the file if nobody needs it."
            )
        try:
            return _decoded(data)
        except (DecodeError, ValueError, zlib.error) as error:
            why = "is of another release" if not data.startswith(_HEADER) else f"is damaged ({error})"
            progress.message(f"The memory {redact_uri(self.uri)} {why}, so this survey reads all tables.")
            return SurveyMemory()

    def write(self, memory: SurveyMemory) -> None:
        """Put the memory in place of the file, whole or not at all.

        :raises StorageError: it cannot be written.
        """
        self._storage.put(self._name, _HEADER + zlib.compress(msgpack.encode(memory)))


def _decoded(data: bytes) -> SurveyMemory:
    """
    :raises DecodeError, ValueError, zlib.error: the content is no such document.
    """
    if not data.startswith(_HEADER):
        raise ValueError("another format")
    stream = zlib.decompressobj()
    document = stream.decompress(data[len(_HEADER) :], _MOST_BYTES)
    if not stream.eof or stream.unused_data:
        raise ValueError("it does not end where its content does")
    return msgpack.decode(document, type=SurveyMemory)
