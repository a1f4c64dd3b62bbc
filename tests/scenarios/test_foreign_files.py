"""Files that a table names and that lie elsewhere, as a shallow clone's: they stay as they are, and the table's own are
rewritten all the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import keys, mark_deleted, run

from delta_log import Table
from delta_maintenance.text.plan import render_plan
from delta_maintenance.text.report import render_report

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def add_of(path: Path, named: str, **more: Any) -> dict[str, Any]:
    return {
        "add": {
            "path": named,
            "size": path.stat().st_size,
            "partitionValues": {},
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 2}),
            **more,
        }
    }


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Two files of another table, and three of its own."""
    source, clone = tmp_path / "source", tmp_path / "clone"
    adds = []
    for directory, names in ((source, "ab"), (clone, "cde")):
        directory.mkdir()
        for name in names:
            path = directory / f"{name}.parquet"
            pq.write_table(pa.table({"id": [ord(name), 1000 + ord(name)]}), path)
            adds.append(add_of(path, path.name if directory == clone else path.as_uri()))
    metadata = {
        "id": "clone",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
    features = ["deletionVectors"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol = {**versions, "readerFeatures": features, "writerFeatures": features}
    (clone / "_delta_log").mkdir()
    lines = [{"protocol": protocol}, {"metaData": metadata}, *adds]
    (clone / "_delta_log" / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return clone


def foreign_keys(clone: Path) -> list[str]:
    return [str(clone.parent / "source" / name) for name in ("a.parquet", "b.parquet")]


def check_source(clone: Path) -> None:
    assert sorted(path.name for path in (clone.parent / "source").iterdir()) == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize("options", [{}, {"full": True}, {"max_file_size_bytes": 1 << 40}])
def test_the_tables_own_files_are_compacted_and_the_others_named(
    clone: Path, options: dict[str, Any]
) -> None:
    plan = run(clone, dry_run=True, **options).plan
    assert plan is not None
    assert (plan["numConsideredFiles"], plan["numFilesToRemove"], plan["numBins"]) == (3, 3, 1)
    size = sum(Path(key).stat().st_size for key in foreign_keys(clone))
    foreign = {"files": 2, "bytes": size, "examples": foreign_keys(clone)}
    assert plan["foreign"] == foreign
    assert "2 files" in render_plan(plan)
    assert foreign_keys(clone)[0] in render_plan(plan)

    report = run(clone, **options)
    assert (report.status, report.metrics["numRemovedFiles"]) == ("committed", 3)
    assert report.foreign == foreign
    assert "lie outside of the table and stay as they are" in render_report(report.to_dict())
    (new,) = (key for key in keys(clone) if not key.startswith("/"))
    assert keys(clone) == sorted([*foreign_keys(clone), new])
    assert sorted(pq.read_table(clone / new).column("id").to_pylist()) == [99, 100, 101, 1099, 1100, 1101]
    check_source(clone)

    again = run(clone, run_id="again", **options)
    assert (again.status, again.foreign) == ("nothing_to_do", foreign)
    assert "lie outside of the table" in render_report(again.to_dict())


def test_a_purge_takes_what_is_deleted_out_of_the_tables_own_files_alone(clone: Path) -> None:
    mark_deleted(clone, {"c.parquet": [0], foreign_keys(clone)[0]: [1]})
    plan = run(clone, "purge", dry_run=True).plan
    assert plan is not None
    assert (plan["numFilesToRemove"], plan["foreign"]["files"]) == (1, 2)
    report = run(clone, "purge")
    assert (report.status, report.metrics["numDeletionVectorsRemoved"]) == ("committed", 1)
    assert report.foreign is not None
    assert report.foreign["files"] == 2
    snapshot = Table(str(clone)).snapshot()
    assert (snapshot.num_deletion_vectors, snapshot.num_files) == (1, 5)
    check_source(clone)


def test_a_file_whose_deletion_vector_lies_elsewhere_is_left_too(clone: Path) -> None:
    mark_deleted(clone, {"c.parquet": [0]})
    (name,) = (path.name for path in clone.glob("deletion_vector_*.bin"))
    (clone / name).rename(clone.parent / name)
    log = clone / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            vector = action["add"]["deletionVector"]
            vector |= {"storageType": "p", "pathOrInlineDv": (clone.parent / name).as_uri()}
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    report = run(clone)
    assert (report.status, report.metrics["numRemovedFiles"]) == ("committed", 2)
    assert report.foreign is not None
    assert (report.foreign["files"], "c.parquet" in report.foreign["examples"]) == (3, True)
    assert "c.parquet" in keys(clone)
