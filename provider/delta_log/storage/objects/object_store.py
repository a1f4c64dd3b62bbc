"""The base of the object stores that can be written to: conditional puts, and uploads in parts.

Each store decides by itself whether it creates an object (RFC 9110, ``If-None-Match: *``, or the like). This module makes the
answer unambiguous. Clients repeat a request whose answer was lost, and the store refuses the repetition because of the first
attempt. So every conditional put carries a token in the object's metadata. A refusal counts only if the object that is there
carries another token.

Large contents are uploaded in parts, which no reader sees until the upload is completed. A store may copy the bytes of another of
its objects into a part by itself; then they do not pass this machine.
"""

from __future__ import annotations

import io
import math
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from itertools import islice, pairwise
from typing import IO, Any

import pyarrow as pa
from msgspec import Struct

from delta_log.errors import DeltaLogError, StorageError
from delta_log.storage.objects.object_listing import SpanPage, list_object_tree, list_span_tree
from delta_log.storage.remote import RemoteStorage, file_info, opened
from delta_log.storage.storage import (
    READ_AHEAD_BYTES,
    EnterDirectories,
    FileInfo,
    KeySpan,
    TreePage,
    require_key,
)


async def _sleep(seconds: float) -> None:
    import asyncio  # where nothing is repeated, it is not loaded

    await asyncio.sleep(seconds)


class Backoff(Struct, frozen=True):
    """Waits twice as long after each attempt, at random between half of that time and all of it.

    The random part keeps several writers from repeating their requests at the same moments.

    :param first_seconds: the longest wait after the first attempt.
    :param most_seconds: upper limit of each wait.
    :param jitter: function that returns a random number in [0, 1).
    :param sleep: a coroutine function that waits for so many seconds.
    """

    first_seconds: float
    most_seconds: float = math.inf
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = _sleep

    def seconds(self, attempt: int) -> float:
        """Return the wait after an attempt; attempts are numbered from 0."""
        return min(self.most_seconds, self.first_seconds * 2.0**attempt) * (1 + self.jitter()) / 2

    async def wait(self, attempt: int) -> None:
        """Wait after an attempt that failed."""
        await self.sleep(self.seconds(attempt))


#: Name of the token in an object's metadata: letters only, which every store and every proxy lets through.
TOKEN = "deltaput"  # noqa: S105 - no secret
_MAX_CONFLICTS = 20
_MAX_DELETED_AT_ONCE = 1000
#: How long copies within the store are waited for before their upload is aborted.
_SECONDS_TO_END = 10


class CreationConflict(StorageError):
    """The store was busy with other writers that create this object, and did not decide."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri} was not created: the store was busy with other writers of it. Run again when they are done.",
            uri,
        )


class ContentChanged(StorageError):
    """An object was overwritten while it was open, so that reading on would mix two contents."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} was overwritten while it was read. Run again.", uri)


class PlannedCopy(Struct, frozen=True):
    """How a range of another object becomes parts of a new one.

    :param fill_bytes: number of bytes to read and write, so that the part before the copied parts is large enough.
    :param copied_bytes: number of bytes of each part that the store copies behind these bytes.
    """

    fill_bytes: int
    copied_bytes: tuple[int, ...]


class ObjectEnd(Struct, frozen=True):
    """The last bytes of an object, its size, and its tag.

    :param tag: text that tells this content from another content under the same key. ``None``: the store gave none.
    """

    data: bytes
    size: int
    tag: str | None


class Upload(ABC):
    """An object that is written in parts and does not exist before it is completed.

    Its methods run in fsspec's thread.
    """

    @abstractmethod
    async def put_part(self, number: int, data: bytes, *, last: bool) -> None:
        """Upload a part. Parts are numbered from 0, and none is empty.

        All but the last have the same size, unless the store copies parts (:meth:`ObjectStorage.copied_part_bytes`).
        """

    async def copy_part(self, number: int, source: str, start: int, length: int) -> bool:
        """Make a part of bytes of another object. ``False``: the store did not, and the caller reads the bytes.

        Only stores with :meth:`ObjectStorage.copied_part_bytes` are asked to.
        """
        return False

    @abstractmethod
    async def complete(self) -> bool:
        """Create the object. ``False``: the upload was conditional, and an object was there.

        :raises CreationConflict: the store did not decide.
        """

    @abstractmethod
    async def abort(self) -> None: ...


class Stream(ABC):
    """An object that is written while its content comes, by a client that divides it into parts by itself.

    The object does not exist before it is finished.
    """

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append bytes, and wait if the client has many that are not sent.

        :raises StorageError: the store failed.
        """

    @abstractmethod
    def finish(self) -> None:
        """
        :raises StorageError: the store failed. There is no object then.
        """

    @abstractmethod
    def abort(self) -> None:
        """Give the object up, if it is not finished."""


class ObjectStorage(RemoteStorage):
    """A store that can be read and written. Subclasses make its requests in coroutines, which run in fsspec's thread."""

    #: Larger contents are put in parts.
    multipart_bytes: int = 64 << 20
    #: The size of a part. A file that is being written takes this much memory, ``parallel_parts + 3`` times.
    part_bytes: int = 8 << 20
    parallel_parts: int = 3
    #: The most keys in one page of a listing; ``None``: the store decides.
    page_keys: int | None = None
    #: Before a creation is repeated that the store did not decide.
    after_conflict: Backoff = Backoff(0.02, 2.0)
    #: Before content is asked for again whose connection broke.
    after_broken_read: Backoff = Backoff(0.1, 2.0)

    @abstractmethod
    async def _read(self, key: str, start: int, length: int | None, tag: str | None = None) -> bytes:
        """Read a range; ``length`` is not 0, and the result is empty if ``start`` is beyond the end.

        :param tag: the content to read.
        :raises FileNotFoundError: there is no such object.
        :raises ContentChanged: the object has other content by now.
        """

    @abstractmethod
    async def _read_tail(self, key: str, length: int) -> ObjectEnd:
        """Read the last bytes of an object, at most ``length``; by one request where the store has one.

        :raises FileNotFoundError: there is no such object.
        """

    @abstractmethod
    async def _head(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        """Return the description of an object and its metadata; ``None``: there is none."""

    @abstractmethod
    async def _list_page(
        self, directory: str, start_name: str, page: str | None
    ) -> tuple[list[FileInfo], str | None]:
        """List some files directly in a directory, in byte order; return them and the name of the next page.

        They may include names before ``start_name``.
        """

    has_key_ranges = True

    @abstractmethod
    async def _list_span(self, span: KeySpan, page: str | None) -> SpanPage:
        """List one page of the keys of a span, with time and size; ``page`` is what the page before named."""

    @abstractmethod
    async def _put_object(self, key: str, data: bytes, token: str | None) -> bool:
        """Put an object by one request. With a token it is conditional; ``False``: an object was there.

        :raises CreationConflict: the store did not decide.
        """

    @abstractmethod
    async def _begin_upload(self, key: str, token: str | None) -> Upload: ...

    def _begin_stream(self, key: str) -> Stream | None:
        """Begin a new object, unconditionally; ``None``: it has to be an upload in parts."""
        return None

    def _has_conditional_uploads(self) -> bool:
        """Whether an upload in parts can be conditional; otherwise a conditional put is one request of any size."""
        return True

    def copied_part_bytes(self) -> tuple[int, int] | None:
        """Return the least and the most bytes of a part that the store copies from another object; ``None``: it copies none.

        Such a store takes parts of any size, but all except the last have at least the least bytes.
        """
        return None

    async def _read_exactly(self, key: str, start: int, length: int) -> bytes:
        """Read a range that the object must have.

        :raises StorageError: it has not, or is gone.
        """
        try:
            data = await self._read(key, start, length)
        except FileNotFoundError as error:
            uri = self._uri_of(key)
            raise StorageError(f"{uri} was deleted before it was copied. Run again.", uri) from error
        if len(data) != length:
            uri = self._uri_of(key)
            raise StorageError(f"{uri} has become shorter while it was copied. Run again.", uri)
        return data

    async def _copy_object(self, source: str, target: str) -> None:
        """Copy an object within the store.

        :raises FileNotFoundError: there is no such object.
        """
        await self._fs._cp_file(self._path(source), self._path(target))

    # The requests that are made most often. A store may make them in the thread that asks, without the other one.

    def _read_now(self, key: str, start: int, length: int | None, tag: str | None = None) -> bytes:
        return bytes(self._wait_for(self._read, key, start, length, tag))

    def _read_tail_now(self, key: str, length: int) -> ObjectEnd:
        tail: ObjectEnd = self._wait_for(self._read_tail, key, length)
        return tail

    def _head_now(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        found: tuple[FileInfo, Mapping[str, str]] | None = self._wait_for(self._head, key)
        return found

    def _put_now(self, key: str, data: bytes, token: str | None) -> bool:
        return bool(self._wait_for(self._put_object, key, data, token))

    def _delete_now(self, keys: Sequence[str]) -> None:
        self._wait_for(self._delete_objects, keys)

    @abstractmethod
    async def _delete_object(self, key: str) -> None:
        """Delete an object; an absent one may raise :class:`FileNotFoundError`."""

    def require_writable(self) -> None:
        """Refuse nothing: the store decides by itself which writer creates an object."""

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with self._errors(key, may_be_absent=True):
            if length == 0:  # HTTP has no empty range, and the object may be absent
                return self._read_now(key, start, 1)[:0]
            return self._read_now(key, start, length)

    def open_read(self, key: str) -> Any:
        """Open an object by reading its end, which holds Parquet's footer; a small file is then read whole."""
        with self._errors(key, may_be_absent=True):
            tail = self._read_tail_now(key, READ_AHEAD_BYTES)
        if len(tail.data) == tail.size:
            return pa.BufferReader(tail.data)

        def read(start: int, length: int) -> bytes:
            with self._errors(key, may_be_absent=True):
                return self._read_now(key, start, length, tail.tag)

        return opened(read, tail.size, tail.data)

    def head(self, key: str) -> FileInfo | None:
        with self._errors(key):
            found = self._head_now(key)
        return found[0] if found is not None else None

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        page: str | None = None
        while True:
            with self._errors(directory):
                found, page = self._wait_for(self._list_page, directory, start_name, page)
            yield from (info for info in found if info.name and info.name >= start_name)
            if page is None:
                return

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        return list_object_tree(self._span_page, enter, self.concurrency, has_ranges=self.has_key_ranges)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        return list_span_tree(self._span_page, span, enter)

    def _span_page(self, span: KeySpan, page: str | None) -> SpanPage:
        with self._errors(span.prefix):
            found: SpanPage = self._wait_for(self._list_span, span, page)
        return found

    def copy(self, source: str, target: str) -> bool:
        require_key(target)
        try:
            with self._errors(source, may_be_absent=True):
                self._wait_for(self._copy_object, source, target)
        except FileNotFoundError:
            return False
        return True

    def expect_copies(self, file: IO[bytes]) -> None:
        target: Any = file
        if isinstance(target, PartWriter):
            target.may_stream = False

    def read_into(self, file: IO[bytes], key: str, start: int, length: int) -> int:
        """Append bytes of an object to a new one. Where the store copies parts, long ranges do not pass this machine.

        :raises StorageError: a long range is not in the object, or the object is gone. A later call for the new object may
            raise this, too.
        """
        target: Any = file
        parts = (
            target.plan_copy(length) if isinstance(target, PartWriter) and target.storage is self else None
        )
        if parts is None:
            return super().read_into(file, key, start, length)
        done = super().read_into(file, key, start, parts.fill_bytes) if parts.fill_bytes else 0
        if done == parts.fill_bytes:
            for part_bytes in parts.copied_bytes:
                target.copy_part(key, start + done, part_bytes)
                done += part_bytes
        return done

    def put(self, key: str, data: bytes) -> None:
        self._create(key, data, None)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        token = uuid.uuid4().hex
        if self._create(key, data, token):
            return True
        with self._errors(key):
            found = self._head_now(key)
        return found is not None and found[1].get(TOKEN) == token

    @contextmanager
    def open_write(self, key: str) -> Iterator[Any]:
        require_key(key)
        with PartWriter(self, key) as file:
            yield file
            file.finish()

    def delete(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while chunk := list(islice(remaining, _MAX_DELETED_AT_ONCE)):
            for key in chunk:
                require_key(key)
            with self._errors(chunk[0]):
                self._delete_now(chunk)

    async def _delete_objects(self, keys: Sequence[str]) -> None:
        """Delete at most a thousand objects; raise the first failure after all were tried."""
        import asyncio  # as below: where no request needs it, it is not loaded

        requests = asyncio.Semaphore(self.concurrency)

        async def delete(key: str) -> None:
            async with requests:
                with self._errors(key), suppress(FileNotFoundError):
                    await self._delete_object(key)

        outcomes = await asyncio.gather(*map(delete, keys), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _create(self, key: str, data: bytes, token: str | None) -> bool:
        require_key(key)
        whole = len(data) <= self.multipart_bytes or (
            token is not None and not self._has_conditional_uploads()
        )
        with self._errors(key):
            for attempt in range(_MAX_CONFLICTS):
                try:
                    if whole:
                        return self._put_now(key, data, token)
                    with PartWriter(self, key, token) as file:
                        # A failed stream is taken for a success if an object of this length is there.
                        file.may_stream = False
                        file.write(data)
                        return file.finish()
                except CreationConflict as conflict:
                    last = conflict
                    self._wait_for(self.after_conflict.wait, attempt)
            raise last


class PartWriter(io.RawIOBase):
    """A binary file that becomes an object when it is finished; if its block is left before, no object is created.

    :ivar may_stream: ``True`` if no long ranges of other objects are expected; only an upload in parts can take them from the store.
    :ivar described: the object, if one request wrote all of it. Its time comes from this machine's clock.
    """

    def __init__(self, storage: ObjectStorage, key: str, token: str | None = None) -> None:
        super().__init__()
        self.storage, self._key, self._token = storage, key, token
        self._buffer = bytearray()
        self._upload: Upload | None = None
        self._stream: Stream | None = None
        self.described: FileInfo | None = None
        self.may_stream = token is None
        self._sent: deque[Future[None]] = deque()
        self._copies: deque[Future[None]] = deque(maxlen=storage.parallel_parts)
        self._num_parts = self._position = 0
        self._finished = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = self.storage.part_bytes
        for start in range(0, len(view), size):
            self._buffer += view[start : start + size]
            # The last part must not be empty, so a full one waits for what follows it.
            if len(self._buffer) > size:
                self._send(size, last=False)
        self._position += len(view)
        return len(view)

    def plan_copy(self, length: int) -> PlannedCopy | None:
        """Divide a range of another object into parts. ``None``: the store copies none, or the range is too short."""
        limits = self.storage.copied_part_bytes()
        if limits is None or self._stream is not None:
            return None
        least, most = limits
        fill = max(0, least - len(self._buffer)) if self._buffer else 0
        copied = length - fill
        if copied < least:
            return None
        self.may_stream = False
        parts = -(-copied // most)
        ends = [copied * number // parts for number in range(parts + 1)]
        return PlannedCopy(fill, tuple(end - start for start, end in pairwise(ends)))

    def copy_part(self, key: str, start: int, length: int) -> None:
        """Append bytes of another object, as one part. The store copies them, or they are read where it refuses.

        :raises StorageError: the object does not have these bytes any more. A later call may raise this, and :meth:`finish`.
        """
        if self._buffer:
            self._send(len(self._buffer), last=False)
        upload = self._begun()

        async def copied(number: int) -> None:
            with self.storage._errors(key):
                if not await upload.copy_part(number, key, start, length):
                    data = await self.storage._read_exactly(key, start, length)
                    await upload.put_part(number, data, last=False)

        self._copies.append(self._start(copied(self._num_parts)))
        self._num_parts += 1
        self._position += length

    def finish(self) -> bool:
        """Create the object. ``False``: the write was conditional, and an object was there.

        :raises CreationConflict: the store did not decide.
        """
        if self._buffer and (self._upload is not None or self._stream is not None):
            self._send(len(self._buffer), last=True)
        while self._sent:
            self._sent.popleft().result()
        with self.storage._errors(self._key):
            if self._stream is not None:
                self._stream.finish()
                created = True
            elif self._upload is None:
                created = self.storage._put_now(self._key, bytes(self._buffer), self._token)
                self.described = file_info(self._key, self._position, time.time())
            else:
                created = self._wait_for(self._upload.complete)
        self._finished = bool(created)
        return self._finished

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._stream is not None and not self._finished:
            self._stream.abort()
        if self._upload is None or self._finished:
            return
        # The store goes on with a copy whose request is given up, and would keep the part after the upload was aborted.
        wait(self._copies, _SECONDS_TO_END)
        # An error here must not hide the one before. Stores drop unfinished uploads after some days.
        for part in self._sent:
            part.cancel()
        with suppress(DeltaLogError), self.storage._errors(self._key):
            self._wait_for(self._upload.abort)

    def _begun(self) -> Upload:
        if self._upload is None:
            with self.storage._errors(self._key):
                self._upload = self._wait_for(self.storage._begin_upload, self._key, self._token)
        return self._upload

    def _send(self, size: int, *, last: bool) -> None:
        if self._upload is None and self._stream is None and self.may_stream:
            self._stream = self.storage._begin_stream(self._key)
            self.may_stream = self._stream is not None
        with memoryview(self._buffer) as view:
            part = bytes(view[:size])
        del self._buffer[:size]
        if self._stream is not None:
            self._stream.write(part)
            return
        upload = self._begun()

        async def put(number: int) -> None:
            with self.storage._errors(self._key):
                await upload.put_part(number, part, last=last)

        self._start(put(self._num_parts))
        self._num_parts += 1

    def _start(self, sending: Coroutine[Any, Any, None]) -> Future[None]:
        """Begin to make a part when one of those on their way has arrived, if there are many."""
        if len(self._sent) >= self.storage.parallel_parts:
            try:
                self._sent.popleft().result()
            except BaseException:
                sending.close()
                raise
        import asyncio

        self._sent.append(asyncio.run_coroutine_threadsafe(sending, self.storage._fs.loop))
        return self._sent[-1]

    def _wait_for(self, call: Callable[..., Any], *args: Any) -> Any:
        return self.storage._wait_for(call, *args)
