"""Which columns are compressed: those that the codec makes smaller by an eighth."""

from __future__ import annotations

import io
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_maintenance.rewrite.encode.codec_choice import column_codecs, sample_of
from delta_maintenance.rewrite.encode.dictionary_choice import dictionary_columns

_ROWS = 30_000
_RANDOM = np.random.default_rng(5)
_CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli")


def _bits() -> Any:
    return _RANDOM.integers(-(2**63), 2**63 - 1, _ROWS)


_COLUMNS: dict[str, Any] = {
    "random numbers": _bits(),
    "random parts": _RANDOM.random(_ROWS),
    "small numbers": _RANDOM.integers(0, 1_000_000, _ROWS),
    "in order": np.arange(_ROWS),
    "digits": [_RANDOM.bytes(16).hex() for _ in range(_ROWS)],
    "words": [
        " ".join(["green", "blue", "red"][n % 3] for n in (i, i // 3, i // 9)) + str(i) for i in range(_ROWS)
    ],
    "few": [f"kind {i % 7}" for i in range(_ROWS)],
    "nothing": pa.nulls(_ROWS, pa.string()),
    "a.b": _bits(),
    "pair": [{"same": i // 100, "other": number} for i, number in enumerate(_bits().tolist())],
    "lists": [list(pair) for pair in zip(_bits().tolist(), _bits().tolist(), strict=True)],
}
_TABLE = pa.table(_COLUMNS)


def _written(table: pa.Table, codecs: str | dict[str, str], dictionaries: list[str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=codecs, use_dictionary=dictionaries, row_group_size=len(table))
    return sink.getvalue()


def _sizes(content: bytes) -> dict[str, tuple[str, int, int]]:
    group = pq.read_metadata(io.BytesIO(content)).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {
        chunk.path_in_schema: (
            chunk.compression.lower(),
            chunk.total_compressed_size,
            chunk.total_uncompressed_size,
        )
        for chunk in chunks
    }


@pytest.mark.parametrize("codec", _CODECS)
def test_columns_are_compressed_that_the_codec_makes_smaller(codec: str) -> None:
    dictionaries = dictionary_columns(_TABLE)
    chosen = column_codecs(_TABLE, codec, dictionaries)
    assert isinstance(chosen, dict)
    for path, (found, compressed, plain) in _sizes(_written(_TABLE, codec, dictionaries)).items():
        assert found == codec
        if path in dictionaries:
            assert chosen[path] == codec
        elif not 0.85 < compressed / plain < 0.9:  # the sample is small
            assert (chosen[path] == codec) == (compressed < 7 / 8 * plain), path
    assert chosen["random numbers"] == chosen["lists.list.element"] == chosen["pair.other"] == "none"
    assert chosen["small numbers"] == chosen["words"] == chosen["few"] == chosen["pair.same"] == codec


def test_digits_are_compressed_by_a_codec_that_finds_fewer_bits_in_them() -> None:
    """Snappy only finds what was there before."""
    codecs = {codec: column_codecs(_TABLE, codec, []) for codec in _CODECS}
    assert {codec: found["digits"] for codec, found in codecs.items() if isinstance(found, dict)} == {
        "snappy": "none",
        "lz4": "none",
        "zstd": "zstd",
        "gzip": "gzip",
        "brotli": "brotli",
    }


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_every_reader_takes_columns_of_two_codecs(codec: str) -> None:
    dictionaries = dictionary_columns(_TABLE)
    content = _written(_TABLE, column_codecs(_TABLE, codec, dictionaries), dictionaries)
    assert {found for found, _, _ in _sizes(content).values()} == {codec, "uncompressed"}
    assert pq.read_table(io.BytesIO(content)).equals(_TABLE)
    assert pl.read_parquet(io.BytesIO(content)).to_arrow().cast(_TABLE.schema).equals(_TABLE)


def test_duckdb_takes_columns_of_two_codecs(tmp_path: Any) -> None:
    (tmp_path / "file.parquet").write_bytes(_written(_TABLE, column_codecs(_TABLE, "snappy", []), []))
    found = duckdb.connect().sql(f"FROM '{tmp_path}/file.parquet'").to_arrow_table()
    assert found.cast(_TABLE.schema).equals(_TABLE)


def test_without_rows_or_without_a_codec_nothing_is_measured() -> None:
    assert column_codecs(_TABLE.slice(0, 0), "snappy", []) == "snappy"
    assert column_codecs(_TABLE, "none", []) == "none"
    assert column_codecs(_TABLE.select(["few"]), "snappy", ["few"]) == "snappy"
    assert column_codecs(pa.table({}), "snappy", []) == "snappy"


def test_decimals_are_measured_as_they_are_stored() -> None:
    """Snappy finds the four zeros before four random bytes again, and not the two of a shorter value."""
    cents = pa.array(_RANDOM.integers(0, 2**30, _ROWS)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 0))
    table = pa.table({"n": cents})
    assert [
        column_codecs(table, "snappy", [], decimals_as_integers=as_integers) for as_integers in (True, False)
    ] == [{"n": "snappy"}, {"n": "none"}]


@examples(40)
@given(rows=st.integers(1, 4_000), width=st.sampled_from([1, 100, 5_000, 400_000]))
def test_the_sample_is_a_small_part_of_wide_rows(rows: int, width: int) -> None:
    rows = max(1, min(rows, (64 << 20) // width))
    table = pa.table({"text": pa.array(["x" * width] * rows)})
    sample = sample_of(table)
    assert 1 <= sample.num_rows <= min(rows, 2_000)
    assert sample.nbytes <= max((1 << 20) + width, table.nbytes // 16)
    assert sample.num_rows == rows or sample.num_rows >= min(rows, 1_000) or sample.nbytes > 1 << 19
