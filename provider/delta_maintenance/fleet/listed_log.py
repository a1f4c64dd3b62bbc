"""A table whose log has been listed just now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.storage import FileInfo, Storage
from delta_log.storage.wrapped import WrappedStorage


class ListedLog(WrappedStorage):
    """Answers listings of the log from one that was made, so that a reading sees one state of it and lists it once.

    :param log: files of the log, in byte order, without a gap between commits: readers list again where there is one.
    """

    def __init__(self, inner: Storage, log: Sequence[FileInfo]) -> None:
        super().__init__(inner)
        self._log = log

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        if directory != LOG_DIRECTORY:
            return self._inner.list_from(directory, start_name)
        return (file for file in self._log if file.name >= start_name)
