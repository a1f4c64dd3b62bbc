"""A data file is read as the table's current schema sees it, whatever wrote it."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.tables.encrypted_files import with_encrypted_column

from delta_log.data.data_file import ColumnMemory, DataFile, FileInMemory
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CorruptLog, UnsupportedFeature
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.ranged_file import opened
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructField, StructType, arrow_schema, parse_schema
from delta_log.testing import MemoryStorage
from parquet_parts.footer import FileEnd


def file_of(
    table: pa.Table,
    metadata: dict[str, str] | None = None,
    created_by: bytes | None = None,
    **options: Any,
) -> MemoryStorage:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
        writer.write_table(table, row_group_size=3)
        if metadata:
            writer.add_key_value_metadata(metadata)
    content = sink.getvalue()
    if created_by is not None:
        arrow = pq.read_metadata(io.BytesIO(content)).created_by.encode()
        # The footer knows how long the name is.
        content = content.replace(arrow, created_by.ljust(len(arrow))[: len(arrow)])
    storage = MemoryStorage()
    storage.put("f.parquet", content)
    return storage


def fields(*columns: tuple[str, Any]) -> tuple[StructField, ...]:
    import json

    text = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return parse_schema(json.dumps({"type": "struct", "fields": text})).fields


def read(
    storage: MemoryStorage,
    columns: tuple[StructField, ...],
    hidden: RowBitmap | None = None,
    mode: str = "none",
) -> pa.Table:
    schema = arrow_schema(StructType(columns))
    batches = [
        pa.record_batch(list(rows.arrays), schema=schema)
        for rows in DataFile(storage, "f.parquet", mode).read(columns, hidden, batch_rows=2)
    ]
    return pa.Table.from_batches(batches, schema)


WIDENED = [
    (pa.int8(), [1, None, -128], "integer"),
    (pa.int32(), [1, None, 2**31 - 1], "long"),
    (pa.int32(), [1, None, -5], "double"),
    (pa.float32(), [1.5, None, -0.0], "double"),
    (pa.int32(), [1, None, 2**31 - 1], "decimal(12,2)"),
    (pa.decimal128(5, 2), ["1.25", None, "-3.50"], "decimal(12,4)"),
    (pa.date32(), [0, None, -141_427], "timestamp_ntz"),
    (pa.binary(), [b"a", None, b"\xc3\xa9"], "string"),
    (pa.large_string(), ["a", None, "é"], "string"),
    (pa.timestamp("ms"), [1, None, 2], "timestamp"),
]


@pytest.mark.parametrize(("stored", "values", "kind"), WIDENED, ids=str)
def test_a_narrower_or_differently_stored_column_becomes_the_tables_type(
    stored: pa.DataType, values: list[Any], kind: str
) -> None:
    array = pa.array(values).cast(stored) if pa.types.is_decimal(stored) else pa.array(values, stored)
    columns = fields(("x", kind))
    found = read(file_of(pa.table({"x": array})), columns).column("x")
    assert found.type == arrow_schema(StructType(columns)).field("x").type
    assert found.null_count == 1
    assert [v is None for v in found.to_pylist()] == [v is None for v in values]


def test_nanoseconds_are_floored_and_int96_reaches_beyond_2262() -> None:
    nanos = pa.array([-1, 1_999], pa.timestamp("ns"))
    found = read(file_of(pa.table({"x": nanos}), version="2.6"), fields(("x", "timestamp")))
    assert found.column("x").cast(pa.int64()).to_pylist() == [-1, 1]
    late = pa.array([dt.datetime(3000, 1, 1), dt.datetime(1900, 1, 1)], pa.timestamp("us"))
    found = read(
        file_of(pa.table({"x": late}), use_deprecated_int96_timestamps=True), fields(("x", "timestamp"))
    )
    assert [value.year for value in found.column("x").to_pylist()] == [3000, 1900]


def test_columns_added_dropped_and_of_another_case_are_found_or_null() -> None:
    storage = file_of(pa.table({"Old": [1, 2], "gone": ["a", "b"]}))
    found = read(storage, fields(("old", "long"), ("new", "string")))
    assert found.to_pydict() == {"old": [1, 2], "new": [None, None]}
    assert read(storage, fields(("new", "string"), ("newer", "void"))).num_rows == 2


def test_nested_members_are_matched_at_every_depth() -> None:
    inner = pa.struct([("b", pa.int32()), ("dropped", pa.string())])
    kind = pa.struct([("list", pa.list_(inner)), ("map", pa.map_(pa.string(), inner))])
    rows: list[Any] = [
        {"list": [{"b": 1, "dropped": "x"}, None], "map": [("k", {"b": 2, "dropped": "y"})]},
        None,
        {"list": None, "map": []},
        {"list": [], "map": None},
        {"list": [{"b": 5, "dropped": None}], "map": [("k", None), ("l", {"b": None, "dropped": "z"})]},
    ]
    member = {"type": "struct", "fields": [
        {"name": "added", "type": "date", "nullable": True, "metadata": {}},
        {"name": "b", "type": "long", "nullable": True, "metadata": {}},
    ]}  # fmt: skip
    columns = fields(
        (
            "s",
            {
                "type": "struct",
                "fields": [
                    {
                        "name": "list",
                        "type": {"type": "array", "elementType": member, "containsNull": True},
                        "nullable": True,
                        "metadata": {},
                    },
                    {
                        "name": "map",
                        "type": {
                            "type": "map",
                            "keyType": "string",
                            "valueType": member,
                            "valueContainsNull": True,
                        },
                        "nullable": True,
                        "metadata": {},
                    },
                ],
            },
        )
    )
    storage = file_of(pa.table({"s": pa.array(rows, kind)}))
    expected: list[Any] = [
        {"list": [{"added": None, "b": 1}, None], "map": [("k", {"added": None, "b": 2})]},
        None,
        {"list": None, "map": []},
        {"list": [], "map": None},
        {"list": [{"added": None, "b": 5}], "map": [("k", None), ("l", {"added": None, "b": None})]},
    ]
    assert read(storage, columns).column("s").to_pylist() == expected
    hidden = RowBitmap([0, 3])
    assert read(storage, columns, hidden).column("s").to_pylist() == [expected[1], expected[2], expected[4]]


def test_deletion_vectors_hide_rows_across_row_groups_and_batches() -> None:
    storage = file_of(pa.table({"x": list(range(10))}))
    found = read(storage, fields(("x", "long")), RowBitmap([0, 2, 3, 9]))
    assert found.column("x").to_pylist() == [1, 4, 5, 6, 7, 8]
    rows = DataFile(storage, "f.parquet").read(
        fields(("x", "long")), RowBitmap([0, 5]), positions=True, batch_rows=4
    )
    assert [p for part in rows if part.positions is not None for p in part.positions.to_pylist()] == [
        1, 2, 3, 4, 6, 7, 8, 9,
    ]  # fmt: skip
    with pytest.raises(CorruptLog, match="hides row 10"):
        read(storage, fields(("x", "long")), RowBitmap([10]))


def test_a_file_without_a_wanted_column_still_has_its_rows() -> None:
    storage = file_of(pa.table({"x": list(range(10))}))
    assert read(storage, fields(("y", "long")), RowBitmap([1])).num_rows == 9


LAST_JULIAN, FIRST_GREGORIAN = dt.date(1582, 10, 14), dt.date(1582, 10, 15)
BEFORE_1900, FROM_1900 = dt.datetime(1899, 12, 31, 23, 59, 59), dt.datetime(1900, 1, 1)
LEGACY = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}


@pytest.mark.parametrize(
    ("kind", "too_old", "first_fine"),
    [("date", LAST_JULIAN, FIRST_GREGORIAN), ("timestamp_ntz", BEFORE_1900, FROM_1900)],
)
@pytest.mark.parametrize("nested", [False, True])
def test_legacy_calendar_values_are_refused_before_the_cutoff_and_read_from_it(
    kind: str, too_old: Any, first_fine: Any, nested: bool
) -> None:
    def table(value: Any) -> pa.Table:
        stored = pa.date32() if kind == "date" else pa.timestamp("us")
        array = pa.array([None, value], stored)
        return pa.table({"x": pa.array([[None], [value]], pa.list_(stored)) if nested else array})

    columns = fields(("x", {"type": "array", "elementType": kind, "containsNull": True} if nested else kind))
    value = read(file_of(table(first_fine), LEGACY), columns).column("x").to_pylist()[1]
    assert value == ([first_fine] if nested else first_fine)
    with pytest.raises(UnsupportedFeature, match="Julian"):
        read(file_of(table(too_old), LEGACY), columns)
    # Without the mark, and from a Spark that no longer does so, the same value is what it says.
    assert read(file_of(table(too_old)), columns).num_rows == 2
    assert read(file_of(table(too_old), {"org.apache.spark.version": "3.5.0"}), columns).num_rows == 2
    # Spark 2 wrote no mark, only its version.
    with pytest.raises(UnsupportedFeature, match="Julian"):
        read(file_of(table(too_old), {"org.apache.spark.version": "2.4.8"}), columns)


#: What Spark left before 2.4.6, and other writers leave for it: its schema, and no version.
NO_VERSION = {"org.apache.spark.sql.parquet.row.metadata": '{"type":"struct","fields":[]}'}
BY_JAVA = b"parquet-mr version 1.10.1 (build a89df8f9)"


@pytest.mark.parametrize("int96", [False, True])
def test_a_spark_that_left_its_schema_and_no_version_counted_in_the_old_calendar(int96: bool) -> None:
    def found(day: dt.date, moment: dt.datetime, marks: dict[str, str], created_by: bytes) -> pa.Table:
        rows = pa.table({"d": pa.array([day]), "t": pa.array([moment], pa.timestamp("us"))})
        storage = file_of(rows, marks, created_by, use_deprecated_int96_timestamps=int96)
        return read(storage, fields(("d", "date"), ("t", "timestamp_ntz")))

    fine = [{"d": FIRST_GREGORIAN, "t": FROM_1900}]
    assert found(FIRST_GREGORIAN, FROM_1900, NO_VERSION, BY_JAVA).to_pylist() == fine
    for day, moment in [(LAST_JULIAN, FROM_1900), (FIRST_GREGORIAN, BEFORE_1900)]:
        with pytest.raises(UnsupportedFeature, match="Julian"):
            found(day, moment, NO_VERSION, BY_JAVA)
        # Files of another library, of later versions of Spark, and of parquet-mr without Spark.
        modern = {**NO_VERSION, "org.apache.spark.version": "3.5.0"}
        for marks, created_by in [(NO_VERSION, b"delta-rs"), (modern, BY_JAVA), ({}, BY_JAVA)]:
            assert found(day, moment, marks, created_by).to_pylist() == [{"d": day, "t": moment}]


def test_the_mark_for_int96_concerns_int96_alone() -> None:
    marked = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyINT96": ""}
    both = pa.table({"d": pa.array([LAST_JULIAN]), "t": pa.array([BEFORE_1900], pa.timestamp("us"))})
    storage = file_of(both, marked, use_deprecated_int96_timestamps=True)
    assert read(storage, fields(("d", "date"))).column("d").to_pylist() == [LAST_JULIAN]
    with pytest.raises(UnsupportedFeature, match="Julian"):
        read(storage, fields(("t", "timestamp")))


def test_a_variant_that_breaks_the_rules_of_shredding_names_the_file() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    both = pa.table({"v": pa.array([{"metadata": b"m", "value": b"\x00", "typed_value": 1}], kind)})
    with pytest.raises(CorruptLog, match=r"f\.parquet.*both a value and a typed value"):
        read(file_of(both), fields(("v", "variant")))
    with pytest.raises(CorruptLog, match="where the schema says variant"):
        read(file_of(pa.table({"v": pa.array([{"metadata": b"m"}])})), fields(("v", "variant")))


def test_missing_broken_encrypted_and_foreign_files_are_named() -> None:
    storage = MemoryStorage()
    with pytest.raises(CorruptLog, match="f.parquet"):
        DataFile(storage, "f.parquet")
    storage.put("f.parquet", b"PAR1 and then nothing")
    with pytest.raises(CorruptLog, match="f.parquet"):
        DataFile(storage, "f.parquet")
    storage.put("f.parquet", b"PARE" + bytes(40) + b"PARE")
    with pytest.raises(UnsupportedFeature, match="Parquet encryption"):
        DataFile(storage, "f.parquet")
    with pytest.raises(UnsupportedFeature, match="outside"):
        DataFile(storage, "/etc/passwd")
    with pytest.raises(UnsupportedFeature, match="outside"):
        DataFile(storage, "s3://elsewhere/f.parquet")


def test_a_file_with_one_encrypted_column_is_refused_for_all_columns() -> None:
    """Its footer is plain. pyarrow would end the process if it were asked for the metadata of that column."""
    storage = MemoryStorage()
    storage.put("f.parquet", with_encrypted_column(pa.table({"a": ["x"], "b": ["y"]}), "a"))
    for name in "ab":
        with pytest.raises(UnsupportedFeature, match="Parquet encryption"):
            list(DataFile(storage, "f.parquet").read(fields((name, "string"))))


def test_each_reading_says_anew_which_texts_come_as_dictionaries() -> None:
    file = DataFile(file_of(pa.table({"a": ["x", "y"], "b": ["z", "z"]})), "f.parquet")
    columns = fields(("a", "string"), ("b", "string"))
    for wanted in ({"b"}, set(), {"a"}, {"a", "b"}):
        for _ in range(2):
            (rows,) = file.read(columns, dictionaries=wanted)
            found = {
                name
                for name, array in zip("ab", rows.arrays, strict=True)
                if not pa.types.is_string(array.type)
            }
            assert found == wanted
            assert [array.to_pylist() for array in rows.arrays] == [["x", "y"], ["z", "z"]]
            file.close()


class Ranged(MemoryStorage):
    """Reads files in ranges, as an object store does, and notes them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []

    def open_read(self, key: str) -> Any:
        content = self.read(key)

        def ranged(start: int, length: int) -> bytes:
            self.asked.append((start, length))
            return content[start : start + length]

        return opened(ranged, len(content), content[-100_000:])


def test_the_bytes_are_fetched_in_few_requests() -> None:
    storage = Ranged()
    stored = file_of(
        pa.table({"text": [f"{n:0>900}" for n in range(3_000)]}), use_dictionary=False, compression="none"
    )
    storage.put("f.parquet", stored.read("f.parquet"))
    target = bytearray(len(stored.read("f.parquet")))
    assert DataFile(storage, "f.parquet").copy_to(memoryview(target))
    assert bytes(target) == stored.read("f.parquet")
    assert len(target) > 2_000_000
    assert len(storage.asked) <= 4


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_bytes_of_a_file_are_copied_whether_it_is_open_or_not(tmp_path: Path, on_disk: bool) -> None:
    stored = file_of(pa.table({"n": pa.array(range(10), pa.int64())}))
    content = stored.read("f.parquet")
    storage: Storage = stored
    if on_disk:
        storage = LocalStorage(str(tmp_path))
        storage.put("f.parquet", content)
    data_file, target = DataFile(storage, "f.parquet"), bytearray(len(content))
    for _ in range(2):
        target[:] = bytes(len(content))
        assert data_file.copy_to(memoryview(target))
        assert bytes(target) == content
        data_file.close()
    assert not data_file.copy_to(memoryview(target)[1:])
    assert not data_file.copy_to(memoryview(bytearray(len(content) + 1)))
    storage.delete(["f.parquet"])
    with pytest.raises(CorruptLog, match="not there"):
        data_file.copy_to(memoryview(target))


def test_a_file_in_memory_is_read_without_its_storage() -> None:
    content = file_of(pa.table({"n": pa.array(range(10), pa.int64())})).read("f.parquet")
    data_file = DataFile(MemoryStorage(), "f.parquet", "none", FileInMemory(pa.py_buffer(content)))
    found = [value for rows in data_file.read(fields(("n", "long"))) for value in rows.arrays[0].to_pylist()]
    assert found == list(range(10))


class Counting(MemoryStorage):
    """Counts the files that are opened."""

    opened = 0

    def open_read(self, key: str) -> Any:
        self.opened += 1
        return super().open_read(key)


def test_a_file_whose_end_was_read_is_opened_for_its_rows_alone() -> None:
    table = pa.table({"n": pa.array(range(10), pa.int64()), "text": [f"text {n}" for n in range(10)]})
    bloom_filters = {"text": {"ndv": 10, "fpp": 0.1}}
    storage = Counting()
    content = file_of(table, bloom_filter_options=bloom_filters).read("f.parquet")
    storage.put("f.parquet", content)
    opened = DataFile(storage, "f.parquet")
    late = DataFile(storage, "f.parquet", end=FileEnd.of(content[-len(content) // 2 :]))
    assert storage.opened == 1
    assert (late.num_rows, late.num_row_groups) == (opened.num_rows, opened.num_row_groups) == (10, 4)
    assert late.row_group_bytes == opened.row_group_bytes
    assert late.bloom_filters == opened.bloom_filters == {"text"}
    late.close()
    assert storage.opened == 1
    wanted = fields(("n", "long"), ("text", "string"))
    found = [[array.to_pylist() for array in rows.arrays] for rows in late.read(wanted)]
    assert found == [[array.to_pylist() for array in rows.arrays] for rows in opened.read(wanted)]
    assert (late.column_names, late.arrow_schema) == (opened.column_names, opened.arrow_schema)
    assert late.first_row(late.num_row_groups) == 10
    assert storage.opened == 2


def test_what_is_wrong_with_a_file_is_told_when_it_is_opened_late() -> None:
    content = file_of(pa.table([[1], [2]], names=["a", "a"])).read("f.parquet")
    end = FileEnd.of(content)
    storage = MemoryStorage()
    with pytest.raises(CorruptLog, match="not there"):
        DataFile(storage, "f.parquet", end=end).column_names  # noqa: B018
    storage.put("f.parquet", content[:-1])
    with pytest.raises(CorruptLog, match="cannot be read"):
        list(DataFile(storage, "f.parquet", end=end).read(fields(("a", "long"))))
    storage.delete(["f.parquet"])
    storage.put("f.parquet", content)
    data_file = DataFile(storage, "f.parquet", end=end)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="one name"):
            list(data_file.read(fields(("a", "long"))))


@pytest.mark.parametrize("rows", [range(1), range(3), range(7)])
def test_a_file_that_has_taken_the_place_of_another_is_named(tmp_path: Path, rows: range) -> None:
    before, now = (file_of(pa.table({"n": pa.array(n, pa.int64())})) for n in (range(5), rows))
    end = FileEnd.of(before.read("f.parquet"))
    storage = LocalStorage(str(tmp_path))
    storage.put("f.parquet", now.read("f.parquet"))
    data_file = DataFile(storage, "f.parquet", end=end)
    assert data_file.num_rows == 5
    with pytest.raises(CorruptLog, match=r"f\.parquet .* another file has taken its place"):
        list(data_file.read(fields(("n", "long"))))


def test_a_small_file_on_a_disk_that_is_opened_late_is_read_whole(tmp_path: Path) -> None:
    content = file_of(pa.table({"n": pa.array(range(5), pa.int64())})).read("f.parquet")
    storage = LocalStorage(str(tmp_path))
    storage.put("f.parquet", content)
    data_file = DataFile(storage, "f.parquet", end=FileEnd.of(content))
    reading = data_file.read(fields(("n", "long")))
    found = next(reading).arrays[0].to_pylist()
    storage.delete(["f.parquet"])
    assert found + [value for rows in reading for value in rows.arrays[0].to_pylist()] == list(range(5))


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_texts_that_arrow_does_not_decode_to_dictionaries_come_as_texts(encoding: str) -> None:
    rows = pa.table({"a": ["x", "y", "x", None], "b": ["x", "y", "x", None]})
    storage = file_of(rows, use_dictionary=["b"], column_encoding={"a": encoding})
    wanted = fields(("a", "string"), ("b", "string"))

    first, second = DataFile(storage, "f.parquet").read(wanted, dictionaries=["a", "b"])

    assert [pa.types.is_dictionary(array.type) for array in first.arrays] == [False, True]
    assert [array.to_pylist() for array in first.arrays] == [["x", "y", "x"]] * 2
    assert [array.to_pylist() for array in second.arrays] == [[None]] * 2


def test_what_another_thread_remembers_is_not_returned() -> None:
    memory: Any = ColumnMemory()

    class Interrupted:
        """A schema in whose comparison another thread comes first."""

        def equals(self, *_: object, **__: object) -> bool:
            memory._known = self, "another's"
            return True

    schema = Interrupted()
    assert memory.recall(schema, lambda: "ours") == "ours"

    assert memory.recall(schema, lambda: "anew") == "ours"
