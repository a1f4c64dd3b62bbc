"""Decodes Parquet's runs of levels and of places in a dictionary bit by bit, as its specification says it."""

from __future__ import annotations


def naively(content: bytes, width: int, count: int) -> list[int] | None:
    """Decode bit by bit; ``None``: the values are not there."""
    found: list[int] = []
    at = 0
    while len(found) < count:
        head = shift = 0
        while True:
            if at == len(content) or shift > 70:
                return None
            byte = content[at]
            head |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        number = head >> 1
        size = number * width if head & 1 else (width + 7) // 8
        if not number or at + size > len(content):
            return None
        packed = int.from_bytes(content[at : at + size], "little")
        if head & 1:
            found += [packed >> n * width & (1 << width) - 1 for n in range(min(8 * number, count))]
        elif packed >> width:
            return None
        else:
            found += [packed] * min(number, count)
        at += size
    return found[:count]
