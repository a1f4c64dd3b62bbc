"""Numbers and nestings that JSON can hold and a table cannot: a refusal of ours that names them, never a foreign exception."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_log import Snapshot, Table
from delta_log.errors import (
    CorruptLog,
    DeltaLogError,
    InvalidMetadata,
    InvalidProperty,
    UnsupportedFeature,
    brief,
)
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.snapshot.deletion_ratio import deleted_rows, of_table
from delta_log.snapshot.time_travel import read_history
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import FileInfo
from delta_log.table_config.clustering import clustering_columns
from delta_log.table_config.properties import interval_ms, positive_number, size_bytes
from delta_log.table_config.row_tracking import high_water_mark
from delta_log.table_config.schema import MAX_DEPTH, parse_schema
from delta_log.tail.commit_summary import summarise
from delta_maintenance.cli.text import render_facts, render_history

HUGE = 10**23


def commit(table: Path, version: int, *actions: Mapping[str, Any]) -> Path:
    path = table / "_delta_log" / f"{version:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def vector(**members: Any) -> dict[str, Any]:
    return add("f", 1, deletionVector={**deletion_vector(1), **members})


@pytest.mark.parametrize(
    "action",
    [
        {"add": add("f", HUGE)},
        {"add": add("f", 2**63)},
        {"add": add("f", -1)},
        {"add": {**add("f", 1), "modificationTime": HUGE}},
        {"add": add("f", 1, baseRowId=2**63 - 1)},
        {"add": add("f", 1, defaultRowCommitVersion=HUGE)},
        {"add": vector(cardinality=HUGE)},
        {"add": vector(cardinality=-1)},
        {"add": vector(sizeInBytes=2**31)},
        {"add": vector(offset=2**31)},
        {"remove": {"path": "f", "deletionTimestamp": HUGE}},
        {"remove": {"path": "f", "size": -HUGE}},
        {"txn": {"appId": "a", "version": HUGE}},
        {"txn": {"appId": "a", "version": 1, "lastUpdated": HUGE}},
        {"metaData": {"id": "m", "schemaString": "{}", "format": {"provider": 7}}},
        {"metaData": {"id": "m", "schemaString": "{}", "createdTime": HUGE}},
    ],
    ids=lambda action: json.dumps(action)[:60],
)
def test_a_number_that_an_action_cannot_have_is_named(action: dict[str, Any], tmp_path: Path) -> None:
    write_log(tmp_path, [add("f0", 1)])
    commit(tmp_path, 1, action)
    with pytest.raises(CorruptLog, match=r"00001\.json .*Expected"):
        Table(str(tmp_path)).snapshot().files()


@pytest.mark.parametrize(("name", "value"), [("size", -1), ("baseRowId", 2**63 - 1), ("baseRowId", -5)])
def test_a_number_of_a_checkpoint_is_looked_at_too(name: str, value: int, tmp_path: Path) -> None:
    write_log(tmp_path, [add("f0", 1)])
    log = tmp_path / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    rows = [{"add": {"path": "f0", "partitionValues": [], "size": 1, "baseRowId": 0, name: value}}]
    rows += [{key: action[key]} for action in actions for key in action if key == "protocol"]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    rows += [{"metaData": {"id": "m", "schemaString": metadata["schemaString"], "partitionColumns": []}}]
    kind = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("baseRowId", pa.int64()),
        ]
    )
    columns = {"add": pa.array([row.get("add") for row in rows], kind)}
    columns |= {key: pa.array([row.get(key) for row in rows]) for key in ("protocol", "metaData")}
    pq.write_table(pa.table(columns), log / f"{1:020}.checkpoint.parquet")
    (log / f"{0:020}.json").unlink()
    snapshot = Table(str(tmp_path)).snapshot()
    with pytest.raises(CorruptLog, match=f"of a file is {value}"):
        snapshot.files()


def with_timestamps(table: Path, timestamp: object) -> Table:
    write_log(table, [add("f0", 1)], properties={"delta.enableInCommitTimestamps": "true"})
    info = {"timestamp": timestamp, "inCommitTimestamp": timestamp, "operation": "WRITE"}
    commit(table, 1, {"commitInfo": info}, {"add": add("f1", 1)})
    return Table(str(table))


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), HUGE, True, 1.5, "tomorrow"])
def test_an_in_commit_timestamp_that_is_no_time_is_named(timestamp: object, tmp_path: Path) -> None:
    table = with_timestamps(tmp_path, timestamp)
    with pytest.raises(CorruptLog, match=r"00001\.json .*in-commit timestamp is"):
        _ = table.snapshot().timestamp
    # History tells what others said, and refuses nothing.
    history = table.history()
    written_ms = os.stat(tmp_path / "_delta_log" / f"{1:020}.json").st_mtime_ns // 1_000_000
    assert history[0]["timestamp"] in (written_ms, history[1]["timestamp"] + 1)
    assert render_history(history).splitlines()[1].startswith("1 ")
    tail = list(table.tail("earliest", poll_interval_seconds=None))
    assert tail[-1].timestamp_ms == written_ms


class FarFuture(LocalStorage):
    """A disk whose clock is 20,000 years fast; not every file system has such times."""

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        for info in super().list_from(directory, start_name):
            yield replace(info, modification_time_ms=info.modification_time_ms + 20_000 * 31_557_600_000)


def test_a_commit_that_was_written_after_the_year_9999_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, [add("f0", 1)])
    storage = FarFuture(str(tmp_path))
    with pytest.raises(CorruptLog, match="which no date has"):
        _ = Snapshot(storage, find_log_segment(storage)).timestamp
    assert "after year 9999" in render_history(read_history(storage, list_log(storage), None))


def nested(depth: int) -> str:
    kind: Any = "long"
    for _ in range(depth - 1):
        kind = {"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]}
    fields = [{"name": "deep", "type": kind, "nullable": True, "metadata": {}}]
    return json.dumps({"type": "struct", "fields": fields})


def too_deep(depth: int) -> str:
    """As ``nested``, of arrays; ``json.dumps`` goes no deeper either."""
    array = '{"type":"array","containsNull":true,"elementType":'
    field = f'{{"name":"a","nullable":true,"metadata":{{}},"type":{array * depth}"long"{"}" * depth}}}'
    return f'{{"type":"struct","fields":[{field}]}}'


@pytest.mark.parametrize("text", [nested(MAX_DEPTH + 1), too_deep(MAX_DEPTH), too_deep(5000)])
def test_a_schema_nested_too_deep_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"nested more than {MAX_DEPTH} types deep"):
        parse_schema(text)


def test_a_schema_nested_as_deep_as_allowed_is_read() -> None:
    assert parse_schema(nested(MAX_DEPTH)).names == ("deep",)


@pytest.mark.parametrize("name", ["\ud800", ["a"], {}, None, 7])
def test_a_column_without_a_name_that_can_be_written_is_refused(name: object) -> None:
    text = json.dumps({"type": "struct", "fields": [{"name": name, "type": "long"}]})
    with pytest.raises(InvalidMetadata, match="schemaString"):
        parse_schema(text)


@pytest.mark.parametrize("fields", ["abc", [7], [{"name": "a"}], [{"name": "a", "type": 7}], 5, None])
def test_the_facts_of_a_table_whose_schema_is_none_say_so(fields: object) -> None:
    facts = {
        "table": "t", "version": 0, "timestamp": "", "numFiles": 0, "sizeInBytes": 0, "numDeletedRows": 0,
        "numDeletionVectors": 0, "numTombstones": 0, "transactions": {}, "domainMetadata": {},
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": None, "writerFeatures": None},
        "metadata": {"name": None, "partitionColumns": [], "configuration": {},
                     "schemaString": json.dumps({"type": "struct", "fields": fields})},
    }  # fmt: skip
    with pytest.raises(InvalidMetadata, match="schemaString"):
        render_facts(facts)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (interval_ms, f"interval 1{'0' * 30} days"),
        (interval_ms, f"interval {'9' * 18} weeks"),
        (interval_ms, f"interval {'9' * 5000} microseconds"),
        (size_bytes, "9" * 30),
        (size_bytes, "9" * 5000 + "kb"),
        (size_bytes, "2000tb"),
        (lambda properties, name: positive_number(properties, name, 10), "9" * 5000),
        (lambda properties, name: positive_number(properties, name, 10), "9" * 30),
        (lambda properties, name: positive_number(properties, name, 10), "²"),
    ],
)
def test_a_property_of_absurd_size_is_named(read: Callable[[dict[str, str], str], Any], text: str) -> None:
    with pytest.raises(InvalidProperty, match="property the.property is .*SET TBLPROPERTIES") as caught:
        read({"the.property": text}, "the.property")
    assert len(str(caught.value)) < 1000


def test_a_partition_column_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, [add("f0", 1, {"d": "1"})], partition_by={"d": "long"})
    path = tmp_path / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace('"partitionColumns": ["d"]', '"partitionColumns": ["d", "D"]'))
    with pytest.raises(InvalidMetadata, match="names a column twice"):
        _ = Table(str(tmp_path)).snapshot().partition_columns


def test_the_version_of_enablement_is_a_version(tmp_path: Path) -> None:
    properties = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "²",
    }
    write_log(tmp_path, [], properties=properties)
    with pytest.raises(InvalidProperty, match="'²', not a version"):
        Table(str(tmp_path)).snapshot(timestamp=datetime(2024, 1, 1, tzinfo=timezone.utc))


@pytest.mark.parametrize("mark", [HUGE, -2, True, 2**63 - 1, "7"])
def test_a_high_water_mark_that_is_no_row_id_is_named(mark: object) -> None:
    with pytest.raises(InvalidMetadata, match="high-water mark"):
        high_water_mark(json.dumps({"rowIdHighWaterMark": mark}))


@pytest.mark.parametrize("columns", [7, [7], [[]], [[""]], None, {"a": 1}])
def test_a_domain_that_names_no_columns_to_cluster_by_is_named(columns: object) -> None:
    with pytest.raises(InvalidMetadata, match=r"delta\.clustering"):
        clustering_columns({"delta.clustering": json.dumps({"clusteringColumns": columns})})


def test_statistics_with_absurd_counts_say_nothing(tmp_path: Path) -> None:
    stats = json.dumps({"numRecords": HUGE})
    adds = [
        add("f0", 1, stats=stats),
        add("f1", 1, stats='{"numRecords":10}', deletionVector=deletion_vector(4)),
    ]
    snapshot = write_log(tmp_path, adds)
    found = of_table(snapshot, deleted_rows(snapshot, 0.1))
    assert (found.num_rows, found.num_deleted_rows) == (10, 4)
    table = Table(str(tmp_path))
    assert [commit.num_added_rows for commit in table.tail("earliest", poll_interval_seconds=None)] == [None]
    assert summarise(0, [], None).num_added_rows == 0


def test_a_message_quotes_the_beginning_and_the_end_of_a_long_text() -> None:
    error = CorruptLog("path", "x" * 100_000)
    assert isinstance(error, DeltaLogError)
    assert len(str(error)) < 1000
    assert "(100,000 characters)" in str(error)
    assert brief("short") == "short"
