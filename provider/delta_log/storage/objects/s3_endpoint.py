"""How a bucket on S3 is reached: its URL, the region, and the credentials.

Options of the table that say all of it are understood here (:func:`plain_way`). The meaning of all others is known to s3fs and
botocore, so a request that they make is looked at (:func:`watched`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import SplitResult, quote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

#: The options that :func:`plain_way` understands, and the options of the client among them.
_PLAIN_OPTIONS = frozenset({"key", "secret", "token", "endpoint_url", "client_kwargs"})
_PLAIN_CLIENT = frozenset({"region_name", "endpoint_url"})
#: Variables of the environment that name other files than these. None names another directory than the last one.
_CONFIG_FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "BOTO_CONFIG": "~/.boto",
    "": "~/.config/fsspec",
}
_TOKENS = frozenset({"AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"})
#: Variables of the environment that name an identity or a region, which the options name, or files, which are looked for.
_NO_SETTINGS = _TOKENS | frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_EXECUTION_ENV",
        "AWS_CONFIG_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
)
#: Variables of Amazon's tools that obstore does not read, or that are passed to it.
_IGNORED = _NO_SETTINGS - _TOKENS | frozenset(
    {
        "AWS_CA_BUNDLE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_DEFAULT_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_STS",
        "AWS_MAX_ATTEMPTS",
        "AWS_PROFILE",
        "AWS_RETRY_MODE",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_STS_REGIONAL_ENDPOINTS",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    }
)
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: The regions whose endpoints are named alike.
_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d")
#: Headers of Amazon's that any request has. A client that sends others has reasons that are not known here.
_USUAL = frozenset({"x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "x-amz-checksum-mode"})
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/\d{8}/([^/,]+)/s3/aws4_request,")
#: A request for a part of a large file, as a whole, may take so many times as long as botocore waits for each of its answers.
_PATIENCE = 5
#: Other requests may take so long. Nobody can interrupt them, and s3fs makes those again that take longer.
_SHORT_SECONDS = 30
_LAST_PORT = 65_535


#: Key, secret, and a session's token.
Credentials: TypeAlias = tuple[str, str, str | None]


class Way(Struct, frozen=True):
    """How a bucket is reached.

    :param endpoint: address that names the bucket if ``is_virtual``.
    :param credentials: function that returns the credentials that are valid now.
    :param are_fixed: the credentials stay as they are.
    """

    endpoint: str
    is_virtual: bool
    region: str
    credentials: Callable[[], Credentials]
    are_fixed: bool = False
    agent: str = ""
    connect_seconds: float = 60
    read_seconds: float = 60

    def open(self, bucket: str, key: str, secret: str, token: str | None, *, repeats: bool = False) -> Any:
        """Return a store of obstore; ``None``: it would obey the environment, too, in what s3fs does not know of."""
        from obstore.store import S3Store

        # obstore panics where a text is no header.
        if _read_by_obstore(token) or not all(
            map(_is_printable, (key, secret, token or "", self.region, self.agent))
        ):
            return None
        client: ClientConfig = {
            "allow_http": self.endpoint.startswith("http:"),
            "connect_timeout": f"{self.connect_seconds}s",
            "timeout": f"{_PATIENCE * self.read_seconds if repeats else min(self.read_seconds, _SHORT_SECONDS)}s",
        }
        if self.agent:
            client["user_agent"] = self.agent
        session: S3Config = {"session_token": token} if token else {}
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            virtual_hosted_style_request=self.is_virtual,
            region=self.region,
            access_key_id=key,
            secret_access_key=secret,
            config=session,
            client_options=client,
            # s3fs repeats most of what fails.
            retry_config=None if repeats else {"max_retries": 0},
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
        is_plain = (
            url.scheme in ("http", "https") and url.path in ("", "/") and not url.query and _has_host(url)
        )
        return (
            Way(f"{url.scheme}://{url.netloc}", False, str(region), credentials, True) if is_plain else None
        )
    if _REGION.fullmatch(str(region)) is None or "." in bucket:
        return None
    return Way(f"https://{bucket}.s3.{region}.amazonaws.com", True, str(region), credentials, True)


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
        # fsspec has settings of its own for each store.
        or any(name.startswith("FSSPEC_") for name in names)
        or _has_proxies()
    )


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _has_host(url: SplitResult) -> bool:
    """Tell whether the host and the port of an address are some that every client understands."""
    return (
        re.fullmatch(r"[A-Za-z0-9._-]+(:\d{1,5})?", url.netloc) is not None
        and (_port_of(url) or 1) <= _LAST_PORT
    )


def _port_of(url: SplitResult) -> int | None:
    try:
        return url.port
    except ValueError:
        return _LAST_PORT + 1


def _has_proxies() -> bool:
    return any(value and name.upper() in _PROXIES for name, value in os.environ.items())


def _has_own_certificates(file_system: Any) -> bool:
    """Tell whether the servers are verified in another way than any client would do it."""
    verify = file_system.client_kwargs.get("verify")
    return verify is not None or file_system.session.get_config_variable("ca_bundle") is not None


def _read_by_obstore(token: str | None) -> set[str]:
    """Return the variables of the environment that change what obstore does.

    :param token: token of a session, which takes the place of a token in the environment.
    """
    ignored = _IGNORED if token is None else _IGNORED | _TOKENS
    return {name for name in os.environ if name.startswith("AWS_") and name not in ignored}


async def watched(
    file_system: Any,
    client: Any,
    request: Awaitable[Any],
    bucket: str,
    key: str,
    wait_for: Callable[..., Any],
) -> tuple[Any, Way | None]:
    """Await a request of s3fs that reads of a bucket.

    :param client: client of botocore that makes the request.
    :param key: key of the object; empty: the request lists objects.
    :param wait_for: function that runs a coroutine function in the thread of s3fs, and returns its result.
    :return: its result, and how others like it can be made; ``None``: it has something that is not known here.
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
    return result, _way_of(seen, file_system, client, bucket, key, wait_for)


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


def _way_of(
    seen: _Seen, file_system: Any, client: Any, bucket: str, key: str, wait_for: Callable[..., Any]
) -> Way | None:
    target = quote(key, safe="/~")
    if seen.request is None or seen.signature_version != "s3v4":
        return None
    config, url = client.meta.config, urlsplit(seen.request.url)
    headers = {name.lower(): _text(value) for name, value in seen.request.headers.items()}
    scope = _SCOPE.match(headers.get("authorization", ""))
    is_unusual = (
        not _has_host(url)
        or any(name.startswith("x-amz-") and name not in _USUAL for name in headers)
        or file_system.s3_additional_kwargs
        or file_system.req_kw
        or file_system.cache_regions
        or config.client_cert
        or config.proxies
        or _has_proxies()
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
        auth = wait_for(signer.get_auth_instance, "s3", region, "s3v4")
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


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
