"""A dry run, what it tells, and that nothing else is done than what was agreed to."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import WatchedEngine, keys, run
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_maintenance.errors import PlanChanged
from delta_maintenance.optimize.forecast.duration_forecast import REWRITE_TIME_TAG, Forecast, forecast


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_days(tmp_path / "t", files=6, rows=10, days=3)
    return tmp_path / "t"


def digest_of(table: Path) -> str:
    plan = run(table, dry_run=True).plan
    assert plan is not None
    return str(plan["digest"])


def test_an_approved_plan_is_carried_out(table: Path) -> None:
    assert run(table, approved_digest=digest_of(table)).status == "committed"


def test_the_twelve_characters_that_people_see_are_enough_and_fewer_are_not(table: Path) -> None:
    digest = digest_of(table)
    with pytest.raises(PlanChanged):
        run(table, approved_digest=digest[:11])
    assert run(table, approved_digest=digest[:12]).status == "committed"


def test_another_plan_than_the_approved_one_is_refused_and_nothing_written(table: Path) -> None:
    approved = digest_of(table)
    more = pa.table({"day": pa.array([19723], pa.date32()), "id": [99], "text": ["new"]})
    deltalake.write_deltalake(str(table), more, mode="append", partition_by=["day"])
    before = sorted(table.rglob("*"))
    engine = WatchedEngine()
    with pytest.raises(PlanChanged) as caught:
        run(table, approved_digest=approved, engine=engine)
    assert caught.value.facts() == {"approved": approved, "digest": digest_of(table)}
    assert caught.value.kind == "refused"
    assert engine.given == []
    assert sorted(table.rglob("*")) == before


def test_an_approval_holds_for_the_next_try_of_a_run_that_died(table: Path) -> None:
    class Killed(BaseException):
        pass

    def die(number: int) -> None:
        if number == 2:
            raise Killed

    approved = digest_of(table)
    with pytest.raises(Killed):
        run(table, approved_digest=approved, engine=WatchedEngine(die), batch_size_bytes=1)
    second = WatchedEngine()
    report = run(table, approved_digest=approved, engine=second, batch_size_bytes=1)
    assert (report.status, len(second.given), len(keys(table))) == ("committed", 1, 3)


def test_the_whole_plan_goes_where_it_is_wanted(table: Path, tmp_path: Path) -> None:
    uri = str(tmp_path / "plans" / "one.jsonl")
    Path(uri).parent.mkdir()
    plan = run(table, dry_run=True, output=uri).plan
    assert plan is not None
    assert plan["uri"] == uri
    lines = [json.loads(line) for line in Path(uri).read_text().splitlines()]
    assert lines[0]["digest"] == plan["digest"]
    assert sorted(file["path"] for line in lines[1:] for file in line["files"]) == keys(table)
    with pytest.raises(InvalidRequest, match="is there already"):
        run(table, dry_run=True, output=uri)


def test_a_place_for_the_plan_without_a_dry_run_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="plan of a dry run"):
        run(table, output=str(tmp_path / "plan.jsonl"))


def test_a_report_of_a_dry_run_fits_into_an_xcom_however_large_the_plan_is(tmp_path: Path) -> None:
    from tests.support.tables.written_log import add, write_log

    adds = [add(f"d={d}/{n}", 1, {"d": f"{d:05}" + "é" * 400}) for d in range(3000) for n in range(2)]
    write_log(tmp_path, adds, partition_by={"d": "string"})
    report = run(tmp_path, dry_run=True)
    assert report.plan is not None
    assert report.plan["numBins"] == 3000
    assert len(report.to_json().encode()) < 48_000


def test_a_table_without_earlier_runs_gives_no_forecast_and_one_with_them_does(table: Path) -> None:
    plan = run(table, dry_run=True).plan
    assert plan is not None
    assert "estimatedSeconds" not in plan
    run(table)
    (entry,) = Table(str(table)).history(1)
    assert int(entry["tags"][REWRITE_TIME_TAG]) >= 1
    write_days(table, files=6, rows=10, days=3)
    plan = run(table, run_id="second", dry_run=True).plan
    assert plan is not None
    assert plan["numRunsOfEstimate"] == 1
    assert plan["estimatedSeconds"] >= 0


def commit(took: object, num_bytes: object) -> dict[str, object]:
    return {"tags": {REWRITE_TIME_TAG: took}, "operationMetrics": {"numRemovedBytes": num_bytes}}


def test_a_forecast_weighs_earlier_runs_by_their_bytes() -> None:
    assert forecast(1000, [commit("3000", 100), commit("1000", 900)]) == Forecast(4, 2)


def test_only_the_newest_runs_count() -> None:
    newest = [commit("1000", 1000)] * 5
    assert forecast(1000, [*newest, commit("999999", 1)]) == Forecast(1, 5)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"tags": None},
        commit("", 5),
        commit("-5", 5),
        commit("5", None),
        commit("5", "many"),
        commit("9" * 30, 5),
    ],
)
def test_what_others_wrote_into_the_history_is_not_believed(odd: dict[str, object]) -> None:
    assert forecast(1000, [odd]) is None
