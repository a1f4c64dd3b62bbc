"""Patterns of addresses: ``*`` stands for any text within one segment of a path, ``**`` for any number of segments."""

from __future__ import annotations

import re
from functools import lru_cache

_PIECES = re.compile(r"/\*\*/|^\*\*/|/\*\*$|\*\*|\*")
_EXPRESSIONS = {"/**/": "/(?:.*/)?", "**/": "(?:.*/)?", "/**": "/.+", "**": ".*", "*": "[^/]*"}


def matches(pattern: str, address: str) -> bool:
    """Whether a pattern matches a whole address, such as ``s3://lake/**`` or ``glue://sales.*``."""
    return _expression(pattern).fullmatch(address.rstrip("/")) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    text, end = "", 0
    for piece in _PIECES.finditer(pattern.rstrip("/")):
        text += re.escape(pattern[end : piece.start()]) + _EXPRESSIONS[piece[0]]
        end = piece.end()
    return re.compile(text + re.escape(pattern.rstrip("/")[end:]), re.DOTALL)
