"""Storage options of S3, by the names that s3fs and botocore gave them, as settings of obstore.

Each option has a counterpart, is without effect because it tunes caches that do not exist here, or is refused by its name.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct, field

from delta_log.errors import InvalidRequest
from delta_log.version import VERSION

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

#: The options that say who asks; :mod:`delta_log.storage.objects.s3` reads them.
_IDENTITY = ("anon", "key", "username", "secret", "password", "token", "profile", "assume_role")
_IDENTITY_OF_CLIENT = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
#: Options that tune caches and buffers of s3fs.
_WITHOUT_EFFECT = (
    "default_block_size", "default_cache_type", "default_fill_cache", "fixed_upload_size", "local_expiry_check", "max_concurrency",
    "version_aware",
)  # fmt: skip
#: Settings of botocore's client that its requests need and these do not.
_CONFIG_WITHOUT_EFFECT = (
    "defaults_mode", "disable_request_compression", "inject_host_prefix", "parameter_validation", "request_min_compression_size_bytes",
    "response_checksum_validation", "tcp_keepalive",
)  # fmt: skip
_CONNECT_SECONDS = 10
_MAX_RETRIES = 4
_REGION = "us-east-1"
#: Ends of the hosts of Amazon's endpoints, by how the names of their regions begin.
_DOMAINS = {"cn-": "amazonaws.com.cn"}


class S3Settings(Struct, frozen=True):
    """How a bucket is reached, and what every new object carries.

    :param endpoint: URL of the server, which names the bucket if ``is_virtual``.
    :param read_seconds: how long a short request may take; ``None``: the default.
    :param attributes: attributes of new objects, by the names of obstore.
    """

    endpoint: str
    region: str
    is_virtual: bool
    config: S3Config
    client: ClientConfig
    max_retries: int = _MAX_RETRIES
    read_seconds: int | None = None
    pays: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def settings_of(
    bucket: str, options: Mapping[str, Any], configured: Callable[[str], str | None]
) -> S3Settings:
    """
    :param configured: function that finds ``region``, ``endpoint_url`` or ``ca_bundle`` in the configuration of Amazon's tools.
    :raises InvalidRequest: an option is wrong, or has no counterpart.
    """
    read = _Reader(options)
    client, config = read.within("client_kwargs"), read.within("config_kwargs")
    written = read.within("s3_additional_kwargs")
    style, retries, proxies = config.within("s3"), config.within("retries"), config.within("proxies")
    for name in _IDENTITY:
        read.pop(name)
    for name in _IDENTITY_OF_CLIENT:
        client.pop(name)
    for name in _WITHOUT_EFFECT:
        read.pop(name)
    for name in _CONFIG_WITHOUT_EFFECT:
        config.pop(name)
    regions, endpoints = (
        (client.pop("region_name"), config.pop("region_name")),
        (read.pop("endpoint_url"), client.pop("endpoint_url")),
    )
    region = next(filter(None, regions), None) or configured("region") or _REGION
    given = next(filter(None, endpoints), None) or configured("endpoint_url")
    is_secure = all(flag is not False for flag in (read.pop("use_ssl"), client.pop("use_ssl")))
    endpoint, is_virtual = _endpoint(
        bucket,
        given,
        region,
        is_secure=is_secure,
        style=style.pop("addressing_style"),
        is_dual=bool(config.pop("use_dualstack_endpoint")),
        is_fips=bool(config.pop("use_fips_endpoint")),
    )
    if config.pop("signature_version") not in (None, "s3v4", "v4"):
        raise config.refused(
            "signature_version",
            "Requests are signed by version 4. Leave it out; for no signature set anon (true).",
        )
    s3: S3Config = {}
    if style.pop("payload_signing_enabled") is False:
        s3["unsigned_payload"] = True
    payer = written.pop("RequestPayer")
    pays = bool(read.pop("requester_pays")) or payer == "requester"
    s3["request_payer"] = pays
    _encryption(s3, written)
    checksum = written.pop("ChecksumAlgorithm")
    if config.pop("request_checksum_calculation") == "when_supported" and checksum is None:
        checksum = "SHA256"
    if checksum is not None:
        s3["checksum_algorithm"] = str(checksum)
    verify = client.pop("verify")
    http: ClientConfig = {
        "allow_http": endpoint.startswith("http:"),
        "connect_timeout": f"{int(config.pop('connect_timeout') or _CONNECT_SECONDS)}s",
        "user_agent": " ".join(
            filter(
                None,
                (config.pop("user_agent") or f"delta-maintenance/{VERSION}", config.pop("user_agent_extra")),
            )
        ),
    }
    http |= certificates(verify if verify is not None else configured("ca_bundle"), "client_kwargs.verify")
    proxy = proxies.pop(urlsplit(endpoint).scheme)
    proxies.pop("http"), proxies.pop("https")
    if proxy is not None:
        http["proxy_url"] = str(proxy)
    connections = config.pop("max_pool_connections")
    if connections is not None:
        http["pool_max_idle_per_host"] = str(connections)
    total = retries.pop("total_max_attempts")
    most = retries.pop("max_attempts")
    retries.pop("mode")
    read_seconds = config.pop("read_timeout")
    tagging = written.pop("Tagging")
    settings = S3Settings(
        endpoint,
        str(region),
        is_virtual,
        s3,
        http,
        _MAX_RETRIES if total is most is None else int(most if total is None else total - 1),
        None if read_seconds is None else max(1, int(read_seconds)),
        pays,
        _attributes(written),
        {} if tagging is None else dict(parse_qsl(str(tagging), keep_blank_values=True)),
    )
    for reader in (style, retries, proxies, client, config, written, read):
        reader.require_empty()
    return settings


class _Reader:
    """Options of one level; what is read is taken out, and what is left at the end has no counterpart."""

    def __init__(self, given: Mapping[str, Any], place: str = "") -> None:
        self._left, self._place = {name: value for name, value in given.items() if value is not None}, place

    def pop(self, name: str) -> Any:
        return self._left.pop(name, None)

    def within(self, name: str) -> _Reader:
        value = self._left.pop(name, None)
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequest(
                f"The storage option {self._place}{name} is no object. Give one, or leave it out."
            )
        return _Reader(value or {}, f"{self._place}{name}.")

    def refused(self, name: str, remedy: str) -> InvalidRequest:
        return InvalidRequest(
            f"The storage option {self._place}{name} cannot be obeyed: the client of S3 has nothing that corresponds to it. Nothing was "
            f"opened. {remedy}"
        )

    def require_empty(self) -> None:
        for name in self._left:
            raise self.refused(name, "Leave it out; docs/reference/stores.md has the options that are known.")


def _endpoint(
    bucket: str,
    given: str | None,
    region: str,
    *,
    is_secure: bool,
    style: str | None,
    is_dual: bool,
    is_fips: bool,
) -> tuple[str, bool]:
    """Return the URL, and whether it names the bucket."""
    if style not in (None, "auto", "path", "virtual"):
        raise InvalidRequest(
            f"The storage option config_kwargs.s3.addressing_style is {style!r}. There are auto, path and virtual."
        )
    if given is not None:
        url = urlsplit(given)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.path not in ("", "/"):
            raise InvalidRequest(
                f"The storage option endpoint_url is {given!r}, which is no URL of a server. Give one such as http://minio:9000."
            )
        if style != "virtual":
            return f"{url.scheme}://{url.netloc}", False
        return f"{url.scheme}://{bucket}.{url.netloc}", True
    domain = next((end for start, end in _DOMAINS.items() if region.startswith(start)), "amazonaws.com")
    labels = ["s3-fips" if is_fips else "s3", *(["dualstack"] if is_dual else []), region, domain]
    host, scheme = ".".join(labels), "https" if is_secure else "http"
    # The certificate has one label for the bucket.
    if style == "path" or "." in bucket:
        return f"{scheme}://{host}", False
    return f"{scheme}://{bucket}.{host}", True


def _encryption(s3: S3Config, written: _Reader) -> None:
    kind, key_id, by_bucket = (
        written.pop(name) for name in ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")
    )
    algorithm, key = written.pop("SSECustomerAlgorithm"), written.pop("SSECustomerKey")
    written.pop("SSECustomerKeyMD5")  # the client computes it
    if kind is not None:
        s3["server_side_encryption"] = str(kind)
    if key_id is not None:
        s3["sse_kms_key_id"] = str(key_id)
    if by_bucket is not None:
        s3["sse_bucket_key_enabled"] = bool(by_bucket)
    if algorithm is not None or key is not None:
        if algorithm not in (None, "AES256") or key is None:
            raise InvalidRequest(
                "The storage options s3_additional_kwargs.SSECustomerAlgorithm and SSECustomerKey belong together, and the "
                "algorithm is AES256. Give both."
            )
        raw = key if isinstance(key, bytes) else str(key).encode()
        s3["server_side_encryption"] = "sse-c"
        s3["sse_customer_key_base64"] = base64.b64encode(raw).decode()


def _attributes(written: _Reader) -> dict[str, str]:
    names = {
        "StorageClass": "Storage-Class",
        "CacheControl": "Cache-Control",
        "ContentType": "Content-Type",
        "ContentDisposition": "Content-Disposition",
        "ContentEncoding": "Content-Encoding",
        "ContentLanguage": "Content-Language",
    }
    found = {theirs: written.pop(ours) for ours, theirs in names.items()}
    return {name: str(value) for name, value in found.items() if value is not None}


def certificates(verify: Any, name: str) -> ClientConfig:
    """Return how servers are verified.

    :param verify: ``False``: they are not; a path: by the authorities in that file, too; otherwise as the system does it.
    :param name: name of the option, for errors.
    :raises InvalidRequest: the file cannot be read.
    """
    if verify is False:
        return {"allow_invalid_certificates": True}
    if not isinstance(verify, str | os.PathLike):
        return {}
    try:
        with open(verify, "rb") as file:
            return {"root_certificate": file.read()}
    except OSError as error:
        raise InvalidRequest(
            f"The certificates of {name}, {os.fspath(verify)}, cannot be read ({error.strerror}). Give the path of a file in PEM form "
            "on each machine that works on the table."
        ) from error
