"""Files of others, below the table or in its place, are not deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    live_files,
    refusal,
    run_vacuum,
    vacuum_on,
)
from tests.support.tables.vacuum_histories import (
    NOW_MS,
    history_of_removals,
    metadata,
)
from tests.support.tables.vacuumable_tables import age, make_removals_old, old_file, write_vacuumable

from delta_log.errors import TableReplaced
from delta_log.testing import FaultyStorage
from delta_maintenance.errors import VacuumRefused


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_a_table_that_is_replaced_meanwhile_is_left_alone() -> None:
    history = history_of_removals("old")
    written: list[str] = []

    def replace(name: str, key: str) -> None:
        if name == "list_tree" and not written:
            written.append(key)
            history.commit([{"metaData": metadata(table_id="another")}], NOW_MS)

    with pytest.raises(TableReplaced, match="its id was .*, and is now another"):
        vacuum_on(FaultyStorage(history.storage, before=replace))
    assert "old" in history.storage.objects


#: By what it is called: the files of a neighbour, and what a refusal says of it.
NEIGHBOURS = {
    "iceberg_beside": (
        ["metadata/v1.metadata.json", "metadata/snap-1-1-a.avro", "metadata/version-hint.text"],
        "metadata (an Iceberg table)",
    ),
    "iceberg_of_a_catalog": (
        ["metadata/00001-6a3f.metadata.json", "metadata/6a3f-m0.avro", "metadata/snap-77-1-6a3f.avro"],
        "metadata (an Iceberg table)",
    ),
    "iceberg_below": (
        ["other/metadata/00000-1.gz.metadata.json", "other/data/part.parquet"],
        "other (an Iceberg table)",
    ),
    "stream": (
        [
            "checkpoint/metadata",
            "checkpoint/offsets/0",
            "checkpoint/commits/0",
            "checkpoint/sources/0/0",
            "checkpoint/state/0/0/1.delta",
        ],
        "checkpoint (the checkpoint of a stream)",
    ),
    "stream_beside": (
        ["metadata", "offsets/7", "commits/7", "sources/0/0", "state/0/0/8.delta"],
        "offsets (the checkpoint of a stream)",
    ),
    "hudi_below": (
        ["other/.hoodie/hoodie.properties", "other/a.parquet"],
        "other (a Hudi table)",
    ),
    "delta_below": (
        [f"other/_delta_log/{0:020d}.json", "other/a.parquet"],
        "other (a Delta table)",
    ),
}
OF_OTHERS = sorted(NEIGHBOURS)


def with_neighbour(table: Path, name: str) -> set[str]:
    for file in NEIGHBOURS[name][0]:
        old_file(table / file)
    return set(NEIGHBOURS[name][0])


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_neighbour_is_refused_by_name(table: Path, name: str) -> None:
    with_neighbour(table, name)
    before = files_below(table)
    for dry_run in (True, False):
        message = refusal(run_vacuum(table, dry_run=dry_run, **NO_RETENTION))
        assert NEIGHBOURS[name][1] in message
        assert 'neighbours="keep"' in message
    assert files_below(table) == before


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_neighbour_is_kept_and_the_rest_is_deleted(table: Path, name: str) -> None:
    files = with_neighbour(table, name)
    old_file(table / "orphan")
    report = done(run_vacuum(table, neighbours="keep", **NO_RETENTION))
    assert files_below(table) == live_files(table) | files
    assert report.plan is not None
    assert NEIGHBOURS[name][1] in " ".join(report.plan["warnings"])


def test_empty_directories_of_a_neighbour_stay(table: Path) -> None:
    with_neighbour(table, "stream")
    (table / "checkpoint" / "state" / "0" / "1").mkdir()
    (table / "empty").mkdir()
    age(table)
    done(run_vacuum(table, neighbours="keep", **NO_RETENTION))
    assert (table / "checkpoint" / "state" / "0" / "1").is_dir()
    assert not (table / "empty").exists()


def test_what_the_log_has_removed_goes_though_a_neighbour_lies_above(table: Path) -> None:
    """A neighbour in a partition's directory is above files of this table, which only this table's log knows."""
    make_removals_old(table)
    old_file(table / "day=2024-01-01" / "_delta_log" / f"{0:020d}.json")
    old_file(table / "day=2024-01-01" / "theirs.parquet")
    done(run_vacuum(table, neighbours="keep"))
    left = files_below(table) - {f"day=2024-01-01/_delta_log/{0:020d}.json"}
    assert left == live_files(table) | {"day=2024-01-01/theirs.parquet"}


def test_hidden_files_of_a_hudi_table_at_the_same_place_stay(table: Path) -> None:
    old_file(table / ".hoodie" / "hoodie.properties")
    done(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == live_files(table) | {".hoodie/hoodie.properties"}


def test_directories_that_only_have_the_names_of_a_neighbours_are_vacuumed(table: Path) -> None:
    for name in ("metadata/part.parquet", "offsets/part-0.parquet", "commits/0"):
        old_file(table / name)
    done(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == live_files(table)


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_neighbour_on_an_object_store_is_found(name: str) -> None:
    storage = history_of_removals("old").storage
    for file in NEIGHBOURS[name][0]:
        storage.objects[file] = (b"theirs", 0)
    with pytest.raises(VacuumRefused, match="belongs to others"):
        vacuum_on(storage)
    vacuum_on(storage, neighbours="keep")
    assert storage.objects.keys() >= set(NEIGHBOURS[name][0])
    assert "old" not in storage.objects


@pytest.mark.parametrize("name", ["delta_below", "iceberg_below"])
def test_a_neighbour_is_found_though_an_inventory_shows_only_its_data(
    table: Path, tmp_path: Path, name: str
) -> None:
    files = with_neighbour(table, name)
    old_file(table / "orphan.parquet")
    lines = [f"{path},{path.stat().st_size},false,1000" for path in table.rglob("*.parquet")]
    (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
    options = {**NO_RETENTION, "inventory": str(tmp_path / "list.csv")}
    assert NEIGHBOURS[name][1] in refusal(run_vacuum(table, **options))
    done(run_vacuum(table, neighbours="keep", **options))
    assert files_below(table) == live_files(table) | files
