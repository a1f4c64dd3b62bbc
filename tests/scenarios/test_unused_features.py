"""Features that a protocol lists and a table makes no use of stop no rewrite. A dry run is refused as its run is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.support.runs.maintenance_runs import WatchedEngine, keys, mark_deleted, run
from tests.support.tables.written_log import add

from delta_log import Table
from delta_log.errors import InvalidMetadata, MetadataChanged, UnsupportedFeature

LIQUID: dict[str, Any] = {
    "clusteringProvider": "liquid",
    "tags": {"ZCUBE_ID": "c", "ZCUBE_ZORDER_BY": '["id"]'},
}


def commit(table: Path, version: int, *actions: Mapping[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def clustered_by(*columns: str) -> dict[str, Any]:
    configuration = json.dumps({"clusteringColumns": [[name] for name in columns]})
    return {
        "domainMetadata": {"domain": "delta.clustering", "configuration": configuration, "removed": False}
    }


def make(
    table: Path,
    readers: list[str],
    writers: list[str],
    extra: list[Mapping[str, Any]],
    properties: Mapping[str, str] | None = None,
    **more: Any,
) -> Path:
    """Three files, of which the first one also holds a column that the schema does not have."""
    table.mkdir()
    adds = []
    for number in range(3):
        rows = {"id": [10 * number, 10 * number + 1]}
        gone = {"v": [{"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}] * 2} if number == 0 else {}
        pq.write_table(pa.table({**rows, **gone}), table / f"f{number}")
        stats = json.dumps({"numRecords": 2})
        adds.append({"add": add(f"f{number}", (table / f"f{number}").stat().st_size, stats=stats, **more)})
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    fields += [action["field"] for action in extra if "field" in action]
    metadata = {
        "id": "m",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true", **(properties or {})},
    }
    readers, writers = ["deletionVectors", *readers], ["deletionVectors", *readers, *writers]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol = {**versions, "readerFeatures": readers, "writerFeatures": writers}
    others = [action for action in extra if "field" not in action]
    commit(table, 0, {"protocol": protocol}, {"metaData": metadata}, *others, *adds)
    return table


def clustered(table: Path, *columns: str) -> Path:
    return make(table, [], ["clustering", "domainMetadata"], [clustered_by(*columns)], **LIQUID)


def iceberg(table: Path, *enabled: str) -> Path:
    properties = dict.fromkeys(("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV3"), "false")
    properties |= dict.fromkeys(enabled, "true")
    features = ["icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "icebergWriterCompatV1"]
    return make(table, [], features, [], properties)


@pytest.mark.parametrize("make_table", [clustered, iceberg])
def test_what_is_not_in_use_stops_no_rewrite(make_table: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    before = Table(str(table)).snapshot()
    mark_deleted(table, {"f1": [0]})
    assert run(table, "purge", dry_run=True).plan is not None
    purged = run(table, "purge", run_id="purge")
    # The file with a deletion vector, and the one with a column that was dropped.
    assert (purged.status, purged.metrics["numRemovedFiles"]) == ("committed", 2)
    assert run(table, "purge", run_id="again").status == "nothing_to_do"
    assert run(table, run_id="optimize").status == "committed"
    snapshot = Table(str(table)).snapshot()
    assert sorted(snapshot.to_arrow().column("id").to_pylist()) == [0, 1, 11, 20, 21]
    (file,) = snapshot.files(["clustering_provider", "tags", "key"]).to_pylist()
    assert file["clustering_provider"] is None
    assert not any(name.startswith("ZCUBE") for name, _ in file["tags"])
    assert pq.read_schema(table / file["key"]).names == ["id"]
    assert (snapshot.protocol, snapshot.domain_metadata) == (before.protocol, before.domain_metadata)


def test_delta_rs_reads_a_table_that_was_clustered_once(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t")
    assert run(table).status == "committed"
    answer = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT id FROM t ORDER BY id")
    rows = pa.table(answer.read_all())
    assert rows.column("id").to_pylist() == [0, 1, 10, 11, 20, 21]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("version", ["CompatV1", "CompatV2", "CompatV3", "WriterCompatV1"])
def test_an_enabled_feature_is_refused_with_the_remedy(version: str, dry_run: bool, tmp_path: Path) -> None:
    table = iceberg(tmp_path / "t", f"delta.enableIceberg{version}")
    with pytest.raises(
        UnsupportedFeature, match=f"iceberg{version}: .*waits until its property is set to false"
    ) as caught:
        run(table, dry_run=dry_run)
    assert caught.value.features == (f"iceberg{version}",)
    assert len(keys(table)) == 3


def test_an_odd_text_counts_as_enabled(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [], ["icebergCompatV2"], [], {"delta.enableIcebergCompatV2": "perhaps"})
    with pytest.raises(UnsupportedFeature, match="icebergCompatV2"):
        run(table)


@pytest.mark.parametrize("configuration", ["{}", "no JSON", '{"clusteringColumns": 7}'])
def test_a_broken_domain_is_no_proof_that_a_table_is_not_clustered(
    configuration: str, tmp_path: Path
) -> None:
    domain = {"domain": "delta.clustering", "configuration": configuration, "removed": False}
    table = make(tmp_path / "t", [], ["clustering", "domainMetadata"], [{"domainMetadata": domain}])
    with pytest.raises(InvalidMetadata, match=r"delta\.clustering"):
        run(table)
    assert len(keys(table)) == 3


def test_a_table_that_is_clustered_meanwhile_is_left_alone(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t")
    engine = WatchedEngine(lambda number: commit(table, 1, {"commitInfo": {}}, clustered_by("id")))
    with pytest.raises(MetadataChanged, match=r"delta\.clustering"):
        run(table, engine=engine)
    assert len(keys(table)) == 3


def test_a_dry_run_is_refused_what_its_run_is_refused(tmp_path: Path) -> None:
    void = {"name": "a", "type": {"type": "array", "elementType": "void", "containsNull": True}}
    table = make(tmp_path / "t", [], [], [{"field": {**void, "nullable": True, "metadata": {}}}])
    for dry_run in (False, True):
        with pytest.raises(UnsupportedFeature, match="void inside the column"):
            run(table, dry_run=dry_run)
