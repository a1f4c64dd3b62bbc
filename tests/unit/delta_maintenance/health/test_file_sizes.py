from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_log import Table
from delta_log.snapshot.version_checksum import Histogram, VersionChecksum, checksum_of
from delta_log.stats.file_histogram import SIZE_BOUNDARIES
from delta_maintenance.health.facts import FileTotal
from delta_maintenance.health.file_sizes import CLASSES, classes_of_checksum, in_classes
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_health

MIB = 1 << 20
NOW_MS = 1_800_000_000_000


def facts_of(table: Path, **options: Any) -> dict[str, Any]:
    return read_health(Table(str(table)), HealthOptions(**options), NOW_MS).to_dict()


def test_each_class_begins_where_a_bin_of_the_checksum_begins() -> None:
    assert set(CLASSES) <= set(SIZE_BOUNDARIES)


def test_files_are_counted_by_size_with_those_that_would_be_merged(tmp_path: Path) -> None:
    sizes = [MIB, 2 * MIB, 3 * MIB, 2048 * MIB]
    write_log(tmp_path, [add(str(size), size) for size in sizes])
    facts = facts_of(tmp_path)
    assert facts["fileSizes"] == [
        {
            "fromBytes": 512 << 10,
            "numFiles": 3,
            "sizeInBytes": 6 * MIB,
            "toMerge": {"numFiles": 3, "sizeInBytes": 6 * MIB},
        },
        {
            "fromBytes": 1024 * MIB,
            "numFiles": 1,
            "sizeInBytes": 2048 * MIB,
            "toMerge": {"numFiles": 0, "sizeInBytes": 0},
        },
    ]
    assert facts["optimize"]["numFilesToMerge"] == 3


def test_a_checksum_tells_the_same_classes_as_the_list_of_files(tmp_path: Path) -> None:
    write_log(tmp_path, [add(str(size), size) for size in (0, 5, MIB, 7 * MIB, 500 * MIB, 9000 * MIB)])
    snapshot = Table(str(tmp_path)).snapshot()
    assert classes_of_checksum(checksum_of(snapshot, None)) == in_classes(snapshot.counts.histogram)


def test_a_checksum_whose_histogram_makes_no_sense_tells_nothing() -> None:
    for histogram in (
        None,
        Histogram([0, 5], [1], [1]),
        Histogram([-1], [1], [1]),
        Histogram([0], [-1], [1]),
    ):
        checksum = VersionChecksum(tableSizeBytes=1, numFiles=1, fileSizeHistogram=histogram)
        assert classes_of_checksum(checksum) is None
    other = Histogram([0, 100], [1, 2], [50, 300])
    checksum = VersionChecksum(tableSizeBytes=350, numFiles=3, fileSizeHistogram=other)
    assert classes_of_checksum(checksum) == {0: FileTotal(3, 350)}


def test_the_partitions_with_the_most_small_files_come_first_then_those_with_deleted_rows(
    tmp_path: Path,
) -> None:
    adds = [
        add(f"d={d}/{n}", MIB, {"d": d}) for d, count in (("a", 2), ("b", 5), ("c", 1)) for n in range(count)
    ]
    vector = deletion_vector(60)
    adds.append(add("lone", 900 * MIB, {"d": "e"}, deletionVector=vector, stats='{"numRecords":100}'))
    write_log(tmp_path, adds, partition_by={"d": "string"})
    facts = facts_of(tmp_path)
    assert [(need["partition"]["d"], need["toMerge"]["numFiles"]) for need in facts["partitionsInNeed"]] == [
        ("b", 5),
        ("a", 2),
        ("e", 0),
    ]
    assert facts["partitionsInNeed"][-1]["deletedRowsRatio"] == 0.6
    assert facts["numPartitionsInNeed"] == 3


def test_many_partitions_and_long_values_stay_within_bounds(tmp_path: Path) -> None:
    adds = [add(f"{d}-{n}", MIB, {"d": f"{d:03}" + "x" * 900}) for d in range(30) for n in range(2)]
    write_log(tmp_path, adds, partition_by={"d": "string"})
    facts = facts_of(tmp_path)
    assert (len(facts["partitionsInNeed"]), facts["numPartitionsInNeed"]) == (10, 30)
    assert all(len(need["partition"]["d"]) < 200 for need in facts["partitionsInNeed"])


def test_a_table_without_partition_columns_has_no_partition_in_need(tmp_path: Path) -> None:
    write_log(tmp_path, [add(str(n), MIB) for n in range(3)])
    facts = facts_of(tmp_path)
    assert (facts["partitionsInNeed"], facts["numPartitionsInNeed"]) == ([], 0)


def test_the_newest_versions_are_listed_with_what_their_writers_noted(tmp_path: Path) -> None:
    write_log(tmp_path, [add("a", MIB)])
    (commit,) = facts_of(tmp_path)["commits"]
    assert commit["version"] == 0
    assert set(commit) == {"version", "timestamp", "operation", "engineInfo"}
