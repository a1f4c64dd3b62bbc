from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_log import Table
from delta_log.errors import CorruptLog, InvalidRequest
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_packing import MergeRule, pack
from delta_maintenance.optimize.plan.budget import PriorWork
from delta_maintenance.optimize.plan.plan import LeftWork, OptimizePlan
from delta_maintenance.optimize.plan.planner import MERGE_FACTOR, plan_optimize
from delta_maintenance.optimize.plan.rewrite_tag import DEFAULT_TARGET_BYTES
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.task import PLANNED_BYTES_TAG, REWRITE_TAG, RewriteTask
from delta_maintenance.text.plan import render_plan

MIB = 1 << 20


def plan(
    table: Path,
    adds: list[dict[str, Any]],
    *,
    partition_by: dict[str, str] | None = None,
    properties: dict[str, str] | None = None,
    **options: Any,
) -> OptimizePlan:
    snapshot = write_log(table, adds, partition_by=partition_by, properties=properties)
    return plan_optimize(snapshot, OptimizeOptions(**options), now_ms=0)


def paths(planned: OptimizePlan) -> list[list[str]]:
    return sorted(sorted(source.path for source in planned.sources(b)) for b in planned.bins)


def stats(num_records: int) -> str:
    return json.dumps({"numRecords": num_records})


def test_small_files_of_a_partition_go_together(tmp_path: Path) -> None:
    adds = [add(f"d={d}/{n}", MIB, {"d": d}) for d in "ab" for n in range(3)]
    planned = plan(tmp_path, adds, partition_by={"d": "string"})
    assert paths(planned) == [["d=a/0", "d=a/1", "d=a/2"], ["d=b/0", "d=b/1", "d=b/2"]]
    assert {dict(b.partition_values)["d"] for b in planned.bins} == {"a", "b"}


def test_files_of_three_quarters_of_the_target_are_left_alone(tmp_path: Path) -> None:
    adds = [add("nearly", 75), add("nearly2", 75), add("small", 55), add("small2", 40)]
    assert paths(plan(tmp_path, adds, target_size_bytes=100)) == [["small", "small2"]]


def test_the_target_is_the_option_else_the_tables_else_one_gib(tmp_path: Path) -> None:
    properties = {"delta.targetFileSize": "128mb"}
    assert plan(tmp_path / "a", [], properties=properties).target_size_bytes == 128 * MIB
    assert plan(tmp_path / "b", [], properties=properties, target_size_bytes=5).target_size_bytes == 5
    assert plan(tmp_path / "c", []).target_size_bytes == 1 << 30


@pytest.mark.parametrize("sizes", [[2**63 - 1], [2**59] * 3, [1, 2**62, 2**62]])
def test_sizes_that_cannot_be_added_up_are_refused(sizes: list[int], tmp_path: Path) -> None:
    adds = [add(f"f{number}", size) for number, size in enumerate(sizes)]
    with pytest.raises(CorruptLog, match="cannot be true"):
        plan(tmp_path, adds)


def test_a_minimum_above_the_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="every run would rewrite what the last one wrote"):
        plan(tmp_path, [], target_size_bytes=10, min_file_size_bytes=11)


def test_a_lone_file_with_many_deletions_is_rewritten(tmp_path: Path) -> None:
    adds = [
        add("many", 2000, deletionVector=deletion_vector(6), stats=stats(100)),
        add("few", 2000, deletionVector=deletion_vector(5), stats=stats(100)),
        add("none", 2000, stats=stats(100)),
    ]
    planned = plan(tmp_path, adds, target_size_bytes=1000)
    assert paths(planned) == [["many"]]
    assert planned.chosen_files == {"deleted_rows": 1}


def test_deletions_from_an_unknown_number_of_rows_are_purged(tmp_path: Path) -> None:
    adds = [
        add("no-stats", 2000, deletionVector=deletion_vector(1)),
        add("no-count", 2000, deletionVector=deletion_vector(1), stats='{"minValues":{}}'),
        add("broken", 2000, deletionVector=deletion_vector(1), stats="{"),
    ]
    planned = plan(tmp_path, adds, target_size_bytes=1000)
    assert paths(planned) == [["broken"], ["no-count"], ["no-stats"]]
    assert planned.chosen_files == {"deleted_rows_unknown": 3}


def test_a_ratio_of_zero_purges_every_deletion_and_of_one_none(tmp_path: Path) -> None:
    adds = [add("f", 2000, deletionVector=deletion_vector(1), stats=stats(1000))]
    assert len(plan(tmp_path / "a", adds, target_size_bytes=1000, max_deleted_rows_ratio=0).bins) == 1
    assert len(plan(tmp_path / "b", adds, target_size_bytes=1000, max_deleted_rows_ratio=1).bins) == 0


def test_deleted_rows_do_not_count_as_bytes(tmp_path: Path) -> None:
    adds = [
        add("half1", 100, deletionVector=deletion_vector(50), stats=stats(100)),
        add("half2", 100, deletionVector=deletion_vector(50), stats=stats(100)),
    ]
    planned = plan(tmp_path, adds, target_size_bytes=100)
    assert paths(planned) == [["half1", "half2"]]
    assert (planned.bytes_in, planned.live_bytes) == (200, 100)


def test_the_row_count_travels_with_the_source(tmp_path: Path) -> None:
    planned = plan(tmp_path, [add("f", 9, deletionVector=deletion_vector(50), stats=stats(100))])
    (source,) = planned.sources(planned.bins[0])
    assert source.num_records == 100
    assert source.deletion_vector_id == "uab^-aqEH.-t@S}K{vb[*@1"


def test_full_takes_every_file_but_those_already_written_this_way(tmp_path: Path) -> None:
    first = plan(tmp_path / "first", [add("f", 5000)], target_size_bytes=1000, full=True)
    assert paths(first) == [["f"]]
    ours = {"tags": {REWRITE_TAG: first.rewrite_tag}}
    again = [
        add("f", 5000, **ours),
        add("g", 5000, **ours, deletionVector=deletion_vector(1), stats=stats(1000)),
        add("h", 5000, tags={REWRITE_TAG: "other settings"}),
    ]
    assert paths(plan(tmp_path / "again", again, target_size_bytes=1000, full=True)) == [["g"], ["h"]]
    assert paths(plan(tmp_path / "target", again, target_size_bytes=999, full=True)) == [["f"], ["g"], ["h"]]


def test_full_takes_the_files_that_an_earlier_build_wrote(tmp_path: Path) -> None:
    """Release 0.1.0 gave bounds to floats with a NaN; this is its tag for such a table and target."""
    theirs = {REWRITE_TAG: "da95cba2b6afe76423efecc94f5ded11"}
    planned = plan(tmp_path, [add("f", 5000, tags=theirs)], target_size_bytes=1000, full=True)
    assert paths(planned) == [["f"]]
    assert planned.rewrite_tag not in theirs.values()


def test_settings_that_shape_files_are_part_of_the_tag(tmp_path: Path) -> None:
    def tag(name: str, **properties: str) -> str:
        return plan(tmp_path / name, [], properties=properties).rewrite_tag

    plain = tag("plain")
    assert tag("retention", **{"delta.logRetentionDuration": "interval 1 day"}) == plain
    assert tag("codec", **{"delta.parquet.compression.codec": "snappy"}) != plain


def test_a_predicate_chooses_partitions(tmp_path: Path) -> None:
    adds = [add(f"{year}/{n}", 1, {"year": str(year)}) for year in (2023, 2024) for n in range(2)]
    planned = plan(tmp_path, adds, partition_by={"year": "integer"}, where="year >= 2024")
    assert paths(planned) == [["2024/0", "2024/1"]]
    assert planned.considered_files == 2


@pytest.mark.parametrize(
    ("kind", "spellings", "groups"),
    [
        ("integer", ["7", "07", "+7"], 1),
        ("date", ["2024-01-05", "2024-1-5"], 1),
        ("decimal(5,2)", ["1.5", "1.50"], 1),
        ("boolean", ["true", "TRUE"], 1),
        ("string", ["a", "A"], 2),
        ("string", ["", None], 1),
        (
            "timestamp",
            ["2024-01-01T12:00:00Z", "2024-01-01T13:00:00+01:00", "2024-01-01T12:00:00.000000Z"],
            1,
        ),
        ("timestamp", ["2024-01-01 12:00:00", "2024-01-01T12:00:00Z"], 2),
        ("timestamp", ["2024-01-01 12:00:00", "2024-01-01 12:00:00.000"], 2),
        ("timestamp_ntz", ["2024-01-01 12:00:00", "2024-01-01 12:00:00.000"], 1),
    ],
)
def test_partitions_are_compared_by_typed_value_unless_a_zone_is_missing(
    tmp_path: Path, kind: str, spellings: list[str | None], groups: int
) -> None:
    adds = [
        add(f"{number}-{copy}", 10 + number, {"p": text})
        for number, text in enumerate(spellings)
        for copy in range(2)
    ]
    planned = plan(tmp_path, adds, partition_by={"p": kind})
    assert len(planned.bins) == groups
    for each in planned.bins:
        # One of the original maps, the first source's, is copied.
        assert each.partition_values == planned.sources(each)[0].partition_values


def test_several_partition_columns_make_one_group(tmp_path: Path) -> None:
    adds = [add(f"{a}{b}{n}", 1, {"a": a, "b": b}) for a in "xy" for b in ("1", None) for n in range(2)]
    planned = plan(tmp_path, adds, partition_by={"a": "string", "b": "integer"})
    assert len(planned.bins) == 4
    assert all(len({source.path[:-1] for source in planned.sources(b)}) == 1 for b in planned.bins)


def test_the_plan_depends_on_the_files_and_not_on_their_order(tmp_path: Path) -> None:
    adds = [add(f"d={n % 3}/{n}", n % 7 + 1, {"d": str(n % 3)}) for n in range(60)]
    first = plan(tmp_path / "a", adds, partition_by={"d": "string"}, target_size_bytes=20)
    random.Random(7).shuffle(adds)
    second = plan(tmp_path / "b", adds, partition_by={"d": "string"}, target_size_bytes=20)
    assert first.digest == second.digest
    assert [b.bin_id for b in first.bins] == [b.bin_id for b in second.bins]
    assert [first.sources(b) for b in first.bins] == [second.sources(b) for b in second.bins]


def test_a_source_with_other_deletions_makes_another_bin(tmp_path: Path) -> None:
    def digest(name: str, **more: Any) -> str:
        return plan(tmp_path / name, [add("f", 1, **more), add("g", 1)]).digest

    none, offset, no_offset = (
        digest("none"),
        digest("offset", deletionVector=deletion_vector(1, 0), stats=stats(9)),
        digest("no-offset", deletionVector=deletion_vector(1, None), stats=stats(9)),
    )
    assert len({none, offset, no_offset}) == 3


def test_the_biggest_bins_come_first(tmp_path: Path) -> None:
    adds = [add(f"d={n}/{c}", 10 * (n + 1), {"d": str(n)}) for n in range(4) for c in range(2)]
    planned = plan(tmp_path, adds, partition_by={"d": "string"})
    assert [b.live_bytes for b in planned.bins] == [80, 60, 40, 20]
    # Rows of the plan's own table, in the order of the bins.
    assert [(b.start, b.end) for b in planned.bins] == [(0, 2), (2, 4), (4, 6), (6, 8)]


def test_a_budget_takes_what_removes_most_files_for_its_bytes(tmp_path: Path) -> None:
    adds = [add(f"d=many/{n}", 1, {"d": "many"}) for n in range(50)]
    adds += [add(f"d=few/{n}", 30, {"d": "few"}) for n in range(2)]
    planned = plan(tmp_path, adds, partition_by={"d": "string"}, max_bytes=70)
    assert [b.num_files for b in planned.bins] == [50]
    assert planned.left_by_budget == LeftWork(1, 2, 60)
    assert "left" in render_plan(planned.to_dict())


def test_nothing_to_do_says_what_was_looked_at(tmp_path: Path) -> None:
    planned = plan(tmp_path, [add("f", 1)])
    assert planned.bins == ()
    assert render_plan(planned.to_dict()).splitlines() == [
        "Nothing to do at version 0: 1 files, 1 B, none worth rewriting.",
        "  left               1 files         1 B  small, but no other small file is in their partition",
    ]


def test_the_summary_stays_small_however_many_partitions_there_are(tmp_path: Path) -> None:
    adds = [add(f"d={d}/{n}", 1, {"d": str(d)}) for d in range(2000) for n in range(2)]
    planned = plan(tmp_path, adds, partition_by={"d": "integer"})
    assert (len(planned.bins), planned.num_files) == (2000, 4000)
    assert len(json.dumps(planned.to_dict())) < 8_000
    assert len(planned.to_dict()["partitions"]) == 20
    assert "1,980 partitions more" in render_plan(planned.to_dict())


def test_the_summary_stays_small_however_long_partition_values_are(tmp_path: Path) -> None:
    adds = [add(f"d={d}/{n}", 1, {"d": str(d) * 2_000}) for d in range(100, 130) for n in range(2)]
    planned = plan(tmp_path, adds, partition_by={"d": "string"})
    assert len(json.dumps(planned.to_dict())) < 20_000
    assert planned.to_dict()["numPartitions"] == 30


def test_a_small_file_is_not_rewritten_for_the_sake_of_next_to_nothing(tmp_path: Path) -> None:
    adds = [add("large", 500 * MIB), *(add(f"crumb{n}", MIB) for n in range(3))]
    assert paths(plan(tmp_path, adds)) == [["crumb0", "crumb1", "crumb2"]]


def test_crumbs_are_put_together_however_different_they_are(tmp_path: Path) -> None:
    assert paths(plan(tmp_path, [add("a", 1), add("b", 1000), add("c", 16 * MIB)])) == [["a", "b", "c"]]


def test_deletions_are_purged_in_company_whatever_the_company_is_worth(tmp_path: Path) -> None:
    deleted: dict[str, Any] = {"deletionVector": deletion_vector(60), "stats": stats(100)}
    adds = [add("large", 500 * MIB, **deleted), add("crumb", MIB)]
    assert paths(plan(tmp_path, adds)) == [["crumb", "large"]]


def nights(count: int, files: int, size: int) -> tuple[float, int]:
    """So many nights of small files, each followed by a run: bytes rewritten for each that was ingested, and files."""
    minimum, merge_rule = (
        int(DEFAULT_TARGET_BYTES * 0.75),
        MergeRule(MERGE_FACTOR, DEFAULT_TARGET_BYTES // 64),
    )
    small: list[int] = []
    full = rewritten = 0
    for _ in range(count):
        small += [size] * files
        sizes = np.array(small, np.int64)
        names = pa.array([f"{number:06}" for number in range(len(sizes))])
        bins = list(pack(np.zeros_like(sizes), sizes, names, DEFAULT_TARGET_BYTES, None, merge_rule))
        gone = {int(index) for members in bins for index in members}
        outputs = [int(sizes[members].sum()) for members in bins]
        rewritten += sum(outputs)
        kept = [value for index, value in enumerate(small) if index not in gone]
        small = [value for value in [*kept, *outputs] if value < minimum]
        full += sum(value >= minimum for value in outputs)
    return rewritten / (count * files * size), full + len(small)


def test_a_year_of_a_hundred_files_a_night_rewrites_each_byte_less_than_three_times() -> None:
    amplification, files = nights(365, 100, MIB)
    assert amplification < 2.5
    assert files < 50


def test_a_partition_that_is_being_written_to_comes_last_or_waits(tmp_path: Path) -> None:
    now_ms = 100 * 60_000
    adds = [
        add(f"d={d}/{n}", 10 * MIB if d == "hot" else MIB, {"d": d}, modificationTime=written * 60_000)
        for d, written in (("hot", 95), ("cold", 10), ("edge", 70))
        for n in range(2)
    ]
    # What this rewriter wrote makes no partition hot.
    adds.append(add("d=cold/ours", MIB, {"d": "cold"}, modificationTime=now_ms, tags={REWRITE_TAG: "any"}))
    snapshot = write_log(tmp_path, adds, partition_by={"d": "string"})

    def planned(**options: Any) -> OptimizePlan:
        return plan_optimize(snapshot, OptimizeOptions(quiet_minutes=29, **options), now_ms)

    assert [b.partition_values["d"] for b in planned().bins] == ["cold", "edge", "hot"]
    waiting = planned(hot_partitions="wait")
    assert [b.partition_values["d"] for b in waiting.bins] == ["cold", "edge"]
    assert waiting.left_as_hot == LeftWork(1, 2, 20 * MIB)
    assert "waiting" in render_plan(waiting.to_dict())
    assert [b.partition_values["d"] for b in planned(max_files=2).bins] == ["edge"]


def test_a_purge_chooses_by_deletions_and_never_by_size(tmp_path: Path) -> None:
    adds = [
        add("small", 1),
        add("small2", 1),
        add("deleted", 2000, deletionVector=deletion_vector(1), stats=stats(1000)),
        add("unknown", 2000, deletionVector=deletion_vector(1)),
        add("empty", 2000, deletionVector=deletion_vector(0), stats=stats(1000)),
        add("whole", 2000, stats=stats(1000)),
    ]
    snapshot = write_log(tmp_path, adds)
    every = plan_optimize(snapshot, OptimizeOptions(purge=True), 0)
    assert paths(every) == [["deleted", "empty", "unknown"]]
    by_ratio = plan_optimize(snapshot, OptimizeOptions(purge=True, max_deleted_rows_ratio=0.5), 0)
    assert paths(by_ratio) == [["unknown"]]
    dropped = plan_optimize(snapshot, OptimizeOptions(purge=True), 0, with_dropped_columns=["whole"])
    assert dropped.chosen_files == {"deleted_rows": 2, "deleted_rows_unknown": 1, "dropped_columns": 1}


def test_bins_that_are_finished_leave_the_others_as_they_were(tmp_path: Path) -> None:
    rng = random.Random(3)
    adds = [add(f"f{n:03}", rng.choice([1, 5, 20, 60, 200]) * MIB) for n in range(120)]
    snapshot = write_log(tmp_path, adds)
    options = OptimizeOptions(target_size_bytes=300 * MIB, max_bytes=2000 * MIB)
    whole = plan_optimize(snapshot, options, 0)
    for done in (whole.bins[:1], whole.bins[1:3], whole.bins[::2]):
        prior = PriorWork(
            keys=[source.key for planned in done for source in whole.sources(planned)],
            bin_ids=frozenset(planned.bin_id for planned in done),
            num_files=sum(planned.num_files for planned in done),
            num_bytes=sum(planned.bytes_in for planned in done),
        )
        rest = plan_optimize(snapshot, options, 0, prior)
        left = {planned.bin_id for planned in whole.bins} - prior.bin_ids
        assert {planned.bin_id for planned in rest.bins} == left
        assert rest.digest == whole.digest, "what was approved is still what is done"


def test_the_whole_plan_is_a_line_for_each_bin(tmp_path: Path) -> None:
    adds = [add(f"d={d}/{n}", n + 1, {"d": str(d)}) for d in range(150) for n in range(2)]
    planned = plan(tmp_path, adds, partition_by={"d": "integer"})
    lines = [json.loads(line) for line in b"".join(planned.lines()).splitlines()]
    assert lines[0] == planned.to_dict()
    assert [line["bin"] for line in lines[1:]] == [b.bin_id for b in planned.bins]
    assert {file["path"] for line in lines[1:] for file in line["files"]} == {a["path"] for a in adds}
    assert lines[1]["reasons"] == ["small"]


def test_tasks_are_self_contained_and_survive_their_json_form(tmp_path: Path) -> None:
    adds = [add("f", 1, deletionVector=deletion_vector(1), stats=stats(9)), add("g", 2, tags={"a": "b"})]
    snapshot = write_log(tmp_path, adds, properties={"delta.x": "y"})
    planned = plan_optimize(snapshot, OptimizeOptions(), 0)
    (task,) = tasks_of(planned, snapshot, "run", "file:///t")
    assert RewriteTask.from_json(task.to_json()) == task
    assert [source.path for source in task.sources] == ["f", "g"]
    assert task.schema_json == snapshot.metadata.schemaString
    assert (task.run_id, task.bytes_in, task.configuration) == ("run", 3, {"delta.x": "y"})


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"zorder": ["a"]}, "no option zorder"),
        ({"target_size_bytes": 0}, "from 1 to 1 PiB"),
        ({"target_size_bytes": "1GiB"}, "whole number of bytes"),
        ({"full": "yes"}, "true or false"),
        ({"max_deleted_rows_ratio": 5}, "from 0"),
        ({"where": 5}, "must be a text"),
        ({"where": " "}, "must be a text"),
        ({"max_files": 1}, "at least 2"),
        ({"max_duration_seconds": 0}, "at least 1"),
        ({"batch_size_bytes": -1}, "from 1 to 1 PiB"),
        ({"quiet_minutes": 0.5}, "whole number of minutes"),
        ({"hot_partitions": "first"}, "last or wait"),
        ({"verify": "sometimes"}, "counts or full"),
        ({"on_broken_source": "ignore"}, "fail or skip"),
        ({"purge": True}, "no option purge"),
    ],
)
def test_options_that_make_no_sense_are_refused(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        OptimizeOptions.from_mapping(raw)


@pytest.mark.parametrize("name", ["full", "min_file_size_bytes"])
def test_a_purge_takes_no_option_about_sizes(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"PURGE has no option {name}"):
        OptimizeOptions.from_mapping({name: 1}, purge=True)


def test_an_option_that_is_null_is_not_given() -> None:
    assert OptimizeOptions.from_mapping({"where": None, "full": None}) == OptimizeOptions()


def test_a_file_above_the_maximum_is_split_by_itself(tmp_path: Path) -> None:
    adds = [add("small", 10), add("small2", 10), add("fits", 150), add("large", 250), add("larger", 301)]
    planned = plan(tmp_path, adds, target_size_bytes=100, max_file_size_bytes=150)
    assert sorted(paths(planned)) == [["large"], ["larger"], ["small", "small2"]]
    assert sorted(planned_bin.num_outputs for planned_bin in planned.bins) == [1, 3, 4]
    assert (planned.num_outputs, planned.chosen_files["large"]) == (8, 2)


def test_a_file_of_which_enough_is_deleted_is_not_too_large(tmp_path: Path) -> None:
    adds = [add("half", 250, deletionVector=deletion_vector(50), stats=stats(100))]
    planned = plan(tmp_path, adds, target_size_bytes=100, max_file_size_bytes=150, max_deleted_rows_ratio=1.0)
    assert paths(planned) == []


def test_a_maximum_below_the_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="split what the last one put together"):
        plan(tmp_path, [], target_size_bytes=10, max_file_size_bytes=9)


@pytest.mark.parametrize(
    ("budget", "expected", "left"),
    [
        ({"max_files": 3}, ["0", "1", "2"], LeftWork(1, 3, 3 * MIB)),
        ({"max_bytes": 4 * MIB + 5}, ["0", "1", "2", "3"], LeftWork(1, 2, 2 * MIB)),
        ({"max_bytes": 5 * MIB, "max_files": 2}, ["0", "1"], LeftWork(1, 4, 4 * MIB)),
        ({"max_files": 6}, ["0", "1", "2", "3", "4", "5"], LeftWork()),
        ({"max_bytes": MIB}, [], LeftWork(1, 6, 6 * MIB)),
    ],
)
def test_where_no_bin_fits_into_the_budget_the_first_is_cut(
    tmp_path: Path, budget: dict[str, int], expected: list[str], left: LeftWork
) -> None:
    snapshot = write_log(tmp_path, [add(str(n), MIB) for n in range(6)])
    planned = plan_optimize(snapshot, OptimizeOptions(**budget), now_ms=0)  # type: ignore[arg-type]
    assert paths(planned) == ([expected] if expected else [])
    assert planned.left_by_budget == left
    alike = plan(tmp_path / "alike", [add(name, MIB) for name in expected])
    assert [b.bin_id for b in planned.bins] == [b.bin_id for b in alike.bins]


def test_a_bin_is_cut_only_where_nothing_else_is_done(tmp_path: Path) -> None:
    adds = [add(f"d={d}/{n}", MIB, {"d": d}) for d, count in (("a", 5), ("b", 3)) for n in range(count)]
    snapshot = write_log(tmp_path, adds, partition_by={"d": "string"})

    def planned(prior: PriorWork = PriorWork(), **budget: int) -> OptimizePlan:  # noqa: B008
        return plan_optimize(snapshot, OptimizeOptions(**budget), 0, prior)  # type: ignore[arg-type]

    assert paths(planned(max_files=4)) == [["d=b/0", "d=b/1", "d=b/2"]]
    assert planned(max_files=4).left_by_budget == LeftWork(1, 5, 5 * MIB)
    assert paths(planned(max_files=2)) in ([["d=a/0", "d=a/1"]], [["d=b/0", "d=b/1"]])
    spent = PriorWork(keys=["d=b/0", "d=b/1", "d=b/2"], num_files=3, num_bytes=3 * MIB)
    assert not planned(spent, max_files=4).bins, "the budget is that of the run"


def test_a_file_worth_a_bin_of_its_own_may_be_all_that_a_budget_allows(tmp_path: Path) -> None:
    adds = [
        add("deleted", MIB, deletionVector=deletion_vector(500), stats=stats(1000)),
        add("whole", 2 * MIB, stats=stats(1000)),
    ]
    planned = plan(tmp_path, adds, max_bytes=MIB)
    assert paths(planned) == [["deleted"]]
    assert planned.left_by_budget == LeftWork(1, 1, 2 * MIB)


def test_what_this_rewriter_wrote_counts_as_much_as_was_planned(tmp_path: Path) -> None:
    tag = plan(tmp_path / "first", [], target_size_bytes=1000).rewrite_tag

    def written(path: str, planned: str, tag: str = tag, **more: Any) -> dict[str, Any]:
        return add(path, 100, tags={REWRITE_TAG: tag, PLANNED_BYTES_TAG: planned}, **more)

    half: dict[str, Any] = {"deletionVector": deletion_vector(50), "stats": stats(100)}
    for name, adds, expected in (
        ("too much together", [written("a", "600"), written("b", "600")], []),
        ("of several runs", [written("a", "300"), written("b", "400"), add("c", 290)], [["a", "b", "c"]]),
        ("large enough", [written("a", "750"), add("b", 200)], []),
        ("under other settings", [written("a", "600", "o"), written("b", "600", "o")], [["a", "b"]]),
        (
            "unreadable",
            [written("a", "many"), written("b", "-600"), written("c", "9" * 16)],
            [["a", "b", "c"]],
        ),
        ("half deleted", [written("a", "700", **half), written("b", "500")], [["a", "b"]]),
    ):
        assert paths(plan(tmp_path / name, adds, target_size_bytes=1000)) == expected, name


@pytest.mark.parametrize(
    ("data_change", "rewritten", "hot"),
    # A checkpoint says of every tombstone that no data was changed.
    [(True, False, True), (True, True, True), (False, False, True), (False, True, False)],
)
def test_who_deletes_rows_makes_a_partition_hot_though_no_file_is_new(
    tmp_path: Path, data_change: bool, rewritten: bool, hot: bool
) -> None:
    minute = 60_000
    adds = [add(f"d={d}/{n}", MIB, {"d": d}) for d in "ab" for n in range(2)]
    if rewritten:
        adds.append(add("d=a/ours", MIB, {"d": "a"}, modificationTime=99 * minute, tags={REWRITE_TAG: "any"}))
    write_log(tmp_path, adds, partition_by={"d": "string"})
    deleted = add("d=a/0", MIB, {"d": "a"}, deletionVector=deletion_vector(1), stats=stats(1000))
    removed = {"path": "d=a/0", "deletionTimestamp": 98 * minute, "dataChange": data_change}
    long_ago = {"path": "d=b/gone", "deletionTimestamp": 10 * minute, "dataChange": True}
    values = {"extendedFileMetadata": True, "size": MIB}
    actions = [
        {"remove": {**removed, **values, "partitionValues": {"d": "a"}}},
        {"remove": {**long_ago, **values, "partitionValues": {"d": "b"}}},
        {"add": deleted},
    ]
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    options = OptimizeOptions(quiet_minutes=29, hot_partitions="wait")
    planned = plan_optimize(Table(str(tmp_path)).snapshot(), options, 100 * minute)
    assert {b.partition_values["d"] for b in planned.bins} == ({"b"} if hot else {"a", "b"})
