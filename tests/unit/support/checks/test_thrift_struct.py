"""Thrift's compact protocol: what any writer wrote is written again byte for byte; broken input gives one error."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.parquet_edits import footer_bytes
from tests.support.checks.parquet_structs import split_footer
from tests.support.checks.thrift_struct import ThriftStruct, Typed
from tests.support.repetition import examples
from tests.support.tables.thrift_trees import TREES

from parquet_parts.thrift import BINARY, BOOLEAN, I32, I64, LIST, MAP, MAX_DEPTH, STRUCT, CorruptThrift


@examples(100)
@given(tree=TREES)
def test_every_struct_comes_back_as_it_was_written(tree: ThriftStruct) -> None:
    found = ThriftStruct.from_bytes(tree.to_bytes())
    assert found == tree
    assert list(found.fields) == list(tree.fields)


@examples(100)
@given(tree=TREES, data=st.data())
def test_broken_bytes_give_a_value_or_one_error(tree: ThriftStruct, data: st.DataObject) -> None:
    content = bytearray(tree.to_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=3))
    try:
        found = ThriftStruct.from_bytes(bytes(content))
    except CorruptThrift:
        return
    assert ThriftStruct.from_bytes(found.to_bytes()) == found


def _nested(depth: int) -> bytes:
    return bytes([STRUCT | 0x10]) * depth + b"\0" * (depth + 1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the bytes end here"),
        (b"\0\0", "1 more bytes follow"),
        (_nested(1_000_000), "are within each other"),
        (bytes([LIST | 0x10]) + bytes([LIST | 0x10]) * 100_000, "are within each other"),
        (bytes([LIST | 0x10, 0xF0 | STRUCT]) + b"\xff\xff\xff\xff\x0f", "claims 4294967295 items"),
        (bytes([BINARY | 0x10]) + b"\xff\xff\xff\xff\x0f", "claims 4294967295 bytes"),
        (bytes([MAP | 0x10]) + b"\xff\xff\xff\xff\x0f\x55", "claims 4294967295 items"),
        (bytes([I32 | 0x10]) + b"\xff\xff\xff\xff\x7f\0", "more than 32 bits"),
        (bytes([I64 | 0x10]) + b"\xff" * 50, "more than ten bytes"),
        (bytes([I32 | 0x10, 2, I32, 2, 2, 0]), "field 1 stands here twice"),
        (bytes([0x1E, 0]), "no kind 14"),
        (bytes([LIST | 0x10, 0x10 | BOOLEAN, 3, 0]), "3 is no boolean"),
    ],
)
def test_what_is_wrong_is_named(content: bytes, why: str) -> None:
    with pytest.raises(CorruptThrift, match=why):
        ThriftStruct.from_bytes(content)


def test_structs_within_each_other_may_be_deep() -> None:
    assert ThriftStruct.from_bytes(_nested(MAX_DEPTH)).to_bytes() == _nested(MAX_DEPTH)


_ROWS = pa.table(
    {
        "n": pa.array([1, None, 3] * 50, pa.int64()),
        "x": [0.5, float("nan"), None] * 50,
        "flag": [True, False, None] * 50,
        "text": ["a", "é" * 90, None] * 50,
        "list": [[1, None], [], None] * 50,
        "struct": [{"a": [{"b": 1.5}]}, {"a": None}, None] * 50,
    }
)


def _by_arrow(path: Path) -> Path:
    pq.write_table(_ROWS, path / "f", write_page_index=True, row_group_size=40, data_page_size=64)
    return path / "f"


def _by_delta_rs(path: Path) -> Path:
    deltalake.write_deltalake(str(path / "t"), _ROWS)
    return next((path / "t").glob("*.parquet"))


def _by_duckdb(path: Path) -> Path:
    connection = duckdb.connect()
    connection.register("rows", _ROWS)
    connection.execute(f"COPY (SELECT * FROM rows) TO '{path / 'f'}' (FORMAT parquet)")
    return path / "f"


@pytest.mark.parametrize("write", [_by_arrow, _by_delta_rs, _by_duckdb])
def test_footers_of_other_writers_are_written_again_byte_by_byte(write: Any, tmp_path: Path) -> None:
    content = write(tmp_path).read_bytes()
    before, footer = split_footer(content)
    assert before + footer_bytes(footer) == content
    (length,) = struct.unpack("<i", content[-8:-4])
    with pytest.raises(CorruptThrift):
        split_footer(content[-length - 7 :])
    with pytest.raises(CorruptThrift):
        split_footer(content[:-1])
    assert pq.ParquetFile(io.BytesIO(before + footer_bytes(footer))).metadata.num_rows == 150


def test_unknown_fields_are_kept() -> None:
    tree = ThriftStruct({3: Typed(I32, 7), 900: Typed(BINARY, b"later"), 2: Typed(BOOLEAN, False)})
    assert tree.replacing(3, 8).without(2).to_bytes() == bytes([0x35, 16, 8, 0x88, 0x0E, 5]) + b"later\0"
