"""Reads and writes structs of Thrift's compact protocol without knowing what their fields mean.

The metadata of a Parquet file (footer, page index, page headers) are such structs. A caller that knows a few fields can change
those and keep all others, including fields of later versions of the format.

1. Reading and writing a struct keeps its fields, their order and their values. It also keeps the bytes if the writer chose the
   short forms that the protocol prescribes, as all known writers do.
2. Reading any bytes ends with a value or with :class:`CorruptThrift`. A list takes no more memory than the bytes that follow
   can fill, whatever length it claims, and nesting ends at :data:`MAX_DEPTH`.

=========  ==============================================================
kind       value
=========  ==============================================================
BOOLEAN    ``bool``
I8 … I64   ``int``
DOUBLE     eight ``bytes``, so that every NaN keeps its bits
BINARY     ``bytes``
UUID       sixteen ``bytes``
LIST, SET  :class:`ThriftList`
MAP        :class:`ThriftMap`
STRUCT     :class:`ThriftStruct`
=========  ==============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from parquet_parts.thrift import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    I8,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    MAX_DEPTH,
    SET,
    STRUCT,
    UUID,
    CorruptThrift,
)

_FALSE = BOOLEAN + 1
_BITS = {I16: 16, I32: 32, I64: 64}
_FIXED_BYTES = {DOUBLE: 8, UUID: 16}
#: In the first byte of a list: the length follows.
_LONG = 15


class Typed(NamedTuple):
    """The value of a field and its kind."""

    kind: int
    value: Any


class ThriftList(Struct, frozen=True):
    """A list or a set; all items are of one kind."""

    kind: int
    items: tuple[Any, ...]


class ThriftMap(Struct, frozen=True):
    """A map as pairs, in the order of the bytes; the kinds of an empty map are 0."""

    key_kind: int
    value_kind: int
    items: tuple[tuple[Any, Any], ...]


class ThriftStruct(Struct, frozen=True):
    """Fields by their numbers, in the order of the bytes."""

    fields: Mapping[int, Typed]

    def get(self, number: int) -> Any:
        """Return the value of a field, or ``None`` if it is absent."""
        found = self.fields.get(number)
        return None if found is None else found.value

    def without(self, *numbers: int) -> ThriftStruct:
        """Return the struct without some fields."""
        return ThriftStruct({number: field for number, field in self.fields.items() if number not in numbers})

    def replacing(self, number: int, value: Any) -> ThriftStruct:
        """Return the struct with another value in a field that it has."""
        return ThriftStruct({**self.fields, number: Typed(self.fields[number].kind, value)})

    def to_bytes(self) -> bytes:
        out = bytearray()
        _write_struct(out, self)
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> ThriftStruct:
        """Read a struct that takes up all bytes.

        :raises CorruptThrift: the bytes are no struct, or more bytes follow it.
        """
        found, end = cls.first_of(data)
        if end != len(data):
            raise CorruptThrift(end, f"the struct ends here, and {len(data) - end} more bytes follow")
        return found

    @classmethod
    def first_of(cls, data: bytes) -> tuple[ThriftStruct, int]:
        """Read the struct that some bytes begin with; return it and where it ends.

        :raises CorruptThrift: the bytes begin with no struct.
        """
        reader = _Reader(data)
        return reader.struct(0), reader.at


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> ThriftStruct:
        if depth > MAX_DEPTH:
            raise self._broken(f"more than {MAX_DEPTH} structs, lists and maps are within each other")
        fields: dict[int, Typed] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._integer(16)
            if not -(1 << 15) <= number < 1 << 15 or number in fields:
                raise self._broken(f"field {number} stands here twice, or is out of range")
            if kind in (BOOLEAN, _FALSE):
                fields[number] = Typed(BOOLEAN, kind == BOOLEAN)
            else:
                fields[number] = Typed(kind, self._value(kind, depth))
        return ThriftStruct(fields)

    def _value(self, kind: int, depth: int) -> Any:
        """Read a value outside of a struct's field, for example in a list."""
        if kind in _BITS:
            return self._integer(_BITS[kind])
        if kind == BINARY:
            return self._bytes(self._varint(32))
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth + 1)
        if kind == I8:
            byte = self._byte()
            return byte - 256 if byte > 127 else byte
        if kind in (BOOLEAN, _FALSE):
            byte = self._byte()
            if byte > _FALSE:
                raise self._broken(f"{byte} is no boolean")
            return byte == BOOLEAN
        if kind in _FIXED_BYTES:
            return self._bytes(_FIXED_BYTES[kind])
        if kind == MAP:
            return self._map(depth + 1)
        raise self._broken(f"there is no kind {kind}")

    def _list(self, depth: int) -> ThriftList:
        head = self._byte()
        kind, count = head & 15, head >> 4
        if count == _LONG:
            count = self._varint(32)
        self._expect(count, depth)
        return ThriftList(kind, tuple([self._value(kind, depth) for _ in range(count)]))

    def _map(self, depth: int) -> ThriftMap:
        count = self._varint(32)
        if not count:
            return ThriftMap(0, 0, ())
        kinds = self._byte()
        self._expect(count, depth)
        key_kind, value_kind = kinds >> 4, kinds & 15
        pairs = [(self._value(key_kind, depth), self._value(value_kind, depth)) for _ in range(count)]
        return ThriftMap(key_kind, value_kind, tuple(pairs))

    def _expect(self, count: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._broken(f"more than {MAX_DEPTH} structs, lists and maps are within each other")
        # Every value takes at least one byte.
        if count > len(self._data) - self.at:
            raise self._broken(f"it claims {count} items, and {len(self._data) - self.at} bytes follow")

    def _byte(self) -> int:
        at = self.at
        if at >= len(self._data):
            raise self._broken("the bytes end here")
        self.at = at + 1
        return self._data[at]

    def _bytes(self, count: int) -> bytes:
        start = self.at
        if count > len(self._data) - start:
            raise self._broken(f"it claims {count} bytes, and {len(self._data) - start} follow")
        self.at = start + count
        return self._data[start : self.at]

    def _varint(self, bits: int) -> int:
        byte = self._byte()
        if byte < 128:
            return byte
        value, shift = byte & 127, 7
        while byte & 128:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if shift > 70:
                raise self._broken("a number has more than ten bytes")
        if value >> bits:
            raise self._broken(f"a number has more than {bits} bits")
        return value

    def _integer(self, bits: int) -> int:
        value = self._varint(bits)
        return (value >> 1) ^ -(value & 1)

    def _broken(self, why: str) -> CorruptThrift:
        return CorruptThrift(self.at, why)


def _write_struct(out: bytearray, struct: ThriftStruct) -> None:
    last = 0
    for number, (kind, value) in struct.fields.items():
        code = kind if kind != BOOLEAN or value else _FALSE
        if 0 < number - last < 16:
            out.append((number - last) << 4 | code)
        else:
            out.append(code)
            _write_integer(out, number)
        last = number
        if kind != BOOLEAN:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _BITS:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        count = len(value.items)
        out.append(min(count, _LONG) << 4 | value.kind)
        if count >= _LONG:
            _write_varint(out, count)
        for item in value.items:
            _write_value(out, value.kind, item)
    elif kind == I8:
        out.append(value & 255)
    elif kind in (BOOLEAN, _FALSE):
        out.append(BOOLEAN if value else _FALSE)
    elif kind == MAP:
        _write_varint(out, len(value.items))
        if value.items:
            out.append(value.key_kind << 4 | value.value_kind)
        for key, item in value.items:
            _write_value(out, value.key_kind, key)
            _write_value(out, value.value_kind, item)
    else:
        out += value


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
