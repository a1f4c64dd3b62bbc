"""Requests about single objects on S3, made by obstore where that is possible.

Through s3fs, a request takes a millisecond of Python, and more while other threads work. obstore takes a tenth of that, and makes
the requests of several threads at once. But the options of a table, and what a store answers, have their meaning in s3fs. So:

1. The first request that s3fs makes shows how the bucket is reached: its URL, the region, the credentials
   (:meth:`ObjectRequests.learn_from`). Where it shows something that is not known here, s3fs makes all requests.
2. Only plain answers of the store count. After anything else (a redirection, a refusal, a busy server, a broken connection) the
   result is ``None``, and the caller makes the request through s3fs. That one repeats it, renews credentials, and knows what an
   error means. So only requests are made here that may be made twice.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

import fsspec.asyn
from msgspec import Struct

from delta_log.storage.storage import ODD_KEY

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
    from obstore.store import S3Store
except ImportError:  # it comes with the extra "s3"
    obstore = None

#: The options that :func:`plain_way` understands, and those of the client among them.
_PLAIN_OPTIONS = frozenset({"key", "secret", "token", "endpoint_url", "client_kwargs"})
_PLAIN_CLIENT = frozenset({"region_name", "endpoint_url"})
#: Variables of the environment that name other files than these.
_CONFIG_FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "BOTO_CONFIG": "~/.boto",
}
#: Variables of the environment that name an identity or a region, which the options name.
_NO_SETTINGS = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SECURITY_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_EXECUTION_ENV",
    }
)
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: The regions whose endpoints are named alike.
_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d")
#: Of a listing, as S3 divides it.
PAGE_KEYS = 1000
#: The character behind the slash: no key of a directory comes after the directory's name with it.
_BEHIND_SLASH = "0"
#: After so many failures in a row, all requests are left to s3fs.
_MAX_FAILURES = 3
#: The credentials may have been renewed after this time.
_SECONDS_OF_CREDENTIALS = 10.0
#: Headers of Amazon's that any request has. A client that sends others has reasons that are not known here.
_USUAL = frozenset({"x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "x-amz-checksum-mode"})
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/\d{8}/([^/,]+)/s3/aws4_request,")
#: How obstore tells the status of a condition that does not hold.
_REFUSED = "status code: 412 "
_UNDECIDED = "<Code>ConditionalRequestConflict</Code>"
#: A request as a whole may take so many times as long as botocore waits for each of its answers.
_PATIENCE = 5


#: Key, secret, and a session's token.
Credentials: TypeAlias = tuple[str, str, str | None]


class Found(Struct, frozen=True):
    """An object as the store describes it.

    :param key: in the bucket.
    :param modified_seconds: since the epoch.
    :param tag: the ETag, with its quotation marks.
    :param content: what was asked for of it.
    :param metadata: empty in a listing.
    """

    key: str
    size: int
    modified_seconds: float
    tag: str | None
    content: bytes
    metadata: Mapping[str, str]


class Undecided(Exception):
    """The store was busy with other writers of an object, and did not decide who creates it."""


class ObjectRequests:
    """Requests to one bucket. Any thread may make them.

    :param way: how to reach it, if that is known.
    """

    def __init__(self, bucket: str, way: Way | None = None) -> None:
        self._bucket, self._way = bucket, way
        self._failures = 0 if obstore is not None else _MAX_FAILURES
        self._process = os.getpid()
        self._store: Any = None
        self._credentials: Credentials | None = None
        self._valid_until = 0.0

    @property
    def is_learning(self) -> bool:
        return self._way is None and self._failures < _MAX_FAILURES

    async def learn_from(self, file_system: Any, client: Any, request: Awaitable[Any], key: str) -> Any:
        """Await a request by s3fs that reads of the bucket, and learn how it is made.

        :param client: that of botocore which makes it.
        :param key: of the object; empty: the request lists objects.
        """
        # The ids make botocore register each handler once.
        client.meta.events.register("before-sign.s3", _see_signer, unique_id="delta-log-signer")
        client.meta.events.register("before-send.s3", _see_request, unique_id="delta-log-request")
        seen = _Seen()
        token = _seen.set(seen)
        try:
            result = await request
        finally:
            _seen.reset(token)
        self._way = _way_of(seen, file_system, client, self._bucket, quote(key, safe="/~"))
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
        options: dict[str, Any] = {} if tag is None else {"if_match": tag}
        if start is None:
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

        :param creates: only where there is none.
        :return: whether it was written; ``None`` if that is not known.
        :raises Undecided: the store was busy with other writers of the object.
        """
        store = self._store_for(key)
        if store is None:
            return None
        mode = "create" if creates else "overwrite"
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

    def pages(self, prefix: str, start: str) -> Iterator[list[Found] | None] | None:
        """Yield the objects directly below a prefix in pages, in the order of their keys.

        :param prefix: ends with a slash.
        :param start: behind the prefix; keys up to this one may be left out.
        :return: ``None``, also as a page: s3fs has to list from there on.
        """
        store = self._store_for(f"{prefix}{start}" if start else prefix[:-1])
        return None if store is None else self._pages(store, prefix, start)

    def _pages(self, store: Any, prefix: str, start: str) -> Iterator[list[Found] | None]:
        offset: str | None = f"{prefix}{start}" if start else None
        while True:
            behind = None
            try:
                for page in obstore.list(store, prefix[:-1], offset=offset, chunk_size=PAGE_KEYS):
                    found = [_described(about) for about in page]
                    deep = next(
                        (number for number, one in enumerate(found) if "/" in one.key[len(prefix) :]), None
                    )
                    yield found[:deep]
                    if deep is not None:
                        # The listing has no delimiter, so it goes on behind the directory.
                        behind = f"{prefix}{found[deep].key[len(prefix) :].partition('/')[0]}{_BEHIND_SLASH}"
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

        :param prefix: empty, or ends with a slash.
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
        return found

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
        store = self._store_for(key)
        if store is None or self._way is None or self._credentials is None:
            return None
        patient = self._way.open(self._bucket, *self._credentials, repeats=True)

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

    def _found(self, key: str, options: Mapping[str, Any]) -> Found | None:
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
        # obstore would change an odd key. Its threads do not live on in a process that was forked.
        if (
            way is None
            or self._failures >= _MAX_FAILURES
            or ODD_KEY.search(key)
            or os.getpid() != self._process
        ):
            return None
        now = time.monotonic()
        if now >= self._valid_until:
            found = way.credentials()
            if self._store is None or found != self._credentials:
                self._store, self._credentials = way.open(self._bucket, *found), found
            self._valid_until = now + _SECONDS_OF_CREDENTIALS
        return self._store


def _described(
    about: Mapping[str, Any], content: bytes = b"", metadata: Mapping[str, str] | None = None
) -> Found:
    modified = about["last_modified"].timestamp()
    return Found(about["path"], about["size"], modified, about["e_tag"], content, metadata or {})


class Way(Struct, frozen=True):
    """How a bucket is reached.

    :param endpoint: names the bucket if ``is_virtual``.
    :param credentials: returns those that are valid now.
    """

    endpoint: str
    is_virtual: bool
    region: str
    credentials: Callable[[], Credentials]
    agent: str = ""
    connect_seconds: float = 60
    read_seconds: float = 60

    def open(self, bucket: str, key: str, secret: str, token: str | None, *, repeats: bool = False) -> Any:
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            virtual_hosted_style_request=self.is_virtual,
            region=self.region,
            access_key_id=key,
            secret_access_key=secret,
            **({"session_token": token} if token else {}),
            client_options={
                "allow_http": self.endpoint.startswith("http:"),
                "connect_timeout": f"{self.connect_seconds}s",
                "timeout": f"{_PATIENCE * self.read_seconds}s",
                **({"user_agent": self.agent} if self.agent else {}),
            },
            # s3fs repeats most of what fails.
            retry_config=None if repeats else {"max_retries": 0},
        )


class _Seen(Struct):
    """What the handlers saw of a request; of its last attempt, if there were several."""

    signer: Any = None
    signature_version: Any = None
    request: Any = None


_seen: ContextVar[_Seen | None] = ContextVar("_seen", default=None)


def _see_signer(request_signer: Any, signature_version: Any, **_: Any) -> None:
    seen = _seen.get()
    if seen is not None:
        seen.signer, seen.signature_version = request_signer, signature_version


def _see_request(request: Any, **_: Any) -> None:
    seen = _seen.get()
    if seen is not None:
        seen.request = request


def _way_of(seen: _Seen, file_system: Any, client: Any, bucket: str, target: str) -> Way | None:
    """Return how to make requests like the one that was seen; ``None``: it has something that is not known here.

    :param target: the key of the object, as a URL has it.
    """
    from botocore.utils import get_environ_proxies

    if seen.request is None or seen.signature_version != "s3v4":
        return None
    config, url = client.meta.config, urlsplit(seen.request.url)
    headers = {name.lower(): _text(value) for name, value in seen.request.headers.items()}
    scope = _SCOPE.match(headers.get("authorization", ""))
    is_unusual = (
        any(name.startswith("x-amz-") and name not in _USUAL for name in headers)
        or file_system.s3_additional_kwargs
        or file_system.req_kw
        or file_system.cache_regions
        or config.client_cert
        or config.proxies
        or get_environ_proxies(seen.request.url)
        or (url.scheme == "https" and _has_own_certificates(file_system))
    )
    path = url.path.removesuffix(target).rstrip("/")
    is_virtual = url.netloc.startswith(f"{bucket}.")
    if is_unusual or scope is None or not url.path.endswith(target):
        return None
    if path != ("" if is_virtual else f"/{bucket}"):
        return None
    signer, region = seen.signer, scope[1]

    def credentials() -> Credentials:
        auth = fsspec.asyn.sync(file_system.loop, signer.get_auth_instance, "s3", region, "s3v4")
        return auth.credentials.access_key, auth.credentials.secret_key, auth.credentials.token

    return Way(
        endpoint=f"{url.scheme}://{url.netloc}",
        is_virtual=is_virtual,
        region=region,
        credentials=credentials,
        agent=headers.get("user-agent", ""),
        connect_seconds=config.connect_timeout,
        read_seconds=config.read_timeout,
    )


def plain_way(bucket: str, options: Mapping[str, Any]) -> Way | None:
    """Return how s3fs would reach a bucket, where options of the storage say it all; ``None``: s3fs has to show it.

    s3fs also looks at the environment and at files of Amazon's tools, so these must not be there.
    """
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    key, secret, region = options.get("key"), options.get("secret"), client.get("region_name")
    if (
        not set(options) <= _PLAIN_OPTIONS
        or not set(client) <= _PLAIN_CLIENT
        or not all(isinstance(text, str) and text for text in (key, secret, region))
        or _BUCKET.fullmatch(bucket) is None
        or find_spec("s3fs") is None
        or _is_configured(endpoint)
    ):
        return None
    token = options.get("token") or None

    def credentials() -> Credentials:
        return str(key), str(secret), token

    if endpoint is not None:
        url = urlsplit(endpoint)
        is_plain = url.scheme in ("http", "https") and url.path in ("", "/") and not url.query
        return Way(f"{url.scheme}://{url.netloc}", False, str(region), credentials) if is_plain else None
    if _REGION.fullmatch(str(region)) is None or "." in bucket:
        return None
    return Way(f"https://{bucket}.s3.{region}.amazonaws.com", True, str(region), credentials)


def _is_configured(endpoint: str | None) -> bool:
    """Tell whether botocore would find settings outside of the options."""
    files = (os.environ.get(name) or path for name, path in _CONFIG_FILES.items())
    names = {name.upper() for name, value in os.environ.items() if value}
    ignored = (
        _NO_SETTINGS if endpoint is None or endpoint.startswith("https") else {*_NO_SETTINGS, "AWS_CA_BUNDLE"}
    )
    return (
        any(os.path.exists(os.path.expanduser(path)) for path in files)
        or any(name.startswith("AWS_") and name not in ignored for name in names)
        or not names.isdisjoint(_PROXIES)
    )


def _has_own_certificates(file_system: Any) -> bool:
    """Tell whether the servers are verified in another way than any client would do it."""
    verify = file_system.client_kwargs.get("verify")
    return verify is not None or file_system.session.get_config_variable("ca_bundle") is not None


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
