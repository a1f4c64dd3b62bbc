"""GENERATE: the manifests name the files of the table, a reader of them gets its rows, and no stale manifest stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.runs.vacuum_runs import contents, done, refusal
from tests.support.tables.hand_made_tables import column, write_log
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.testing import FaultyStorage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.generate.plan import DIRECTORY, plan_manifests
from delta_maintenance.job import JobSite, run_job, run_on
from delta_maintenance.progress import SilentProgress
from delta_maintenance.text.report import render_report


def generate(table: Path, *, dry_run: bool = False, **options: Any) -> JobReport:
    spec = JobSpec("generate", str(table), "generating", options, dry_run=dry_run)
    return run_job(spec, JobSite(), SilentProgress())


def manifests(table: Path) -> dict[str, list[str]]:
    found = sorted((table / DIRECTORY).rglob("*"))
    return {
        path.relative_to(table / DIRECTORY).as_posix(): path.read_text().splitlines()
        for path in found
        if path.is_file()
    }


def ids_by_manifests(table: Path) -> list[int]:
    """Read a table as a reader of manifests does: only the files that they list."""
    files = [line.removeprefix("file:") for lines in manifests(table).values() for line in lines]
    rows = duckdb.connect().execute("SELECT id FROM read_parquet(?)", [files]).fetchall()
    return sorted(row[0] for row in rows)


def ids(table: Path) -> list[int]:
    found: list[int] = sorted(Table(str(table)).snapshot().to_arrow()["id"].to_pylist())
    return found


def test_a_reader_of_manifests_gets_the_rows_of_the_table(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=6, rows=10, days=2)
    planned = done(generate(table, dry_run=True))
    assert not (table / DIRECTORY).exists()
    report = done(generate(table))
    assert (report.status, report.plan) == ("written", planned.plan)
    assert report.metrics == {"numManifestsWritten": 2, "numManifestsDeleted": 0}
    assert sorted(manifests(table)) == ["day=2024-01-01/manifest", "day=2024-01-02/manifest"]
    assert ids_by_manifests(table) == ids(table)
    assert "Wrote 2 manifests of version 5" in render_report(report.to_dict())
    assert generate(table).status == "nothing_to_do"
    # Compaction changes the files of both partitions; a deletion of a whole partition leaves no manifest of it.
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).delete("day = '2024-01-01'")
    report = done(generate(table))
    assert report.metrics == {"numManifestsWritten": 1, "numManifestsDeleted": 1}
    assert sorted(manifests(table)) == ["day=2024-01-02/manifest"]
    assert not (table / DIRECTORY / "day=2024-01-01").exists()
    assert ids_by_manifests(table) == ids(table)


def test_only_the_manifests_in_scope_are_written_and_deleted(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=6, rows=10, days=3)
    done(generate(table))
    before = manifests(table)
    DeltaTable(str(table)).delete("day <= '2024-01-02'")
    write_days(table, files=3, rows=5, days=3)
    DeltaTable(str(table)).delete("day = '2024-01-01'")
    report = done(generate(table, where="day = '2024-01-01'"))
    assert report.metrics == {"numManifestsWritten": 0, "numManifestsDeleted": 1}
    after = manifests(table)
    assert after == {key: lines for key, lines in before.items() if key != "day=2024-01-01/manifest"}
    done(generate(table, where="day > '2024-01-01'"))
    assert ids_by_manifests(table) == ids(table)


def test_odd_partition_values_are_spelled_as_directories_spell_them(tmp_path: Path) -> None:
    values = ["a b", "c=d/é%", None]
    adds = [
        {
            "path": f"f{n}.parquet",
            "size": 1,
            "partitionValues": {"p": value},
            "modificationTime": 1,
            "dataChange": True,
        }
        for n, value in enumerate(values)
    ]
    write_log(tmp_path / "t", [column("p", "string"), column("id", "long")], adds, partitionColumns=["p"])
    done(generate(tmp_path / "t"))
    assert sorted(manifests(tmp_path / "t")) == [
        "p=__HIVE_DEFAULT_PARTITION__/manifest",
        "p=a b/manifest",
        "p=c%3Dd%2Fé%25/manifest",
    ]


def test_null_an_empty_text_and_an_absent_value_are_one_partition_of_hive(tmp_path: Path) -> None:
    partitions: list[dict[str, Any]] = [{"p": None}, {"p": ""}, {"p": "__HIVE_DEFAULT_PARTITION__"}, {}]
    adds = [{"path": f"f{n}.parquet", "size": 1, "partitionValues": one} for n, one in enumerate(partitions)]
    write_log(tmp_path / "t", [column("p", "string"), column("id", "long")], adds, partitionColumns=["p"])
    done(generate(tmp_path / "t"))
    (addresses,) = manifests(tmp_path / "t").values()
    assert len(addresses) == 4


def test_an_empty_table_without_partitions_has_an_empty_manifest(tmp_path: Path) -> None:
    write_log(tmp_path / "t", [column("id", "long")], [])
    done(generate(tmp_path / "t"))
    assert manifests(tmp_path / "t") == {"manifest": []}


def test_a_checksum_of_hadoop_goes_with_the_manifest_that_it_was_of(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=2, days=2)
    done(generate(table))
    for day in (1, 2):
        (table / DIRECTORY / f"day=2024-01-0{day}" / ".manifest.crc").write_bytes(b"of the old content")
    DeltaTable(str(table)).delete("day = '2024-01-01' AND id < 5")
    done(generate(table))
    assert sorted(key for key in manifests(table) if key.endswith(".crc")) == ["day=2024-01-02/.manifest.crc"]


def test_deletion_vectors_are_refused_with_the_remedy(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=4, days=2)
    enable_deletion_vectors(table)
    mark_deleted(table, {keys(table)[0]: [1]})
    before = contents(table)
    assert "Purge the table first (delta-maintenance purge)" in refusal(generate(table))
    assert contents(table) == before
    done(run_job(JobSpec("purge", str(table), "purging", engine="local"), JobSite(), SilentProgress()))
    done(generate(table))
    assert ids_by_manifests(table) == ids(table)


def test_column_mapping_and_a_line_end_in_a_name_are_refused(tmp_path: Path) -> None:
    adds = [
        {"path": "a%0Ab.parquet", "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    ]
    write_log(tmp_path / "named", [column("id", "long")], adds)
    assert "holds the end of a line" in refusal(generate(tmp_path / "named"))
    write_days(tmp_path / "t", files=1)
    assert "leave the predicate out" in refusal(generate(tmp_path / "named", where="id = 1"))


@pytest.mark.parametrize("number", range(1, 4))
def test_a_run_that_dies_is_repaired_by_its_repetition(tmp_path: Path, number: int) -> None:
    table = tmp_path / "t"
    write_days(table, files=6, days=3)
    done(generate(table))
    DeltaTable(str(table)).delete("day = '2024-01-01'")
    DeltaTable(str(table)).optimize.compact()
    calls = []

    def die(name: str, key: str) -> None:
        if name in ("put", "delete"):
            calls.append(key)
            if len(calls) == number:
                raise KeyboardInterrupt

    dying = Table(str(table))
    dying.storage = FaultyStorage(dying.storage, die)
    with pytest.raises(KeyboardInterrupt):
        run_on(dying, JobSpec("generate", str(table), "dying", {}), JobSite(), SilentProgress())
    done(generate(table))
    assert ids_by_manifests(table) == ids(table)


def test_the_plan_compares_contents() -> None:
    wanted = {"a/manifest": ["x"], "b/manifest": ["y", "z"], "c/manifest": []}
    existing = {"a/manifest": b"x\n", "b/manifest": b"y\n", "d/manifest": b""}
    plan = plan_manifests(3, wanted, existing)
    assert (dict(plan.writes), plan.deletes) == (
        {"b/manifest": b"y\nz\n", "c/manifest": b""},
        ("d/manifest",),
    )
    assert (plan.num_unchanged, plan.num_files) == (1, 3)
