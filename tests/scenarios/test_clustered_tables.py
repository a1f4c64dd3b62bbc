"""OPTIMIZE and REORG PURGE on clustered tables: which files become a cube, and what stays as it is. Logs are written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import WatchedEngine, keys, mark_deleted, run

from delta_log import Table
from delta_log.errors import InvalidMetadata, InvalidRequest, MetadataChanged
from delta_log.table_config.clustering import CUBE_COLUMNS_TAG, CUBE_TAG, OWN_PROVIDER

#: The tags of a file that is in no cube.
NO_CUBE: dict[str, Any] = {}


def cube(name: str, columns: str = '["id"]', provider: str = "liquid") -> dict[str, Any]:
    return {"clusteringProvider": provider, "tags": {CUBE_TAG: name, CUBE_COLUMNS_TAG: columns}}


def domain(configuration: Any) -> dict[str, Any]:
    text = configuration if isinstance(configuration, str) else json.dumps(configuration)
    return {"domainMetadata": {"domain": "delta.clustering", "configuration": text, "removed": False}}


def clustered(table: Path, files: list[dict[str, Any]], by: Any = None) -> Path:
    """Writes a table whose n-th file holds the rows 100 n to 100 n + 99.

    :param by: the domain; ``None``: clustered by ``id``.
    """
    (table / "_delta_log").mkdir(parents=True)
    adds = []
    for number, more in enumerate(files):
        rows = pa.table(
            {"id": range(100 * number, 100 * number + 100), "s": [{"x": n % 7} for n in range(100)]}
        )
        pq.write_table(rows, table / f"f{number}")
        stats = {"numRecords": 100, "minValues": {"id": 100 * number}, "maxValues": {"id": 100 * number + 99}}
        size = (table / f"f{number}").stat().st_size
        add = {
            "path": f"f{number}",
            "size": size,
            "partitionValues": {},
            "modificationTime": 1,
            "dataChange": True,
        }
        adds.append({"add": {**add, "stats": json.dumps(stats), **more}})
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "s", "type": inner, "nullable": True, "metadata": {}},
    ]
    metadata = {
        "id": "m",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        # Without statistics of its own choice, only clustering columns have some.
        "configuration": {"delta.enableDeletionVectors": "true", "delta.dataSkippingNumIndexedCols": "0"},
    }
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "clustering", "domainMetadata"],
    }
    actions = [
        {"protocol": protocol},
        {"metaData": metadata},
        domain({"clusteringColumns": [["id"]]} if by is None else by),
        *adds,
    ]
    (table / "_delta_log" / f"{0:020}.json").write_text(
        "".join(json.dumps(action) + "\n" for action in actions)
    )
    return table


def live(table: Path) -> list[dict[str, Any]]:
    rows = Table(str(table)).snapshot().files().to_pylist()
    return [{**row, "tags": dict(row["tags"] or ())} for row in rows]


def cubes(table: Path) -> dict[str, str | None]:
    """The cube of each file."""
    return {row["key"]: row["tags"].get(CUBE_TAG) for row in live(table)}


def selected(table: Path, **options: Any) -> tuple[int, dict[str, int]]:
    """How many files a run chooses, and how many it leaves by reason."""
    plan = run(table, dry_run=True, **options).plan
    assert plan is not None
    left = {reason: count["files"] for reason, count in plan["selection"]["left"].items()}
    return plan["selection"]["chosen"]["files"], left


def ids(table: Path) -> list[int]:
    found: list[int] = Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("spelling", [[["id"]], ["id"], [["s", "x"]], ["s.x"], [["id"], ["s", "x"]]])
def test_files_outside_of_cubes_become_one(spelling: list[Any], tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 3, {"clusteringColumns": spelling})
    before = Table(str(table)).snapshot()
    report = run(table, verify="full", target_size_bytes=2000)
    assert report.status == "committed"
    assert ids(table) == list(range(300))
    files = live(table)
    names = [".".join([path] if isinstance(path, str) else path) for path in spelling]
    assert {row["clustering_provider"] for row in files} == {"liquid"}
    assert len({row["tags"][CUBE_TAG] for row in files}) == 1
    assert {row["tags"][CUBE_COLUMNS_TAG] for row in files} == {json.dumps(names, separators=(",", ":"))}
    for row in files:
        assert list(json.loads(row["stats"])["minValues"]) == [name.partition(".")[0] for name in names]
    after = Table(str(table)).snapshot()
    assert (after.domain_metadata, after.protocol) == (before.domain_metadata, before.protocol)
    (commit,) = Table(str(table)).history(1)
    assert commit["operationParameters"]["clusterBy"] == names
    assert commit["operationParameters"]["isFull"] is False
    assert run(table, run_id="again", target_size_bytes=2000).status == "nothing_to_do"


def test_open_cubes_grow_and_sealed_ones_stay(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [cube("a"), cube("b"), cube("b"), cube("c"), NO_CUBE])
    size = max(row["size"] for row in live(table))
    # The seal is the size of two files, which only b has.
    assert selected(table, seal_size_bytes=2 * size - 100) == (3, {"sealed": 2})
    assert selected(table) == (5, {})
    assert selected(table, seal_size_bytes=2 * size - 100, full=True) == (5, {})
    run(table, seal_size_bytes=2 * size - 100)
    found = cubes(table)
    assert {key for key, name in found.items() if name == "b"} == {"f1", "f2"}
    assert not {"a", "c", None} & set(found.values())
    assert ids(table) == list(range(500))


def test_one_cube_alone_is_left(tmp_path: Path) -> None:
    assert selected(clustered(tmp_path / "one", [cube("a"), cube("a")])) == (0, {"laid_out": 2})
    assert selected(clustered(tmp_path / "two", [cube("a"), cube("b")])) == (2, {})
    assert selected(clustered(tmp_path / "none", [NO_CUBE])) == (1, {})


def test_files_that_others_clustered_are_left_but_for_a_full_run(tmp_path: Path) -> None:
    files = [cube("a", '["other"]'), cube("b", provider="mine"), NO_CUBE]
    table = clustered(tmp_path / "t", files)
    assert selected(table) == (1, {"clustered_otherwise": 2})
    assert selected(table, full=True) == (3, {})
    run(table, full=True)
    assert len(set(cubes(table).values())) == 1
    assert ids(table) == list(range(300))


def test_cubes_of_our_own_and_those_of_others_do_not_mix(tmp_path: Path) -> None:
    files = [cube("a", provider=OWN_PROVIDER), cube("b", provider=OWN_PROVIDER), cube("c"), NO_CUBE]
    table = clustered(tmp_path / "t", files)
    assert selected(table) == (2, {"clustered_otherwise": 2})
    assert selected(table, own_cubes=True) == (3, {"clustered_otherwise": 1})
    size = max(row["size"] for row in live(table))
    assert selected(table, own_cubes=True, seal_size_bytes=size - 10)[1]["clustered_otherwise"] == 1
    run(table, own_cubes=True)
    assert sorted(str(row["clustering_provider"]) for row in live(table)) == [OWN_PROVIDER, "liquid"]
    assert run(table, run_id="again", own_cubes=True).status == "nothing_to_do"
    run(table, run_id="full", own_cubes=True, full=True)
    assert {row["clustering_provider"] for row in live(table)} == {OWN_PROVIDER}
    assert ids(table) == list(range(400))


def test_a_new_cube_is_closed_when_it_is_large_enough(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 6)
    size = max(row["size"] for row in live(table))
    run(table, seal_size_bytes=2 * size)
    # Three files fit into one and a half times the seal.
    assert len(set(cubes(table).values())) == 2
    assert ids(table) == list(range(600))


def test_packing_takes_only_files_outside_of_cubes(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [cube("a"), NO_CUBE, NO_CUBE])
    assert selected(table, layout="pack") == (2, {"clustered": 1})
    run(table, layout="pack")
    assert sorted(map(str, cubes(table).values())) == ["None", "a"]
    (packed,) = (row for row in live(table) if row["key"] != "f0")
    assert packed["clustering_provider"] is None
    assert json.loads(packed["stats"])["minValues"] == {"id": 100}


def test_a_purge_leaves_files_in_their_cubes(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [cube("a"), cube("a"), cube("b"), cube("b", "[]", "mine"), NO_CUBE])
    mark_deleted(table, {f"f{number}": [0] for number in range(5)})
    report = run(table, "purge")
    assert (report.metrics["numRemovedFiles"], report.metrics["numAddedFiles"]) == (5, 4)
    found = [
        (row["clustering_provider"], row["tags"].get(CUBE_TAG), row["tags"].get(CUBE_COLUMNS_TAG))
        for row in live(table)
    ]
    assert sorted(found, key=str) == sorted(
        [("liquid", "a", '["id"]'), ("liquid", "b", '["id"]'), ("mine", "b", "[]"), (None, None, None)],
        key=str,
    )
    assert ids(table) == [n for n in range(500) if n % 100]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"where": "id = 1"}, "where does not go with that"),
        ({"zorder_by": ["id"]}, "clustered by id, and another layout would undo that"),
        ({"layout": "kd", "by": ["id"]}, "CLUSTER BY NONE"),
        ({"layout": "pack", "seal_size_bytes": 5}, "for clustered tables"),
        ({"layout": "pack", "own_cubes": True}, "own_cubes is for clustered tables"),
    ],
)
def test_what_does_not_go_with_clustering_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 2)
    for dry_run in (False, True):
        with pytest.raises(InvalidRequest, match=words):
            run(table, dry_run=dry_run, **options)
    assert keys(table) == ["f0", "f1"]


@pytest.mark.parametrize(
    "by",
    [
        "no JSON",
        {},
        {"clusteringColumns": 7},
        {"clusteringColumns": [["gone"]]},
        {"clusteringColumns": [["s"]]},
    ],
)
def test_a_clustering_that_names_no_column_is_refused(by: Any, tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 2, by)
    with pytest.raises(InvalidMetadata, match=r"delta\.clustering"):
        run(table)
    assert keys(table) == ["f0", "f1"]


def test_rows_deleted_while_a_cube_is_made_stay_deleted_in_it(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 3, {"clusteringColumns": [["s", "x"], ["id"]]})
    engine = WatchedEngine(lambda _: mark_deleted(table, {"f1": [0, 50, 99], "f2": [7]}))
    report = run(table, engine=engine, remap=True, target_size_bytes=3000)
    assert (report.status, report.remapped_bins) == ("committed", 1)
    assert ids(table) == [n for n in range(300) if n not in (100, 150, 199, 207)]
    files = live(table)
    assert {row["clustering_provider"] for row in files} == {"liquid"}
    assert len({row["tags"][CUBE_TAG] for row in files}) == 1
    assert sum(row["deletion_vector"]["cardinality"] for row in files if row["deletion_vector"]) == 4


@pytest.mark.parametrize("columns", [[["s", "x"]], []])
def test_a_clustering_that_changes_meanwhile_ends_the_run(columns: list[Any], tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 2)

    def change(number: int) -> None:
        text = json.dumps(domain({"clusteringColumns": columns}))
        (table / "_delta_log" / f"{1:020}.json").write_text(
            json.dumps({"commitInfo": {}}) + "\n" + text + "\n"
        )

    with pytest.raises(MetadataChanged, match=r"delta\.clustering"):
        run(table, engine=WatchedEngine(change))
    assert keys(table) == ["f0", "f1"]


def test_a_killed_clustering_goes_on_where_it_stopped(tmp_path: Path) -> None:
    table = clustered(tmp_path / "t", [NO_CUBE] * 4)
    seal = max(row["size"] for row in live(table))

    class Killed(Exception):
        pass

    def die(number: int) -> None:
        if number == 2:
            raise Killed

    with pytest.raises(Killed):
        run(table, engine=WatchedEngine(die), seal_size_bytes=seal)
    report = run(table, seal_size_bytes=seal)
    assert report.earlier_tries is not None
    assert {row["clustering_provider"] for row in live(table)} == {"liquid"}
    assert len(set(cubes(table).values())) == 4
    assert ids(table) == list(range(400))
