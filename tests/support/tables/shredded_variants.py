"""Variants as a writer shreds them: an encoder of its own, and columns in several shredding schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

#: A shredding schema: a type of primitives, a list with the schema of its elements, or the schemas of some members of an object.
Shredding = Any


def names_in(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set(value) | {name for inner in value.values() for name in names_in(inner)}
    return {name for inner in value for name in names_in(inner)} if isinstance(value, list) else set()


def metadata_of(names: Sequence[str]) -> bytes:
    """The metadata with these names, in two bytes for each offset."""
    texts = [name.encode() for name in names]
    ends = [sum(map(len, texts[:number])) for number in range(len(texts) + 1)]
    numbers = [len(texts), *ends]
    return (
        bytes((1 | 1 << 6,)) + b"".join(number.to_bytes(2, "little") for number in numbers) + b"".join(texts)
    )


def encoded(value: Any, names: Sequence[str]) -> bytes:
    """The binary value of a JSON-like value; objects and arrays are large, as a writer may make them."""
    if value is None:
        return b"\x00"
    if isinstance(value, bool):
        return bytes(((1 if value else 2) << 2,))
    if isinstance(value, int):
        return bytes((6 << 2,)) + value.to_bytes(8, "little", signed=True)
    if isinstance(value, str):
        data = value.encode()
        return bytes((16 << 2,)) + len(data).to_bytes(4, "little") + data
    is_object = isinstance(value, Mapping)
    keys = sorted(value) if is_object else range(len(value))
    items = [encoded(value[key], names) for key in keys]
    ends = [sum(map(len, items[:number])) for number in range(len(items) + 1)]
    ids = [names.index(key).to_bytes(4, "little") for key in keys] if is_object else []
    header = (0b1_11_11 << 2 | 2) if is_object else (0b1_11 << 2 | 3)
    offsets = [end.to_bytes(4, "little") for end in ends]
    return b"".join([bytes((header,)), len(items).to_bytes(4, "little"), *ids, *offsets, *items])


def shredded_type(shredding: Shredding) -> pa.DataType:
    """The type of the group that holds variants under a shredding schema, without their metadata."""
    if shredding is None:
        return pa.struct([("value", pa.binary())])
    if isinstance(shredding, Mapping):
        typed = pa.struct([(name, shredded_type(inner)) for name, inner in shredding.items()])
    elif isinstance(shredding, list):
        typed = pa.list_(shredded_type(shredding[0]))
    else:
        typed = shredding
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


def shredded(value: Any, shredding: Shredding, names: Sequence[str]) -> dict[str, Any]:
    """One variant in its parts."""
    whole = {"value": encoded(value, names)}
    if isinstance(shredding, Mapping) and isinstance(value, Mapping):
        nothing = {"value": None, "typed_value": None}
        typed = {
            name: shredded(value[name], inner, names) if name in value else nothing
            for name, inner in shredding.items()
        }
        rest = {name: inner for name, inner in value.items() if name not in shredding}
        return {"value": encoded(rest, names) if rest else None, "typed_value": typed}
    if isinstance(shredding, list) and isinstance(value, list):
        return {"value": None, "typed_value": [shredded(inner, shredding[0], names) for inner in value]}
    kinds = {pa.int64(): int, pa.string(): str, pa.bool_(): bool}
    if isinstance(shredding, pa.DataType) and type(value) is kinds[shredding]:
        return {"value": None, "typed_value": value}
    return whole


def column_of(values: Sequence[Any], shredding: Shredding, absent: Sequence[int] = ()) -> pa.StructArray:
    """Variants as a column of a data file.

    :param absent: rows that are null, which is another thing than the null of variants.
    """
    kind = pa.struct([("metadata", pa.binary()), *shredded_type(shredding)])
    rows: list[dict[str, Any] | None] = []
    for number, value in enumerate(values):
        names = sorted(names_in(value))
        parts = {"metadata": metadata_of(names), **shredded(value, shredding, names)}
        rows.append(None if number in absent else parts)
    return pa.array(rows, kind)
