"""Bounds, page index, dictionaries and Bloom filters of float and double leaves in the files that we write."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.checks.parquet_claims import claims
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted, run
from tests.support.tables.encoded_file import encoded_file

from delta_log import Table
from delta_log.stats.file_stats import stats_columns
from delta_log.table_config.schema import arrow_schema, parse_schema
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings

NAN, INF = float("nan"), float("inf")


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


_MAP = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
SCHEMA = parse_schema(
    json.dumps(
        _struct(
            _field("text", "string"),
            _field("list", _array(_struct(_field("n", "long"), _field("x", "float")))),
            _field("map", _MAP),
            _field("st", _struct(_field("x", "double"), _field("deep", _struct(_field("y", "float"))))),
            _field("d", "double"),
            _field("f", "float"),
            _field("n", "long"),
        )
    )
)
#: By path, a row of the schema that holds a value there.
LEAVES: dict[str, Callable[[float], dict[str, Any]]] = {
    "list.list.element.x": lambda value: {"list": [{"n": 1, "x": 1.0}, None, {"n": 2, "x": value}]},
    "map.key_value.value": lambda value: {"map": [("a", value), ("b", 1.0), ("c", None)]},
    "st.x": lambda value: {"st": {"x": value, "deep": None}},
    "st.deep.y": lambda value: {"st": {"x": None, "deep": {"y": value}}},
    "d": lambda value: {"d": value},
    "f": lambda value: {"f": value},
}


def written(groups: Sequence[Sequence[dict[str, Any]]], bloom_filters: Sequence[str] = ()) -> bytes:
    """A file with these row groups."""
    schema = arrow_schema(SCHEMA, physical=True)
    settings = WriterSettings("snappy", stats_columns(SCHEMA), row_group_bytes=1)
    batches = [pa.RecordBatch.from_pylist([*rows], schema) for rows in groups]
    return encoded_file(batches, schema, settings, bloom_filters)[0]


def packed(path: str, value: float) -> bytes:
    """As bounds have it."""
    return struct.pack("<d" if path in ("d", "st.x", "map.key_value.value") else "<f", value)


def bounds(path: str, low: float, high: float) -> tuple[bytes, bytes]:
    return packed(path, low), packed(path, high)


@pytest.mark.parametrize("path", LEAVES)
def test_a_row_group_with_a_nan_has_no_bounds_and_the_others_keep_theirs(path: str) -> None:
    row = LEAVES[path]
    groups = [[row(1.0), row(2.5)], [row(1.0), row(NAN), {}], [row(NAN)], [row(1.0), row(-3.0), {}]]
    content = written(groups)
    first, with_nan, all_nan, last = claims(content, path)
    for found, ends in ((first, bounds(path, 1.0, 2.5)), (last, bounds(path, -3.0, 1.0))):
        assert (found.bounds, found.pages) == (ends, (ends,))
    for found in (with_nan, all_nan):
        assert (found.bounds, found.pages, found.first_rows) == ((None, None), None, (0,))
    assert first.null_count is not None
    # Arrow before 26 does not count an empty list of structs.
    uncounted = path.startswith("list.") and int(pa.__version__.split(".")[0]) < 26
    assert with_nan.null_count == last.null_count == first.null_count + (0 if uncounted else 1)
    # Every other leaf keeps what it had.
    plain = written([[row(1.0)] * len(group) for group in groups])
    for other in ("text", "n"):
        assert [found.bounds for found in claims(content, other)] == [
            found.bounds for found in claims(plain, other)
        ]
    file = pq.ParquetFile(io.BytesIO(content))
    leaf = next(n for n in range(len(file.schema)) if file.schema.column(n).path == path)
    has_bounds = [file.metadata.row_group(n).column(leaf).statistics.has_min_max for n in range(4)]
    assert has_bounds == [True, False, False, True]
    assert [file.read_row_group(n).num_rows for n in range(4)] == [2, 3, 1, 3]


def test_a_nan_that_is_not_among_the_rows_takes_no_bounds_away() -> None:
    schema = arrow_schema(SCHEMA, physical=True)
    kind = schema.field("st").type
    members = [pa.array([NAN, 2.0]), pa.array([{"y": NAN}, {"y": 1.0}], kind.field("deep").type)]
    hidden = pa.StructArray.from_arrays(members, fields=list(kind), mask=pa.array([True, False]))
    lists = pa.array([[{"n": 1, "x": NAN}], [{"n": 1, "x": 5.0}]], schema.field("list").type)
    columns = [pa.nulls(1, field.type) for field in schema]
    columns[schema.get_field_index("st")] = hidden.slice(1)
    columns[schema.get_field_index("list")] = lists.slice(1)
    settings = WriterSettings("snappy", stats_columns(SCHEMA), row_group_bytes=1)
    batches = [pa.record_batch(columns, schema)]
    columns[schema.get_field_index("st")] = hidden.slice(0, 1)
    batches.append(pa.record_batch(columns, schema))
    content, _ = encoded_file(batches, schema, settings)
    (shown, null) = claims(content, "st.x")
    assert shown.bounds == (packed("st.x", 2.0),) * 2
    assert (null.bounds, null.null_count, null.pages) == ((None, None), 1, (None,))
    assert claims(content, "list.list.element.x")[0].bounds == (struct.pack("<f", 5.0),) * 2


@pytest.mark.parametrize("path", LEAVES)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_zero_is_a_lower_bound_as_negative_and_an_upper_bound_as_positive(path: str, zero: float) -> None:
    (found,) = claims(written([[LEAVES[path](zero)] * 3]), path)
    beside_it = 1.0 if path.startswith(("list", "map")) else 0.0
    assert found.bounds == bounds(path, -0.0, beside_it)
    assert found.pages == (found.bounds,)


def test_infinities_are_bounds() -> None:
    (found,) = claims(written([[{"d": INF}, {"d": -INF}, {"d": 0.5}]]), "d")
    assert found.bounds == bounds("d", -INF, INF)
    assert found.pages == (found.bounds,)


@pytest.mark.parametrize("path", LEAVES)
def test_no_reader_looks_for_a_zero_or_a_nan_in_a_dictionary_or_a_bloom_filter(path: str) -> None:
    """`0.0 = -0.0` is true in queries, and they are two values in a dictionary."""
    row = LEAVES[path]
    groups = [[row(value)] * 40 for value in (2.5, 0.0, -0.0, NAN, 2.5)]
    found = claims(written(groups, bloom_filters=[path, "n"]), path)
    zeros = (False, False)
    assert [claim.membership for claim in found] == [(True, True), zeros, zeros, zeros, (True, True)]
    assert [claim.bounds == (None, None) for claim in found] == [False, False, False, True, False]


def table_of(path: Path, *parts: Sequence[float]) -> str:
    """A table of one file for each part, with its values in a column and in a struct; gives the first key."""
    first = ""
    for values in parts:
        rows = pa.table({"d": pa.array(values), "st": pa.array([{"x": value} for value in values])})
        deltalake.write_deltalake(str(path), rows, mode="append")
        first = first or keys(path)[0]
    return first


def test_a_nan_that_a_deletion_vector_hides_leaves_exact_bounds(tmp_path: Path) -> None:
    first = table_of(tmp_path, [1.0, NAN, -2.0], [1.5])
    enable_deletion_vectors(tmp_path)
    mark_deleted(tmp_path, {first: [1]})
    assert run(tmp_path, verify="full").status == "committed"
    (key,) = keys(tmp_path)
    for path in ("d", "st.x"):
        (found,) = claims((tmp_path / key).read_bytes(), path)
        assert found.bounds == bounds(path, -2.0, 1.5)
        assert found.pages == (found.bounds,)


def test_neither_the_file_nor_the_log_has_bounds_of_a_column_with_a_nan(tmp_path: Path) -> None:
    table_of(tmp_path, [1.0, NAN], [2.0, 1.5])
    assert run(tmp_path, verify="full").status == "committed"
    (key,) = keys(tmp_path)
    for path in ("d", "st.x"):
        (found,) = claims((tmp_path / key).read_bytes(), path)
        assert (found.bounds, found.pages, found.null_count) == ((None, None), None, 0)
    stats = json.loads(Table(str(tmp_path)).snapshot().files(["stats"])["stats"][0].as_py())
    assert stats["minValues"] == stats["maxValues"] == {}
    assert stats["nullCount"] == {"d": 0, "st": {"x": 0}}
