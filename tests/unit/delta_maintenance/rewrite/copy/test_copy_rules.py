"""What may be copied of a file, and the reason for each that may not."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.checks import parquet_structs as parquet
from tests.support.checks.thrift_struct import ThriftList, ThriftStruct, Typed

from delta_log.table_config.schema import arrow_schema, parse_schema
from delta_maintenance.rewrite.copy.copy_rules import (
    DELETED_ROWS,
    ELSEWHERE,
    ENCRYPTED,
    JULIAN,
    ODD_FOOTER,
    OTHER_CODEC,
    OTHER_COLUMNS,
    ROW_IDS,
    SEVERAL_FILES,
    SMALL,
    UNKNOWN_CODEC,
    UNKNOWN_ENCODING,
    UNKNOWN_WRITER,
    CopyDecision,
    CopyRules,
    against_source,
)
from delta_maintenance.rewrite.encode.encoded_part import empty_footer
from delta_maintenance.rewrite.encode.writer_notes import own_notes
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.task import RewriteTask, SourceFile
from parquet_parts.footer import Footer
from parquet_parts.thrift import BINARY, I32, I64, LIST, STRUCT

_SCHEMA = parse_schema(
    '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}},'
    '{"name":"x","type":"double","nullable":true,"metadata":{}},'
    '{"name":"list","type":{"type":"array","elementType":"string","containsNull":true},"nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}},'
    '{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)
_ARROW = arrow_schema(_SCHEMA, physical=True)
_LIKE = empty_footer(_ARROW, WriterSettings.of({}, _SCHEMA, ()))
_ROWS = pa.table(
    {
        "n": [1, None, 3] * 20,
        "x": [0.5, 1.0, None] * 20,
        "list": [["a", None], [], None] * 20,
        "day": pa.array([1, 2, None] * 20, pa.date32()),
        "id": list(range(60)),
    },
    _ARROW,
)
Edit = Callable[[ThriftStruct], ThriftStruct]


def written(rows: pa.Table = _ROWS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=30, store_schema=False, **options)
    return sink.getvalue()


def judged(
    content: bytes, edit: Edit = lambda footer: footer, mode: str = "copy", **rules: Any
) -> CopyDecision:
    before, footer = parquet.split_footer(content)
    return CopyRules(mode, _LIKE, **rules).judge(Footer.from_bytes(edit(footer).to_bytes()), len(before))


def put(struct: ThriftStruct, number: int, kind: int, value: Any) -> ThriftStruct:
    return ThriftStruct(dict(sorted({**struct.fields, number: Typed(kind, value)}.items())))


def in_group(edit: Edit) -> Edit:
    """Edit the last row group."""

    def edited(footer: ThriftStruct) -> ThriftStruct:
        *others, last = footer.get(parquet.ROW_GROUPS).items
        return footer.replacing(parquet.ROW_GROUPS, ThriftList(STRUCT, (*others, edit(last))))

    return edited


def in_chunk(edit: Edit, number: int = 0) -> Edit:
    """Edit a chunk of the last row group."""

    def edited(group: ThriftStruct) -> ThriftStruct:
        chunks = list(group.get(parquet.COLUMNS).items)
        chunks[number] = edit(chunks[number])
        return group.replacing(parquet.COLUMNS, ThriftList(STRUCT, tuple(chunks)))

    return in_group(edited)


def in_meta(number: int, kind: int, value: Any) -> Edit:
    return in_chunk(lambda chunk: chunk.replacing(3, put(chunk.get(3), number, kind, value)))


def added_to_meta(number: int, more: int) -> Edit:
    return in_chunk(
        lambda chunk: chunk.replacing(3, chunk.get(3).replacing(number, chunk.get(3).get(number) + more))
    )


def by(writer: str, **key_values: str) -> Edit:
    pairs = tuple(
        ThriftStruct({1: Typed(BINARY, key.encode()), 2: Typed(BINARY, value.encode())})
        for key, value in key_values.items()
    )

    def edited(footer: ThriftStruct) -> ThriftStruct:
        return put(put(footer, 6, BINARY, writer.encode()), 5, LIST, ThriftList(STRUCT, pairs))

    return edited


def test_the_file_of_another_writer_is_copied_whole() -> None:
    assert judged(written()).reasons == (None, None)
    assert judged(written(compression="zstd", data_page_version="2.0")).is_whole
    assert judged(written(write_page_index=True, bloom_filter_options={"n": {"ndv": 9}})).is_whole
    # The old annotations, and a writer that annotates plain integers.
    assert judged(written(), lambda footer: footer.without(5)).is_whole


REQUIRED = pa.schema([pa.field("n", pa.int64(), False), *list(_ARROW)[1:]])
WITH_IDS = pa.schema([pa.field("n", pa.int64(), True, {"PARQUET:field_id": "7"}), *list(_ARROW)[1:]])
_ENCODING = ThriftList(I32, (0, 3, 77))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (written(_ROWS.drop_columns(["x"])), OTHER_COLUMNS),
        (written(_ROWS.append_column("more", _ROWS["n"])), OTHER_COLUMNS),
        (written(_ROWS.select(["x", "n", "list", "day", "id"])), OTHER_COLUMNS),
        (written(_ROWS.rename_columns(["N", "x", "list", "day", "id"])), OTHER_COLUMNS),
        (written(_ROWS.set_column(0, "n", _ROWS["n"].cast(pa.int32()))), OTHER_COLUMNS),
        (written(_ROWS.set_column(3, "day", _ROWS["day"].cast(pa.int32()))), OTHER_COLUMNS),
        (written(pa.table(_ROWS.columns, WITH_IDS)), OTHER_COLUMNS),
        (written(pa.table([pa.array(range(60), pa.int64()), *_ROWS.columns[1:]], REQUIRED)), OTHER_COLUMNS),
        (
            written(
                _ROWS.set_column(2, "list", _ROWS["list"].cast(pa.list_(pa.field("item", pa.string())))),
                use_compliant_nested_type=False,
            ),
            OTHER_COLUMNS,
        ),
    ],
)
def test_other_columns_are_decoded(content: bytes, reason: str) -> None:
    assert set(judged(content).reasons) == {reason}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (by("parquet-mr version 1.8.1 (build 0)"), UNKNOWN_WRITER),
        (by("impala version 2"), UNKNOWN_WRITER),
        (by(""), UNKNOWN_WRITER),
        (by("parquet-mr version 1.10.1", **{"org.apache.spark.version": "2.4.8"}), JULIAN),
        (by("parquet-mr version 1.10.1", **{"org.apache.spark.legacyDateTime": ""}), JULIAN),
        (lambda footer: put(footer, 8, STRUCT, ThriftStruct({})), ENCRYPTED),
        (lambda footer: footer.replacing(3, 61), ODD_FOOTER),
        (in_group(lambda group: group.replacing(3, 29)), ODD_FOOTER),
        (in_group(lambda g: g.replacing(1, ThriftList(STRUCT, g.get(1).items[:-1]))), ODD_FOOTER),
        (added_to_meta(5, 1), ODD_FOOTER),
        (added_to_meta(7, 1), ODD_FOOTER),
        (in_meta(11, I64, 5), ODD_FOOTER),
        (in_meta(11, I64, -5), ODD_FOOTER),
        (in_meta(9, I64, 1 << 40), ODD_FOOTER),
        (in_group(lambda group: group.replacing(3, -1)), ODD_FOOTER),
    ],
)
def test_a_file_is_decoded_that_is_not_understood(edit: Edit, reason: str) -> None:
    assert set(judged(written(), edit).reasons) == {reason}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (in_chunk(lambda chunk: put(chunk, 1, BINARY, b"other")), ELSEWHERE),
        (in_chunk(lambda chunk: put(chunk, 8, STRUCT, ThriftStruct({}))), ENCRYPTED),
        (in_chunk(lambda chunk: put(chunk, 9, BINARY, b"secret")), ENCRYPTED),
        (in_meta(4, I32, 3), UNKNOWN_CODEC),
        (in_meta(4, I32, 5), UNKNOWN_CODEC),
        (in_meta(2, LIST, _ENCODING), UNKNOWN_ENCODING),
        (in_meta(3, LIST, ThriftList(BINARY, (b"x",))), ODD_FOOTER),
        (in_meta(1, I32, 1), ODD_FOOTER),
    ],
)
def test_a_row_group_is_decoded_that_is_not_understood(edit: Edit, reason: str) -> None:
    assert judged(written(), edit).reasons == (None, reason)


def test_the_codec_counts_where_the_table_names_one() -> None:
    assert judged(written(compression="snappy"), codec=1).is_whole
    assert set(judged(written(compression="snappy"), codec=6).reasons) == {OTHER_CODEC}


@pytest.mark.parametrize(
    ("note", "codecs", "expected"),
    [
        ("snappy", {"n": "none", "id": "none"}, None),
        ("snappy", "none", None),
        ("zstd", {"n": "none", "id": "none"}, OTHER_CODEC),
        (None, {"n": "none", "id": "none"}, OTHER_CODEC),
        ("snappy", {"n": "gzip"}, OTHER_CODEC),
    ],
    ids=[
        "chosen",
        "all of them chosen",
        "chosen for another codec",
        "by another writer",
        "compressed otherwise",
    ],
)
def test_columns_that_this_provider_left_uncompressed_have_the_codec_of_the_table(
    note: str | None, codecs: str | dict[str, str], expected: str | None
) -> None:
    paths = ["n", "x", "list.list.element", "day", "id"]
    chosen = codecs if isinstance(codecs, str) else {path: codecs.get(path, "snappy") for path in paths}
    edit = by("parquet-cpp-arrow version 26.0.0", **({} if note is None else own_notes(note)))
    content = written(compression=chosen)
    assert set(judged(content, edit, codec=1).reasons) == {expected}
    # A table that names no codec has no wrong one.
    assert judged(content, edit).is_whole


def test_row_ids_have_to_be_in_the_file() -> None:
    assert judged(written(), num_row_ids=1).is_whole
    ids = pa.array([None if n == 40 else n for n in range(60)], pa.int64())
    assert judged(written(_ROWS.set_column(4, "id", ids)), num_row_ids=1).reasons == (None, ROW_IDS)
    assert set(judged(written(write_statistics=False), num_row_ids=1).reasons) == {ROW_IDS}


def test_small_row_groups_are_decoded_unless_copies_are_asked_for() -> None:
    assert set(judged(written(), mode="auto").reasons) == {SMALL}
    many = pa.table(
        {name: pa.nulls(122_880, kind) for name, kind in zip(_ARROW.names, _ARROW.types, strict=True)}
    )
    sink = io.BytesIO()
    pq.write_table(many, sink, row_group_size=122_880, store_schema=False)
    assert judged(sink.getvalue(), mode="auto").is_whole


def test_bounds_are_kept_of_writers_that_leave_out_those_of_nan() -> None:
    arrow = by("parquet-cpp-arrow version 20.0.0")
    for edit, bounds, pages in (
        (arrow, {1}, set()),
        (by("parquet-cpp-arrow version 20.0.0", **{"delta-maintenance.floats": "1"}), {1}, {0, 1, 2, 3, 4}),
        (by("parquet-rs version 58.3.0"), {1}, {2}),
        (by("DuckDB version v1.1"), {1}, {0, 1, 2, 3, 4}),
        (by("parquet-mr version 1.13.1 (build 0)"), set(), set()),
        (lambda footer: arrow(footer).without(7), {0, 1, 2, 3, 4}, set()),
    ):
        found = judged(written(), edit).distrust
        assert (set(found.bounds), set(found.page_bounds), set(found.membership)) == (bounds, pages, {1})
        assert found.is_foreign


def test_the_log_rules_files_out() -> None:
    task = RewriteTask("b", "/t", "r", "{}", (), "none", {}, (), {}, (), 1, "tag")
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    assert against_source(task, SourceFile("f", "f", 1)) is None
    assert against_source(task, SourceFile("f", "f", 1, deletion_vector=vector)) == DELETED_ROWS
    split = RewriteTask("b", "/t", "r", "{}", (), "none", {}, (), {}, (), 1, "tag", num_outputs=2)
    assert against_source(split, SourceFile("f", "f", 1)) == SEVERAL_FILES
