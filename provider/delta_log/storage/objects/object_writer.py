"""Writes a new object while its content comes: a small one by one request, a large one in parts."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

from delta_log.errors import StorageError
from delta_log.storage.storage import FileInfo, Storage

#: Writes an object in parts, given its key and its content, while the content comes.
PutParts: TypeAlias = Callable[[str, Iterator[bytes]], None]

#: Parts that wait for the thread that sends them.
_PARTS_AHEAD = 1


class ObjectWriter(io.RawIOBase):
    """A binary file that becomes an object when it is finished; if its block is left before, no object is created.

    A thread of its own sends the parts.

    :param part_bytes: size of a part; an object of one part is written by one request.
    :param put_parts: function that writes a larger object.
    :ivar described: the object, if one request wrote all of it. Its time comes from this machine's clock.
    """

    def __init__(self, storage: Storage, key: str, part_bytes: int, put_parts: PutParts) -> None:
        super().__init__()
        self._storage, self._key, self._part_bytes = storage, key, part_bytes
        self._put_parts = put_parts
        self._buffer = bytearray()
        self._sender: _PartSender | None = None
        self.described: FileInfo | None = None
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = self._part_bytes
        for start in range(0, len(view), size):
            self._buffer += view[start : start + size]
            # What fills one part may be all of the content.
            if len(self._buffer) > size:
                self._send(size)
        self._position += len(view)
        return len(view)

    def finish(self) -> None:
        """Create the object.

        :raises StorageError: the store failed.
        """
        if self._sender is None:
            self._storage.put(self._key, bytes(self._buffer))
            self.described = FileInfo.of(self._key, self._position, time.time())
            return
        if self._buffer:
            self._send(len(self._buffer))
        self._sender.finish()

    def _send(self, num_bytes: int) -> None:
        if self._sender is None:
            self._sender = _PartSender(self._storage, self._key, self._put_parts)
        with memoryview(self._buffer) as view:
            part = bytes(view[:num_bytes])
        del self._buffer[:num_bytes]
        self._sender.send(part)

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._sender is not None:
            self._sender.abort()


class _GivenUp(Exception):
    """Ends an upload whose content does not come to its end."""


class _PartSender:
    """A thread that uploads the parts that another one hands over."""

    def __init__(self, storage: Storage, key: str, put_parts: PutParts) -> None:
        self._storage, self._key, self._put_parts = storage, key, put_parts
        #: ``None`` ends the content.
        self._parts: SimpleQueue[bytes | _GivenUp | None] = SimpleQueue()
        self._room = threading.Semaphore(_PARTS_AHEAD)
        self._error: BaseException | None = None
        self._size = 0
        self._is_ended = self._is_finished = False
        self._thread = threading.Thread(target=self._run, name="delta-log-upload", daemon=True)
        self._thread.start()

    def send(self, part: bytes) -> None:
        """Hand a part over, and wait if one is waiting already.

        :raises StorageError: the upload has failed.
        """
        self._room.acquire()
        if self._error is not None:
            self.finish()
        self._parts.put(part)
        self._size += len(part)

    def finish(self) -> None:
        """
        :raises StorageError: the upload has failed, and there is no object.
        """
        self._end(None)
        if self._error is not None and not self._is_there():
            raise self._error
        self._is_finished = True

    def _is_there(self) -> bool:
        """Whether only the last answer was lost. No other writer knows the key."""
        if self._is_ended and isinstance(self._error, StorageError):
            with suppress(StorageError):
                found = self._storage.head(self._key)
                return found is not None and found.size == self._size
        return False

    def abort(self) -> None:
        """Give the object up, if it is not finished."""
        self._end(_GivenUp())
        if self._error is None and not self._is_finished:
            # Who waited for the end was interrupted, and the object is there.
            with suppress(StorageError):
                self._storage.delete([self._key])

    def _end(self, last: _GivenUp | None) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._parts.put(last)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._put_parts(self._key, self._content())
        except BaseException as error:  # noqa: BLE001 - the thread that writes raises it; obstore has some of this kind
            self._error = error
            # Nobody takes what follows, and its writer must not wait.
            self._room.release(1 << 20)

    def _content(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _GivenUp):
                raise part
            self._room.release()
            yield part
