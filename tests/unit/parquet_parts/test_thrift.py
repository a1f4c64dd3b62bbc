"""Structs that are read only as deep as asked: the same fields as by reading them whole; broken input gives one error."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.thrift_struct import ThriftList, ThriftStruct, Typed
from tests.support.repetition import examples
from tests.support.tables.thrift_trees import TREES

from parquet_parts.thrift import (
    BINARY,
    BOOLEAN,
    I32,
    I64,
    LIST,
    MAP,
    STRUCT,
    CorruptThrift,
    Fields,
    Shape,
    encoded_integer,
    integer,
)


def _shape(tree: ThriftStruct) -> Shape:
    """Ask for every struct of a tree, at any depth."""
    shape: dict[int, Any] = {}
    for number, (kind, value) in tree.fields.items():
        if kind == STRUCT:
            shape[number] = _shape(value)
        elif kind == LIST and value.kind == STRUCT:
            shape[number] = _shape(value.items[0]) if len(value.items) == 1 else {}
    return shape


@examples(100)
@given(tree=TREES, deep=st.booleans())
def test_fields_hold_what_the_whole_struct_holds(tree: ThriftStruct, deep: bool) -> None:
    found = Fields.from_bytes(tree.to_bytes(), _shape(tree) if deep else {})
    assert set(found) == set(tree.fields)
    assert ThriftStruct.from_bytes(found.to_bytes()) == tree
    for number, (kind, value) in tree.fields.items():
        if kind in (I32, I64):
            assert found.number(number) == value
        elif kind == BINARY:
            assert found.binary(number) == value
        elif kind == LIST and value.kind in (I32, I64):
            assert found.numbers(number) == value.items


@examples(200)
@given(tree=TREES, deep=st.booleans(), data=st.data())
def test_broken_bytes_give_a_value_or_one_error(tree: ThriftStruct, deep: bool, data: st.DataObject) -> None:
    content = bytearray(tree.to_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=3))
    try:
        found = Fields.from_bytes(bytes(content), _shape(tree) if deep else {})
    except CorruptThrift:
        return
    assert Fields.from_bytes(found.to_bytes(), {}).keys() == found.keys()
    for number in found:
        reads = (
            found.number,
            found.numbers,
            found.binary,
            found.binaries,
            found.booleans,
            found.struct,
            found.structs,
        )
        for read in reads:
            with contextlib.suppress(CorruptThrift):
                read(number)


@pytest.mark.parametrize(
    ("content", "shape", "why"),
    [
        (b"", {}, "the bytes end here"),
        (b"\0\0", {}, "1 more bytes follow"),
        (bytes([STRUCT | 0x10]) * 1_000_000, {}, "are within each other"),
        (bytes([LIST | 0x10]) + bytes([LIST | 0x10]) * 100_000, {}, "are within each other"),
        (bytes([LIST | 0x10, 0xF0 | STRUCT]) + b"\xff\xff\xff\xff\x0f", {}, "claims 4294967295 items"),
        (bytes([LIST | 0x10, 0xF0 | STRUCT]) + b"\xff\xff\xff\xff\x0f", {1: {}}, "the bytes end here"),
        (bytes([BINARY | 0x10]) + b"\xff\xff\xff\xff\x0f", {}, "bytes more than there are"),
        (bytes([MAP | 0x10]) + b"\xff\xff\xff\xff\x0f\x55", {}, "claims 4294967295 items"),
        (bytes([I32 | 0x10, 2, I32, 2, 2, 0]), {}, "field 1 stands here twice"),
        (bytes([0x1E, 0]), {}, "no kind 14"),
        (bytes([I32 | 0x10, 2, 0]), {1: {}}, "holds no struct"),
        (bytes([LIST | 0x10, 0x10 | I32, 2, 0]), {1: {}}, "holds no structs"),
    ],
)
def test_what_is_wrong_is_named(content: bytes, shape: Shape, why: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptThrift, match=why):
            Fields.from_bytes(content, shape)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_integer_comes_back(value: int) -> None:
    assert integer(encoded_integer(value)) == value


def test_an_integer_has_at_most_64_bits() -> None:
    with pytest.raises(CorruptThrift, match="more than 64 bits"):
        integer(b"\xff" * 9 + b"\x02")


def test_a_changed_field_keeps_its_kind_and_the_others_their_bytes() -> None:
    tree = ThriftStruct(
        {3: Typed(I32, 7), 900: Typed(BINARY, b"later"), 5: Typed(LIST, ThriftList(I32, (1, 2)))}
    )
    fields = Fields.from_bytes(tree.to_bytes(), {})
    fields.put_number(3, -8)
    fields.put_number(4, 9)
    fields.put_numbers(5, range(20))
    assert ThriftStruct.from_bytes(fields.to_bytes()) == ThriftStruct(
        {
            3: Typed(I32, -8),
            4: Typed(I64, 9),
            5: Typed(LIST, ThriftList(I32, tuple(range(20)))),
            900: Typed(BINARY, b"later"),
        }
    )


@examples(50)
@given(values=st.lists(st.booleans(), max_size=20))
def test_a_list_of_booleans_comes_back(values: list[bool]) -> None:
    content = ThriftStruct({1: Typed(LIST, ThriftList(BOOLEAN, tuple(values)))}).to_bytes()
    assert Fields.from_bytes(content, {}).booleans(1) == tuple(values)
    assert Fields.from_bytes(content, {}).booleans(2) == ()


def test_a_list_of_numbers_is_no_list_of_booleans() -> None:
    content = ThriftStruct({1: Typed(LIST, ThriftList(I64, (1, 2)))}).to_bytes()
    with pytest.raises(CorruptThrift, match="no list of booleans"):
        Fields.from_bytes(content, {}).booleans(1)
