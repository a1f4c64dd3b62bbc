"""The storage of tables on S3 and compatible servers, through s3fs.

``put_if_absent`` is a PutObject, or for large contents a CompleteMultipartUpload, with ``If-None-Match: *``. Amazon's
endpoints honour it. Other servers may ignore it, and then commits would overwrite each other. So a process tries it out before
its first commit in a bucket of such a server (:meth:`S3Storage.require_writable`).

Directory buckets are refused: their listings have no order and no StartAfter.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from delta_log.errors import (
    CREDENTIALS,
    BucketNotFound,
    InvalidRequest,
    KeyUnusable,
    NoCredentials,
    ObjectArchived,
    StorageError,
    WrongRegion,
)
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.assumed_role import REFUSALS, with_session
from delta_log.storage.objects.object_listing import SpanPage
from delta_log.storage.objects.object_store import (
    TOKEN,
    ContentChanged,
    CreationConflict,
    ObjectEnd,
    ObjectStorage,
    Stream,
    Upload,
)
from delta_log.storage.objects.s3_endpoint import plain_way
from delta_log.storage.objects.s3_list_objects import list_page
from delta_log.storage.objects.s3_requests import PAGE_KEYS, ObjectRequests, Undecided
from delta_log.storage.remote import file_info
from delta_log.storage.storage import FileInfo, KeySpan

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_MAX_READS = 5
#: Requests without parameters of their own that show how all are made.
_LEARNED_FROM = frozenset({"list_objects_v2", "get_object", "head_object"})
#: The least bytes of a part but the last, and the most that one request copies. So many are read if the server refuses to.
_COPIED_PART_BYTES = (5 << 20, 32 << 20)
#: Servers whose parts must all have one size but the last.
_WITH_EQUAL_PARTS = (".r2.cloudflarestorage.com",)
#: Answers to a copy that a server does not know, or does not make of this object, such as one encrypted with a caller's key.
_REFUSED = frozenset({400, 403, 405, 501})
#: Errors of the client that has no credentials to sign with.
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "NoAuthTokenError",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
    }
)
#: By request, the right that it needs, and whether on the bucket.
_RIGHTS = {
    "ListObjectsV2": ("s3:ListBucket", True),
    "GetObject": ("s3:GetObject", False),
    "HeadObject": ("s3:GetObject", False),
    "PutObject": ("s3:PutObject", False),
    "CreateMultipartUpload": ("s3:PutObject", False),
    "UploadPart": ("s3:PutObject", False),
    "CompleteMultipartUpload": ("s3:PutObject", False),
    "AbortMultipartUpload": ("s3:AbortMultipartUpload", False),
    "CopyObject": ("s3:GetObject of the source and s3:PutObject", False),
    "DeleteObjects": ("s3:DeleteObject", False),
}
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired"})
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_WRONG_REGION = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
#: What stands for the code of a refused HeadObject, whose answer has no body: the status.
_WITHOUT_REASON = frozenset({"400", "403"})
_REDIRECTS = frozenset({301, 302, 307, 308})
#: Errors of a client that has not reached a server.
_UNREACHED = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "SSLError",
        "InvalidEndpointDiscoveryConfigurationError",
    }
)
#: Begins the name of a page that is not named by the store, but by the last key of the page before it.
_BEHIND = "behind "
#: Readers of the table and VACUUM do not see this directory.
_PROBE_DIRECTORY = "_maintenance"
_PROBE_WRITERS = 4
#: So many tags are remembered, those that were read last. A source is copied soon after its footer was read.
_MOST_TAGS = 10_000
#: Parts of a stream that wait for their turn.
_PIECES_AHEAD = 1

#: Endpoints and buckets whose conditional put this process has tried out.
_proved: set[tuple[str, str]] = set()
#: Whether uploads in parts can be conditional there.
_refuses_uploads: dict[tuple[str, str], bool] = {}
_proving = threading.Lock()


class S3Storage(ObjectStorage):
    """A bucket. A listing starts at any key, so a long log costs no more than its new part."""

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        # botocore's default is ten connections.
        config = {"max_pool_connections": 2 * self.concurrency, **storage_options.get("config_kwargs", {})}
        root = table_uri.rstrip("/").partition("://")[2]
        way = plain_way(root.partition("/")[0], storage_options)
        options = {**with_session(storage_options), "config_kwargs": config}
        super().__init__(table_uri, options, None if way is None else root)
        self._identity = identity_of(table_uri, storage_options)
        self._pays = bool(storage_options.get("requester_pays"))
        self._plain_endpoint = None if way is None else way.endpoint
        self._take_root()
        self._objects = ObjectRequests(self.bucket, way, self._wait_for)
        #: By key, the tag of the content that was read first.
        self._tags: dict[str, str] = {}
        if self.bucket.endswith("--x-s3"):
            raise InvalidRequest(
                f"{self.uri} is in a directory bucket. Its listings have no order, and reading a Delta log rests on "
                "that order. Keep the table in a general purpose bucket."
            )

    def _root_of(self, table_uri: str) -> str:
        if self._plain_endpoint is None:
            return super()._root_of(table_uri)
        return table_uri.partition("://")[2]

    def _take_root(self) -> None:
        if self._plain_endpoint is None:
            self.bucket, self._prefix, _ = self._fs.split_path(f"{self._root}/")
        else:
            self.bucket, _, self._prefix = f"{self._root}/".partition("/")

    @property
    def endpoint(self) -> str:
        return self._plain_endpoint or str(self._fs.s3.meta.endpoint_url)

    async def call(self, operation: str, **parameters: Any) -> Any:
        """Make one request of the S3 API about this bucket."""
        client = await self._fs.set_session()
        request = self._fs._call_s3(operation, Bucket=self.bucket, **parameters)
        if operation in _LEARNED_FROM and self._objects.is_learning:
            return await self._objects.learn_from(self._fs, client, request, parameters.get("Key", ""))
        return await request

    def object_key(self, key: str) -> str:
        """Return the key in the bucket for a key of this storage."""
        return f"{self._prefix}{key}"

    def _failure(self, error: Exception, key: str) -> StorageError:
        uri, (status, code) = self._uri_of(key), _answer_of(error)
        if code == "NoSuchBucket":
            return BucketNotFound(uri, f"bucket {self.bucket}", f"at {self.endpoint}")
        if type(error).__name__ in _NO_CREDENTIALS:
            return NoCredentials(uri, str(error))
        # botocore follows a redirection that names no region until Python stops it.
        if status in _REDIRECTS or isinstance(error, RecursionError):
            return WrongRegion(uri, self.bucket, self.endpoint, _headers_of(error).get("x-amz-bucket-region"))
        meaning, may_pass = REFUSALS.get(code, ("", False))
        if meaning:
            return denied(
                uri,
                f"{code}: {meaning}{_skew(error) if code in _SKEWED else ''}",
                self._identity,
                remedy=_remedy(code),
                may_pass=may_pass,
            )
        if code == "InvalidObjectState":
            return ObjectArchived(
                uri, str(_response_of(error).get("Error", {}).get("StorageClass", "an archive"))
            )
        if code.startswith("KMS.") or (code == "AccessDenied" and "kms:Decrypt" in str(error)):
            return KeyUnusable(uri, self._identity, f"{code}: {error}")
        if isinstance(error, PermissionError):
            return self._denied(uri, code or str(error), _operation_of(error))
        if type(error).__name__ in _UNREACHED:
            return StorageError(
                f"{uri}: {self.endpoint} cannot be reached ({type(error).__name__}: {error}). If it never could, correct "
                f"endpoint_url or region_name in {CREDENTIALS}; otherwise run again when it answers.",
                uri,
            )
        if code == "404":  # S3 has words for what is missing
            return StorageError(
                f"{uri}: {self.endpoint} does not answer as S3 does ({status}: {error}). If it never did, correct endpoint_url in "
                f"{CREDENTIALS}; otherwise run again when it answers.",
                uri,
            )
        return super()._failure(error, key)

    def _denied(self, uri: str, said: str, operation: str) -> StorageError:
        """The error for a request that the store's policies do not allow."""
        right, is_of_bucket = _RIGHTS.get(operation, ("", False))
        bucket = f"arn:aws:s3:::{self.bucket}"
        if right:
            right = f"{right} on {bucket if is_of_bucket else f'{bucket}/{self._prefix}*'}"
        if operation in ("GetObject", "HeadObject"):
            # Without the latter S3 says the same of an object that is not there.
            right += f" and s3:ListBucket on {bucket}"
        hint = (
            ""
            if self._pays
            else "A bucket whose requesters pay needs the storage option requester_pays (true)."
        )
        return denied(uri, said, self._identity, right=right, hint=hint)

    def _read_now(self, key: str, start: int, length: int | None, tag: str | None = None) -> bytes:
        found = self._objects.get(self.object_key(key), start, length, tag)
        if found is None:
            return super()._read_now(key, start, length, tag)
        self._note_tag(key, found.tag)
        return found.content

    def _read_tail_now(self, key: str, length: int) -> ObjectEnd:
        found = self._objects.get(self.object_key(key), None, length)
        if found is None:
            return super()._read_tail_now(key, length)
        self._note_tag(key, found.tag)
        return ObjectEnd(found.content, found.size, found.tag)

    def is_what_was_read(self, key: str) -> dict[str, str]:
        """Return the condition that an object is the one of which something was read here before."""
        tag = self._tags.get(key)
        return {} if tag is None else {"CopySourceIfMatch": tag}

    def _note_tag(self, key: str, tag: str | None) -> None:
        # Files of the log and manifests, which are many, are never copied.
        if tag is not None and not key.startswith("_") and key not in self._tags:
            if len(self._tags) >= _MOST_TAGS:
                del self._tags[next(iter(self._tags))]
            self._tags[key] = tag

    def _head_now(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        try:
            found = self._objects.head(self.object_key(key))
        except FileNotFoundError:
            return None
        if found is None:
            return super()._head_now(key)
        return file_info(key, found.size, found.modified_seconds, found.tag), found.metadata

    def _put_now(self, key: str, data: bytes, token: str | None) -> bool:
        metadata = {TOKEN: token} if token is not None else {}
        try:
            written = self._objects.put(self.object_key(key), data, metadata, creates=token is not None)
        except Undecided as error:
            raise CreationConflict(self._uri_of(key)) from error
        return super()._put_now(key, data, token) if written is None else written

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        prefix, last = self.object_key(f"{directory}/" if directory else ""), ""
        # Pages of another size than the store's are asked for through s3fs.
        for page in self._objects.pages(prefix, start_name[:-1]) if self.page_keys is None else (None,):
            if page is None:
                break
            for found in page:
                name = found.key[len(prefix) :]
                # Some servers begin anew behind a directory.
                if name <= last:
                    continue
                last = name
                if last >= start_name:
                    key = found.key[len(self._prefix) :]
                    yield file_info(key, found.size, found.modified_seconds, found.tag)
        else:
            return
        yield from (info for info in super().list_from(directory, max(start_name, last)) if info.name > last)

    def _span_page(self, span: KeySpan, page: str | None) -> SpanPage:
        behind = None if page is None else page.removeprefix(_BEHIND)
        is_ours = page is None or page.startswith(_BEHIND)
        found = None
        if span.deep and is_ours and self.page_keys is None:
            start = behind or (self.object_key(span.start) if span.start else "")
            found = self._objects.deep_page(self.object_key(span.prefix), start)
        if found is None:
            if is_ours and behind is not None:
                span, page = replace(span, start=behind[len(self._prefix) :]), None
            return super()._span_page(span, page)
        infos = [
            file_info(one.key[len(self._prefix) :], one.size, one.modified_seconds, one.tag) for one in found
        ]
        if span.end is not None and infos and infos[-1].key >= span.end:
            return SpanPage([info for info in infos if info.key < span.end], [], None)
        return SpanPage(infos, [], f"{_BEHIND}{found[-1].key}" if len(found) == PAGE_KEYS else None)

    def _delete_now(self, keys: Sequence[str]) -> None:
        if not self._objects.delete([self.object_key(key) for key in keys]):
            super()._delete_now(keys)

    def _begin_stream(self, key: str) -> Stream | None:
        write = self._objects.writer(self.object_key(key), self.part_bytes, self.parallel_parts)
        return None if write is None else _S3Stream(self, key, write)

    def _failed_stream(self, key: str, size: int, error: BaseException) -> None:
        """Return if the object is there nevertheless, since only the last answer was lost; raise otherwise."""
        with self._errors(key):
            found = self._head_now(key)
            if found is not None and found[0].size == size:
                return
            self._objects.has_streams = False
            # s3fs says what a refusal means.
            self._wait_for(self._begin_and_abort, key)
        said = str(error).partition("\n")[0]
        uri = self._uri_of(key)
        raise StorageError(
            f"{uri}: the store failed ({type(error).__name__}: {said}). Run again when it answers.", uri
        ) from error

    async def _begin_and_abort(self, key: str) -> None:
        await (await self._begin_upload(key, None)).abort()

    async def _read(self, key: str, start: int, length: int | None, tag: str | None = None) -> bytes:
        asked = {"IfMatch": tag} if tag is not None else {}
        if start or length is not None:
            asked["Range"] = _range_of(start, length)
        return (await self._get(key, asked)).data

    async def _read_tail(self, key: str, length: int) -> ObjectEnd:
        return await self._get(key, {"Range": f"bytes=-{length}"})

    async def _get(self, key: str, asked: Mapping[str, str]) -> ObjectEnd:
        """Read a range of an object; beyond the end both the bytes and the size are empty."""
        for attempt in range(_MAX_READS):
            try:
                answer = await self.call("get_object", Key=self.object_key(key), **asked)
            except OSError as error:
                status, code = _answer_of(error)
                if status == 416:  # Range Not Satisfiable
                    return ObjectEnd(b"", 0, None)
                if status == 412:
                    raise ContentChanged(self._uri_of(key)) from error
                if code == "NoSuchBucket":
                    raise self._failure(error, key) from error
                raise
            try:
                content = bytes(await answer["Body"].read())
            except (
                Exception
            ):  # the connection broke within the content; each HTTP client has its own error for that
                if attempt == _MAX_READS - 1:
                    raise
            else:
                _, _, size = answer.get("ContentRange", "").rpartition("/")
                self._note_tag(key, answer.get("ETag"))
                return ObjectEnd(content, int(size or len(content)), answer.get("ETag"))
            finally:
                answer["Body"].close()
            await self.after_broken_read.wait(attempt)
        raise AssertionError

    async def _head(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        try:
            answer = await self.call("head_object", Key=self.object_key(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            if _answer_of(error)[1] in _WITHOUT_REASON:
                # Reading the object is refused for the same reason, and then the store says which.
                with suppress(FileNotFoundError):
                    await self._get(key, {"Range": "bytes=0-0"})
            raise
        modified = answer["LastModified"].timestamp()
        info = file_info(key, answer["ContentLength"], modified, answer.get("ETag"))
        return info, answer.get("Metadata", {})

    async def _list_page(
        self, directory: str, start_name: str, page: str | None
    ) -> tuple[list[FileInfo], str | None]:
        directory = f"{directory}/" if directory else ""
        prefix = self.object_key(directory)
        # StartAfter leaves out its own key; the name without its last character is early enough.
        asked: dict[str, Any] = {
            "Prefix": prefix,
            "Delimiter": "/",
            "StartAfter": prefix + start_name[:-1],
        }
        if self.page_keys is not None:
            asked["MaxKeys"] = self.page_keys
        if page is not None:
            asked["ContinuationToken"] = page
        answer = await self.call("list_objects_v2", **asked)
        found = [
            file_info(
                f"{directory}{entry['Key'][len(prefix) :]}",
                entry["Size"],
                entry["LastModified"].timestamp(),
                entry.get("ETag"),
            )
            for entry in answer.get("Contents", ())
        ]
        return found, answer.get("NextContinuationToken") if answer.get("IsTruncated") else None

    async def _list_span(self, span: KeySpan, page: str | None) -> SpanPage:
        root = len(self._prefix)
        asked: dict[str, Any] = {"Prefix": self.object_key(span.prefix)}
        if not span.deep:
            asked["Delimiter"] = "/"
        if span.start:
            asked["StartAfter"] = self.object_key(span.start)
        if self.page_keys is not None:
            asked["MaxKeys"] = self.page_keys
        if page is not None:
            asked["ContinuationToken"] = page
        await self._fs.set_session()
        listed = await list_page(await self._fs.get_s3(self.bucket), self.call("list_objects_v2", **asked))
        found = [file_info(key[root:], size, changed) for key, size, changed in listed.objects]
        following = listed.following
        if span.end is not None and found and found[-1].key >= span.end:
            found, following = [info for info in found if info.key < span.end], None
        directories = [prefix[root:-1] for prefix in listed.prefixes]
        return SpanPage(found, directories, following)

    async def _put_object(self, key: str, data: bytes, token: str | None) -> bool:
        condition = await self._condition("PutObject", token)
        try:
            await self.call("put_object", Key=self.object_key(key), Body=data, **condition)
        except OSError as error:
            return _lost(error, token, self._uri_of(key))
        return True

    async def _begin_upload(self, key: str, token: str | None) -> Upload:
        metadata = {"Metadata": {TOKEN: token}} if token is not None else {}
        answer = await self.call("create_multipart_upload", Key=self.object_key(key), **metadata)
        return _S3Upload(self, key, answer["UploadId"], token)

    async def _condition(self, operation: str, token: str | None) -> dict[str, Any]:
        """Return the parameters that make a request conditional.

        s3fs silently drops a parameter that the installed botocore does not know, so this checks first.
        """
        if token is None:
            return {}
        client = await self._fs.set_session()
        model = client.meta.service_model.operation_model(operation)
        if "IfNoneMatch" not in model.input_shape.members:
            raise InvalidRequest(
                "The installed botocore knows no conditional writes, so a commit would not be safe against other "
                "writers. Nothing was written. Install airflow-provider-delta[s3], which asks for a newer one."
            )
        if operation == "PutObject":
            return {"IfNoneMatch": "*", "Metadata": {TOKEN: token}}
        return {"IfNoneMatch": "*"}

    async def _delete_object(self, key: str) -> None:
        await self._delete_objects([key])

    async def _delete_objects(self, keys: Sequence[str]) -> None:
        objects = [{"Key": self.object_key(key)} for key in keys]
        answer = await self.call("delete_objects", Delete={"Objects": objects, "Quiet": True})
        failed = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if failed:
            uri, code = f"s3://{self.bucket}/{failed[0].get('Key')}", str(failed[0].get("Code"))
            if code == "AccessDenied":
                raise self._denied(
                    uri, f"{code}, and so it was for {len(failed) - 1} others", "DeleteObjects"
                )
            raise StorageError(
                f"{uri} was not deleted, and neither were {len(failed) - 1} others: {code}, "
                f"{failed[0].get('Message')}. Check locks on the objects, and run again.",
                uri,
            )

    def require_writable(self) -> None:
        """Try out conditional puts, once for each bucket and process; not on Amazon, which documents them."""
        if self._is_amazon():
            return
        with _proving:
            if (self.endpoint, self.bucket) not in _proved:
                self._try_conditional_put()
                _proved.add((self.endpoint, self.bucket))

    def _is_amazon(self) -> bool:
        return (urlsplit(self.endpoint).hostname or "").endswith(_AMAZON)

    def copied_part_bytes(self) -> tuple[int, int] | None:
        has_equal_parts = (urlsplit(self.endpoint).hostname or "").endswith(_WITH_EQUAL_PARTS)
        return None if has_equal_parts else _COPIED_PART_BYTES

    def _has_conditional_uploads(self) -> bool:
        if self._is_amazon():
            return True
        place = self.endpoint, self.bucket
        with _proving:
            if place not in _refuses_uploads:
                _refuses_uploads[place] = self._upload_is_refused()
            return _refuses_uploads[place]

    def _try_conditional_put(self) -> None:
        """Let several writers create one object at once, and then another writer: exactly one may win."""
        key = _probe_key()
        try:
            with ThreadPoolExecutor(_PROBE_WRITERS) as pool:
                won = sum(pool.map(partial(self.put_if_absent, key), [b"1", b"2", b"3", b"4"]))
            won += self.put_if_absent(key, b"5")
        except StorageError as error:
            if _answer_of(error)[0] != 501:
                raise
            raise self._refusal("it says that If-None-Match is not implemented") from error
        finally:
            # Without the right to delete, a hidden object of one byte stays.
            with suppress(StorageError):
                self.delete([key])
        if won != 1:
            raise self._refusal(f"of 5 writers of one object, {won} were told that they had created it")

    def _upload_is_refused(self) -> bool:
        """Find out whether an upload in parts is refused like a put where there is an object."""
        key = _probe_key()
        try:
            self.put(key, b"1")
            with self._errors(key):
                return bool(self._wait_for(self._is_refused, key))
        finally:
            with suppress(StorageError):
                self.delete([key])

    async def _is_refused(self, key: str) -> bool:
        upload = await self._begin_upload(key, "probe")
        await upload.put_part(0, b"6", last=True)
        created = True
        with suppress(Exception):  # after any error such a server gets single requests
            created = await upload.complete()
        with suppress(Exception):
            await upload.abort()
        return not created

    def _refusal(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.uri}: the server at {self.endpoint} does not honour conditional writes ({why}), so a commit "
            "there could destroy another writer's. Nothing was committed. Upgrade the server, or have all writers "
            "coordinate through a lock table: storage option 'lock'."
        )


class _Abandoned(Exception):
    """Ends a stream whose content does not come to its end."""


class _S3Stream(Stream):
    """A thread of its own sends what another one writes.

    :param write: function that sends the content that it is given.
    """

    def __init__(self, storage: S3Storage, key: str, write: Callable[[Iterator[bytes]], None]) -> None:
        self._storage, self._key, self._write = storage, key, write
        #: ``None`` ends the content.
        self._pieces: SimpleQueue[bytes | _Abandoned | None] = SimpleQueue()
        self._room = threading.Semaphore(_PIECES_AHEAD)
        self._error: BaseException | None = None
        self._size = 0
        self._is_ended = self._is_finished = False
        self._thread = threading.Thread(target=self._run, name="delta-log-stream", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._room.acquire()
        if self._error is not None:
            self.finish()
        self._pieces.put(data)
        self._size += len(data)

    def finish(self) -> None:
        self._end(None)
        if self._error is not None:
            self._storage._failed_stream(self._key, self._size, self._error)
        self._is_finished = True

    def abort(self) -> None:
        self._end(_Abandoned())
        if self._error is None and not self._is_finished:
            # Who waited for the end was interrupted, and the object is there.
            with suppress(StorageError):
                self._storage.delete([self._key])

    def _end(self, last: _Abandoned | None) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._pieces.put(last)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write(self._content())
        except BaseException as error:  # noqa: BLE001 - the thread that writes raises it; obstore has some of this kind
            self._error = error
            # Nobody takes what follows, and its writer must not wait.
            self._room.release(1 << 20)

    def _content(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, _Abandoned):
                raise piece
            self._room.release()
            yield piece


class _S3Upload(Upload):
    def __init__(self, storage: S3Storage, key: str, upload_id: str, token: str | None) -> None:
        self._storage, self._key, self._token = storage, key, token
        self._names = {"Key": storage.object_key(key), "UploadId": upload_id}
        self._parts: dict[int, dict[str, Any]] = {}

    async def put_part(self, number: int, data: bytes, *, last: bool) -> None:
        answer = await self._storage.call("upload_part", **self._names, PartNumber=number + 1, Body=data)
        self._parts[number] = {"PartNumber": number + 1, "ETag": answer["ETag"]}

    async def copy_part(self, number: int, source: str, start: int, length: int) -> bool:
        try:
            answer = await self._storage.call(
                "upload_part_copy",
                **self._names,
                PartNumber=number + 1,
                CopySource={"Bucket": self._storage.bucket, "Key": self._storage.object_key(source)},
                CopySourceRange=f"bytes={start}-{start + length - 1}",
                **self._storage.is_what_was_read(source),
            )
        except OSError as error:
            status, code = _answer_of(error)
            if status == 412:
                raise ContentChanged(self._storage._uri_of(source)) from error
            # Where the answer is not about copying, reading gets a like one.
            if status in _REFUSED or code == "NoSuchKey":
                return False
            raise
        # A server that does not know the header of the source takes the request for a part without content.
        tag = answer.get("CopyPartResult", {}).get("ETag")
        if tag is not None:
            self._parts[number] = {"PartNumber": number + 1, "ETag": tag}
        return tag is not None

    async def complete(self) -> bool:
        parts = [self._parts[number] for number in sorted(self._parts)]
        condition = await self._storage._condition("CompleteMultipartUpload", self._token)
        try:
            await self._storage.call(
                "complete_multipart_upload", **self._names, MultipartUpload={"Parts": parts}, **condition
            )
        except OSError as error:
            # If the first attempt took effect, its repetition finds no upload.
            if isinstance(error, FileNotFoundError) and self._token is not None:
                found = await self._storage._head(self._key)
                if found is not None and found[1].get(TOKEN) == self._token:
                    return True
            return _lost(error, self._token, self._storage._uri_of(self._key))
        return True

    async def abort(self) -> None:
        await self._storage.call("abort_multipart_upload", **self._names)


def _probe_key() -> str:
    return f"{_PROBE_DIRECTORY}/probe-{uuid.uuid4()}"


def _range_of(start: int, length: int | None) -> str:
    return f"bytes={start}-{'' if length is None else start + length - 1}"


def _lost(error: OSError, token: str | None, uri: str) -> bool:
    """Return ``False`` if the store refused a conditional write because there is an object; raise otherwise."""
    status, code = _answer_of(error)
    if token is not None and status == 412:
        return False
    if code == "ConditionalRequestConflict":
        raise CreationConflict(uri) from error
    raise error


def _answer_of(error: BaseException | None) -> tuple[int, str]:
    """Return the HTTP status and the code of the server, which s3fs keeps in the cause of a Python error."""
    response = _response_of(error)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status, str(response.get("Error", {}).get("Code", ""))


def _response_of(error: BaseException | None) -> Mapping[str, Any]:
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):
            return response
        error = error.__cause__
    return {}


def _headers_of(error: BaseException) -> Mapping[str, str]:
    headers: Mapping[str, str] = _response_of(error).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def _operation_of(error: BaseException | None) -> str:
    """Return the request that was refused, by its name in the S3 API."""
    while error is not None:
        name = getattr(error, "operation_name", None)
        if isinstance(name, str):
            return name
        error = error.__cause__
    return ""


def _remedy(code: str) -> str:
    """What to do about a refusal with a meaning of its own; empty: to correct the credentials."""
    if code in _EXPIRED:
        return f"Put new ones into {CREDENTIALS}, or use credentials that renew themselves: a role, or the identity of the machine."
    if code in _SKEWED:
        return f"Correct the clock of machine {os.uname().nodename}, for example with NTP."
    if code in _WRONG_REGION:
        return f"Correct region_name, endpoint_url or the access key in {CREDENTIALS}."
    return ""


def _skew(error: Exception) -> str:
    """Tell how far this machine's clock is from the store's clock, whose time the store's answer has."""
    from email.utils import parsedate_to_datetime

    try:
        store = parsedate_to_datetime(_headers_of(error)["date"])
        minutes = round((datetime.now(timezone.utc) - store).total_seconds() / 60)
    except (KeyError, ValueError, TypeError):
        return ""
    side = "ahead of" if minutes > 0 else "behind"
    return f", {abs(minutes)} minutes {side} the store's" if minutes else ""
