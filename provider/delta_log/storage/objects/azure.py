"""The storage of tables on Azure Blob Storage and ADLS Gen2, through adlfs and the Blob API.

``put_if_absent`` is one Put Blob, or for large contents a Put Block List, with ``If-None-Match: *``. Each block has a unique
name: writers of one blob share its uncommitted blocks, and equal names would mix their contents.

Directories of a hierarchical namespace do not count as files, and neither do the marks that Hadoop's client leaves for
directories elsewhere.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs

from delta_log.errors import CREDENTIALS, BucketNotFound, NoCredentials, ObjectArchived, StorageError
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.objects.object_listing import SpanPage
from delta_log.storage.objects.object_store import (
    TOKEN,
    Backoff,
    ContentChanged,
    CreationConflict,
    ObjectEnd,
    ObjectStorage,
    Upload,
)
from delta_log.storage.remote import file_info
from delta_log.storage.storage import FileInfo, KeySpan

#: The codes for a blob that exists: from Put Blob, and from Put Block List.
_EXISTS = ("BlobAlreadyExists", "ConditionNotMet")
_ARCHIVED = ("BlobArchived", "BlobBeingRehydrated")
_ABSENT = ("BlobNotFound", "ResourceNotFound", "PathNotFound")
#: The codes for a request without a signature, of which the store takes none.
_NO_CREDENTIALS = ("NoAuthenticationInformation", "PublicAccessNotPermitted")
#: The identity library asked every source of credentials that it knows.
_IDENTITY_MISSING = "failed to retrieve a token from the included credentials"
#: The identity service of a machine is not there, or slow.
_NO_ANSWER = "no response from the IMDS endpoint"
_SERVER_ERROR = 500
#: Words in the details of a refusal for the time of a token or a request.
_EXPIRED = ("not valid in the specified time frame", "Request date header too old")
#: By method, the role that allows a request, and the letters of a SAS token.
_RIGHTS = {
    "GET": "the role Storage Blob Data Reader (SAS: r; l to list)",
    "HEAD": "the role Storage Blob Data Reader (SAS: r)",
    "PUT": "the role Storage Blob Data Contributor (SAS: w)",
    "DELETE": "the role Storage Blob Data Contributor (SAS: d)",
}
_NO_SOURCE = (*_ABSENT, "CannotVerifyCopySource")


class AzureStorage(ObjectStorage):
    """A container of a storage account, with or without hierarchical namespace."""

    has_key_ranges = False
    # The client puts up to 64 MiB in one request, and cuts a larger blob by itself.
    multipart_bytes = 32 << 20
    #: Between two questions whether a copy is done.
    while_copying: Backoff = Backoff(0.5)

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        super().__init__(table_uri, storage_options)
        _end_at_refused_tokens(self._fs.credential)
        self._identity = identity_of(table_uri, storage_options)
        self._expiry = _expiry_of(storage_options)
        self._take_root()

    def _take_root(self) -> None:
        self.container, self._prefix, _ = self._fs.split_path(f"{self._root}/")

    def blob_name(self, key: str) -> str:
        """Return the name in the container for a key of this storage."""
        return f"{self._prefix}{key}"

    def _client(self) -> Any:
        return self._fs.service_client.get_container_client(self.container)

    def _blob(self, key: str) -> Any:
        return self._client().get_blob_client(self.blob_name(key))

    def _failure(self, error: Exception, key: str) -> StorageError:
        if isinstance(error, _TokenRefused) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        uri, code = self._uri_of(key), _code_of(error)
        if code == "ContainerNotFound":
            return BucketNotFound(uri, f"container {self.container}", f"in account {self._fs.account_name}")
        message = str(getattr(error, "message", None) or error).partition("\n")[0]
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "CredentialUnavailableError" in kinds or code in _NO_CREDENTIALS or _IDENTITY_MISSING in message:
            return NoCredentials(uri, message)
        if code in _ARCHIVED:
            return ObjectArchived(uri, "the archive tier", is_being_restored=code == "BlobBeingRehydrated")
        is_refused = getattr(error, "status_code", None) in (401, 403) or "ClientAuthenticationError" in kinds
        if is_refused and not _is_outage(error):
            said = f"{code or type(error).__name__}: {message}"
            detail = str(getattr(error, "message", ""))
            expired = self._expiry is not None and self._expiry < datetime.now(timezone.utc)
            if expired or any(words in detail for words in _EXPIRED):
                remedy = (
                    f"Put a new token into {CREDENTIALS}, or correct the clock of this machine; or use credentials that renew "
                    "themselves: a principal, or the identity of the machine."
                )
                when = (
                    f", which was valid until {self._expiry:%Y-%m-%d %H:%M} UTC"
                    if expired
                    else ", which has expired"
                )
                return denied(uri, said, f"{self._identity}{when}", remedy=remedy, may_pass=True)
            right = ""
            if code == "AuthorizationPermissionMismatch":
                right = f"{_right_of(error)} on container {self.container}"
            return denied(uri, said, self._identity, right=right)
        return StorageError(f"{uri}: the store failed ({code or type(error).__name__}: {message}).", uri)

    async def _read(self, key: str, start: int, length: int | None, tag: str | None = None) -> bytes:
        from azure.core import MatchConditions

        asked = {"etag": tag, "match_condition": MatchConditions.IfNotModified} if tag is not None else {}
        try:
            stream = await self._blob(key).download_blob(offset=start, length=length, **asked)
            return bytes(await stream.readall())
        except Exception as error:
            if _code_of(error) in _ABSENT:
                raise FileNotFoundError(key) from error
            if _code_of(error) == "InvalidRange":  # beyond the end
                return b""
            if _code_of(error) == "ConditionNotMet":
                raise ContentChanged(self._uri_of(key)) from error
            raise

    async def _read_tail(self, key: str, length: int) -> ObjectEnd:
        """Read the end by two requests, because this store has no ranges that count from the end."""
        found = await self._properties(key)
        if found is None:
            raise FileNotFoundError(key)
        data = await self._read(key, max(0, found.size - length), length, found.etag) if found.size else b""
        return ObjectEnd(data, found.size, found.etag)

    async def _head(self, key: str) -> tuple[FileInfo, Mapping[str, str]] | None:
        found = await self._properties(key)
        if found is None:
            return None
        return file_info(key, found.size, found.last_modified.timestamp(), found.etag), found.metadata

    async def _properties(self, key: str) -> Any:
        """Return the properties of a blob; ``None``: it is absent, or a directory."""
        try:
            found = await self._blob(key).get_blob_properties()
        except Exception as error:
            if _code_of(error) in _ABSENT:
                return None
            raise
        return None if _is_directory(found) else found

    async def _list_page(
        self, directory: str, start_name: str, page: str | None
    ) -> tuple[list[FileInfo], str | None]:
        directory = f"{directory}/" if directory else ""
        prefix = self.blob_name(directory)
        pages = self._client().walk_blobs(
            name_starts_with=prefix,
            delimiter="/",
            start_from=prefix + start_name if start_name else None,
            include=["metadata"],
            results_per_page=self.page_keys,
        )
        pages = pages.by_page(page)
        found = [
            file_info(
                f"{directory}{item.name[len(prefix) :]}",
                item.size,
                item.last_modified.timestamp(),
                item.etag,
            )
            async for item in await anext(pages)
            if hasattr(item, "size") and not _is_directory(item)
        ]
        return found, pages.continuation_token or None

    async def _list_span(self, span: KeySpan, page: str | None) -> SpanPage:
        """Leave out directories of a hierarchical namespace, because this storage removes none."""
        root, prefix = len(self._prefix), self.blob_name(span.prefix)
        asked: dict[str, Any] = {"include": ["metadata"], "results_per_page": self.page_keys}
        if span.deep:
            listed = self._client().list_blobs(name_starts_with=prefix, **asked)
        else:
            listed = self._client().walk_blobs(name_starts_with=prefix, delimiter="/", **asked)
        pages = listed.by_page(page)
        found: list[FileInfo] = []
        directories: list[str] = []
        async for item in await anext(pages):
            if not hasattr(item, "size"):
                directories.append(item.name[root:].removesuffix("/"))
            elif not _is_directory(item):
                found.append(file_info(item.name[root:], item.size, item.last_modified.timestamp()))
        return SpanPage(found, directories, pages.continuation_token or None)

    async def _copy_object(self, source: str, target: str) -> None:
        """Copy a blob. Within an account it is mostly done at once; if not, the target exists before its content."""
        blob = self._blob(target)
        try:
            answer = await blob.start_copy_from_url(self._blob(source).url)
        except Exception as error:
            if _code_of(error) in _NO_SOURCE and await self._properties(source) is None:
                raise FileNotFoundError(source) from error
            raise
        status = answer["copy_status"]
        while status == "pending":
            await self.while_copying.wait(0)
            status = (await blob.get_blob_properties()).copy.status
        if status != "success":
            raise OSError(f"the copy ended as {status}")

    async def _put_object(self, key: str, data: bytes, token: str | None) -> bool:
        metadata = {TOKEN: token} if token is not None else None
        try:
            await self._blob(key).upload_blob(
                data, length=len(data), metadata=metadata, overwrite=token is None
            )
        except Exception as error:
            if token is not None and _code_of(error) in _EXISTS:
                return False
            raise
        return True

    async def _begin_upload(self, key: str, token: str | None) -> Upload:
        return _BlockUpload(self, key, token)

    async def _delete_object(self, key: str) -> None:
        try:
            await self._blob(key).delete_blob()
        except Exception as error:
            if _code_of(error) not in _ABSENT:
                raise


class _BlockUpload(Upload):
    """An upload in blocks, which are invisible until committed; the service drops uncommitted ones after a week."""

    def __init__(self, storage: AzureStorage, key: str, token: str | None) -> None:
        self._storage, self._key, self._token = storage, key, token
        self._blob = storage._blob(key)
        self._blocks: dict[int, str] = {}

    async def put_part(self, number: int, data: bytes, *, last: bool) -> None:
        name = base64.b64encode(uuid.uuid4().bytes).decode()
        await self._blob.stage_block(name, data, length=len(data))
        self._blocks[number] = name

    async def complete(self) -> bool:
        from azure.core import MatchConditions
        from azure.storage.blob import BlobBlock

        condition: dict[str, Any] = {}
        if self._token is not None:
            condition = {"match_condition": MatchConditions.IfMissing, "metadata": {TOKEN: self._token}}
        blocks = [BlobBlock(self._blocks[number]) for number in sorted(self._blocks)]
        try:
            await self._blob.commit_block_list(blocks, **condition)
        except Exception as error:
            if self._token is not None and _code_of(error) in _EXISTS:
                return False
            # The writer that creates the blob discards the uncommitted blocks of all other writers.
            if _code_of(error) == "InvalidBlockList":
                if self._token is not None and await self._storage._head(self._key) is not None:
                    return False
                raise CreationConflict(self._storage._uri_of(self._key)) from error
            raise
        return True

    async def abort(self) -> None:
        """Does nothing: the service drops the blocks by itself."""


class _TokenRefused(Exception):
    """The identity library got no token; its error is the cause."""


def _end_at_refused_tokens(credential: Any) -> None:
    """Have a credential end the request if it is refused a token.

    The client takes such an error for one of the store's, and asks four times, for more than a minute in all. It still does so where the
    token service is only busy or away.
    """
    for name in ("get_token", "get_token_info"):
        ask = getattr(credential, name, None)
        if ask is not None and not hasattr(ask, "ends_at_refusal"):
            setattr(credential, name, _ending_at_refusal(ask))


def _ending_at_refusal(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def get(*args: Any, **kwargs: Any) -> Any:
        from azure.core.exceptions import ClientAuthenticationError

        try:
            return await ask(*args, **kwargs)
        except ClientAuthenticationError as error:
            if _is_outage(error):
                raise
            if _NO_ANSWER not in str(error):
                raise _TokenRefused(str(error)) from error
        # The identity service of a machine has a second to answer, and was asked once.
        try:
            return await ask(*args, **kwargs)
        except ClientAuthenticationError as error:
            raise _TokenRefused(str(error)) from error

    get.ends_at_refusal = True  # type: ignore[attr-defined]
    return get


def _is_outage(error: Exception) -> bool:
    """Whether a token service that refused is only busy, or fails."""
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status in (408, 429) or status >= _SERVER_ERROR)


def _code_of(error: Exception) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _expiry_of(storage_options: Mapping[str, Any]) -> datetime | None:
    """Return the end of a SAS token, which stands in the token itself."""
    token = str(storage_options.get("sas_token") or "")
    if not token:
        members = str(storage_options.get("connection_string") or "").split(";")
        token = next((m.partition("=")[2] for m in members if m.startswith("SharedAccessSignature=")), "")
    end = parse_qs(token.removeprefix("?")).get("se", [""])[0]
    try:
        found = datetime.fromisoformat(end.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _right_of(error: Exception) -> str:
    request = getattr(getattr(error, "response", None), "request", None)
    return _RIGHTS.get(str(getattr(request, "method", "")), "the role Storage Blob Data Contributor")


def _is_directory(blob: Any) -> bool:
    """A directory of a hierarchical namespace, or the mark that Hadoop's client leaves for one."""
    return str((blob.metadata or {}).get("hdi_isfolder", "")).lower() == "true"
