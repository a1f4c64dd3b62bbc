"""Random structs of Thrift's compact protocol, with fields of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from parquet_parts.thrift import BINARY, BOOLEAN, DOUBLE, I8, I16, I32, I64, LIST, MAP, SET, STRUCT, UUID
from tests.support.checks.thrift_struct import ThriftList, ThriftMap, ThriftStruct, Typed

_SIMPLE: dict[int, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    I8: st.integers(-128, 127),
    I16: st.integers(-(1 << 15), (1 << 15) - 1),
    I32: st.integers(-(1 << 31), (1 << 31) - 1),
    I64: st.integers(-(1 << 63), (1 << 63) - 1),
    DOUBLE: st.binary(min_size=8, max_size=8),
    UUID: st.binary(min_size=16, max_size=16),
    BINARY: st.binary(max_size=200),
}


def _typed(kind: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Typed]:
    return values.map(lambda value: Typed(kind, value))


def _structs(values: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    numbers = st.integers(1, 40) | st.integers(-(1 << 15), (1 << 15) - 1)
    return st.dictionaries(numbers, values, max_size=5).map(
        lambda fields: Typed(STRUCT, ThriftStruct(fields))
    )


def _alike(values: st.SearchStrategy[Typed]) -> st.SearchStrategy[tuple[Typed, ...]]:
    """Some values of one kind."""
    return st.lists(values, max_size=20).map(
        lambda found: tuple(value for value in found if value.kind == found[0].kind)
    )


def _collections(values: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def listed(kind: int, found: tuple[Typed, ...]) -> Typed:
        item_kind = found[0].kind if found else STRUCT
        return Typed(kind, ThriftList(item_kind, tuple(value.value for value in found)))

    def mapped(keys: tuple[Typed, ...], found: tuple[Typed, ...]) -> Typed:
        pairs = tuple((key.value, value.value) for key, value in zip(keys, found, strict=False))
        kinds = (keys[0].kind, found[0].kind) if pairs else (0, 0)
        return Typed(MAP, ThriftMap(*kinds, pairs))

    lists = st.builds(listed, st.sampled_from([LIST, SET]), _alike(values))
    return lists | st.builds(mapped, _alike(values), _alike(values)) | _structs(values)


_VALUES = st.recursive(
    st.one_of([_typed(kind, values) for kind, values in _SIMPLE.items()]), _collections, max_leaves=20
)
TREES = _structs(_VALUES).map(lambda typed: typed.value)
