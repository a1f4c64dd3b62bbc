"""The storage of tables in object stores: S3, Google Cloud Storage and Azure Storage, through obstore.

Each store decides by itself whether it creates an object (RFC 9110, ``If-None-Match: *``, or the like). This module makes the
answer unambiguous. A request whose answer was lost is repeated, by the client or here, and the store refuses the repetition because of
the first attempt. So every conditional put carries a token in the object's metadata. A refusal counts only if the object that is there
carries another token.

A subclass knows the options of its store, and what a refusal means.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import obstore
import pyarrow as pa
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, PreconditionError

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import BucketNotFound, InvalidRequest, StorageError
from delta_log.storage.objects.backoff import Backoff
from delta_log.storage.objects.credential_source import CredentialSource
from delta_log.storage.objects.object_listing import SpanPage, list_object_tree, list_span_tree
from delta_log.storage.objects.object_writer import ObjectWriter
from delta_log.storage.objects.store_answer import StoreAnswer
from delta_log.storage.ranged_file import opened
from delta_log.storage.storage import (
    READ_AHEAD_BYTES,
    REQUESTS,
    EnterDirectories,
    FileInfo,
    KeySpan,
    Storage,
    TreePage,
    require_key,
)
from delta_log.storage.table_uri import require_no_credentials

if TYPE_CHECKING:
    from obstore import GetOptions

    from delta_log.storage.objects.traits import StoreTraits

_Result = TypeVar("_Result")
#: Kinds of request, by the right that they need.
Action: TypeAlias = Literal["list", "read", "write", "copy", "delete"]

#: obstore's errors for an answer of 409 and of 412.
_CONDITION = (AlreadyExistsError, PreconditionError)
#: Name of the token in an object's metadata: letters only, which every store and every proxy lets through.
TOKEN = "deltaput"  # noqa: S105 - no secret
#: How often a conditional put is tried that the store does not decide, and any request of which the answer is lost or is to wait.
_MAX_CONFLICTS = 20
_MAX_ATTEMPTS = 4
_MAX_DELETED_AT_ONCE = 1000
#: How long a request may take in all. The client has no limit for the silence of a server that also suits long bodies.
SECONDS = 60
_SECONDS_OF_LONG_REQUESTS = 900
_LONG_REQUEST_BYTES = 16 << 20
#: A listing of a directory passes by so many large directories in it. What follows is listed as a whole, which is then held in memory.
_MOST_PASSED_DIRECTORIES = 8
#: No name in a directory begins with it, and all others come before it.
_LAST_CHARACTER = "\U0010ffff"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RANGE_NOT_SATISFIABLE = 416


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


class Content(Struct, frozen=True):
    """Bytes of an object.

    :param size: size of the whole object in bytes.
    :param tag: text that tells this content from another content under the same key.
    """

    data: bytes
    size: int
    tag: str | None


class Clients:
    """The clients of one bucket in this process: one for short requests and one for long ones.

    :param connect: function that returns a client, given the seconds that a request may take.
    """

    def __init__(self, connect: Callable[[int], Any]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._by_seconds: dict[int, Any] = {}

    def get(self, num_bytes: int) -> Any:
        """
        :param num_bytes: size of the content of a request.
        :raises StorageError: this process was forked from one that used obstore.
        """
        _require_own_process()
        seconds = SECONDS if num_bytes <= _LONG_REQUEST_BYTES else _SECONDS_OF_LONG_REQUESTS
        with self._lock:
            if seconds not in self._by_seconds:
                self._by_seconds[seconds] = self._connect(seconds)
            return self._by_seconds[seconds]


class ObjectStorage(Storage):
    """A bucket or container. Any thread may use it.

    :param table_uri: address, in whose path no segment is empty, ``.`` or ``..``.
    :param identity: words for who asks, for errors (:func:`~delta_log.storage.access_denied.identity_of`).
    :raises InvalidRequest: the client cannot express the path.
    """

    traits: ClassVar[StoreTraits]

    #: Whether a listing can begin behind any key. Otherwise the store lists a prefix from its beginning.
    begins_behind_keys: bool = True
    #: A file that is being written takes this much memory, ``parallel_parts + 3`` times.
    part_bytes: int = 8 << 20
    parallel_parts: int = 3
    #: Before a creation is repeated that the store did not decide.
    after_conflict: Backoff = Backoff(0.02, 2.0)
    #: Before a request is repeated that the store put off, or whose answer was lost.
    after_failure: Backoff = Backoff(0.5, 10.0)
    max_conflicts: int = _MAX_CONFLICTS
    max_attempts: int = _MAX_ATTEMPTS

    def __init__(self, table_uri: str, identity: str) -> None:
        self._identity = identity
        #: ``None``: requests are not signed.
        self._credentials: CredentialSource | None = None
        self._locate(table_uri)
        self._clients = Clients(self._connect)
        self.has_key_ranges = self.traits.has_key_ranges

    def _locate(self, table_uri: str) -> None:
        self.uri = table_uri.rstrip("/")
        self.bucket, _, path = self.uri.partition("://")[2].partition("/")
        if path:
            _require_expressible(path, self.uri)
        self._prefix = f"{path}/" if path else ""

    def beside(self, table_uri: str) -> ObjectStorage:
        """Return the storage of another table through the same clients: same bucket or container, same options."""
        require_no_credentials(table_uri)
        twin = copy(self)
        twin._locate(table_uri)
        return twin

    def sign(self, fetch: Callable[[], Mapping[str, str]], identity: str) -> None:
        """Have the requests of a storage that signs nothing signed from now on.

        :param fetch: function that returns the credentials that are valid now, by the names that the client has for them.
        :param identity: words for who asks, for errors.
        """
        self._credentials, self._identity = CredentialSource(fetch), identity

    @abstractmethod
    def _connect(self, seconds: int) -> Any:
        """Return a store of obstore.

        :param seconds: how long a request may take in all.
        :raises InvalidRequest: an option is wrong.
        :raises StorageError: there are no credentials.
        """

    @abstractmethod
    def _failure(self, answer: StoreAnswer, action: Action, key: str) -> StorageError:
        """Return the error for a request that failed."""

    @abstractmethod
    def _no_bucket(self, uri: str) -> BucketNotFound: ...

    def object_key(self, key: str) -> str:
        """Return the key in the bucket for a key of this storage."""
        return f"{self._prefix}{key}"

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    # -- requests ----------------------------------------------------------------------------------------

    def _ask(
        self,
        action: Action,
        key: str,
        request: Callable[..., _Result],
        *arguments: Any,
        num_bytes: int = 0,
        is_conditional: bool = False,
        repeats_lost: bool = False,
        **options: Any,
    ) -> _Result:
        """Make a request, again where the store puts it off.

        :param action: kind of the request, which decides what right it needs.
        :param request: function of obstore; its first argument is a client.
        :param num_bytes: size of the content.
        :param is_conditional: ``True``: let obstore's errors for a condition that does not hold pass (:data:`_CONDITION`).
        :param repeats_lost: ``True``: repeat it where the answer was lost, too.
        :raises FileNotFoundError: there is no such object.
        :raises StorageError: it failed.
        """
        client = self._clients.get(num_bytes)
        attempt = 0
        while True:
            REQUESTS.add()
            try:
                return request(client, *arguments, **options)
            except (BaseError, OSError, ValueError) as error:
                if is_conditional and isinstance(error, _CONDITION):
                    raise
                self._wait_or_raise(error, action, key, attempt, repeats_lost=repeats_lost)
            attempt += 1

    def _wait_or_raise(
        self, error: Exception, action: Action, key: str, attempt: int, *, repeats_lost: bool = False
    ) -> None:
        """Wait if the request is to be made again; otherwise raise what its failure means."""
        if self._credentials is not None and self._credentials.error is not None:
            raise self._credentials.error from error
        answer = StoreAnswer.of(error)
        if answer.code == self.traits.no_bucket:
            raise self._no_bucket(self._uri_of(key)) from error
        if isinstance(error, FileNotFoundError) and action not in ("list", "write"):
            raise FileNotFoundError(self._uri_of(key)) from error
        if isinstance(error, InvalidPathError):
            raise StorageError(
                f"{self._uri_of(key)}: an object has a key that the client cannot express ({answer.said}). Rename or delete "
                "the object with the tools of the store.",
                self._uri_of(key),
                is_final=True,
            ) from error
        is_worth_it = answer.is_busy or (repeats_lost and answer.may_be_lost)
        if not is_worth_it or attempt + 1 >= self.max_attempts:
            raise self._failure(answer, action, key) from error
        self.after_failure.wait(attempt)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:  # HTTP has no empty range, and the object may be absent
            return self._content(key, start, 1).data[:0]
        return self._content(key, start, length).data

    def _content(self, key: str, start: int, length: int | None, tag: str | None = None) -> Content:
        """Read a range; the result is empty if ``start`` is beyond the end.

        :param tag: the content to read.
        :raises FileNotFoundError: there is no such object.
        :raises ContentChanged: the object has other content by now.
        """
        options: GetOptions = {} if tag is None else {"if_match": tag}
        if length is not None:
            options["range"] = (start, start + length)
        elif start:
            options["range"] = {"offset": start}
        return self._get(key, options, _LONG_REQUEST_BYTES + 1 if length is None else length)

    def _end(self, key: str, length: int) -> Content:
        """Read the last bytes of an object."""
        if self.traits.has_suffix_ranges:
            return self._get(key, {"range": {"suffix": length}}, length)
        first = self._content(key, 0, length)
        return first if first.size <= length else self._content(key, first.size - length, length, first.tag)

    def _get(self, key: str, options: GetOptions, num_bytes: int) -> Content:
        if not is_expressible(key):
            raise FileNotFoundError(self._uri_of(key))

        def get(client: Any) -> Content:
            answer = obstore.get(client, self.object_key(key), options=options)
            return Content(bytes(answer.bytes()), answer.meta["size"], answer.meta["e_tag"])

        try:
            return self._ask("read", key, get, num_bytes=num_bytes, is_conditional="if_match" in options)
        except _CONDITION as error:
            raise ContentChanged(self._uri_of(key)) from error
        except StorageError as error:
            answer = StoreAnswer.of(error.__cause__ or error)
            # Some servers say that a range is empty in an answer that the client does not understand.
            is_unclear = not answer.status and not answer.method and "range" in options
            if answer.status == _RANGE_NOT_SATISFIABLE or (
                is_unclear and self._ends_before(key, options["range"])
            ):
                return Content(b"", 0, None)
            raise

    def _ends_before(self, key: str, asked: Any) -> bool:
        """
        :param asked: range in the form that the client takes.
        """
        found = self.head(key)
        start = asked.get("offset", 0) if isinstance(asked, Mapping) else asked[0]
        return found is not None and found.size <= start

    def open_read(self, key: str) -> Any:
        """Open an object by reading its end, which holds Parquet's footer; a small file is then read whole."""
        end = self._end(key, READ_AHEAD_BYTES)
        if len(end.data) == end.size:
            return pa.BufferReader(end.data)
        return opened(
            lambda start, length: self._content(key, start, length, end.tag).data, end.size, end.data
        )

    def head(self, key: str) -> FileInfo | None:
        found = self._head(key)
        return None if found is None else found[0]

    def _head(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        """Return the description of an object and its metadata; ``None``: there is none, or it stands for a directory."""
        if not is_expressible(key):
            return None
        try:
            answer = self._ask("read", key, obstore.get, self.object_key(key), options={"head": True})
        except FileNotFoundError:
            return None
        except StorageError as error:
            if StoreAnswer.of(error.__cause__ or error).has_no_reason:
                # Reading the object is refused for the same reason, and then the store says which.
                with suppress(FileNotFoundError):
                    self._content(key, 0, 1)
            raise
        metadata = answer.attributes
        if str(metadata.get(self.traits.directory_mark, "")).lower() == "true":
            return None
        return self._info(answer.meta), metadata

    def _info(self, found: Mapping[str, Any]) -> FileInfo:
        key = found["path"][len(self._prefix) :]
        return FileInfo.of(key, found["size"], found["last_modified"].timestamp(), found["e_tag"])

    # -- listing -----------------------------------------------------------------------------------------

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        # A listing begins behind a key; the name without its last character is early enough.
        for page in self._level(f"{directory}/" if directory else "", start_name[:-1]):
            yield from (info for info in self._real(page.files) if info.name >= start_name)

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        return list_object_tree(self._span, enter, self.concurrency, has_ranges=self.has_key_ranges)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        return list_span_tree(self._span, span, enter)

    def list_directories(self, directory: str) -> list[str]:
        """Take one LIST with a delimiter, or one for each thousand files and directories."""
        return list(self._whole_level(f"{directory}/" if directory else "", "").directories)

    def _span(self, span: KeySpan) -> Iterator[SpanPage]:
        """Yield the pages of a span."""
        if span.deep:
            pages: Iterator[SpanPage] = (SpanPage(page, ()) for page in self._pages(span.prefix, span.start))
        else:
            pages = self._level(span.prefix, span.start[len(span.prefix) :])
        for page in pages:
            files = self._real(page.files)
            if span.end is None:
                yield SpanPage(files, page.directories)
                continue
            kept = [info for info in files if info.key < span.end]
            yield SpanPage(kept, [name for name in page.directories if f"{name}/" < span.end])
            if page.files and page.files[-1].key >= span.end:
                return

    def _level(self, prefix: str, behind: str) -> Iterator[SpanPage]:
        """Yield the files and directories directly below a prefix, in the order of their keys.

        The client can list one level only as a whole. So this is a listing without levels, which passes by a directory in which a page ends;
        and what is behind many of them is listed as a whole.

        :param prefix: empty, or with a slash at its end.
        :param behind: part of a key behind the prefix; what comes up to this key is left out.
        """
        if self.has_key_ranges or (behind and self.begins_behind_keys):
            for _ in range(_MOST_PASSED_DIRECTORIES):
                directory = ""
                for page in self._pages(prefix, f"{prefix}{behind}" if behind else ""):
                    files: list[FileInfo] = []
                    directories: list[str] = []
                    for info in page:
                        name, slash, _ = info.key[len(prefix) :].partition("/")
                        # Some servers begin anew behind a directory.
                        if info.key[len(prefix) :] <= behind:
                            continue
                        if not slash:
                            files.append(info)
                            directory = ""
                        elif name != directory:
                            directories.append(f"{prefix}{name}")
                            directory = name
                    yield SpanPage(files, directories)
                    if directory and len(page) == self.traits.page_keys:
                        break
                else:
                    return
                behind = f"{directory}/{_LAST_CHARACTER}"
        yield self._whole_level(prefix, behind)

    def _whole_level(self, prefix: str, behind: str) -> SpanPage:
        found: Any = self._ask(
            "list", prefix, obstore.list_with_delimiter, self.object_key(prefix).rstrip("/") or None
        )
        files = [self._info(one) for one in found["objects"]]
        directories = [name[len(self._prefix) :] for name in found["common_prefixes"]]
        at = len(prefix)
        return SpanPage(
            sorted(
                (info for info in files if info.name and info.key[at:] > behind), key=lambda info: info.key
            ),
            sorted(name for name in directories if f"{name[at:]}/" > behind),
        )

    def _pages(self, prefix: str, behind: str) -> Iterator[list[FileInfo]]:
        """Yield all objects below a prefix, those in directories included, in pages.

        :param behind: key; objects up to this one are left out.
        """
        last, attempt = behind, 0
        while True:
            client = self._clients.get(0)
            try:
                listing = obstore.list(
                    client,
                    self.object_key(prefix).rstrip("/") or None,
                    offset=self.object_key(last) if last and self.begins_behind_keys else None,
                    chunk_size=self.traits.page_keys,
                )
                REQUESTS.add()
                for number, page in enumerate(listing):
                    REQUESTS.add(min(number, 1))
                    # The mark of the directory itself has lost its slash.
                    found = [
                        info for info in map(self._info, page) if info.key.startswith(prefix) and info.key
                    ]
                    attempt = 0
                    if found:
                        last = found[-1].key
                        yield found
            except (BaseError, OSError, ValueError) as error:
                # Without a start it would begin anew.
                is_lost = last != behind and not self.begins_behind_keys
                self._wait_or_raise(error, "list", prefix, self.max_attempts if is_lost else attempt)
                attempt += 1
            else:
                return

    def _real(self, files: Sequence[FileInfo]) -> Sequence[FileInfo]:
        """Leave out the marks that some tools make for directories: empty objects, of whose keys the listing drops the slash."""
        empty = [info.key for info in files if not info.size]
        if not empty:
            return files
        marks = {
            key
            for key, found in zip(empty, self.head_many(empty), strict=True)
            if found is None or found.size
        }
        return [info for info in files if info.size or info.key not in marks]

    # -- writing -----------------------------------------------------------------------------------------

    def require_writable(self) -> None:
        """Refuse nothing: the store decides by itself which writer creates an object."""

    def put(self, key: str, data: bytes) -> None:
        _require_writable_key(key)
        self._put_whole(key, data, self._put_options())

    def _put_whole(self, key: str, data: bytes, options: Mapping[str, Any], **condition: Any) -> None:
        self._ask(
            "write",
            key,
            obstore.put,
            self.object_key(key),
            data,
            num_bytes=len(data),
            repeats_lost=True,
            use_multipart=False,
            **condition,
            **options,
        )

    def put_if_absent(self, key: str, data: bytes) -> bool:
        _require_writable_key(key)
        token = uuid.uuid4().hex
        for attempt in range(self.max_conflicts):
            try:
                options = self._put_options({TOKEN: token})
                self._put_whole(key, data, options, is_conditional=True, mode="create")
            except _CONDITION as error:
                answer = StoreAnswer.of(error)
                if not answer.code or answer.code != self.traits.undecided:
                    found = self._head(key)
                    if found is None:
                        # The store refuses for another reason than an object.
                        raise self._failure(answer, "write", key) from error
                    return found[1].get(TOKEN) == token
                last = error
            else:
                return True
            self.after_conflict.wait(attempt)
        raise CreationConflict(self._uri_of(key)) from last

    def _put_options(self, metadata: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return what every request that creates an object carries."""
        return {"attributes": dict(metadata)} if metadata else {}

    @contextmanager
    def open_write(self, key: str) -> Iterator[Any]:
        _require_writable_key(key)
        with ObjectWriter(self, key, self.part_bytes, self._put_parts) as file:
            yield file
            file.finish()

    def _put_parts(self, key: str, content: Iterator[bytes]) -> None:
        """Write an object in parts while its content comes. An exception of the content gives the object up.

        The parts become visible at once, when the last one has arrived. The client repeats each request that fails.

        :raises StorageError: it failed. The store may have completed the object nevertheless.
        """
        client = self._clients.get(_LONG_REQUEST_BYTES + 1)
        REQUESTS.add(2)  # it is begun, and completed
        try:
            obstore.put(
                client,
                self.object_key(key),
                _counted(content),
                use_multipart=True,
                chunk_size=self.part_bytes,
                max_concurrency=self.parallel_parts,
                **self._put_options(),
            )
        except (BaseError, OSError, ValueError) as error:
            self._wait_or_raise(error, "write", key, self.max_attempts)

    def copy(self, source: str, target: str) -> bool:
        require_key(target)
        found = self.head(source)
        if found is None:
            return False
        if found.size > self.traits.most_copied_bytes:
            with self.open_write(target) as file:
                self.read_into(file, source, 0, found.size)
            return True
        try:
            self._ask(
                "copy",
                source,
                obstore.copy,
                self.object_key(source),
                self.object_key(target),
                num_bytes=found.size,
                repeats_lost=True,
            )
        except FileNotFoundError:
            return False
        return True

    # -- deleting ----------------------------------------------------------------------------------------

    def delete(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while chunk := list(islice(remaining, _MAX_DELETED_AT_ONCE)):
            for key in chunk:
                _require_writable_key(key)
            if self.traits.has_bulk_deletion:
                # Some stores give up where an object is absent.
                with suppress(FileNotFoundError):
                    self._delete_at_once(chunk)
                    continue
            for _ in map_ordered(self._delete_one, chunk, min(self.concurrency, len(chunk))):
                pass

    def _delete_at_once(self, keys: Sequence[str]) -> None:
        self._ask(
            "delete", keys[0], obstore.delete, [self.object_key(key) for key in keys], repeats_lost=True
        )

    def _delete_one(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self._delete_at_once([key])


def _counted(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Count a request for each part."""
    for part in parts:
        REQUESTS.add()
        yield part


#: The process that used obstore first. Its threads do not live on in a process that is forked from it.
_process: int | None = None


def _require_own_process() -> None:
    global _process  # noqa: PLW0603 - of the whole process
    if _process is None:
        _process = os.getpid()
    if _process != os.getpid():
        raise StorageError(
            "This process was forked from one that had already used an object store, and the threads of the store's client do not live "
            "on in it. Start the process with the method 'spawn' or 'forkserver', or fork before a table is opened.",
            "",
        )


def is_expressible(key: str) -> bool:
    """Whether the client can express a key: it knows no empty segment, no ``.``, no ``..`` and no control characters."""
    segments = key.split("/")
    return not _CONTROL.search(key) and not any(segment in ("", ".", "..") for segment in segments)


def _require_expressible(path: str, uri: str) -> None:
    if not is_expressible(path):
        raise InvalidRequest(
            f"{uri!r} cannot be opened: its path has an empty segment, '.', '..' or a control character. Give the address of a table "
            "without them."
        )


def _require_writable_key(key: str) -> None:
    require_key(key)
    if not is_expressible(key):
        raise InvalidRequest(
            f"{key!r} holds a control character, and no object with such a key is written or deleted."
        )
