"""Puts shredded variants together: the binary value of each row from ``value`` and ``typed_value``.

Protocol sections "Variant Data Type" and "Variant Shredding", Parquet's "Variant Binary Encoding" and "Variant Shredding". A
shredded file keeps some paths of a variant in typed columns and the rest in the binary ``value``. No path is in both. The metadata
of a row, the dictionary of its names, holds the names of the typed paths, too, so it stays as it is.

The result is the same logical value. Its bytes may differ from the bytes that the writer shredded, since the encoding leaves the
widths of offsets and ids to the writer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_NULL = b"\x00"
_LONGEST_SHORT_TEXT = 63
#: Python's own context keeps 28 digits.
_EXACT = Context(prec=38)
#: Most members of an object or an array whose number takes one byte.
_MOST_SMALL = 255
#: The bytes that follow the header of each primitive of a fixed width, by its type.
_FIXED_BYTES = {
    **dict.fromkeys((0, 1, 2), 0),
    3: 1,
    4: 2,
    5: 4,
    6: 8,
    7: 8,
    8: 5,
    9: 9,
    10: 17,
    11: 4,
    12: 8,
    13: 8,
    14: 4,
    17: 8,
    18: 8,
    19: 8,
    20: 16,
}
_BINARY, _TEXT = 15, 16

#: The value of each row; ``None``: the row has none.
_Values = list[bytes | None]


def assembled(group: pa.StructArray) -> pa.BinaryArray:
    """Return the binary values of a column of shredded variants, null where the column is.

    :param group: struct of ``metadata``, ``typed_value`` and perhaps ``value``, as the file has it.
    :raises ValueError: the file breaks the rules of shredding, or has a type that a variant cannot hold.
    """
    metadata, valid = _member(group, "metadata").to_pylist(), _valid(group)
    if any(there and names is None for there, names in zip(valid, metadata, strict=True)):
        raise ValueError("a variant has no metadata")
    found = _values(group, metadata)
    # A variant without any value is the null of variants, which is another value than a row without a variant.
    return pa.array(
        [(value or _NULL) if there else None for value, there in zip(found, valid, strict=True)],
        pa.binary(),
    )


def _values(group: pa.StructArray, metadata: Sequence[bytes | None]) -> _Values:
    """Return the values of a group with ``value``, ``typed_value`` or both.

    :param metadata: metadata of the variant that each row is a part of.
    """
    if not pa.types.is_struct(group.type):
        raise ValueError("a part of a shredded variant is no group")
    count = len(group)
    rest = _member(group, "value").to_pylist() if _has(group, "value") else [None] * count
    if not _has(group, "typed_value"):
        return rest
    typed = _member(group, "typed_value")
    if pa.types.is_struct(typed.type):
        return _objects(typed, rest, metadata)
    found = _arrays(typed, metadata) if _is_list(typed.type) else _primitives(typed)
    if any(value is not None and other is not None for value, other in zip(found, rest, strict=True)):
        raise ValueError("a variant has both a value and a typed value")
    return [other if value is None else value for value, other in zip(found, rest, strict=True)]


def _has(group: pa.StructArray, name: str) -> bool:
    return bool(group.type.get_field_index(name) >= 0)


def _member(group: pa.StructArray, name: str) -> pa.Array:
    """Return a member, null where the group is. The name may hold dots, which Arrow would read as a path."""
    return pc.struct_field(group, [group.type.get_field_index(name)])


def _valid(array: pa.Array) -> list[bool]:
    valid: list[bool] = array.is_valid().to_pylist()
    return valid


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


# -- objects -------------------------------------------------------------------------------------------------------


def _objects(typed: pa.StructArray, rest: _Values, metadata: Sequence[bytes | None]) -> _Values:
    members = {member.name: _values(_member(typed, member.name), metadata) for member in typed.type}
    found: _Values = []
    for row, there in enumerate(_valid(typed)):
        if not there:
            found.append(rest[row])
            continue
        dictionary = _dictionary(metadata[row] or b"")
        fields = _fields(rest[row], dictionary)
        for name, values in members.items():
            value = values[row]
            if value is None:
                continue
            if name in fields:
                raise ValueError(f"a variant has the member {name!r} twice")
            fields[name] = value
        found.append(_object(fields, dictionary))
    return found


def _fields(value: bytes | None, dictionary: Mapping[str, int]) -> dict[str, bytes]:
    """Divide the part of an object that is not shredded into its members."""
    if value is None:
        return {}
    if value[0] & 3 != _OBJECT:
        raise ValueError("a variant is an object in its typed value, and none in its value")
    count, ids_at, id_bytes, offsets_at, offset_bytes, data = _object_places(value, 0)
    names, fields = list(dictionary), {}
    for number in range(count):
        start = data + _number(value, offsets_at + number * offset_bytes, offset_bytes)
        end = start + _size(value, start)
        if end > len(value):
            raise ValueError("a variant ends too early")
        fields[names[_number(value, ids_at + number * id_bytes, id_bytes)]] = value[start:end]
    return fields


def _object(fields: Mapping[str, bytes], ids: Mapping[str, int]) -> bytes:
    # The members are in the order of their names. UTF-8 has the order of code points, which is Python's.
    ordered = sorted(fields)
    if any(name not in ids for name in ordered):
        raise ValueError("the metadata of a variant lacks the name of a member")
    id_bytes = _width(max((ids[name] for name in ordered), default=0))
    values = [fields[name] for name in ordered]
    is_large = len(values) > _MOST_SMALL
    offset_bytes = _width(sum(map(len, values)))
    header = (is_large << 4 | (id_bytes - 1) << 2 | offset_bytes - 1) << 2 | _OBJECT
    return b"".join(
        (
            bytes((header,)),
            _packed([len(values)], 4 if is_large else 1),
            _packed([ids[name] for name in ordered], id_bytes),
            *_with_offsets(values, offset_bytes),
        )
    )


@lru_cache(256)
def _dictionary(metadata: bytes) -> dict[str, int]:
    """Return the names in a variant's metadata with their ids, in the order of the ids."""
    if not metadata or metadata[0] & 15 != 1:
        raise ValueError("the metadata of a variant has an unknown version")
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, width)
    ends = [_number(metadata, 1 + width * number, width) for number in range(1, count + 2)]
    start = 1 + width * (count + 2)
    found = {metadata[start + a : start + b].decode(): number for number, (a, b) in enumerate(pairwise(ends))}
    if len(found) != count:
        raise ValueError("the metadata of a variant has a name twice")
    return found


# -- arrays --------------------------------------------------------------------------------------------------------


def _arrays(typed: pa.Array, metadata: Sequence[bytes | None]) -> _Values:
    offsets = typed.offsets.to_pylist()
    valid = _valid(typed)
    owners: list[bytes | None] = []
    for row, names in enumerate(metadata):
        owners += [names] * (offsets[row + 1] - offsets[row])
    start = offsets[0] if offsets else 0
    elements = _values(typed.values.slice(start, len(owners)), owners)
    found: _Values = []
    for row, there in enumerate(valid):
        part = elements[offsets[row] - start : offsets[row + 1] - start]
        found.append(_array([value or _NULL for value in part]) if there else None)
    return found


def _array(values: Sequence[bytes]) -> bytes:
    is_large = len(values) > _MOST_SMALL
    offset_bytes = _width(sum(map(len, values)))
    header = (is_large << 2 | offset_bytes - 1) << 2 | _ARRAY
    count = _packed([len(values)], 4 if is_large else 1)
    return b"".join((bytes((header,)), count, *_with_offsets(values, offset_bytes)))


# -- primitives ----------------------------------------------------------------------------------------------------


def _primitives(typed: pa.Array) -> _Values:
    encode, stored = _encoder(typed.type)
    values = (typed if stored is None else typed.cast(stored)).to_pylist()
    return [None if value is None else encode(value) for value in values]


def _encoder(kind: pa.DataType) -> tuple[Callable[[Any], bytes], pa.DataType | None]:
    """Return what encodes a value of a type, and the type to cast the values to before."""
    if pa.types.is_boolean(kind):
        return lambda value: bytes((_header(1 if value else 2),)), None
    if pa.types.is_signed_integer(kind):
        return _integers({8: 3, 16: 4, 32: 5, 64: 6}[kind.bit_width], kind.bit_width // 8), None
    if pa.types.is_date32(kind):
        return _integers(11, 4), pa.int32()
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"):
        return _integers(
            (12 if kind.tz else 13) if kind.unit == "us" else (18 if kind.tz else 19), 8
        ), pa.int64()
    if pa.types.is_time64(kind) and kind.unit == "us":
        return _integers(17, 8), pa.int64()
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _floats(kind), None
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return _decimals(kind.precision, kind.scale), None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text, None
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: bytes((_header(_BINARY),)) + _packed([len(value)], 4) + value, None
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return lambda value: bytes((_header(20),)) + value, None
    raise ValueError(f"a variant cannot hold {kind}")


def _integers(type_number: int, width: int) -> Callable[[int], bytes]:
    head = bytes((_header(type_number),))
    return lambda value: head + value.to_bytes(width, "little", signed=True)


def _floats(kind: pa.DataType) -> Callable[[float], bytes]:
    form = struct.Struct("<Bf" if pa.types.is_float32(kind) else "<Bd")
    head = _header(14 if pa.types.is_float32(kind) else 7)
    return lambda value: form.pack(head, value)


def _decimals(precision: int, scale: int) -> Callable[[Decimal], bytes]:
    type_number, width = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)
    head = bytes((_header(type_number), scale))
    return lambda value: head + int(value.scaleb(scale, _EXACT)).to_bytes(width, "little", signed=True)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _LONGEST_SHORT_TEXT:
        return bytes((len(data) << 2 | _SHORT_TEXT,)) + data
    return bytes((_header(_TEXT),)) + _packed([len(data)], 4) + data


def _header(type_number: int) -> int:
    return type_number << 2 | _PRIMITIVE


# -- bytes ---------------------------------------------------------------------------------------------------------


def _size(value: bytes, at: int) -> int:
    """Return the size of the value that begins at a place."""
    kind, head = value[at] & 3, value[at] >> 2
    if kind == _SHORT_TEXT:
        return 1 + head
    if kind == _OBJECT:
        count, _, _, offsets_at, width, data = _object_places(value, at)
        return data - at + _number(value, offsets_at + count * width, width)
    if kind == _ARRAY:
        count_bytes, width = 4 if head & 4 else 1, (head & 3) + 1
        count = _number(value, at + 1, count_bytes)
        offsets_at = at + 1 + count_bytes
        return offsets_at - at + (count + 1) * width + _number(value, offsets_at + count * width, width)
    if head in (_BINARY, _TEXT):
        return 5 + _number(value, at + 1, 4)
    if head not in _FIXED_BYTES:
        raise ValueError(f"a variant has a value of the unknown type {head}")
    return 1 + _FIXED_BYTES[head]


def _object_places(value: bytes, at: int) -> tuple[int, int, int, int, int, int]:
    """Return the number of an object's members, where its ids and offsets begin and how wide each is, and where its data begin."""
    head = value[at] >> 2
    count_bytes, id_bytes, offset_bytes = 4 if head & 16 else 1, (head >> 2 & 3) + 1, (head & 3) + 1
    count = _number(value, at + 1, count_bytes)
    ids_at = at + 1 + count_bytes
    offsets_at = ids_at + count * id_bytes
    return count, ids_at, id_bytes, offsets_at, offset_bytes, offsets_at + (count + 1) * offset_bytes


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise ValueError("a variant ends too early")
    return int.from_bytes(data[at : at + width], "little")


def _width(largest: int) -> int:
    """Return the bytes that a number takes, one at least."""
    return max(1, -(-largest.bit_length() // 8))


def _packed(numbers: Iterable[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _with_offsets(values: Sequence[bytes], width: int) -> tuple[bytes, ...]:
    return _packed(accumulate(map(len, values), initial=0), width), *values
