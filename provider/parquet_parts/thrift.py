"""Reads structs of Thrift's compact protocol as deep as the caller asks, and keeps all other fields as bytes.

Moving a row group to another file changes a few numbers in each column chunk. A footer may have ten thousand chunks, so this
module decodes nothing that it does not have to.

1. A field that the caller does not ask for keeps its bytes, whatever a later version of the format means by it.
2. Reading any bytes ends with a value or with :class:`~parquet_parts.thrift.CorruptThrift`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

BOOLEAN, _FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
#: How deep structs, lists and maps may be nested; Parquet nests about ten.
MAX_DEPTH = 64

#: Reads a value: given the bytes, where the value begins and its kind, returns the value and where it ends.
ReadValue = Callable[[bytes, int, int], tuple[Any, int]]
#: The fields to read as structs or as lists of structs, each with the shape of that struct, and fields that the caller reads.
Shape = Mapping[int, "Mapping[int, Any] | ReadValue"]

#: In the first byte of a list: the length follows.
_LONG = 15
#: Bytes of a value that a list or a map holds, for kinds of one width.
_WIDTHS = {BOOLEAN: 1, _FALSE: 1, I8: 1, DOUBLE: 8, UUID: 16}
_MOST_BITS = 70


class CorruptThrift(ValueError):
    """Some bytes are not a struct of the compact protocol.

    :ivar position: position of the byte that was read last; ``why`` says what is wrong there.
    """

    def __init__(self, position: int, why: str) -> None:
        super().__init__(
            f"The metadata of a Parquet file are broken at byte {position}: {why}. Restore the file, or ask its writer."
        )
        self.position, self.why = position, why


class Fields(dict[int, tuple[int, Any]]):
    """The fields of a struct by number, each with its kind and its value.

    A value is ``bytes`` as encoded, :class:`Fields`, or a list of :class:`Fields`, as the :data:`Shape` asked, or what the
    caller has read: ``bytes``, or a list of values with a method ``to_bytes``. A boolean is in its kind, and its bytes are
    empty.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes, shape: Shape) -> Fields:
        """Read a struct that takes up all bytes.

        :raises CorruptThrift: the bytes are no struct of this shape, or more bytes follow it.
        """
        found, end = cls.first_of(data, shape)
        if end != len(data):
            raise CorruptThrift(end, f"the struct ends here, and {len(data) - end} more bytes follow")
        return found

    @classmethod
    def first_of(cls, data: bytes, shape: Shape) -> tuple[Fields, int]:
        """Read the struct that some bytes begin with; return it and where it ends.

        :raises CorruptThrift: the bytes begin with no struct of this shape.
        """
        try:
            return _read(data, 0, shape, 0)
        except IndexError:
            raise CorruptThrift(len(data), "the bytes end here") from None

    def number(self, field: int) -> int | None:
        """Return the value of an integer field; ``None`` if it is absent.

        :raises CorruptThrift: the field holds something else.
        """
        kind, value = self.get(field, (I64, None))
        if value is None:
            return None
        if not I16 <= kind <= I64:
            raise CorruptThrift(0, f"field {field} holds no number")
        return integer(value)

    def numbers(self, field: int) -> tuple[int, ...]:
        """Return the items of a list of integers; none if the field is absent.

        :raises CorruptThrift: the field holds something else.
        """
        item_kind, count, at, value = self._list(field)
        if count and not I16 <= item_kind <= I64:
            raise CorruptThrift(0, f"field {field} holds no list of numbers")
        found = []
        for _ in range(count):
            start, at = at, varint(value, at)[1]
            found.append(integer(value[start:at]))
        return tuple(found)

    def binaries(self, field: int) -> tuple[bytes, ...]:
        """Return the items of a list of binary values; none if the field is absent.

        :raises CorruptThrift: the field holds something else.
        """
        item_kind, count, at, value = self._list(field)
        if count and item_kind != BINARY:
            raise CorruptThrift(0, f"field {field} holds no list of bytes")
        found = []
        for _ in range(count):
            length, start = varint(value, at)
            at = start + length
            found.append(value[start:at])
        return tuple(found)

    def booleans(self, field: int) -> tuple[bool, ...]:
        """Return the items of a list of booleans; none if the field is absent.

        :raises CorruptThrift: the field holds something else.
        """
        item_kind, count, at, value = self._list(field)
        if count and item_kind not in (BOOLEAN, _FALSE):
            raise CorruptThrift(0, f"field {field} holds no list of booleans")
        return tuple(byte == BOOLEAN for byte in value[at : at + count])

    def _list(self, field: int) -> tuple[int, int, int, bytes]:
        """Return the kind of a list's items, their number, where the first begins, and the bytes; an absent list has no items."""
        kind, value = self.get(field, (LIST, b"\0"))
        if kind != LIST or not isinstance(value, bytes):
            raise CorruptThrift(0, f"field {field} holds no list of single values")
        return *list_head(value, 0), value

    def required_number(self, field: int) -> int:
        """Return the value of an integer field.

        :raises CorruptThrift: the field is absent or holds something else.
        """
        found = self.number(field)
        if found is None:
            raise CorruptThrift(0, f"field {field} holds no number")
        return found

    def binary(self, field: int) -> bytes | None:
        """Return the value of a binary field; ``None`` if it is absent.

        :raises CorruptThrift: the field holds something else.
        """
        kind, value = self.get(field, (BINARY, None))
        if value is None:
            return None
        if kind != BINARY:
            raise CorruptThrift(0, f"field {field} holds no bytes")
        return bytes(value[varint(value, 0)[1] :])

    def struct(self, field: int) -> Fields | None:
        """Return a struct that the shape named; ``None`` if the field is absent.

        :raises CorruptThrift: the field holds something else.
        """
        value = self.get(field, (STRUCT, None))[1]
        if value is not None and not isinstance(value, Fields):
            raise CorruptThrift(0, f"field {field} holds no struct")
        return value

    def structs(self, field: int) -> list[Fields]:
        """Return the items of a list of structs that the shape named; none if the field is absent.

        :raises CorruptThrift: the field holds something else.
        """
        value = self.get(field, (LIST, []))[1]
        if not isinstance(value, list):
            raise CorruptThrift(0, f"field {field} holds no list of structs")
        return value

    def put_number(self, field: int, value: int, kind: int = I64) -> None:
        """Set an integer field. A field that is there keeps its kind."""
        self[field] = (self[field][0] if field in self else kind, encoded_integer(value))

    def put_numbers(self, field: int, values: Iterable[int]) -> None:
        """Set a list of integers of 32 bits."""
        items = [encoded_integer(value) for value in values]
        self[field] = (LIST, encoded_list_head(len(items), I32) + b"".join(items))

    def put_binary(self, field: int, value: bytes) -> None:
        self[field] = (BINARY, encoded_varint(len(value)) + value)

    def put_structs(self, field: int, items: list[Fields]) -> None:
        self[field] = (LIST, items)

    def drop(self, *numbers: int) -> None:
        """Remove fields; an absent field is no error."""
        for number in numbers:
            self.pop(number, None)

    def to_bytes(self) -> bytes:
        out = bytearray()
        _write(out, self)
        return bytes(out)


def _read(data: bytes, at: int, shape: Shape, depth: int) -> tuple[Fields, int]:
    found = Fields()
    number = 0
    while head := data[at]:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            raw, at = varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        if number in found or not -(1 << 15) <= number < 1 << 15:
            raise CorruptThrift(at, f"field {number} stands here twice, or is out of range")
        inside = shape.get(number)
        if inside is None:
            start = at
            at = _end_of(data, at, kind, depth)
            found[number] = (kind, data[start:at])
        elif callable(inside):
            value, at = inside(data, at, kind)
            found[number] = (kind, value)
        elif kind == STRUCT:
            value, at = _read(data, at, inside, depth + 1)
            found[number] = (kind, value)
        elif kind == LIST:
            items, at = _read_structs(data, at, inside, depth + 1)
            found[number] = (kind, items)
        else:
            raise CorruptThrift(at, f"field {number} holds no struct and no list of structs")
    return found, at + 1


def _read_structs(data: bytes, at: int, shape: Shape, depth: int) -> tuple[list[Fields], int]:
    kind, count, at = list_head(data, at)
    if count and kind != STRUCT:
        raise CorruptThrift(at, "a list holds no structs")
    items = []
    for _ in range(count):
        item, at = _read(data, at, shape, depth)
        items.append(item)
    return items, at


def list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the kind of a list's items, their number, and where the first begins."""
    head = data[at]
    count, at = head >> 4, at + 1
    if count == _LONG:
        count, at = varint(data, at)
    return head & 15, count, at


def end_of(data: bytes, at: int, kind: int) -> int:
    """Return where the value of a field ends.

    :raises CorruptThrift: the bytes are no value of this kind.
    :raises IndexError: the bytes end too early.
    """
    return _end_of(data, at, kind, 0)


def _end_of(data: bytes, at: int, kind: int, depth: int) -> int:
    if I16 <= kind <= I64:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = varint(data, at)
        return _within(data, at + length)
    if kind in (BOOLEAN, _FALSE):
        return at
    if depth > MAX_DEPTH:
        raise CorruptThrift(at, f"more than {MAX_DEPTH} structs, lists and maps are within each other")
    if kind == STRUCT:
        while head := data[at]:
            at += 1
            if not head >> 4:
                at = varint(data, at)[1]
            at = _end_of(data, at, head & 15, depth + 1)
        return at + 1
    if kind in (LIST, SET):
        item_kind, count, at = list_head(data, at)
        return _end_of_items(data, at, (item_kind,), count, depth + 1)
    if kind == MAP:
        count, at = varint(data, at)
        if not count:
            return at
        return _end_of_items(data, at + 1, (data[at] >> 4, data[at] & 15), count, depth + 1)
    if kind not in _WIDTHS:
        raise CorruptThrift(at, f"there is no kind {kind}")
    return _within(data, at + _WIDTHS[kind])


def _end_of_items(data: bytes, at: int, kinds: tuple[int, ...], count: int, depth: int) -> int:
    """Return where items end that are of these kinds in turn."""
    # Every item takes at least one byte.
    if count * len(kinds) > len(data) - at:
        raise CorruptThrift(at, f"it claims {count} items, and {len(data) - at} bytes follow")
    for _ in range(count):
        for kind in kinds:
            width = _WIDTHS.get(kind)
            at = _within(data, at + width) if width else _end_of(data, at, kind, depth)
    return at


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise CorruptThrift(len(data), f"a value claims {at - len(data)} bytes more than there are")
    return at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number that begins at ``at``, and where it ends.

    :raises IndexError: the bytes end too early.
    """
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while byte & 128:
        if shift >= _MOST_BITS:
            raise CorruptThrift(at, "a number has more than ten bytes")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
    return value, at


def _write(out: bytearray, fields: Fields) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            out += encoded_integer(number)
        last = number
        if isinstance(value, bytes):
            out += value
        elif isinstance(value, Fields):
            _write(out, value)
        else:
            out += encoded_list_head(len(value), STRUCT)
            for item in value:
                if isinstance(item, Fields):
                    _write(out, item)
                else:
                    out += item.to_bytes()
    out.append(0)


def encoded_list_head(count: int, kind: int) -> bytes:
    """Return the beginning of a list of so many items of a kind."""
    if count < _LONG:
        return bytes((count << 4 | kind,))
    return bytes((_LONG << 4 | kind,)) + encoded_varint(count)


def integer(value: bytes) -> int:
    """Decode an integer that takes up all bytes.

    :raises CorruptThrift: it has more than 64 bits.
    """
    length = len(value)
    # A footer has very many of them, most of four bytes or fewer.
    if length == 1:
        raw = value[0]
    elif length == 3:
        raw = value[0] & 127 | (value[1] & 127) << 7 | (value[2] & 127) << 14
    elif length == 4:
        raw = value[0] & 127 | (value[1] & 127) << 7 | (value[2] & 127) << 14 | (value[3] & 127) << 21
    else:
        raw = 0
        for byte in reversed(value[: _MOST_BITS // 7 + 1]):
            raw = raw << 7 | byte & 127
        if raw >> 64:
            raise CorruptThrift(0, "a number has more than 64 bits")
    return (raw >> 1) ^ -(raw & 1)


def encoded_integer(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    # A footer has very many of them, most of four bytes.
    if 1 << 21 <= raw < 1 << 28:
        return bytes((raw & 127 | 128, raw >> 7 & 127 | 128, raw >> 14 & 127 | 128, raw >> 21))
    return encoded_varint(raw)


def encoded_varint(value: int) -> bytes:
    """Encode an unsigned number."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
