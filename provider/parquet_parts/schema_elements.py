"""Compares the schemas of Parquet files, leaf by leaf and name by name.

Writers spell one column in several ways. :func:`columns_of` leaves out what makes no difference to a reader:

=============================================  ==================================================================
spelling                                       meaning
=============================================  ==================================================================
a converted type, without a logical type       the logical type that replaced it
``INT(32, true)`` or ``INT(64, true)``         the same as no annotation, where the physical type is as wide
``MAP_KEY_VALUE`` on the group of a map        none: an old annotation
name and repetition of the root                none
=============================================  ==================================================================
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from parquet_parts.thrift import BOOLEAN, I8, I32, STRUCT, CorruptThrift, Fields, encoded_integer

# Fields of SchemaElement.
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, FIELD_ID, _LOGICAL = (
    range(1, 11)
)
_INT32, _INT64, INT96, FLOAT, DOUBLE = 1, 2, 3, 4, 5
#: Values that have as many bytes as the schema says, and the bytes of the values of other types.
FIXED_LENGTH = 7
_OPTIONAL, _REPEATED = 1, 2
#: Converted types.
_MAP_KEY_VALUE, _DECIMAL = 2, 5
_TRUE = (BOOLEAN, b"")


def _struct(fields: dict[int, Any]) -> Fields:
    """
    :param fields: fields, each a pair of kind and bytes, or a struct.
    """
    return Fields(
        {
            number: (STRUCT, _struct(value)) if isinstance(value, dict) else value
            for number, value in fields.items()
        }
    )


def _integers(bits: int) -> dict[int, Any]:
    return {10: {1: (I8, bytes((bits,))), 2: _TRUE}}


def _decimal(scale: int, precision: int) -> dict[int, Any]:
    return {5: {1: (I32, encoded_integer(scale)), 2: (I32, encoded_integer(precision))}}


_CONVERTED_TYPES: dict[int, dict[int, Any]] = {
    0: {1: {}},  # UTF8, STRING
    1: {2: {}},  # MAP
    3: {3: {}},  # LIST
    4: {4: {}},  # ENUM
    6: {6: {}},  # DATE
    9: {8: {1: _TRUE, 2: {1: {}}}},  # TIMESTAMP_MILLIS
    10: {8: {1: _TRUE, 2: {2: {}}}},  # TIMESTAMP_MICROS
    15: _integers(8),
    16: _integers(16),
    17: _integers(32),
    18: _integers(64),
    19: {12: {}},  # JSON
    20: {13: {}},  # BSON
}
#: The logical types that replaced converted types.
_REPLACEMENTS = {converted: _struct(fields).to_bytes() for converted, fields in _CONVERTED_TYPES.items()}
_PLAIN_INTEGERS = {_INT32: _struct(_integers(32)).to_bytes(), _INT64: _struct(_integers(64)).to_bytes()}
#: No column has members so deep within each other.
_DEEPEST = 200
#: Kind of a field that holds a struct.
_ANNOTATION = STRUCT


#: The logical type UNKNOWN at the end of a schema element: the only member of a union, an empty struct.
UNKNOWN_TYPE = b"\xbc\0\0"


class Leaf(Struct, frozen=True):
    """A leaf of a schema.

    :param path: names from the top down.
    :param is_repeated: ``True`` if it is in a list or a map.
    :param most_defined: the definition level of values that are not null: how many of the elements on the path may be absent.
    """

    path: tuple[bytes, ...]
    physical_type: int
    is_repeated: bool
    most_defined: int = 1


def columns_of(schema: list[Fields]) -> list[tuple[Any, ...]]:
    """Return what a reader has to know of each element of a schema, depth first, without the root.

    :raises CorruptThrift: the elements are no schema.
    """
    return [_meaning(element) for element in schema[1:]]


def drop_unknown_groups(schema: list[Fields]) -> bool:
    """Drop the logical type UNKNOWN of groups, which only leaves may have. Return whether there was one."""
    wrong = [
        element
        for element in schema
        if _TYPE not in element and element.get(_LOGICAL, (STRUCT, b""))[1] == UNKNOWN_TYPE
    ]
    for element in wrong:
        element.drop(_LOGICAL)
    return bool(wrong)


def leaves_of(schema: list[Fields]) -> list[Leaf]:
    """Return the leaves of a schema in their order.

    :raises CorruptThrift: the elements are no schema.
    """
    leaves: list[Leaf] = []
    elements = iter(schema[1:])

    def read(path: tuple[bytes, ...], repetitions: tuple[int | None, ...]) -> None:
        element = next(elements, None)
        if element is None or len(path) == _DEEPEST:
            raise CorruptThrift(0, "the schema ends within a column, or is too deep")
        path = (*path, element.binary(_NAME) or b"")
        repetitions = (*repetitions, element.number(_REPETITION))
        if _TYPE in element:
            kind = element.required_number(_TYPE)
            defined = sum(repetition in (_OPTIONAL, _REPEATED) for repetition in repetitions)
            leaves.append(Leaf(path, kind, _REPEATED in repetitions, defined))
        for _ in range(element.number(_CHILDREN) or 0):
            read(path, repetitions)

    if not schema:
        raise CorruptThrift(0, "there is no schema")
    for _ in range(schema[0].required_number(_CHILDREN)):
        read((), ())
    if next(elements, None) is not None:
        raise CorruptThrift(0, "the schema has columns that its root does not count")
    return leaves


def _meaning(element: Fields) -> tuple[Any, ...]:
    physical_type, converted = element.number(_TYPE), element.number(_CONVERTED)
    kind, annotation = element.get(_LOGICAL, (_ANNOTATION, None))
    if kind != _ANNOTATION:
        raise CorruptThrift(0, "a logical type is no struct")
    if annotation is None and converted is not None and converted != _MAP_KEY_VALUE:
        if converted == _DECIMAL:
            scale, precision = element.number(_SCALE) or 0, element.number(_PRECISION) or 0
            annotation = _struct(_decimal(scale, precision)).to_bytes()
        else:
            annotation = _REPLACEMENTS.get(converted, converted)
    if physical_type is not None and annotation == _PLAIN_INTEGERS.get(physical_type):
        annotation = None
    named = (element.number(field) for field in (_TYPE_LENGTH, _REPETITION, _CHILDREN, FIELD_ID))
    unknown = tuple((number, value) for number, value in sorted(element.items()) if number > _LOGICAL)
    return physical_type, element.binary(_NAME), annotation, *named, unknown
