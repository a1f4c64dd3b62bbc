"""Finds the credentials in a text and replaces them, before a person or a log sees it.

An address may carry a secret in two places: before the ``@`` of its host (``s3://KEY:SECRET@bucket``), and in its query
(``?sig=…``, ``X-Amz-Signature=…``). Such an address is refused as a table's address. It may still come from an absolute path
in a log, a property, or an error of a client library. Code that prints such a text passes it through :func:`redact`.

Standard library only. The errors use this module, so it imports nothing of this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_HIDDEN = "***"
#: Names of parameters that hold a secret. Lengths have limits, so that no text takes more than linear time.
_NAME = (
    r"(?:[\w.-]{0,40}(?:signature|secret|token|passw(?:or)?d|credential|account_?key|access_?key|api_?key|sharedaccess)"
    r"[\w.-]{0,40}|sig|pwd|key)"
)
#: A parameter of a query; a log may spell ``?``, ``&`` and ``=`` with escapes.
_PARAMETER = re.compile(
    rf"((?:[?&;#]|%3f|%26|%3b|%23){_NAME}(?:=|%3d))(?:(?!%26|%3b|%23)[^&;#\s'\"<>\\])+", re.IGNORECASE
)
#: A member of a connection string. A directory of a partition may have such a name, but stands behind a slash.
_MEMBER = re.compile(
    r"(?<![\w/])((?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^;\s'\"]+", re.IGNORECASE
)
#: ``user:secret@``; the secret may hold slashes. A port is no secret, and the colons of an ARN separate no user.
_USER = re.compile(
    r"://(?!arn:)[^\s/@:'\"<>\\]{0,256}:(?!//|\d{1,5}(?:[/?#\s]|$))(?:(?!://)[^\s@'\"<>\\]){0,2048}@"
)
#: Names of buckets hold no ``@``, so what stands before one is a key.
_BUCKET_USER = re.compile(r"(?<![\w+.-])((?:s3[an]?|gs|gcs)://)[^\s/@'\"<>\\]{1,256}@", re.IGNORECASE)


def redact(text: str) -> str:
    """Return `text` with ``***`` in place of every credential of an address in it."""
    if "=" not in text and "@" not in text and "%3" not in text:
        return text
    text = _USER.sub(f"://{_HIDDEN}@", text)
    text = _BUCKET_USER.sub(rf"\1{_HIDDEN}@", text)
    text = _PARAMETER.sub(rf"\1{_HIDDEN}", text)
    return _MEMBER.sub(rf"\1{_HIDDEN}", text)


def redacted(value: Any) -> Any:
    """Apply :func:`redact` to every text in a JSON value, names of members included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redacted(name): redacted(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(member) for member in value]
    return value


def redact_uri(uri: str) -> str:
    """Redact a text that is one address; unlike :func:`redact` it finds a secret that holds spaces or quotes."""
    scheme, separator, rest = uri.partition("://")
    if separator and _has_user(scheme, rest):
        uri = f"{scheme}://{_HIDDEN}@{rest.rpartition('@')[2]}"
    return redact(uri)


def has_credentials(uri: str) -> bool:
    """Whether an address carries credentials. A path never does."""
    return "://" in uri and not uri.startswith("/") and redact_uri(uri) != uri


def _has_user(scheme: str, rest: str) -> bool:
    """Whether a secret, or a key, stands before the host."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        user = authority.rpartition("@")[0]
        return ":" in user or scheme.lower() in ("s3", "s3a", "s3n", "gs", "gcs")
    # A slash in the secret looks like the end of the authority.
    _, colon, port = authority.partition(":")
    return bool(colon) and "@" in rest and not authority.startswith("arn:") and not port.isdigit()
