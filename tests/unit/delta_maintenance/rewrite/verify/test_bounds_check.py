"""verify="full" holds what a new file says of its rows against the rows: in the footer, in the page index and in the log."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.checks import parquet_structs as parquet
from tests.support.checks.parquet_claims import claims, with_footer
from tests.support.checks.parquet_edits import edited, footer_bytes, without_bounds
from tests.support.checks.thrift_struct import ThriftStruct, Typed
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import RUN_KEY, keys, run
from tests.support.tables.rewritable_tables import COLUMNS, GeneratedTable

from delta_log import Table
from delta_log.stats.file_stats import NUM_INDEXED_COLUMNS, StatsCollector, stats_columns
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table_config.schema import StructType, arrow_schema
from delta_maintenance.errors import BoundsMismatch
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.task import OutputFile
from delta_maintenance.rewrite.verify.bounds_check import BoundsCheck
from parquet_parts.thrift import BINARY, I64

NAMES = tuple(COLUMNS)
SCHEMA = GeneratedTable(NAMES, "none", False, False).schema
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | COLUMNS[name][1] for name in NAMES}), max_size=20)
NAN = float("nan")

Edit = Callable[[ThriftStruct], ThriftStruct]


def check(
    directory: Path,
    content: bytes,
    batches: list[pa.RecordBatch],
    schema: StructType,
    stats: str | None = None,
) -> None:
    """Check a file that has this content against these rows."""
    (directory / "f").write_bytes(content)
    output = OutputFile("f", "f", len(content), 0, 0, stats)
    checked = BoundsCheck("bin", LocalStorage(str(directory)), output, schema)
    for batch in batches:
        checked.update(batch)
    checked.finish()


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, cut=st.integers(1, 20), group=st.integers(1, 20), page=st.integers(1, 5))
def test_what_arrow_says_of_rows_of_every_type_is_true(
    tmp_path: Path, rows: list[dict[str, Any]], cut: int, group: int, page: int
) -> None:
    """But for NaN: of these it is not, see below."""
    rows = [{**row, "float": None, "double": None, "deep": None} for row in rows]
    table = pa.Table.from_pylist(rows, arrow_schema(SCHEMA, physical=True))
    file = io.BytesIO()
    pq.write_table(
        table, file, row_group_size=group, write_page_index=True, data_page_size=1, write_batch_size=page
    )
    collector = StatsCollector(stats_columns(SCHEMA, properties={NUM_INDEXED_COLUMNS: "-1"}))
    collector.update(table)
    check(tmp_path, file.getvalue(), table.to_batches(max_chunksize=cut), SCHEMA, collector.finish())


def small_file(
    values: dict[str, list[Any]], **options: Any
) -> tuple[bytes, list[pa.RecordBatch], StructType]:
    """As Arrow writes it, with pages of two rows."""
    schema = GeneratedTable(tuple(values), "none", False, False).schema
    table = pa.Table.from_pydict(values, arrow_schema(schema, physical=True))
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        write_page_index=True,
        data_page_size=1,
        write_batch_size=2,
        use_dictionary=False,
        **options,
    )
    return file.getvalue(), table.to_batches(), schema


def test_bounds_of_a_leaf_with_a_nan_are_found(tmp_path: Path) -> None:
    for name, values in (
        ("double", [1.0, NAN]),
        ("float", [NAN, 0.0]),
        ("deep", [{"d": {"e": {"f": 1.0}}}, {"d": {"e": {"f": NAN}}}]),
    ):
        with pytest.raises(BoundsMismatch, match="holds a NaN") as caught:
            check(tmp_path, *small_file({name: values}))
        assert caught.value.where.startswith(name)
        assert caught.value.facts()["path"] == "f"


def test_pages_end_between_rows_of_lists(tmp_path: Path) -> None:
    """So rows and values have different places, and each is to be counted for its own page."""
    lists = [[1.0, 2.0, None], [], None, [5.0], [6.0, 7.0], [None], [9.0] * 5, []]
    maps = [[("k", n), ("l", None)] if n % 3 else None for n in range(8)]
    content, batches, schema = small_file({"list": lists, "map": maps})
    assert [claim.first_rows for claim in claims(content, "list.list.element")] == [(0, 1, 5, 7)]
    check(tmp_path, content, batches, schema)
    for size in (1, 3, 5):
        pieces = [batches[0].slice(start, size) for start in range(0, 8, size)]
        check(tmp_path, content, pieces, schema)
    # The same values, one row further on.
    moved = pa.record_batch(
        [pa.array(lists[-1:] + lists[:-1], batches[0].schema.field(0).type), batches[0].column(1)],
        batches[0].schema,
    )
    with pytest.raises(BoundsMismatch, match="page 0: it has 0 values"):
        check(tmp_path, content, [moved], schema)


def statistics(edit: Edit) -> Callable[[bytes], bytes]:
    """Edits the statistics of the first chunk of the file."""

    def edited(group: int, leaf: int, chunk: ThriftStruct) -> ThriftStruct:
        if (group, leaf) != (0, 0):
            return chunk
        meta = parquet.chunk_meta(chunk)
        there = parquet.statistics(meta)
        assert there is not None
        return chunk.replacing(parquet.META_DATA, meta.replacing(parquet.STATISTICS, edit(there)))

    return lambda content: with_footer(content, edited)


def setting(field: int, value: Any, kind: int = BINARY) -> Callable[[bytes], bytes]:
    return statistics(lambda there: ThriftStruct({**there.fields, field: Typed(kind, value)}))


def column_index(field: int, edit: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Edits one field of the first column index. A longer one stands at the end of the file, another in the place of the old."""

    def changed(content: bytes) -> bytes:
        before, footer = parquet.split_footer(content)
        _, _, first = next(parquet.column_chunks(footer))
        start, size = first.get(parquet.COLUMN_INDEX), first.get(parquet.COLUMN_INDEX_LENGTH)
        index = ThriftStruct.from_bytes(content[start : start + size])
        new = index.replacing(field, edit(index.get(field))).to_bytes()
        is_longer = len(new) > size

        def placed(group: int, leaf: int, chunk: ThriftStruct) -> ThriftStruct:
            if (group, leaf) != (0, 0):
                return chunk
            moved = chunk.replacing(parquet.COLUMN_INDEX, len(before) if is_longer else start)
            return moved.replacing(parquet.COLUMN_INDEX_LENGTH, len(new))

        if is_longer:
            before += new
        else:
            before = before[:start] + new.ljust(size, b"\0") + before[start + size :]
        return before + footer_bytes(edited(footer, placed))

    return changed


def item(number: int, value: Any) -> Callable[[Any], Any]:
    return lambda there: replace(there, items=(*there.items[:number], value, *there.items[number + 1 :]))


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


#: What is done to the file of [5, 6 | 7, None | 9, 9 | None, None], and what is said of it.
BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "minimum": (setting(6, _long(6)), "row group 0: its lower bound is 6, and it holds 5"),
    "maximum": (setting(5, _long(8)), "row group 0: its upper bound is 8, and it holds 9"),
    "old minimum": (setting(2, _long(6)), "lower bound is 6"),
    "old maximum": (setting(1, _long(8)), "upper bound is 8"),
    "short": (setting(6, b"\0"), "a bound has 1 bytes"),
    "nulls": (setting(3, 2, I64), "2 nulls are said to be there, and there are 3"),
    "page minimum": (
        column_index(2, item(1, _long(8))),
        "row group 0, page 1: its lower bound is 8, and it holds 7",
    ),
    "page maximum": (column_index(3, item(0, _long(5))), "page 0: its upper bound is 5, and it holds 6"),
    "page nulls": (column_index(5, item(1, 0)), "page 1: 0 nulls are said to be there, not 1"),
    "null page": (column_index(1, item(2, True)), "page 2: it has 2 values"),
    "page without nulls": (column_index(1, item(3, False)), "page 3: it has 0 values"),
    "order": (column_index(4, lambda order: 2), "not in the order"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_not_so_is_found(what: str, tmp_path: Path) -> None:
    content, batches, schema = small_file({"long": [5, 6, 7, None, 9, 9, None, None]})
    change, why = BROKEN[what]
    check(tmp_path, content, batches, schema)
    with pytest.raises(BoundsMismatch, match=why) as caught:
        check(tmp_path, change(content), batches, schema)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("values", "field", "wrong"),
    [
        ({"text": ["b", "é"]}, 6, b"c"),
        ({"text": ["a\uffff", "a\U00010000"]}, 5, "a\uffff".encode()),
        ({"bytes": [b"", b"\xff"]}, 5, b"\x7f"),
        ({"money": [-1, 5]}, 6, (0).to_bytes(16, "big")),
        ({"money": [-1, 5]}, 5, (5 * 10**10 - 1).to_bytes(16, "big")),
        ({"double": [0.0, 1.0]}, 6, struct.pack("<d", 0.0)),
        ({"double": [-1.0, -0.0]}, 5, struct.pack("<d", -0.0)),
        ({"double": [-1.0, -0.5]}, 5, struct.pack("<d", NAN)),
        ({"flag": [False, True]}, 5, b"\0"),
    ],
)
def test_values_compare_as_readers_compare_them(
    values: dict[str, list[Any]], field: int, wrong: bytes, tmp_path: Path
) -> None:
    content, batches, schema = small_file(values)
    check(tmp_path, content, batches, schema)
    with pytest.raises(BoundsMismatch, match="bound"):
        check(tmp_path, setting(field, wrong)(content), batches, schema)


@pytest.mark.parametrize(
    ("stats", "why"),
    [
        ({"numRecords": 4}, "numRecords in the log: it is 4"),
        ({"minValues": {"long": 6}}, "long in the log: its lower bound is 6"),
        ({"maxValues": {"struct": {"a": "b"}}}, "struct.a in the log: its upper bound is b'b'"),
        ({"maxValues": {"moment": "1970-01-01T00:00:00.001Z"}}, "moment in the log: its upper bound is 1000"),
        (
            {"minValues": {"double": 0.5}},
            "double in the log: it has the bounds 0.5 and None, and holds a NaN",
        ),
        ({"nullCount": {"list": 1}}, "list in the log: nullCount is 1, and there are 2"),
        ({"nullCount": {"struct": {"a": 0}}}, "struct.a in the log: nullCount is 0, and there are 1"),
    ],
)
def test_statistics_for_the_log_are_held_against_the_rows(
    stats: dict[str, Any], why: str, tmp_path: Path
) -> None:
    values: dict[str, list[Any]] = {
        "long": [5, 7],
        "struct": [{"a": "c"}, None],
        "moment": [0, 1_001],
        "list": [None, None],
        "double": [1.0, NAN],
    }
    content, batches, schema = small_file(values)

    def without(group: int, leaf: int, chunk: ThriftStruct) -> ThriftStruct:
        return without_bounds(chunk)

    content = with_footer(content, without)
    good = {"numRecords": 2, "minValues": {"long": 5, "moment": "1970-01-01T00:00:00.000Z"}}
    check(tmp_path, content, batches, schema, json.dumps(good))
    with pytest.raises(BoundsMismatch) as caught:
        check(tmp_path, content, batches, schema, json.dumps({**good, **stats}))
    assert why in str(caught.value)


def test_rows_that_are_missing_or_too_many_are_counted(tmp_path: Path) -> None:
    content, batches, schema = small_file({"long": [1, 2]})
    for given_batches in ([], batches * 2):
        with pytest.raises(BoundsMismatch, match="it says 2 rows"):
            check(tmp_path, content, given_batches, schema)


class EditedFiles(LocalStorage):
    """A store in which new files stand otherwise than they were written."""

    def __init__(self, table: Path, change: Callable[[bytes], bytes]) -> None:
        super().__init__(str(table))
        self._change = change

    @contextmanager
    def open_write(self, key: str) -> Iterator[IO[bytes]]:
        with super().open_write(key) as file:
            yield file
        path = Path(self.root, key)
        path.write_bytes(self._change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda content: content, None),
        (setting(6, _long(2)), BoundsMismatch),
        (column_index(2, item(0, _long(2))), BoundsMismatch),
        (column_index(2, lambda there: replace(there, items=())), BoundsMismatch),
    ],
)
def test_a_file_that_would_lose_rows_is_removed(
    change: Callable[[bytes], bytes], error: type[Exception] | None, tmp_path: Path
) -> None:
    for number in (1, 2):
        deltalake.write_deltalake(str(tmp_path), pa.table({"n": [number, 3]}), mode="append")
    before, opened = keys(tmp_path), Table(str(tmp_path))
    snapshot = opened.snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(verify="full"), 0)
    (task,) = tasks_of(plan, snapshot, "run", str(tmp_path))
    if error is None:
        assert rewrite_bin(task, EditedFiles(tmp_path, change), RUN_KEY).rows_out == 4
        return
    with pytest.raises(error):
        rewrite_bin(task, EditedFiles(tmp_path, change), RUN_KEY)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == before
    assert not (tmp_path / "_maintenance").exists()


def test_files_of_several_row_groups_and_pages_pass(tmp_path: Path) -> None:
    """As our writer makes them: 20,000 rows are a page."""
    for number in (1, 2):
        rows = pa.table(
            {
                "n": pa.array(range(number, 50_000, 2)),
                "x": [None if n % 7 == 0 else n / 8 for n in range(25_000 - number + 1)],
                "list": [[n] * (n % 3) for n in range(25_000 - number + 1)],
            }
        )
        deltalake.write_deltalake(str(tmp_path), rows.slice(0, 24_000), mode="append")
    assert run(tmp_path, verify="full").status == "committed"
    (key,) = keys(tmp_path)
    assert len(claims((tmp_path / key).read_bytes(), "n")[0].first_rows) > 1
