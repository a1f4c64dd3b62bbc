"""Looks for a secret in bytes, in each form in which a program might have written it: plain, escaped, encoded, compressed."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

#: Beginnings of gzip and of zlib at its usual levels, and the same in base64.
_COMPRESSED = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")
_COMPRESSED_IN_BASE64 = re.compile(rb"(?:H4sI|eJ|eN|eA|eF)[A-Za-z0-9+/_-]+")


def holds(content: bytes, secret: str) -> bool:
    """Tell whether a secret is in some bytes, or in what is compressed within them."""
    forms = _forms(secret)
    return any(form in text for text in (content, *_decompressed_parts(content)) for form in forms)


def _forms(secret: str) -> set[bytes]:
    texts = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    plain = {text.encode() for text in texts}
    return plain | {secret.encode("utf-16-le"), secret.encode().hex().encode()} | _in_base64(secret.encode())


def _in_base64(secret: bytes) -> set[bytes]:
    """Return what base64 makes of a secret in the midst of other bytes: by its place there, without the letters that others share."""
    found = set()
    for before in range(3):
        whole = before + len(secret)
        shared, complete = -(-before * 8 // 6), whole * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(bytes(before) + secret)[shared:complete])
    return found


def _decompressed_parts(content: bytes) -> Iterator[bytes]:
    for found in _COMPRESSED.finditer(content):
        yield _decompressed(content[found.start() :])
    for found in _COMPRESSED_IN_BASE64.finditer(content):
        yield _decompressed(_decoded(found[0]))


def _decompressed(content: bytes) -> bytes:
    """Return what can be decompressed, which may be cut off."""
    try:
        return zlib.decompressobj(wbits=47).decompress(content)
    except zlib.error:
        return b""


def _decoded(text: bytes) -> bytes:
    whole = text[: len(text) - (len(text) % 4 == 1)].translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(whole + b"=" * (-len(whole) % 4))
    except binascii.Error:
        return b""
