"""Requests about single objects on S3, made by obstore where that is possible.

Through s3fs, a request takes a millisecond of Python, and more while other threads work. obstore takes a tenth of that, and makes
the requests of several threads at once. But the options of a table, and what a store answers, have their meaning in s3fs. So:

1. Plain options say how the bucket is reached: its URL, the region, the credentials. Otherwise the first request that s3fs makes shows
   it (:mod:`delta_log.storage.objects.s3_endpoint`). Where it shows something that is not known here, s3fs makes all requests.
2. Only plain answers of the store count. After anything else (a redirection, a refusal, a busy server, a broken connection) the
   result is ``None``, and the caller makes the request through s3fs. That one repeats it, renews credentials, and knows what an
   error means. So only requests are made here that may be made twice.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from delta_log.storage.objects.s3_endpoint import Credentials, Way, watched
from delta_log.storage.storage import ODD_KEY

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
except ImportError:  # it comes with the extra "s3"
    _has_obstore = False
else:
    # Earlier ones change the odd characters of keys.
    _has_obstore = tuple(map(int, re.findall(r"\d+", obstore.__version__)[:2])) >= (0, 10)

if TYPE_CHECKING:
    from obstore import GetOptions

#: Of a listing, as S3 divides it.
PAGE_KEYS = 1000
#: No name in a directory begins with it, and all others come before it.
_LAST_CHARACTER = "\U0010ffff"
#: After so many failures in a row, all requests are left to s3fs.
_MAX_FAILURES = 3
#: The credentials may have been renewed after this time.
_SECONDS_OF_CREDENTIALS = 10.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: How obstore tells the status of a condition that does not hold.
_REFUSED = "status code: 412 "
_UNDECIDED = "<Code>ConditionalRequestConflict</Code>"
#: The process in which obstore was used first; its children have this number, too.
_process: int | None = None


class Found(Struct, frozen=True):
    """An object as the store describes it.

    :param key: key in the bucket.
    :param modified_seconds: time of the last change in seconds since the epoch.
    :param tag: the ETag, with its quotation marks.
    :param content: bytes of the object that were asked for.
    :param metadata: metadata of the object; empty in a listing.
    """

    key: str
    size: int
    modified_seconds: float
    tag: str | None
    content: bytes
    metadata: Mapping[str, str]


class Undecided(Exception):
    """The store was busy with other writers of an object, and did not decide which writer creates it."""


class ObjectRequests:
    """Requests to one bucket. Any thread may make them.

    :param way: way to reach the bucket, if it is known.
    :param wait_for: function that runs a coroutine function in the thread of s3fs, and returns its result.
    """

    def __init__(self, bucket: str, way: Way | None, wait_for: Callable[..., Any]) -> None:
        self._bucket, self._way, self._wait_for = bucket, way, wait_for
        self._failures = 0 if _has_obstore else _MAX_FAILURES
        #: Turned off after one has failed: s3fs may be able to do what obstore is not.
        self.has_streams = True
        self._store: Any = None
        self._credentials: Credentials | None = None
        self._valid_until = 0.0

    @property
    def is_learning(self) -> bool:
        return self._way is None and self._failures < _MAX_FAILURES

    async def learn_from(self, file_system: Any, client: Any, request: Awaitable[Any], key: str) -> Any:
        """Await a request by s3fs that reads of the bucket, and learn how it is made.

        :param client: client of botocore that makes the request.
        :param key: key of the object; empty: the request lists objects.
        """
        result, self._way = await watched(file_system, client, request, self._bucket, key, self._wait_for)
        if self._way is None:
            self._failures = _MAX_FAILURES
        return result

    def get(self, key: str, start: int | None, length: int | None, tag: str | None = None) -> Found | None:
        """Read a range of an object.

        :param start: ``None``: the range ends with the object.
        :param length: ``None``: up to the end.
        :param tag: the content to read.
        :raises FileNotFoundError: there is no such object.
        """
        options: GetOptions = {} if tag is None else {"if_match": tag}
        if start is None:
            assert length is not None
            options["range"] = {"suffix": length}
        elif length is not None:
            options["range"] = (start, start + length)
        elif start:
            options["range"] = {"offset": start}
        return self._found(key, options)

    def head(self, key: str) -> Found | None:
        """Describe an object.

        :raises FileNotFoundError: there is no such object.
        """
        return self._found(key, {"head": True})

    def put(self, key: str, data: bytes, metadata: Mapping[str, str], *, creates: bool) -> bool | None:
        """Write an object.

        :param creates: ``True``: write the object only where there is none.
        :return: whether it was written; ``None`` if that is not known.
        :raises Undecided: the store was busy with other writers of the object.
        """
        store = self._store_for(key)
        if store is None:
            return None
        mode: Literal["create", "overwrite"] = "create" if creates else "overwrite"
        try:
            obstore.put(store, key, data, attributes=dict(metadata), mode=mode, use_multipart=False)
        except (BaseError, OSError, ValueError) as error:
            if creates and isinstance(error, AlreadyExistsError):
                self._failures = 0
                if _REFUSED in str(error):
                    return False
                if _UNDECIDED in str(error):
                    raise Undecided from error
            self._fail(error)
            return None
        self._failures = 0
        return True

    def pages(self, prefix: str, start: str) -> Iterator[list[Found] | None]:
        """Yield the objects directly below a prefix in pages, in the order of their keys.

        The last page is ``None`` if s3fs has to list from there on.

        :param prefix: prefix of the keys; it ends with a slash.
        :param start: part of a key behind the prefix; keys up to this key may be left out.
        """
        store = self._store_for(f"{prefix}{start}" if start else prefix[:-1])
        if store is None:
            yield None
            return
        offset: str | None = f"{prefix}{start}" if start else None
        while True:
            behind = None
            try:
                for page in obstore.list(store, prefix[:-1], offset=offset, chunk_size=PAGE_KEYS):
                    found = [_described(about) for about in page]
                    names = [one.key[len(prefix) :] for one in found]
                    deep = next((number for number, name in enumerate(names) if "/" in name), None)
                    if deep is not None:
                        # The listing has no delimiter, so it goes on behind the directory.
                        behind = f"{prefix}{names[deep].partition('/')[0]}/{_LAST_CHARACTER}"
                    if _may_be_markers(found) or behind == offset:
                        yield None
                        return
                    yield found[:deep]
                    if deep is not None:
                        break
            except (BaseError, OSError, ValueError) as error:
                self._fail(error)
                yield None
                return
            self._failures = 0
            if behind is None:
                return
            offset = behind

    def deep_page(self, prefix: str, start: str) -> list[Found] | None:
        """Return the first objects below a prefix, directories included, of those whose keys come after ``start``.

        There are no more of them if the page has fewer than :data:`PAGE_KEYS`.

        :param prefix: prefix of the keys: empty, or with a slash at its end.
        :return: ``None``: s3fs has to list them.
        """
        store = self._store_for(start or prefix[:-1])
        if store is None:
            return None
        try:
            pages = obstore.list(store, prefix[:-1] or None, offset=start or None, chunk_size=PAGE_KEYS)
            found = [_described(about) for about in next(iter(pages), ())]
        except (BaseError, OSError, ValueError) as error:
            self._fail(error)
            return None
        self._failures = 0
        return None if _may_be_markers(found) else found

    def delete(self, keys: Sequence[str]) -> bool:
        """Delete objects, or find that they are absent. ``False``: some may still be there."""
        stores = [self._store_for(key) for key in keys]
        if not stores or None in stores:
            return False
        try:
            obstore.delete(stores[0], list(keys))
        except FileNotFoundError:
            return False
        except (BaseError, OSError, ValueError) as error:
            self._fail(error)
            return False
        return True

    def writer(
        self, key: str, part_bytes: int, parallel_parts: int
    ) -> Callable[[Iterator[bytes]], None] | None:
        """Return a function that writes an object in parts while its content comes, and that repeats the requests which fail.

        An exception of the content gives the object up.

        :return: ``None``: s3fs has to write it.
        """
        if not self.has_streams or self._store_for(key) is None:
            return None
        way, credentials = self._way, self._credentials
        assert way is not None
        assert credentials is not None
        if not way.are_fixed and credentials[2] is not None:
            return None  # the session may end before the last part is sent
        patient = way.open(self._bucket, *credentials, repeats=True)
        if patient is None:
            return None

        def write(content: Iterator[bytes]) -> None:
            obstore.put(
                patient,
                key,
                content,
                use_multipart=True,
                chunk_size=part_bytes,
                max_concurrency=parallel_parts,
            )

        return write

    def _found(self, key: str, options: GetOptions) -> Found | None:
        store = self._store_for(key)
        if store is None:
            return None
        try:
            answer = obstore.get(store, key, options=options)
            content = b"" if "head" in options else bytes(answer.bytes())
        except FileNotFoundError as error:
            self._failures = 0
            if "head" in options or "<Code>NoSuchKey</Code>" in str(error):
                raise
            return None  # the bucket may be missing
        except (BaseError, OSError, ValueError) as error:
            self._fail(error)
            return None
        self._failures = 0
        return _described(answer.meta, content, answer.attributes)

    def _fail(self, error: Exception) -> None:
        # What such an error says holds for this object alone: its condition, its name.
        if not isinstance(error, (AlreadyExistsError, PreconditionError, ValueError)):
            self._failures += 1
            self._valid_until = 0.0

    def _store_for(self, key: str) -> Any:
        """Return the store; ``None`` if s3fs has to make the request."""
        way = self._way
        # obstore would change an odd key, and does not take control characters.
        is_odd = ODD_KEY.search(key) or _CONTROL.search(key)
        if way is None or self._failures >= _MAX_FAILURES or is_odd or not _may_use_threads():
            return None
        now = time.monotonic()
        if now >= self._valid_until:
            try:
                found = way.credentials()
                if self._store is None or found != self._credentials:
                    self._store, self._credentials = way.open(self._bucket, *found), found
            except Exception as error:  # noqa: BLE001 - s3fs meets it, too, and says what it means
                self._fail(error)
                return None
            self._valid_until = now + _SECONDS_OF_CREDENTIALS
        return self._store


def _may_be_markers(found: Sequence[Found]) -> bool:
    """Tell whether some tool may have left markers of directories, whose keys obstore gives without the slash at their end."""
    return any(not one.size for one in found)


def _may_use_threads() -> bool:
    """Tell whether obstore's threads are alive in this process, or may be started. They do not live on in one that is forked."""
    global _process  # noqa: PLW0603 - of the whole process
    if _process is None:
        _process = os.getpid()
    return _process == os.getpid()


def _described(
    about: Mapping[str, Any], content: bytes = b"", metadata: Mapping[str, str] | None = None
) -> Found:
    modified = about["last_modified"].timestamp()
    return Found(about["path"], about["size"], modified, about["e_tag"], content, metadata or {})
