"""The encoding of levels and of places in a dictionary: runs of one value, and runs of bit-packed values (``RLE`` in ``Encodings.md``).

Values have a fixed number of bits, the width. Bit-packed values come in groups of eight.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from delta_log.parquet.thrift_compact import CorruptThrift
from delta_log.parquet.thrift_fields import encoded_varint, varint

if TYPE_CHECKING:
    import numpy.typing as npt

Unsigned: TypeAlias = "npt.NDArray[np.unsignedinteger[Any]]"

#: The most bits of a value.
MOST_BITS = 32
_GROUP = 8
#: So many groups have writers in a run, whose head is then one byte.
_GROUPS_OF_A_RUN = 63
#: Reading each run takes some microseconds. Arrow reads what has more of them.
_MOST_RUNS = 1 << 13
#: A number of 64 bits has no more bytes.
_VARINT_BYTES = 10


def decoded(content: memoryview, width: int, count: int) -> Unsigned:
    """Return so many values. Bytes behind them are not looked at.

    :raises CorruptThrift: there are fewer, or they are in very many runs.
    """
    if not 0 <= width <= MOST_BITS:
        raise CorruptThrift(0, f"values of {width} bits")
    kind, value_bytes = _kind(width), (width + 7) // 8
    found, missing, at = [np.empty(0, kind)], count, 0
    while missing:
        head, length = varint(bytes(content[at : at + _VARINT_BYTES]) + b"\0", 0)
        at += length
        number, is_packed = head >> 1, head & 1
        if len(found) > _MOST_RUNS:
            raise CorruptThrift(at, f"values are in more than {_MOST_RUNS} runs")
        stop = at + (number * width if is_packed else value_bytes)
        if number < 1 or stop > len(content):
            raise CorruptThrift(at, "a run of values is empty or cut")
        if is_packed and width:
            run = _unpacked(content[at:stop], width)[:missing]
        else:
            value = int.from_bytes(content[at:stop], "little")
            if value >> width:
                raise CorruptThrift(at, f"the value {value} has more than {width} bits")
            run = np.full(min(number * (_GROUP if is_packed else 1), missing), value, kind)
        found.append(run)
        missing -= len(run)
        at = stop
    return np.concatenate(found)


def run_of(value: int, width: int, count: int) -> bytes:
    """Encode one value that stands there so many times."""
    return encoded_varint(count << 1) + value.to_bytes((width + 7) // 8, "little")


def packed_run(values: Unsigned, width: int) -> bytes:
    """Encode values as one bit-packed run, which is filled up with zeros."""
    groups = -(-len(values) // _GROUP)
    return encoded_varint(groups << 1 | 1) + _packed(values, groups * _GROUP, width)


@lru_cache(maxsize=8)
def counted(first: int, count: int, width: int) -> bytes:
    """Encode consecutive numbers as most writers do: in bit-packed runs of 504 values.

    :param width: the bits that the last of them has, or more.
    """
    numbers = np.arange(first, first + count, dtype=np.uint32)
    run_values = _GROUPS_OF_A_RUN * _GROUP
    return b"".join(
        packed_run(numbers[start : start + run_values], width) for start in range(0, count, run_values)
    )


def _kind(width: int) -> np.dtype[Any]:
    """Return the least type of numbers that holds so many bits."""
    return np.dtype("<u1" if width <= 8 else "<u2" if width <= 16 else "<u4")


def _unpacked(content: memoryview, width: int) -> Unsigned:
    kind = _kind(width)
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little").reshape(-1, width)
    wide = np.zeros((len(bits), kind.itemsize * 8), np.uint8)
    wide[:, :width] = bits
    return np.packbits(wide, bitorder="little").view(kind)


def _packed(values: Unsigned, count: int, width: int) -> bytes:
    kind = _kind(width)
    filled = np.zeros(count, kind)
    filled[: len(values)] = values
    bits = np.unpackbits(filled.view(np.uint8), bitorder="little").reshape(-1, kind.itemsize * 8)
    return np.packbits(bits[:, :width], bitorder="little").tobytes()
