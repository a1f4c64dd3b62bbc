"""The storage of tables on Google Cloud Storage, through gcsfs and the JSON API.

``put_if_absent`` is one upload of any size with ``ifGenerationMatch=0``, which the store checks at its end. New files are
resumable uploads. The session of a failed one is cancelled.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from delta_log.errors import (
    CREDENTIALS,
    BucketNotFound,
    InvalidRequest,
    NoCredentials,
    StorageError,
)
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.objects.google_credentials import with_credentials
from delta_log.storage.objects.object_listing import SpanPage
from delta_log.storage.objects.object_store import TOKEN, ContentChanged, ObjectEnd, ObjectStorage, Upload
from delta_log.storage.remote import file_info
from delta_log.storage.storage import FileInfo, KeySpan

#: Errors of google.auth that has found no credentials, or none that it can use.
_NO_CREDENTIALS = frozenset({"DefaultCredentialsError", "MalformedError"})
_RIGHT = re.compile(r"storage\.(?:objects|buckets)\.\w+")
_CORRECT_CLOCK = "Correct the clock of this machine, for example with NTP, or the key."
#: Errors of google.auth whose credentials were not accepted.
_REFUSED_TOKENS = frozenset({"RefreshError", "ReauthFailError", "OAuthError"})


class GcsStorage(ObjectStorage):
    """A bucket. A listing starts at any key, so a long log costs no more than its new part."""

    # A chunk of a resumable upload is acknowledged before the next is sent.
    parallel_parts = 1

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        options = {**storage_options, **_credentials(storage_options.get("token"))}
        super().__init__(table_uri, with_credentials(table_uri, options))
        self._identity = identity_of(table_uri, options)
        self._take_root()

    def _take_root(self) -> None:
        self.bucket, self._prefix, _ = self._fs.split_path(f"{self._root}/")

    def object_key(self, key: str) -> str:
        """Return the name in the bucket for a key of this storage."""
        return f"{self._prefix}{key}"

    def _failure(self, error: Exception, key: str) -> StorageError:
        uri = self._uri_of(key)
        if type(error).__name__ in _NO_CREDENTIALS or "Anonymous caller" in str(error):
            return NoCredentials(uri, str(error))
        if _status_of(error) in (401, 403) or str(error).startswith("Forbidden") or _is_refused_token(error):
            # Google's words name the right, and mostly the identity that sent the request.
            right = _RIGHT.search(str(error))
            remedy = _CORRECT_CLOCK if "Invalid JWT" in str(error) else ""
            return denied(
                uri,
                " ".join(str(error).split()),
                self._identity,
                right=f"{right[0]} on bucket {self.bucket}" if right is not None else "",
                remedy=remedy,
                may_pass=bool(remedy),
            )
        if "requester pays" in str(error).lower():
            return denied(
                uri,
                " ".join(str(error).split()),
                self._identity,
                remedy=f"Set requester_pays (true) and project in {CREDENTIALS}: the project pays.",
            )
        if isinstance(error, FileNotFoundError):
            return BucketNotFound(uri, f"bucket {self.bucket}", "in Google Cloud Storage")
        return super()._failure(error, key)

    async def _read(self, key: str, start: int, length: int | None, tag: str | None = None) -> bytes:
        if not start and length is None:
            return (await self._get(key, None, tag)).data
        try:
            wanted = f"bytes={start}-{'' if length is None else start + length - 1}"
            return (await self._get(key, wanted, tag)).data
        except (FileNotFoundError, ContentChanged):
            raise
        except Exception:  # gcsfs has several errors for a range beyond the end
            found = await self._head(key)
            if found is not None and start >= found[0].size:
                return b""
            raise

    async def _read_tail(self, key: str, length: int) -> ObjectEnd:
        try:
            return await self._get(key, f"bytes=-{length}")
        except FileNotFoundError:
            raise
        except Exception:  # an empty object has no range either
            found = await self._head(key)
            if found is not None and found[0].size == 0:
                return ObjectEnd(b"", 0, None)
            raise

    async def _get(self, key: str, wanted: str | None, tag: str | None = None) -> ObjectEnd:
        """Read a range of an object; the tag is the generation."""
        url = f"{self._fs._location}/download/storage/v1/b/{{}}/o/{{}}"
        asked = {"Range": wanted} if wanted is not None else {}
        try:
            headers, content = await self._fs._call(
                "GET", url, self.bucket, self.object_key(key), headers=asked, alt="media", generation=tag
            )
        except FileNotFoundError as error:
            if tag is not None and await self._head(key) is not None:
                raise ContentChanged(self._uri_of(key)) from error
            raise
        _, _, size = headers.get("Content-Range", "").rpartition("/")
        return ObjectEnd(bytes(content), int(size or len(content)), headers.get("X-Goog-Generation"))

    async def _head(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        try:
            found = await self._fs._call("GET", "b/{}/o/{}", self.bucket, self.object_key(key), json_out=True)
        except FileNotFoundError:
            return None
        return _info(key, found), found.get("metadata", {})

    async def _list_page(
        self, directory: str, start_name: str, page: str | None
    ) -> tuple[list[FileInfo], str | None]:
        directory = f"{directory}/" if directory else ""
        prefix = self.object_key(directory)
        answer = await self._fs._call(
            "GET",
            "b/{}/o",
            self.bucket,
            json_out=True,
            prefix=prefix,
            delimiter="/",
            startOffset=prefix + start_name,
            pageToken=page,
            maxResults=self.page_keys,
        )
        found = [_info(f"{directory}{item['name'][len(prefix) :]}", item) for item in answer.get("items", ())]
        return found, answer.get("nextPageToken")

    async def _list_span(self, span: KeySpan, page: str | None) -> SpanPage:
        root = len(self._prefix)
        answer = await self._fs._call(
            "GET",
            "b/{}/o",
            self.bucket,
            json_out=True,
            prefix=self.object_key(span.prefix),
            delimiter=None if span.deep else "/",
            startOffset=self.object_key(span.start) if span.start else None,
            endOffset=self.object_key(span.end) if span.end is not None else None,
            pageToken=page,
            maxResults=self.page_keys,
        )
        found = [_info(item["name"][root:], item) for item in answer.get("items", ())]
        if span.end is not None:
            found = [info for info in found if span.start <= info.key < span.end]
        directories = [prefix[root:-1] for prefix in answer.get("prefixes", ())]
        return SpanPage(found, directories, answer.get("nextPageToken"))

    async def _put_object(self, key: str, data: bytes, token: str | None) -> bool:
        described = {"name": self.object_key(key), "metadata": {TOKEN: token} if token is not None else {}}
        boundary = uuid.uuid4().hex
        body = b"".join(
            (
                f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode(),
                json.dumps(described).encode(),
                f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n".encode(),
                data,
                f"\r\n--{boundary}--\r\n".encode(),
            )
        )
        try:
            await self._fs._call(
                "POST",
                self._upload_url(),
                self.bucket,
                headers={"Content-Type": f"multipart/related; boundary={boundary}"},
                data=body,
                uploadType="multipart",
                ifGenerationMatch="0" if token is not None else None,
            )
        except Exception as error:
            # Newer releases of gcsfs raise a Python error for a failed precondition.
            if token is not None and (isinstance(error, FileExistsError) or _status_of(error) == 412):
                return False
            raise
        return True

    def _has_conditional_uploads(self) -> bool:
        return False

    async def _begin_upload(self, key: str, token: str | None) -> Upload:
        headers, _ = await self._fs._call(
            "POST",
            self._upload_url(),
            self.bucket,
            json={"name": self.object_key(key)},
            uploadType="resumable",
            name=self.object_key(key),
        )
        return _ResumableUpload(self, headers["Location"])

    def _upload_url(self) -> str:
        return f"{self._fs._location}/upload/storage/v1/b/{{}}/o"

    async def _copy_object(self, source: str, target: str) -> None:
        """Copy an object; a large one takes several requests and appears with the last."""
        place = (self.bucket, self.object_key(source), self.bucket, self.object_key(target))
        token = None
        while True:
            answer = await self._fs._call(
                "POST", "b/{}/o/{}/rewriteTo/b/{}/o/{}", *place, json_out=True, rewriteToken=token
            )
            if answer["done"]:
                return
            token = answer["rewriteToken"]

    async def _delete_object(self, key: str) -> None:
        await self._fs._call("DELETE", "b/{}/o/{}", self.bucket, self.object_key(key))


def _credentials(token: Any) -> dict[str, Any]:
    """Check the option ``token``: gcsfs takes a text that is neither a key nor a file for an access token, and sends it."""
    if not isinstance(token, str):
        return {}
    if token.lstrip().startswith("{"):
        try:
            return {"token": json.loads(token)}
        except ValueError:
            # The text itself is secret.
            raise InvalidRequest(
                "The storage option 'token' looks like the JSON of a service account key, and is not JSON. "
                "Give the content of the key's file, or its path."
            ) from None
    if "/" in token and not os.path.exists(token):
        raise InvalidRequest(
            f"The storage option 'token' names a file that is not there: {token}. Give the path of a service account "
            "key on the machine that does the work, or the key's content."
        )
    return {}


class _ResumableUpload(Upload):
    def __init__(self, storage: GcsStorage, location: str) -> None:
        self._storage, self._location = storage, location
        self._offset = 0

    async def put_part(self, number: int, data: bytes, *, last: bool) -> None:
        end = self._offset + len(data)
        while data:
            total = end if last else "*"
            headers, _ = await self._storage._fs._call(
                "PUT",
                self._location,
                headers={"Content-Range": f"bytes {self._offset}-{end - 1}/{total}"},
                data=data,
            )
            # The store may keep less than it was sent; a completed upload has no such header.
            kept = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else end
            data = data[kept - self._offset :]
            self._offset = kept

    async def complete(self) -> bool:
        """Does nothing: the last part has completed the upload."""
        return True

    async def abort(self) -> None:
        await self._storage._fs._call("DELETE", self._location)


def _info(key: str, item: Mapping[str, Any]) -> FileInfo:
    updated = datetime.fromisoformat(item["updated"].replace("Z", "+00:00"))
    generation = item.get("generation")
    return file_info(
        key, int(item["size"]), updated.timestamp(), None if generation is None else str(generation)
    )


def _is_refused_token(error: BaseException | None) -> bool:
    """Tell whether the token service refused the credentials. The same error may mean that it could not be reached."""
    if type(error).__name__ not in _REFUSED_TOKENS or getattr(error, "retryable", False):
        return False
    while error is not None:
        if type(error).__name__ == "TransportError":
            return False
        error = error.__cause__
    return True


def _status_of(error: Exception) -> int:
    """Return the HTTP status that gcsfs keeps in its error as a number or a text; 0: it is another error."""
    code = str(getattr(error, "code", ""))
    return int(code) if code.isdigit() else 0
