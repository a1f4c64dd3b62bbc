from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuumable_tables import age, make_removals_old, write_vacuumable
from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_log import Table
from delta_log.errors import AccessDenied
from delta_log.log.file_names import checksum_key, commit_key
from delta_log.snapshot.version_checksum import write_version_checksum
from delta_maintenance.contract import JobSpec
from delta_maintenance.health.facts import HealthFacts
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_health
from delta_maintenance.health.removed_files import removed_files
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.plan.cutoff import retention_of


def cutoff_ms(now_ms: int) -> int:
    """The cutoff of a VACUUM of a table without properties."""
    return retention_of({}, now_ms).cutoff_ms


MIB = 1 << 20


def read(table: Path, **options: Any) -> HealthFacts:
    return read_health(Table(str(table)), HealthOptions(**options), int(time.time() * 1000))


def planned(table: Path, operation: str, **options: Any) -> dict[str, Any]:
    """The plan of a dry run."""
    spec = JobSpec(operation, str(table), "run", options, dry_run=True)
    report = run_job(spec, JobSite(), SilentProgress())
    assert report.plan is not None
    return dict(report.plan)


def test_the_numbers_of_a_rewrite_are_those_of_its_plan(tmp_path: Path) -> None:
    adds = [add(f"d={d}/{n}", MIB, {"d": d}) for d in "ab" for n in range(3)]
    vector = deletion_vector(60)
    adds.append(add("lone", 900 * MIB, {"d": "c"}, deletionVector=vector, stats='{"numRecords":100}'))
    write_log(tmp_path, adds, partition_by={"d": "string"})
    facts = read(tmp_path)
    plan, purge = planned(tmp_path, "optimize"), planned(tmp_path, "purge", max_deleted_rows_ratio=0.1)
    assert facts.files.optimize is not None
    assert facts.files.purge is not None
    found = facts.files.optimize.to_dict()
    assert found.items() <= {**plan, "numFilesToMerge": 6}.items()
    assert facts.files.purge.to_dict().items() <= {**purge, "numFilesToMerge": 0}.items()
    assert (facts.files.purge.num_files, facts.files.purge.where) == (1, "(`d` = 'c')")
    assert facts.files.optimize.where is None, "every partition is concerned"


def test_a_predicate_names_the_partitions_where_a_literal_means_their_values(tmp_path: Path) -> None:
    def where(kind: str, value: str | None) -> str | None:
        table = tmp_path / f"{kind}-{value!r}"
        some = [add(f"a{n}", 100, {"p": value}) for n in range(2)]
        other = {"string": "other", "integer": "99", "double": "9.5"}[kind]
        write_log(table, [*some, add("b", 100, {"p": other})], partition_by={"p": kind})
        plan = read(table).files.optimize
        assert plan is not None
        return plan.where

    assert where("string", "it's") == r"(`p` = 'it\'s')"
    assert where("string", "") == where("string", None) == "(`p` IS NULL)"
    assert where("integer", "-7") == "(`p` = '-7')"
    assert where("string", "line\nend") is None
    assert where("string", "{{ 7 * 6 }}") is None
    assert where("double", "NaN") is None


def test_a_checksum_spares_the_list_of_files_where_it_shows_that_nothing_is_to_be_rewritten(
    tmp_path: Path,
) -> None:
    write_log(tmp_path, [add("large", 900 * MIB), add("larger", 1200 * MIB), add("small", 5)])
    table = Table(str(tmp_path))
    assert (read(tmp_path).files.counts_from, read(tmp_path).files.checksum) == ("log", "missing")
    write_version_checksum(table.storage, table.snapshot(), None)
    facts = read(tmp_path).files
    assert (facts.counts_from, facts.checksum, facts.num_files) == ("checksum", "trusted", 3)
    assert facts.optimize is not None
    assert facts.optimize.num_bins == planned(tmp_path, "optimize")["numBins"] == 0
    assert read(tmp_path, min_file_size_bytes=MIB).files.counts_from == "checksum"
    assert read(tmp_path, min_file_size_bytes=1000 * MIB).files.counts_from == "log"


@pytest.mark.parametrize(
    ("content", "state", "differences"),
    [
        ("{}", "broken", ()),
        ('{"tableSizeBytes": 10, "numFiles": 3}', "wrong", ("numFiles",)),
        ('{"tableSizeBytes": 10, "numFiles": 2}', "right", ()),
    ],
)
def test_a_checksum_is_compared_with_the_list_of_files_where_that_is_read(
    tmp_path: Path, content: str, state: str, differences: tuple[str, ...]
) -> None:
    write_log(tmp_path, [add("a", 5), add("b", 5)])
    (tmp_path / checksum_key(0)).write_text(content)
    facts = read(tmp_path).files
    assert (facts.checksum, facts.checksum_differences) == (state, differences)


# -- removed files -------------------------------------------------------------------------------------------------


def removals(table: Path, days_ago: list[float], *, there: Callable[[float], bool]) -> int:
    """Write a table with files of ten bytes that were removed so long ago; return the present moment."""
    now_ms = int(time.time() * 1000)
    write_log(table, [add("live", 10)])
    lines: list[dict[str, Any]] = [{"commitInfo": {}}]
    for number, days in enumerate(days_ago):
        time_ms = now_ms - int(days * 86_400_000)
        key = f"gone-{number:03}"
        lines.append({"remove": {"path": key, "deletionTimestamp": time_ms, "dataChange": True, "size": 10}})
        if there(days):
            (table / key).write_bytes(b"0123456789")
            os.utime(table / key, (time_ms / 1000 - 86_400,) * 2)
    (table / commit_key(1)).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return now_ms


@pytest.mark.parametrize("vacuumed_days_ago", [0, 8, 9.5, 30, 99])
def test_what_a_vacuum_has_deleted_is_not_reclaimable_any_more(
    tmp_path: Path, vacuumed_days_ago: float
) -> None:
    days = [number / 4 for number in range(1, 160)]
    now_ms = removals(tmp_path, days, there=lambda age: age < vacuumed_days_ago or age < 7.1)
    table = Table(str(tmp_path))
    found = removed_files(table.storage, table.snapshot(), cutoff_ms(now_ms))
    there = [age for age in days if 7.1 < age < vacuumed_days_ago]
    assert (found.reclaimable.files, found.reclaimable.size_bytes) == (len(there), 10 * len(there))
    assert (found.named.files, found.held.files) == (159, sum(age < 7.1 for age in days))
    assert found.looks is not None
    assert found.looks <= 9, "a search by halves"


def test_what_vacuum_would_delete_is_what_its_plan_says(tmp_path: Path) -> None:
    write_vacuumable(tmp_path)
    assert read(tmp_path).removed.reclaimable.files == 0
    make_removals_old(tmp_path)
    plan = planned(tmp_path, "vacuum")
    found = read(tmp_path).removed.reclaimable
    assert (found.files, found.size_bytes) == (plan["numFilesToDelete"], plan["sizeOfDataToDelete"])
    assert found.files == 6


def test_a_file_that_came_back_is_not_reclaimable(tmp_path: Path) -> None:
    now_ms = removals(tmp_path, [20, 30], there=lambda _: True)
    back = {"add": add("gone-000", 10, deletionVector=deletion_vector(1))}
    (tmp_path / commit_key(2)).write_text(json.dumps(back) + "\n")
    table = Table(str(tmp_path))
    assert removed_files(table.storage, table.snapshot(), cutoff_ms(now_ms)).reclaimable.files == 1


def test_a_store_that_denies_looking_leaves_an_upper_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = removals(tmp_path, [20, 30], there=lambda _: False)
    table = Table(str(tmp_path))

    def deny(keys: Any) -> Any:
        raise AccessDenied("no", keys[0])

    monkeypatch.setattr(table.storage, "sizes_and_times", deny)
    found = removed_files(table.storage, table.snapshot(), cutoff_ms(now_ms))
    assert (found.reclaimable.files, found.looks) == (2, None)


# -- the log -------------------------------------------------------------------------------------------------------


def test_expired_files_of_the_log_are_those_of_the_cleanups_plan(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    write_days(tmp_path, files=5)
    DeltaTable(str(tmp_path)).create_checkpoint()
    age(tmp_path, days=40)
    # delta-rs would clean the log up itself.
    (tmp_path / commit_key(5)).write_text('{"commitInfo":{}}\n')
    plan, facts = planned(tmp_path, "cleanup-log"), read(tmp_path).log
    assert (facts.expired.files, facts.expired.size_bytes) == (
        plan["numFilesToDelete"],
        plan["sizeOfDataToDelete"],
    )
    assert (facts.expired.files, facts.expired_before, facts.first_version) == (4, plan["anchorVersion"], 0)


def test_a_log_compaction_of_commits_without_content_is_not_worth_it(tmp_path: Path) -> None:
    from delta_log.checkpoint.writer import write_checkpoint
    from delta_log.runtime import Runtime

    write_log(tmp_path, [add("a", 1)])
    table = Table(str(tmp_path))
    write_checkpoint(table.storage, table.snapshot(), Runtime())
    for version in range(1, 6):
        (tmp_path / commit_key(version)).write_text('{"commitInfo":{"operation":"VACUUM END"}}\n')
    plan = read(tmp_path, compact_log=True).compaction
    assert plan is not None
    assert not plan.worth_it
    assert read(tmp_path).compaction is None
    (tmp_path / commit_key(6)).write_text(json.dumps({"add": add("b", 1)}) + "\n")
    plan = read(tmp_path, compact_log=True).compaction
    assert plan is not None
    assert plan.worth_it


def test_the_last_runs_are_those_of_any_writer(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    write_days(tmp_path, files=4)
    assert read(tmp_path).last_runs == {}
    DeltaTable(str(tmp_path)).optimize.compact()
    DeltaTable(str(tmp_path)).create_checkpoint()
    infos = [
        {"operation": "REORG", "timestamp": 5, "engineInfo": 7},
        {"operation": "VACUUM START", "timestamp": 6, "engineInfo": "Apache-Spark/4"},
        {"operation": ["strange"]},
    ]
    for number, info in enumerate(infos):
        (tmp_path / commit_key(5 + number)).write_text(json.dumps({"commitInfo": info}) + "\n")
    (tmp_path / commit_key(0)).write_text("broken")  # before the checkpoint, so that no reader needs it
    facts = read(tmp_path)
    found = {name: (run.version, run.engine) for name, run in facts.last_runs.items()}
    assert found.pop("optimize")[0] == 4
    assert found == {"purge": (5, None), "vacuum": (6, "Apache-Spark/4"), "checkpoint": (4, None)}
    assert facts.num_commits_read == 8
