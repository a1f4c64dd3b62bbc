"""Legal but rare tables, and broken ones: the right rows, or a refusal that names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from delta_log import Table
from delta_log.errors import CommitFailed, CorruptLog, InvalidMetadata, InvalidPartitionValue, InvalidProperty
from delta_log.runtime import Runtime
from delta_log.table_config.features import Operation
from delta_log.table_config.partition_values import parse
from delta_log.table_config.schema import PrimitiveType
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress


def column(name: Any, kind: Any = "long", metadata: Any = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def commit(table: Path, version: int, *actions: Mapping[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(text)


def make(
    table: Path,
    columns: list[dict[str, Any]],
    files: Mapping[str, pa.Table],
    *,
    partition_by: tuple[str, ...] = (),
    values: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    protocol: tuple[int, int] = (1, 2),
) -> Table:
    """A table of one commit."""
    table.mkdir(parents=True)
    adds = []
    for name, rows in files.items():
        pq.write_table(rows, table / name)
        add = {"path": name, "size": (table / name).stat().st_size, "partitionValues": dict(values or {})}
        adds.append({"add": {**add, "modificationTime": 1, "dataChange": True}})
    metadata = {
        "id": "t",
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": list(partition_by),
        "configuration": dict(properties or {}),
    }
    versions = {"minReaderVersion": protocol[0], "minWriterVersion": protocol[1]}
    commit(table, 0, {"protocol": versions}, {"metaData": metadata}, *adds)
    return Table(str(table))


def optimize(table: Table) -> Any:
    spec = JobSpec("optimize", table.uri, "odd", {"full": True}, engine="local")
    return run_job(spec, JobSite(), SilentProgress())


def rows(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.snapshot().to_arrow().to_pylist()
    return found


MAPPED = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}


def test_physical_names_mean_nothing_without_column_mapping(tmp_path: Path) -> None:
    """Else every value would become null, and OPTIMIZE would make it so for good."""
    columns = [column("a", metadata=MAPPED)]
    for protocol, properties in (((1, 2), {}), ((1, 2), {"delta.columnMapping.mode": "name"}), ((2, 5), {})):
        table = make(
            tmp_path / f"{protocol[0]}{len(properties)}",
            columns,
            {"f": pa.table({"a": [1]}), "g": pa.table({"a": [2]})},
            protocol=protocol,
            properties=properties,
        )
        assert rows(table) == [{"a": 1}, {"a": 2}]
        assert optimize(table).status == "committed"
        assert sorted(row["a"] for row in rows(table)) == [1, 2]


def test_the_mode_of_column_mapping_is_taken_in_any_case_and_checked(tmp_path: Path) -> None:
    field = pa.field("elsewhere", pa.int64(), metadata={"PARQUET:field_id": "1"})
    file = pa.Table.from_arrays([pa.array([7])], schema=pa.schema([field]))
    for mode in ("ID", "id"):
        properties = {"delta.columnMapping.mode": mode}
        columns = [column("a", metadata=MAPPED)]
        table = make(tmp_path / f"by {mode}", columns, {"f": file}, protocol=(2, 5), properties=properties)
        assert rows(table) == [{"a": 7}]
    wrong = make(
        tmp_path / "w", [column("a")], {}, protocol=(2, 5), properties={"delta.columnMapping.mode": "x"}
    )
    with pytest.raises(InvalidProperty, match=r"columnMapping\.mode"):
        rows(wrong)


def test_members_whose_names_hold_dots_keep_their_own_bounds(tmp_path: Path) -> None:
    members = [column(".x"), column("x")]
    values = pa.array([{".x": 1, "x": 100}, {".x": 2, "x": 101}])
    table = make(
        tmp_path / "t", [column("s", {"type": "struct", "fields": members})], {"f": pa.table({"s": values})}
    )
    assert optimize(table).status == "committed"
    stats = json.loads(table.snapshot().files(["stats"]).column(0)[0].as_py())
    assert (stats["minValues"], stats["maxValues"]) == (
        {"s": {".x": 1, "x": 100}},
        {"s": {".x": 2, "x": 101}},
    )


def test_a_commit_into_a_hole_of_a_cleaned_log_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [column("a")], {"f": pa.table({"a": [1]})})
    snapshot = table.snapshot()
    log = tmp_path / "t" / "_delta_log"
    first = (log / f"{0:020d}.json").read_bytes()
    for version in range(1, 5):
        commit(tmp_path / "t", version, {"commitInfo": {}})
    (log / f"{4:020d}.checkpoint.some-name.json").write_bytes(
        b'{"checkpointMetadata":{"version":4}}\n' + first
    )
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    with pytest.raises(CommitFailed, match="cleaned"):
        Transaction(table.storage, snapshot, Operation.OPTIMIZE, Runtime()).commit(Change("OPTIMIZE"))
    assert table.snapshot().version == 4
    assert not (log / f"{1:020d}.json").exists()


def test_names_that_occur_twice_are_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(CorruptLog, match="two of its columns"):
        rows(make(tmp_path / "file", [column("a")], {"f": twice}))
    with pytest.raises(InvalidMetadata, match="two columns"):
        rows(make(tmp_path / "schema", [column("a"), column("a")], {}))


@pytest.mark.parametrize(
    "wrong",
    [
        column(None),
        column(5),
        {**column("a"), "metadata": ["x"]},
        column("a", {"type": "array"}),
        column("a", "odd"),
    ],
    ids=["null name", "number for a name", "list for metadata", "array of nothing", "unknown type"],
)
def test_a_schema_that_is_none_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    from delta_log import DeltaLogError

    with pytest.raises(DeltaLogError):
        rows(make(tmp_path / "t", [wrong], {"f": pa.table({"a": [1]})}))


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "struct", "fields": [column("x")]},
        {"type": "array", "elementType": "long", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        "variant",
        "string",
    ],
    ids=["struct", "array", "map", "variant", "text that is a list"],
)
def test_a_file_of_another_kind_than_the_schema_is_refused_by_name(tmp_path: Path, kind: Any) -> None:
    values = pa.array([[1]]) if kind == "string" else pa.array([1])
    with pytest.raises(CorruptLog, match="where the schema says"):
        rows(make(tmp_path / "t", [column("a", kind)], {"f": pa.table({"a": values})}))


def test_two_live_files_of_one_name_are_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [column("a")], {"f": pa.table({"a": [1]})})
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    again = {"path": "f", "size": 1, "partitionValues": {}, "deletionVector": vector}
    commit(tmp_path / "t", 1, {"add": again})
    with pytest.raises(CorruptLog, match="two live adds"):
        table.snapshot().files()


def test_a_partition_column_in_another_case_is_the_schemas_column(tmp_path: Path) -> None:
    files = {"f": pa.table({"a": [1]}), "g": pa.table({"a": [2]})}
    table = make(tmp_path / "t", [column("a"), column("part", "string")], files, partition_by=("PART",),
                 values={"part": "x"})  # fmt: skip
    assert table.snapshot().partition_columns == ("part",)
    assert optimize(table).status == "committed"
    (path,) = table.snapshot().files(["key"]).column(0).to_pylist()
    assert pq.ParquetFile(tmp_path / "t" / path).schema_arrow.names == ["a"]
    assert [row["part"] for row in rows(table)] == ["x", "x"]


def test_a_predicate_without_columns_chooses_all_or_nothing(tmp_path: Path) -> None:
    snapshot = make(tmp_path / "t", [column("a")], {"f": pa.table({"a": [1]})}).snapshot()
    assert snapshot.files(["key"], pc.scalar(True)).num_rows == 1
    assert snapshot.files(["key"], pc.scalar(False)).num_rows == 0


def test_the_time_that_a_snapshot_states_leads_back_to_it(tmp_path: Path) -> None:
    import os

    table = make(tmp_path / "t", [column("a")], {})
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    times = (1_095_567_485_047, 1_095_567_485_000, 1_095_567_486_000)
    for version in (1, 2):
        commit(tmp_path / "t", version, {"commitInfo": {}})
    for version, moment in enumerate(times):
        os.utime(tmp_path / "t" / "_delta_log" / f"{version:020d}.json", ns=(moment * 10**6, moment * 10**6))
    for version in range(3):
        stated = table.snapshot(version=version).timestamp
        assert table.snapshot(timestamp=stated).version == version
    assert table.snapshot(version=1).timestamp == epoch + timedelta(milliseconds=times[0] + 1)


def test_hundreds_of_refreshes_cost_no_recursion(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [column("a")], {"f": pa.table({"a": [1]})})
    snapshot = table.snapshot()
    for version in range(1, 1200):
        commit(tmp_path / "t", version, {"add": {"path": f"f{version}", "size": 1, "partitionValues": {}}})
        snapshot = table.snapshot(refresh_from=snapshot)
        if version % 3 == 0:
            snapshot.files(["key"])
    assert snapshot.files(["key", "stats"]).num_rows == snapshot.num_files == 1200


def test_a_stray_version_far_away_is_a_gap_and_not_a_hang(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [column("a")], {"f": pa.table({"a": [1]})})
    snapshot = table.snapshot()
    commit(tmp_path / "t", 10**20 - 1, {"commitInfo": {}})
    for older in (None, snapshot):
        with pytest.raises(CorruptLog, match=f"{1:020d}.json"):
            table.snapshot(refresh_from=older)


def test_a_long_row_of_digits_is_refused_at_once() -> None:
    for text in ("1" * 60_000 + "x", "1" * 60_000):
        with pytest.raises(InvalidPartitionValue):
            parse(text, PrimitiveType("double"))


def test_nulls_in_the_log_stand_for_absent_members(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "f")
    schema = json.dumps({"type": "struct", "fields": [column("a")]})
    metadata = {
        "id": "t",
        "schemaString": schema,
        "format": None,
        "partitionColumns": None,
        "configuration": None,
    }
    add = {"path": "f", "size": 1, "modificationTime": None, "partitionValues": None, "tags": {"n": 5}}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": None, "writerFeatures": None}
    commit(tmp_path, 0, {"protocol": protocol}, {"metaData": metadata}, {"add": add})
    assert rows(Table(str(tmp_path))) == [{"a": 1}]
    assert Table(str(tmp_path)).snapshot().files(["tags"]).column(0).to_pylist() == [[("n", "5")]]


def test_a_broken_compaction_gives_way_to_its_commits(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [column("a")], {"f": pa.table({"a": [1]})})
    commit(tmp_path / "t", 1, {"commitInfo": {}})
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.{1:020d}.compacted.json").write_text("{broken\n")
    assert rows(table) == [{"a": 1}]


def test_a_path_in_a_checkpoint_that_is_no_text_is_refused_and_the_file_named(
    corpus_copy: Callable[[str], Path],
) -> None:
    table = corpus_copy("spark-delta-1.2.1")
    checkpoint = table / "_delta_log/00000000000000000004.checkpoint.parquet"
    before = checkpoint.read_bytes()
    # In a page of paths, which is compressed, and where a byte more or less is a letter more or less.
    checkpoint.write_bytes(before[:189] + b"\xff\xff\xff\x7f" + before[193:])
    # Where the commits reach back, they are read in its place.
    assert Table(str(table)).snapshot(4).num_files == Table(str(table)).snapshot(4).files(["key"]).num_rows
    for version in range(4):
        (table / f"_delta_log/{version:020d}.json").unlink()
    with pytest.raises(CorruptLog, match=checkpoint.name):
        Table(str(table)).snapshot(4).files(["key"])


@pytest.mark.parametrize(
    ("statistics", "row_group_rows", "lies"),
    [
        (True, 10_000, False),
        (True, 100_000, False),
        (False, 10_000, False),
        (False, 100_000, False),
        (True, 100_000, True),
    ],
)
def test_actions_that_are_not_about_files_are_found_wherever_a_checkpoint_has_them(
    tmp_path: Path, statistics: bool, row_group_rows: int, lies: bool
) -> None:
    """Mostly they come first; a reader that stops behind them must know that it has met all.

    :param lies: the footer says that there are no transactions.
    """
    table, count = tmp_path / "t", 60_000
    (table / "_delta_log").mkdir(parents=True)
    schema = json.dumps({"type": "struct", "fields": [column("a")]})
    rows_of: list[dict[str, Any]] = [
        {"add": {"path": f"{number}.parquet", "size": 1, "modificationTime": 1, "dataChange": True}}
        for number in range(count)
    ]
    rows_of[20_000] = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    rows_of[59_999] = {"metaData": {"id": "m", "schemaString": schema, "createdTime": None}}
    for number, row in enumerate((0, 16_384, 16_385, 40_000, 59_998)):
        # The second has an optional member that the others have not.
        optional = {} if lies else {"lastUpdated": 5 if number == 1 else None}
        rows_of[row] = {"txn": {"appId": f"app{number}", "version": number, **optional}}
    checkpoint = table / f"_delta_log/{7:020d}.checkpoint.parquet"
    pq.write_table(
        pa.table(
            {name: [row.get(name) for row in rows_of] for name in ("txn", "add", "protocol", "metaData")}
        ),
        checkpoint,
        write_statistics=statistics,
        row_group_size=row_group_rows,
    )
    if lies:
        _claim_nulls(checkpoint, count - 5, count)
    commit(table, 7)
    snapshot = Table(str(table)).snapshot(7)
    assert {t.appId: t.version for t in snapshot.set_transactions} == {f"app{n}": n for n in range(5)}
    assert snapshot.num_files == count - 7


def test_files_that_the_footer_of_a_checkpoint_denies_are_there_with_all_that_belongs_to_them(
    tmp_path: Path,
) -> None:
    table, count = tmp_path / "t", 3_000
    (table / "_delta_log").mkdir(parents=True)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "sizeInBytes": 4,
        "cardinality": 6,
    }
    schema = json.dumps({"type": "struct", "fields": [column("a")]})
    rows_of: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}},
        {"metaData": {"id": "m", "schemaString": schema}},
    ]
    rows_of[0]["protocol"]["writerFeatures"] = ["deletionVectors"]
    rows_of += [{"remove": {"path": f"r{n}", "dataChange": True}} for n in range(count // 3 * 2 - 2)]
    rows_of += [
        {
            "add": {
                "path": f"{n}.parquet",
                "size": 7,
                "modificationTime": 1,
                "dataChange": True,
                "deletionVector": vector,
            }
        }
        for n in range(count // 3)
    ]
    checkpoint = table / f"_delta_log/{7:020d}.checkpoint.parquet"
    columns = ("add", "remove", "protocol", "metaData")
    pq.write_table(pa.table({name: [row.get(name) for row in rows_of] for name in columns}), checkpoint)
    _claim_nulls(checkpoint, count // 3 * 2, count)
    commit(table, 7)
    files = Table(str(table)).snapshot(7).files(["size", "deletion_vector"])
    assert (files.num_rows, files.column(0).null_count, files.column(1).null_count) == (count // 3, 0, 0)


def _claim_nulls(checkpoint: Path, number: int, claimed: int) -> None:
    """Say in the footer that columns with so many nulls have others."""
    content = checkpoint.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    told = content[-footer:].replace(_varint(2 * number), _varint(2 * claimed))
    checkpoint.write_bytes(content[:-footer] + told)
    nulls = pq.ParquetFile(checkpoint).metadata.row_group(0).column(0).statistics.null_count
    assert nulls == claimed


def _varint(number: int) -> bytes:
    """As Thrift writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
