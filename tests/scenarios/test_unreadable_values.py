"""Partition values and properties that cannot be read stop only what needs them, and the message says what to do."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import keys, run
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidPartitionValue
from delta_log.log.file_names import commit_key
from delta_maintenance.cli.main import main

#: By type: a value that can be read, and values that cannot. Writers really wrote these.
VALUES = {
    "decimal(10,2)": ("2.25", ["-2.-25"]),
    "date": ("2024-01-01", ["__HIVE_DEFAULT_PARTITION__"]),
    "integer": ("7", [" 1", "1.0"]),
    "timestamp": ("2024-01-01T00:00:00Z", ["1969-12-31T23:59:59.123456789Z", "yesterday"]),
}
CASES = [(kind, value) for kind, (_, values) in VALUES.items() for value in values]


def write_table(
    table: Path,
    kind: str,
    values: Sequence[Mapping[str, str | None]],
    properties: dict[str, str] | None = None,
) -> None:
    """Write a table with one row in each file; row n has the id n and lies in the n-th partition."""
    table.mkdir(exist_ok=True)
    adds = []
    for number, partition in enumerate(values):
        file = table / f"{number}.parquet"
        pq.write_table(pa.table({"value": pa.array([number], pa.int64())}), file)
        adds.append(add(file.name, file.stat().st_size, partition, stats='{"numRecords":1}'))
    write_log(table, adds, partition_by={"p": kind}, properties=properties)


def partitions(table: Path) -> dict[str | None, list[int]]:
    """The rows of each raw partition value."""
    found: dict[str | None, list[int]] = {}
    for file in Table(str(table)).snapshot().files(["key", "partition_values"]).to_pylist():
        ids = pq.read_table(table / file["key"], partitioning=None).column("value").to_pylist()
        found.setdefault(dict(file["partition_values"]).get("p"), []).extend(ids)
    return {value: sorted(ids) for value, ids in found.items()}


def command(*words: str) -> tuple[int, dict[str, Any]]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main([*words, "--json"])
    return code, json.loads(output.getvalue())


@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_files_of_a_value_that_cannot_be_read_are_compacted_by_its_text(
    tmp_path: Path, kind: str, bad: str
) -> None:
    good = VALUES[kind][0]
    write_table(tmp_path, kind, [{"p": value} for value in (good, bad) * 2] + [{"p": f"{bad} "}, {"p": None}])
    before = partitions(tmp_path)
    assert command("health", str(tmp_path))[0] == 0
    report = run(tmp_path)
    assert report.status == "committed"
    assert partitions(tmp_path) == before
    assert len(keys(tmp_path)) == 4
    assert command("checkpoint", str(tmp_path))[0] == 0
    assert partitions(tmp_path) == before


@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_a_predicate_leaves_files_whose_value_cannot_be_read_and_says_so(
    tmp_path: Path, kind: str, bad: str
) -> None:
    good = VALUES[kind][0]
    write_table(tmp_path, kind, [{"p": value} for value in (good, bad) * 2])
    for where in (f"p = '{good}'", "p IS NULL", "p IS NOT NULL"):
        code, report = command("optimize", str(tmp_path), "--where", where, "--dry-run")
        plan = report["plan"]
        assert (code, plan["selection"]["left"]["undecided"]["files"]) == (0, 2)
        assert plan["numFilesToRemove"] == (0 if where == "p IS NULL" else 2)
        (warning,) = plan["warnings"]
        assert (
            f"The file 1.parquet of this table has in version 0 the partition value {bad!r} in column p"
            in warning
        )
        assert f"no {kind}" in warning
    assert run(tmp_path, where=f"p = '{good}'").status == "committed"
    assert partitions(tmp_path) == {good: [0, 2], bad: [1, 3]}


def test_only_the_columns_that_a_predicate_names_have_to_be_read(tmp_path: Path) -> None:
    adds = [add(f"{n}", 5, {"p": "never", "q": str(n % 2)}) for n in range(4)]
    write_log(tmp_path, adds, partition_by={"p": "date", "q": "integer"})
    snapshot = Table(str(tmp_path)).snapshot()
    assert snapshot.files(["key"], pc.field("q") == 1).num_rows == 2
    assert snapshot.files(["key"], pc.field("q") == 1, undecided=True).num_rows == 0
    assert snapshot.files(["key"], (pc.field("q") == 1) & pc.field("p").is_null()).num_rows == 0


def test_rows_are_read_where_they_do_not_need_the_value_and_refused_by_name_where_they_do(
    tmp_path: Path,
) -> None:
    write_table(tmp_path, "date", [{"p": "2024-01-01"}, {"p": "2024-02-30"}])
    snapshot = Table(str(tmp_path)).snapshot()
    assert sorted(snapshot.scan(["value"]).read_all().column("value").to_pylist()) == [0, 1]
    named = r"1\.parquet .*version 0 .*'2024-02-30' in column p"
    with pytest.raises(InvalidPartitionValue, match=named):
        snapshot.to_arrow()
    with pytest.raises(InvalidPartitionValue, match=named):
        snapshot.scan(["value"], pc.field("p").is_valid())


def test_the_checkpoint_of_a_value_that_cannot_be_read_has_null_beside_the_text(tmp_path: Path) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": "true"}
    write_table(tmp_path, "date", [{"p": "2024-01-01"}, {"p": "2024-02-30"}], properties)
    assert command("checkpoint", str(tmp_path))[0] == 0
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    adds = pq.read_table(checkpoint).column("add").drop_null().to_pylist()
    values = {dict(row["partitionValues"])["p"]: row["partitionValues_parsed"]["p"] for row in adds}
    assert values.keys() == {"2024-01-01", "2024-02-30"}
    assert values["2024-02-30"] is None
    assert str(values["2024-01-01"]) == "2024-01-01"


def test_files_whose_maps_have_other_keys_are_never_merged(tmp_path: Path) -> None:
    maps: list[dict[str, str | None]] = [
        {"P": "2024-01-01"},
        {"P": "2024-01-02"},
        {},
        {"p": None},
        {"p": ""},
        {"p": "2024-01-01"},
    ] * 2
    write_table(tmp_path, "date", maps)
    run(tmp_path)
    found = []
    for file in Table(str(tmp_path)).snapshot().files(["key", "partition_values"]).to_pylist():
        ids = pq.read_table(tmp_path / file["key"], partitioning=None).column("value").to_pylist()
        partition = {key: value for key, value in file["partition_values"] if value}
        found.append((partition, sorted(ids)))
    assert sorted(found, key=str) == [
        ({"P": "2024-01-01"}, [0, 6]),
        ({"P": "2024-01-02"}, [1, 7]),
        ({"p": "2024-01-01"}, [5, 11]),
        ({}, [2, 3, 4, 8, 9, 10]),
    ]


# -- properties ----------------------------------------------------------------------------------------------------

RETENTION, LOG_RETENTION = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"


@pytest.mark.parametrize("name", [RETENTION, LOG_RETENTION, "delta.setTransactionRetentionDuration"])
@pytest.mark.parametrize("text", ["interval 1 month", "P7D"])
def test_a_retention_that_cannot_be_read_stops_only_what_goes_by_it(
    tmp_path: Path, name: str, text: str
) -> None:
    table = str(tmp_path)
    write_table(tmp_path, "integer", [{"p": "1"}] * 4, {name: text})
    code, health = command("health", table)
    messages = [one["message"] for one in health["findings"] if one["code"] == "invalid_property"]
    assert (code, health["facts"]["removedFiles"]["reclaimable"]["numFiles"]) == (0, 0)
    if name != "delta.setTransactionRetentionDuration":
        assert len(messages) == 1
        assert f"ALTER TABLE … SET TBLPROPERTIES ('{name}' = 'interval 30 days')" in messages[0]
    assert run(tmp_path).status == "committed"
    code, report = command("checkpoint", table)
    warnings = report["plan"].get("warnings", [])
    assert (code, report["status"], bool(warnings)) == (0, "written", name != LOG_RETENTION)
    if name == RETENTION:
        # What was removed is never forgotten.
        assert Table(table).snapshot().tombstones(["key"]).num_rows == 4
    assert command("vacuum", table, "--retain-hours", "800", "--dry-run")[0] == 0
    code, refused = command("vacuum", table, "--dry-run")
    assert code == (2 if name == RETENTION else 0)
    if code:
        assert refused["error"]["type"] == "InvalidProperty"
        assert refused["error"]["name"] == name
        # What the table promises is not known, so it counts as the default of a week.
        assert command("vacuum", table, "--retain-hours", "167", "--dry-run")[0] == 2
    assert command("cleanup-log", table, "--dry-run")[0] == (2 if name == LOG_RETENTION else 0)


def test_a_checkpoint_interval_that_cannot_be_read_stops_only_the_question_whether_one_is_due(
    tmp_path: Path,
) -> None:
    write_table(tmp_path, "integer", [{"p": "1"}], {"delta.checkpointInterval": "often"})
    assert command("health", str(tmp_path))[0] == 0
    assert command("checkpoint", str(tmp_path), "--if-due")[0] == 2
    code, report = command("checkpoint", str(tmp_path))
    assert (code, report["status"]) == (0, "written")
    assert "delta.checkpointInterval is 'often'" in report["plan"]["warnings"][0]


@pytest.mark.parametrize("name", ["delta.enableExpiredLogCleanup", "delta.enableInCommitTimestamps"])
def test_a_switch_that_is_none_does_not_stop_a_health_reading(tmp_path: Path, name: str) -> None:
    write_table(tmp_path, "integer", [{"p": "1"}] * 2)
    assert command("checkpoint", str(tmp_path))[0] == 0
    schema = {
        "type": "struct",
        "fields": [{"name": "p", "type": "integer", "nullable": True, "metadata": {}}],
    }
    metadata = {"id": "t", "schemaString": json.dumps(schema), "configuration": {name: "yes"}}
    (tmp_path / commit_key(1)).write_text(json.dumps({"metaData": metadata}) + "\n")
    (tmp_path / commit_key(1)).touch()
    code, health = command("health", str(tmp_path))
    assert code == 0
    (message,) = (one["message"] for one in health["findings"] if one["code"] == "invalid_property")
    assert f"{name} is 'yes', not true or false" in message


def test_a_clustering_that_names_no_columns_stops_rewrites_alone(tmp_path: Path) -> None:
    write_table(tmp_path, "integer", [{"p": "1"}] * 2)
    first = tmp_path / commit_key(0)
    first.write_text(
        first.read_text().replace('"timestampNtz"]}}', '"timestampNtz", "clustering", "domainMetadata"]}}')
    )
    domain = {"domain": "delta.clustering", "configuration": "no JSON", "removed": False}
    (tmp_path / commit_key(1)).write_text(json.dumps({"domainMetadata": domain}) + "\n")
    code, health = command("health", str(tmp_path))
    assert (code, health["status"]) == (0, "unsupported")
    assert (
        "The domainMetadata delta.clustering of this table cannot be used" in health["findings"][0]["message"]
    )
    assert command("checkpoint", str(tmp_path))[0] == 0
    assert command("vacuum", str(tmp_path))[0] == 0
    assert command("optimize", str(tmp_path))[1]["error"]["type"] == "InvalidMetadata"


def test_a_target_size_that_cannot_be_read_is_not_needed_where_another_is_given(tmp_path: Path) -> None:
    write_table(tmp_path, "integer", [{"p": "1"}] * 2, {"delta.targetFileSize": "large"})
    code, health = command("health", str(tmp_path))
    assert (code, health["status"]) == (0, "unsupported")
    assert "SET TBLPROPERTIES ('delta.targetFileSize' = '128mb')" in health["findings"][0]["message"]
    assert command("optimize", str(tmp_path))[0] == 2
    code, report = command("optimize", str(tmp_path), "--target-size", "1GiB")
    assert (code, report["status"]) == (0, "committed")
