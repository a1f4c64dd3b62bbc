"""The XML API of Google Cloud Storage in front of a server that has the JSON API alone, as a program of its own.

obstore and delta-rs use the XML API, which fake-gcs-server serves for reads only. Each request becomes one of the JSON API, so the
server behind decides conditions and order. Multipart uploads are kept here until they are completed. Requests of the JSON API
pass through unchanged, so that one address serves both.

Answers and errors are written as in "HTTP status and error codes for XML" and "XML API multipart uploads" of Google's documentation.
Authentication is not checked.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import md5
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

_JSON_API = ("storage/", "upload/", "download/", "batch/", "_internal/")
_MOST_KEYS = 1000
_LEAST_PART_BYTES = 5 << 20
#: Headers of a request that describe the object, beside those of its metadata.
_ATTRIBUTES = ("content-type", "content-disposition", "content-language", "cache-control")
_METADATA = "x-goog-meta-"
_MESSAGES = {
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum object size."),
    "InvalidPart": (400, "One or more of the specified parts could not be found."),
    "InvalidRange": (416, "The requested range cannot be satisfied."),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "NoSuchBucket": (404, "The specified bucket does not exist."),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchUpload": (404, "The specified multipart upload does not exist."),
    "PreconditionFailed": (412, "At least one of the pre-conditions you specified did not hold."),
}


class XmlApiError(Exception):
    """``code`` is Google's name of the error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class MultipartUpload:
    """An object that is uploaded in parts: its headers, and the content of each part by its number."""

    bucket: str
    key: str
    headers: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Handler(BaseHTTPRequestHandler):
    """One connection of a client, which has one connection to the server behind."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: XmlApiServer

    def setup(self) -> None:
        super().setup()
        self._behind = HTTPConnection(self.server.upstream)

    def finish(self) -> None:
        super().finish()
        self._behind.close()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith(_JSON_API, 1):
            response = self._ask(self.command, self.path, body, _lower(self.headers.items()))
        else:
            try:
                response = self._answer(body)
            except XmlApiError as error:
                status, message = _MESSAGES[error.code]
                response = Response(
                    status, *_xml(f"<Error><Code>{error.code}</Code><Message>{message}</Message></Error>")
                )
        self._reply(response)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = handle_request  # noqa: N815 - the server's names

    def _reply(self, response: Response) -> None:
        self.send_response_only(response.status)
        length = response.headers.get("content-length") if self.command == "HEAD" else None
        for name, value in response.headers.items():
            if name not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request to the server behind."""
        self._behind.request(method, path, body or None, headers or {})
        answer = self._behind.getresponse()
        return Response(answer.status, _lower(answer.getheaders()), answer.read())

    def _answer(self, body: bytes) -> Response:
        path, _, parameters = self.path.partition("?")
        bucket, _, key = path[1:].partition("/")
        bucket, key = unquote(bucket), unquote(key)
        query = dict(parse_qsl(parameters, keep_blank_values=True))
        match self.command, bool(key):
            case "GET", False:
                return self._list(bucket, query)
            case "GET" | "HEAD", True:
                return self._read(bucket, key, query)
            case "PUT", True if "uploadId" in query:
                return self._put_part(bucket, key, query, body)
            case "PUT", True if "x-goog-copy-source" in self.headers:
                return self._copy(bucket, key)
            case "PUT", True:
                return self._put(bucket, key, _lower(self.headers.items()), body)
            case "POST", True if "uploads" in query:
                return self._begin_upload(bucket, key)
            case "POST", True if "uploadId" in query:
                return self._complete_upload(bucket, key, query, body)
            case "DELETE", True if "uploadId" in query:
                self._upload(bucket, key, query)
                self.server.uploads.pop(query["uploadId"], None)
                return Response(204, {})
            case "DELETE", True:
                return self._delete(bucket, key)
            case _:
                raise XmlApiError("MethodNotAllowed")

    def _read(self, bucket: str, key: str, query: Mapping[str, str]) -> Response:
        generation = f"?generation={query['generation']}" if "generation" in query else ""
        headers = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        path = f"/download/storage/v1/{_path(bucket, key)}{generation}"
        # The server behind knows no conditions of HTTP. It answers with the tag, whatever the method.
        found = self._ask(self.command, path, headers=headers)
        if found.status == 416 or found.headers.get("content-range", "").endswith("/0"):
            raise XmlApiError("InvalidRange")
        self._require(found, bucket)
        wanted, unwanted = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if wanted is not None and wanted not in ("*", found.headers["etag"]):
            raise XmlApiError("PreconditionFailed")
        if unwanted is not None and unwanted in ("*", found.headers["etag"]):
            return Response(304, {"etag": found.headers["etag"]})
        return found

    def _list(self, bucket: str, query: Mapping[str, str]) -> Response:
        asked = {
            "prefix": query.get("prefix"),
            "delimiter": query.get("delimiter"),
            "pageToken": query.get("continuation-token"),
            "maxResults": min(_MOST_KEYS, int(query.get("max-keys", _MOST_KEYS))),
            # The JSON API includes the key that it begins at; no key lies between this key and the one with a zero behind.
            "startOffset": f"{query['start-after']}\0" if query.get("start-after") else None,
        }
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        found = self._ask("GET", f"/storage/v1/{_path(bucket)}/o?{given}")
        self._require(found, bucket)
        page = json.loads(found.body)
        parts = [f"<Name>{escape(bucket)}</Name><Prefix>{escape(query.get('prefix', ''))}</Prefix>"]
        token = page.get("nextPageToken")
        parts.append(f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>")
        if token:
            parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        parts += (
            f"<Contents><Key>{escape(item['name'])}</Key><Generation>{item['generation']}</Generation>"
            f'<LastModified>{item["updated"]}</LastModified><ETag>"{item["etag"]}"</ETag><Size>{item["size"]}</Size></Contents>'
            for item in page.get("items") or ()
        )
        parts += (
            f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
            for prefix in page.get("prefixes") or ()
            # The server behind adds to each page the prefixes of all later pages.
            if not token or prefix < token
        )
        return Response(200, *_xml(f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"))

    def _put(self, bucket: str, key: str, headers: Mapping[str, str], content: bytes) -> Response:
        """Create an object by one upload of the JSON API, which judges the precondition.

        :param headers: the headers that describe the object.
        """
        asked = {"uploadType": "media", "name": key}
        condition = self.headers.get("x-goog-if-generation-match")
        if condition is not None:
            asked["ifGenerationMatch"] = condition
        if "content-encoding" in headers:
            asked["contentEncoding"] = headers["content-encoding"]
        described = {
            name: value
            for name, value in headers.items()
            if name in _ATTRIBUTES or name.startswith(_METADATA)
        }
        done = self._ask(
            "POST", f"/upload/storage/v1/{_path(bucket)}/o?{urlencode(asked)}", content, described
        )
        if done.status == 412:
            raise XmlApiError("PreconditionFailed")
        self._require(done, bucket)
        created = json.loads(done.body)
        return Response(200, {"etag": f'"{created["etag"]}"', "x-goog-generation": created["generation"]})

    def _copy(self, bucket: str, key: str) -> Response:
        source_bucket, _, source = unquote(self.headers["x-goog-copy-source"]).lstrip("/").partition("/")
        found = self._ask("GET", f"/download/storage/v1/{_path(source_bucket, source)}")
        self._require(found, source_bucket)
        created = self._put(bucket, key, found.headers, found.body)
        result = f"<CopyObjectResult><ETag>{escape(created.headers['etag'])}</ETag></CopyObjectResult>"
        headers, body = _xml(result)
        return Response(200, {**created.headers, **headers}, body)

    def _delete(self, bucket: str, key: str) -> Response:
        done = self._ask("DELETE", f"/storage/v1/{_path(bucket, key)}")
        self._require(done, bucket)
        return Response(204, {})

    def _begin_upload(self, bucket: str, key: str) -> Response:
        self._require(self._ask("GET", f"/storage/v1/{_path(bucket)}"), bucket)
        upload_id = uuid.uuid4().hex
        self.server.uploads[upload_id] = MultipartUpload(bucket, key, _lower(self.headers.items()))
        named = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><UploadId>{upload_id}</UploadId>"
        return Response(200, *_xml(f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>"))

    def _put_part(self, bucket: str, key: str, query: Mapping[str, str], content: bytes) -> Response:
        self._upload(bucket, key, query).parts[int(query["partNumber"])] = content
        return Response(200, {"etag": _part_tag(content)})

    def _complete_upload(self, bucket: str, key: str, query: Mapping[str, str], body: bytes) -> Response:
        upload = self._upload(bucket, key, query)
        contents = []
        for part in ET.fromstring(body):
            content = upload.parts.get(int(part.findtext("PartNumber") or 0))
            if content is None or part.findtext("ETag") != _part_tag(content):
                raise XmlApiError("InvalidPart")
            contents.append(content)
        if any(len(content) < _LEAST_PART_BYTES for content in contents[:-1]):
            raise XmlApiError("EntityTooSmall")
        created = self._put(bucket, key, upload.headers, b"".join(contents))
        self.server.uploads.pop(query["uploadId"], None)
        named = (
            f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><ETag>{created.headers['etag']}</ETag>"
        )
        headers, body = _xml(f"<CompleteMultipartUploadResult>{named}</CompleteMultipartUploadResult>")
        return Response(200, {**created.headers, **headers}, body)

    def _upload(self, bucket: str, key: str, query: Mapping[str, str]) -> MultipartUpload:
        found = self.server.uploads.get(query["uploadId"])
        if found is None or (found.bucket, found.key) != (bucket, key):
            raise XmlApiError("NoSuchUpload")
        return found

    def _require(self, response: Response, bucket: str) -> None:
        """Raise the error of an answer of the server behind, which does not say what is missing."""
        if response.status == 404:
            exists = self._ask("GET", f"/storage/v1/{_path(bucket)}").status == 200
            raise XmlApiError("NoSuchKey" if exists else "NoSuchBucket")
        if response.status >= 300:
            raise RuntimeError(f"{response.status} {response.body!r}")


class XmlApiServer(ThreadingHTTPServer):
    """
    :param upstream: host and port of the server behind.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, upstream: str) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.upstream = upstream
        self.uploads: dict[str, MultipartUpload] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that closed its connection; other errors are shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def _path(bucket: str, key: str | None = None) -> str:
    """Return the path of a bucket or of an object in the JSON API."""
    return f"b/{quote(bucket, '')}" + (f"/o/{quote(key, '')}" if key is not None else "")


def _xml(content: str) -> tuple[dict[str, str], bytes]:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{content}"
    return {"content-type": "application/xml; charset=UTF-8"}, body.encode()


def _part_tag(content: bytes) -> str:
    return f'"{md5(content, usedforsecurity=False).hexdigest()}"'


if __name__ == "__main__":
    XmlApiServer(int(sys.argv[1]), sys.argv[2]).serve_forever()
