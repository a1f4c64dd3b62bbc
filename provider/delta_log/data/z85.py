"""Z85 (ZeroMQ's RFC 32), the text form of binary data in deletion vector descriptors: five characters for four bytes.

Z85 is the code of RFC 1924 in another alphabet, and the standard library has the latter.
"""

from __future__ import annotations

import base64

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85 = bytes.maketrans(_RFC1924, _Z85)
# A character that is not Z85 becomes NUL, which the decoder refuses.
_FROM_Z85 = bytes(_RFC1924[_Z85.index(byte)] if byte in _Z85 else 0 for byte in range(256))


def encode_z85(data: bytes) -> str:
    """Encode bytes, whose number must be a multiple of four."""
    if len(data) % 4:
        raise ValueError(f"Z85 encodes four bytes at a time, and these are {len(data)}")
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")


def decode_z85(text: str) -> bytes:
    """Decode a text.

    :raises ValueError: it is not Z85.
    """
    if len(text) % 5:
        raise ValueError(f"Z85 comes in groups of five characters, and these are {len(text)}")
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
