"""Writes a whole plan to a file that the user names: one JSON object per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.storage.storage import Storage


class PlanFile(Struct, frozen=True):
    """A file that does not exist yet."""

    uri: str
    storage: Storage
    name: str

    @classmethod
    def of(cls, uri: str, open_place: Callable[[str], Storage]) -> PlanFile:
        """
        :raises InvalidRequest: the URI is a directory, or the file exists.
        """
        directory, _, name = uri.rpartition("/")
        if not name:
            raise InvalidRequest(f"{uri} is a directory; name a new file for the plan.")
        storage = open_place(directory or ("/" if uri.startswith("/") else "."))
        if storage.head(name) is not None:
            raise InvalidRequest(f"{uri} is there already. Name a new file for the plan.")
        return cls(uri, storage, name)

    def write(self, pieces: Iterable[bytes]) -> None:
        with self.storage.open_write(self.name) as file:
            for piece in pieces:
                file.write(piece)
