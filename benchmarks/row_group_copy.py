"""A trial: several Parquet files put into one by copying whole row groups, without decoding a value.

The bytes are copied by the kernel, and the footers' offsets moved. Footers are Thrift structures in the compact protocol,
read into plain values and written back, so that fields this file knows nothing of survive. Page indexes are left out; they
would have to be copied and moved as well. The sources must have one schema and one codec. Not part of the product.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: By field id: its type in the protocol, and its value; of a list, the type of its elements and these.
_Struct = dict[int, tuple[int, Any]]
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)
#: Fields of ``FileMetaData``, ``RowGroup``, ``ColumnChunk`` and ``ColumnMetaData``.
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
_CHUNK_OFFSET, _META, _PAGE_INDEX = 2, 3, (4, 5, 6, 7)
_COMPRESSED_SIZE, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _BLOOM_FILTER = 7, 9, 10, 11, (14, 15)
_MAGIC = b"PAR1"


def copy_row_groups(sources: Sequence[Path], target: Path) -> int:
    """One file of all row groups, in order; how many rows it has."""
    groups: list[_Struct] = []
    rows, at, whole = 0, len(_MAGIC), None
    with target.open("wb") as file:
        file.write(_MAGIC)
        file.flush()
        for source in sources:
            footer = _footer(source)
            whole = whole or footer
            mine: list[_Struct] = footer[_ROW_GROUPS][1][1]
            first, last = _extent(mine)
            _copy(source, first, last, file.fileno(), at)
            for group in mine:
                _move(group, at - first, len(groups))
                groups.append(group)
            rows, at = rows + footer[_NUM_ROWS][1], at + last - first
        assert whole is not None
        whole[_NUM_ROWS] = (whole[_NUM_ROWS][0], rows)
        whole[_ROW_GROUPS] = (_LIST, (_STRUCT, groups))
        body = _encoded(whole)
        file.seek(at)
        file.write(body + struct.pack("<I", len(body)) + _MAGIC)
    return rows


def _footer(path: Path) -> _Struct:
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        size = struct.unpack("<I", file.read(4))[0]
        file.seek(-8 - size, os.SEEK_END)
        return _Reader(file.read(size)).structure()


def _chunks(group: _Struct) -> list[_Struct]:
    found: list[_Struct] = group[_COLUMNS][1][1]
    return found


def _extent(groups: Sequence[_Struct]) -> tuple[int, int]:
    """Where their pages begin and end."""
    metas = [chunk[_META][1] for group in groups for chunk in _chunks(group)]
    starts = [
        min(meta[field][1] for field in (_DATA_PAGE, _DICTIONARY_PAGE) if field in meta) for meta in metas
    ]
    ends = [start + meta[_COMPRESSED_SIZE][1] for start, meta in zip(starts, metas, strict=True)]
    return min(starts), max(ends)


def _copy(source: Path, first: int, last: int, target: int, at: int) -> None:
    with source.open("rb") as file:
        while first < last:
            copied = os.copy_file_range(file.fileno(), target, last - first, first, at)
            first, at = first + copied, at + copied


def _move(group: _Struct, by: int, ordinal: int) -> None:
    _add(group, _GROUP_OFFSET, by)
    if _ORDINAL in group:
        group[_ORDINAL] = (group[_ORDINAL][0], ordinal)
    for chunk in _chunks(group):
        for field in _PAGE_INDEX:
            chunk.pop(field, None)
        _add(chunk, _CHUNK_OFFSET, by)
        meta = chunk[_META][1]
        for field in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE):
            _add(meta, field, by)
        for field in _BLOOM_FILTER:
            meta.pop(field, None)


def _add(fields: _Struct, field: int, number: int) -> None:
    """Zero and absence say that something is not there, or not told."""
    kind, value = fields.get(field, (0, 0))
    if value:
        fields[field] = (kind, value + number)


# -- Thrift's compact protocol -------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def structure(self) -> _Struct:
        fields: _Struct = {}
        last = 0
        while header := self._byte():
            last = last + (header >> 4) if header >> 4 else self._integer()
            fields[last] = header & 15, self._value(header & 15)
        return fields

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _integer(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._integer()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _LIST:
            header = self._byte()
            count = header >> 4 if header >> 4 < 15 else self._unsigned()
            if header & 15 in (_TRUE, _FALSE):
                return header & 15, [self._byte() for _ in range(count)]
            return header & 15, [self._value(header & 15) for _ in range(count)]
        if kind == _STRUCT:
            return self.structure()
        raise ValueError(f"a Parquet footer holds nothing of type {kind}")


def _encoded(fields: _Struct) -> bytes:
    out = bytearray()
    last = 0
    for field in sorted(fields):
        kind, value = fields[field]
        if kind in (_TRUE, _FALSE):
            kind = _TRUE if value else _FALSE
        if field - last < 16:
            out.append((field - last) << 4 | kind)
        else:
            out += bytes([kind]) + _integer(field)
        last = field
        if kind not in (_TRUE, _FALSE):
            out += _value(kind, value)
    return bytes(out) + b"\0"


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _integer(number: int) -> bytes:
    return _unsigned(number << 1 if number >= 0 else (-number << 1) - 1)


def _value(kind: int, value: Any) -> bytes:
    if kind == _BYTE:
        return bytes([value])
    if kind in _INTEGERS:
        return _integer(value)
    if kind == _DOUBLE:
        return bytes(value)
    if kind == _BINARY:
        return _unsigned(len(value)) + bytes(value)
    if kind == _STRUCT:
        return _encoded(value)
    element, items = value
    head = (
        bytes([len(items) << 4 | element])
        if len(items) < 15
        else bytes([0xF0 | element]) + _unsigned(len(items))
    )
    if element in (_TRUE, _FALSE):
        return head + bytes(items)
    return head + b"".join(_value(element, item) for item in items)
