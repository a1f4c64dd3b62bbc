"""The schema of a table: the JSON text of ``metaData.schemaString``, its types, and their Arrow forms.

Protocol sections "Schema Serialization Format" and "Column Mapping". A schema has two faces:

* *logical*: the names in queries, in :func:`arrow_schema`;
* *physical*: the names that data files, statistics and partition values use, together with the Parquet field ids,
  in ``arrow_schema(..., physical=True)``. Without column mapping both are the same.

The property ``delta.columnMapping.mode`` counts only where the protocol supports the feature; annotations that a schema may carry
without it mean nothing (:func:`parse_schema`).

A type that this module does not know is refused by name, never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Union

import pyarrow as pa
from msgspec import Struct, field

from delta_log.errors import InvalidMetadata, InvalidProperty, InvalidRequest, UnsupportedFeature, brief
from delta_log.log.actions import Protocol
from delta_log.table_config.features import supports
from delta_log.table_config.interval import IntervalType, interval_type

PHYSICAL_NAME = "delta.columnMapping.physicalName"
COLUMN_ID = "delta.columnMapping.id"
NESTED_IDS = "delta.columnMapping.nested.ids"
PARQUET_FIELD_ID = b"PARQUET:field_id"

#: How deep types may be nested. This module and Arrow walk a schema by recursion.
MAX_DEPTH = 100


class PrimitiveType(Struct, frozen=True):
    """``long``, ``string``, ``decimal(10,2)``, …: ``name`` is the spelling of the protocol."""

    name: str

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale of a decimal."""
        match = re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)", self.name)
        if match:
            return int(match[1]), int(match[2])
        return (10, 0) if self.name == "decimal" else None

    @property
    def interval(self) -> IntervalType | None:
        """The interval type that the name spells, if any."""
        return interval_type(self.name)


class ArrayType(Struct, frozen=True):
    element: DataType
    contains_null: bool = True


class MapType(Struct, frozen=True):
    key: DataType
    value: DataType
    value_contains_null: bool = True


class StructField(Struct, frozen=True):
    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        return str(self.metadata.get(PHYSICAL_NAME, self.name))

    @property
    def field_id(self) -> int | None:
        value = self.metadata.get(COLUMN_ID)
        return None if value is None else int(value)


class StructType(Struct, frozen=True):
    fields: tuple[StructField, ...]

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> StructField:
        """The field of a logical name, in any case; an exact match comes first."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        for candidate in self.fields:
            if candidate.name.lower() == name.lower():
                return candidate
        raise KeyError(name)

    def without(self, names: tuple[str, ...]) -> StructType:
        return StructType(tuple(f for f in self.fields if f.name not in names))


DataType = Union[PrimitiveType, ArrayType, MapType, StructType]  # noqa: UP007 - forward references, at run time

#: So many schemas are remembered: a process works on few tables at once, and asks for their schemas again and again.
_SCHEMAS = 32

#: A variant without shredding, as data files hold it. Its parts are never null: the protocol and every reader demand that.
#: The mark tells it from a struct of a user with the same members.
VARIANT = pa.struct(
    [pa.field(name, pa.binary(), False, {"delta.type": "variant"}) for name in ("value", "metadata")]
)
_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    # Feature timestampNanos, in the spelling of the Rust kernel: the RFC names the types in words only.
    "timestamp_nanos": pa.timestamp("ns", tz="UTC"),
    "timestamp_nanos_ntz": pa.timestamp("ns"),
    "void": pa.null(),
    "variant": VARIANT,
}


def is_variant(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type of a table's schema is a variant."""
    return bool(kind.equals(VARIANT, check_metadata=True))


@lru_cache(_SCHEMAS)
def parse_schema(text: str, *, mapped: bool = True) -> StructType:
    """The schema of a ``schemaString``.

    :param mapped: column mapping is in force. Where it is not, physical names and ids that the schema may carry mean
        nothing: files name their columns as the schema does.
    :raises InvalidMetadata: the text is not a schema.
    :raises UnsupportedFeature: it names a type that is not known, or nests types deeper than :data:`MAX_DEPTH`.
    """
    try:
        parsed = _parse_type(json.loads(text), mapped)
    except RecursionError as error:
        raise _too_deep() from error
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InvalidMetadata(
            "metaData.schemaString", f"it is not a schema ({brief(repr(error))})"
        ) from error
    if not isinstance(parsed, StructType):
        raise InvalidMetadata("metaData.schemaString", "its outermost type is not a struct")
    return parsed


TYPE_CHANGES = "delta.typeChanges"
_INTEGERS = ("byte", "short", "integer", "long")
_WIDENINGS = {
    *((old, new) for at, old in enumerate(_INTEGERS) for new in _INTEGERS[at + 1 :]),
    *((old, "double") for old in ("byte", "short", "integer", "float")),
    ("date", "timestamp_ntz"),
}
#: As decimals: precision and scale.
_DIGITS = {"byte": (10, 0), "short": (10, 0), "integer": (10, 0), "long": (20, 0)}

_MAPPING_KEYS = (PHYSICAL_NAME, COLUMN_ID, NESTED_IDS)


def _too_deep() -> UnsupportedFeature:
    return UnsupportedFeature((f"a schema nested more than {MAX_DEPTH} types deep",), "read")


def _parse_fields(raw: Any, mapped: bool, depth: int) -> tuple[StructField, ...]:
    fields = []
    for member in raw:
        name, metadata = member["name"], member.get("metadata") or {}
        if not isinstance(name, str) or not isinstance(metadata, dict):
            raise TypeError(f"{name!r} is no column")
        if not mapped:
            metadata = {key: value for key, value in metadata.items() if key not in _MAPPING_KEYS}
        field = StructField(
            name, _parse_type(member["type"], mapped, depth), bool(member.get("nullable", True)), metadata
        )
        _check_mapping(field)
        for change in metadata.get(TYPE_CHANGES) or ():
            _check_type_change(name, change["fromType"], change["toType"])
        for text in (field.name, field.physical_name):
            text.encode()  # refuses a lone surrogate, which neither files nor messages can hold
        fields.append(field)
    for names in ([f.name for f in fields], [f.physical_name for f in fields]):
        if len(set(names)) < len(names):
            raise ValueError(f"two columns have one name among {', '.join(names)}")
    return tuple(fields)


def _check_type_change(column: str, old: object, new: object) -> None:
    """Refuse changes of type that this package does not know, as protocol section "Type Widening" demands.

    :raises UnsupportedFeature: there is one; files from before it could only be read by guessing.
    """
    if not (isinstance(old, str) and isinstance(new, str)):
        raise TypeError(f"{column}: {TYPE_CHANGES}")
    if not is_widening(old, new):
        raise UnsupportedFeature((f"a type change from {old} to {new}",), "read", f"column {column}")


def is_widening(old: str, new: str) -> bool:
    """Tell whether protocol section "Type Widening" allows a column to change from one primitive type to another."""
    if (old, new) in _WIDENINGS:
        return True
    into = PrimitiveType(new).decimal
    narrow = _DIGITS.get(old) or PrimitiveType(old).decimal
    if into is None or narrow is None:
        return False
    (precision, scale), (old_precision, old_scale) = into, narrow
    return scale >= old_scale and precision - scale >= old_precision - old_scale


def _check_mapping(field: StructField) -> None:
    if not isinstance(field.metadata.get(PHYSICAL_NAME, ""), str):
        raise TypeError(f"the physical name of {field.name!r} is no text")
    nested = field.metadata.get(NESTED_IDS) or {}
    for value in (field.metadata.get(COLUMN_ID), *nested.values()):
        if value is not None and int(value) < 0:
            raise ValueError(f"an id of {field.name!r} is negative")


def _parse_type(raw: Any, mapped: bool, depth: int = 0) -> DataType:
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(raw, str):
        primitive = PrimitiveType(raw)
        to_arrow_type(primitive)
        return primitive
    kind = raw["type"]
    if kind == "struct":
        return StructType(_parse_fields(raw["fields"], mapped, depth + 1))
    if kind == "array":
        return ArrayType(
            _parse_type(raw["elementType"], mapped, depth + 1), bool(raw.get("containsNull", True))
        )
    if kind == "map":
        return MapType(
            _parse_type(raw["keyType"], mapped, depth + 1),
            _parse_type(raw["valueType"], mapped, depth + 1),
            bool(raw.get("valueContainsNull", True)),
        )
    if kind == "udt":
        # Values of a user-defined type are stored as values of its `sqlType`. The schema in the log keeps the type's class.
        return _parse_type(raw["sqlType"], mapped, depth)
    raise UnsupportedFeature((f"type {kind!r}",), "read")


def to_arrow_type(data_type: DataType, *, physical: bool = False) -> pa.DataType:
    """The Arrow type of a Delta type; with ``physical`` struct members carry physical names and field ids."""
    return _arrow_type(data_type, physical, {}, "")


def arrow_field(column: StructField, *, physical: bool = False) -> pa.Field:
    """One column as an Arrow field."""
    name = column.physical_name if physical else column.name
    # Ids of list elements and map entries (IcebergCompat) are kept by the nearest enclosing struct field.
    nested = column.metadata.get(NESTED_IDS) or {} if physical else {}
    kind = _arrow_type(column.type, physical, nested, column.physical_name)
    return pa.field(name, kind, column.nullable, _field_id(column.field_id if physical else None))


def arrow_schema(struct: StructType, *, physical: bool = False) -> pa.Schema:
    """The columns of a struct as an Arrow schema."""
    return pa.schema([arrow_field(column, physical=physical) for column in struct])


def selected_arrow_schema(struct: StructType, columns: Sequence[str] | None) -> pa.Schema:
    """Some columns of a struct (default: all) as an Arrow schema.

    :raises InvalidRequest: there is no such column.
    """
    if columns is None:
        return arrow_schema(struct)
    try:
        return pa.schema([arrow_field(struct.field(name)) for name in columns])
    except KeyError as error:
        raise InvalidRequest(
            f"There is no column {error}. The columns are {', '.join(struct.names)}."
        ) from None


def _arrow_type(data_type: DataType, physical: bool, nested: Mapping[str, Any], path: str) -> pa.DataType:
    if isinstance(data_type, PrimitiveType):
        precision_scale = data_type.decimal
        if precision_scale is not None:
            return pa.decimal128(*precision_scale)
        arrow = _ARROW.get(data_type.name)
        if arrow is None and re.fullmatch(r"(var)?char\(\d+\)", data_type.name):
            arrow = pa.string()
        if arrow is None and (interval := data_type.interval):
            arrow = pa.int32() if interval.bits == 32 else pa.int64()
        if arrow is None:
            raise UnsupportedFeature((f"type {data_type.name!r}",), "read")
        return arrow
    if isinstance(data_type, ArrayType):
        at = f"{path}.element"
        element = _arrow_type(data_type.element, physical, nested, at)
        return pa.list_(pa.field("element", element, data_type.contains_null, _field_id(nested.get(at))))
    if isinstance(data_type, MapType):
        key_at, value_at = f"{path}.key", f"{path}.value"
        return pa.map_(
            pa.field(
                "key",
                _arrow_type(data_type.key, physical, nested, key_at),
                False,
                _field_id(nested.get(key_at)),
            ),
            pa.field(
                "value",
                _arrow_type(data_type.value, physical, nested, value_at),
                data_type.value_contains_null,
                _field_id(nested.get(value_at)),
            ),
        )
    return pa.struct([arrow_field(member, physical=physical) for member in data_type])


def _field_id(value: Any) -> dict[bytes, bytes] | None:
    return None if value is None else {PARQUET_FIELD_ID: str(int(value)).encode()}


def leaf_types(data_type: DataType) -> Iterator[PrimitiveType]:
    """Every primitive type in a type, depth first."""
    if isinstance(data_type, PrimitiveType):
        yield data_type
    elif isinstance(data_type, ArrayType):
        yield from leaf_types(data_type.element)
    elif isinstance(data_type, MapType):
        yield from leaf_types(data_type.key)
        yield from leaf_types(data_type.value)
    else:
        for member in data_type:
            yield from leaf_types(member.type)


def all_fields(struct: StructType) -> Iterator[StructField]:
    """Every struct field at every depth."""

    def inside(data_type: DataType) -> Iterator[StructField]:
        if isinstance(data_type, StructType):
            yield from all_fields(data_type)
        elif isinstance(data_type, ArrayType):
            yield from inside(data_type.element)
        elif isinstance(data_type, MapType):
            yield from inside(data_type.key)
            yield from inside(data_type.value)

    for member in struct:
        yield member
        yield from inside(member.type)


def parquet_levels(kind: DataType) -> int:
    """How many names the longest path of a column of this type has in a Parquet file. Arrays and maps take two."""
    if isinstance(kind, StructType):
        return 1 + max((parquet_levels(member.type) for member in kind), default=0)
    if isinstance(kind, ArrayType):
        return 2 + parquet_levels(kind.element)
    if isinstance(kind, MapType):
        return 2 + max(parquet_levels(kind.key), parquet_levels(kind.value))
    return 1


def storable(struct: StructType) -> StructType:
    """A schema without its void members, which data files never hold.

    :raises UnsupportedFeature: a void cannot be left out: it is in an array or a map, or the only member. Or there is no member.
    """
    if not struct.fields:
        raise UnsupportedFeature(("a table or a struct without data columns",), "write files of")
    kept = []
    for member in struct:
        if member.type == PrimitiveType("void"):
            continue
        if isinstance(member.type, StructType):
            kept.append(StructField(member.name, storable(member.type), member.nullable, member.metadata))
            continue
        if any(leaf.name == "void" for leaf in leaf_types(member.type)):
            raise UnsupportedFeature((f"void inside the column {member.name!r}",), "write files of")
        kept.append(member)
    if not kept:
        raise UnsupportedFeature(("a struct of nothing but void",), "write files of")
    return StructType(tuple(kept))


MODE = "delta.columnMapping.mode"
MODES = ("none", "name", "id")


def mapping_mode(properties: Mapping[str, str | None], protocol: Protocol) -> str:
    """The mode: ``none``, ``name`` or ``id``."""
    if not supports(protocol, "columnMapping"):
        return "none"
    mode = (properties.get(MODE) or "none").lower()
    if mode not in MODES:
        raise InvalidProperty(MODE, mode, f"one of {', '.join(MODES)}", "name")
    return mode
