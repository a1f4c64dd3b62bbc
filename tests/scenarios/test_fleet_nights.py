"""Nights of a fleet on real tables: what is reported, done, announced, and what a killed night leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.tables.small_tables import with_unknown_feature, write_days

from delta_log.errors import InvalidRequest
from delta_log.runtime import Runtime
from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.fleet.account.comparison import compare
from delta_maintenance.fleet.account.night import Night
from delta_maintenance.fleet.account.report import FleetReport
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.decision.decide import decide
from delta_maintenance.fleet.lease import Lease, lease_of
from delta_maintenance.fleet.policy.reading import policy_of
from delta_maintenance.fleet.run import FleetJob, FleetNight, FleetRunner, maintain
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import ProgressReporter, SilentProgress


class Fleet:
    """A directory of tables, its policy and its memory."""

    def __init__(self, directory: Path, policy: Mapping[str, Any]) -> None:
        self.lake, self.state = directory / "lake", directory / "state"
        self.written = policy_of(
            {
                "tables": {"include": [f"{self.lake}/**"]},
                "healthy": {"small_files": 2},
                "disruption": {"quiet": "0m"},
                "other_maintainer": "maintain",
                "jitter": "0m",
                **policy,
            }
        )
        self.site = JobSite(runtime=Runtime(sleep=self._never))

    def _never(self, seconds: float) -> None:
        raise AssertionError(f"slept for {seconds} s")

    @property
    def night(self) -> FleetNight:
        return FleetNight(self.written, str(self.state), self.site, SilentProgress())

    def run(self, *approved: str) -> FleetReport:
        return self.night.run(approved, FleetJob())

    @property
    def store(self) -> FleetStore:
        return FleetStore.open(str(self.state), {})

    def nights(self) -> list[Night]:
        return list(self.store.nights(0))


def _ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def _done(report: FleetReport) -> list[str]:
    return [outcome.run.operation for outcome in report.done]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path, {"trust": {"after": 2, "deletions": "auto"}})
    write_days(made.lake / "sales" / "orders")
    write_days(made.lake / "events", files=4)
    return made


def test_tables_are_reported_before_they_are_changed(fleet: Fleet) -> None:
    before = {name: _ids(fleet.lake / name) for name in ("sales/orders", "events")}
    for _ in range(2):
        report = fleet.run()
        assert (report.figures.num_tables, report.figures.num_unhealthy, _done(report)) == (2, 2, [])
        assert report.skipped == {"reported": 2}
    report = fleet.run()
    assert _done(report) == ["optimize", "optimize"]
    assert report.saved_files == 6
    assert not report.has_news
    assert {name: _ids(fleet.lake / name) for name in before} == before
    assert fleet.run().skipped == {"healthy": 2}


def test_a_dry_run_writes_nothing_and_says_what_the_run_does(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.run()
    kept = {path: path.stat().st_mtime_ns for path in fleet.lake.rglob("*")}
    memory = (fleet.state / "history.json.z").read_bytes()
    planned = fleet.night.plan()
    assert {path: path.stat().st_mtime_ns for path in fleet.lake.rglob("*")} == kept
    assert (fleet.state / "history.json.z").read_bytes() == memory
    done = fleet.run()
    assert [unit.table for unit in planned.planned] == [outcome.table for outcome in done.done]


@pytest.mark.parametrize("deletions", ["auto", "approve", "never"])
def test_a_deletion_is_announced_before_it_is_done(tmp_path: Path, deletions: str) -> None:
    fleet = Fleet(tmp_path, {"trust": {"new_table": "auto", "deletions": deletions}})
    table = fleet.lake / "orders"
    write_days(table)
    # The clock of a store is compared with ours, so a test cannot wait a week; the table's retention can be short.
    DeltaTable(str(table)).alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    assert _done(fleet.run()) == ["optimize"]
    rows, files = _ids(table), len(list(table.glob("day=*/*.parquet")))
    report = fleet.run(f"{fleet.lake}/**")
    assert report.announced == {str(table): ("vacuum",)}
    assert _done(report) == []
    assert len(list(table.glob("day=*/*.parquet"))) == files
    if deletions == "approve":
        assert fleet.run().skipped == {"approval": 1}
    report = fleet.run(*([f"{fleet.lake}/**"] if deletions == "approve" else []))
    if deletions == "never":
        assert report.skipped == {"report_only": 1}
        return
    assert _done(report) == ["vacuum"], report.troubles
    assert report.saved_bytes > 0
    assert len(list(table.glob("day=*/*.parquet"))) == files - 6
    assert _ids(table) == rows


def test_a_run_is_red_for_new_failures_alone(fleet: Fleet) -> None:
    with_unknown_feature(fleet.lake / "events")
    first, second = fleet.run(), fleet.run()
    assert [(trouble.table, trouble.is_new) for trouble in first.troubles] == [(f"{fleet.lake}/events", True)]
    assert first.has_news
    assert [trouble.is_new for trouble in second.troubles] == [False]
    assert not second.has_news


def test_a_table_that_is_known_to_be_broken_makes_no_run_red(tmp_path: Path) -> None:
    known = {f"{tmp_path}/lake/events": {"until": "2999-01-01", "why": "TICKET-17"}}
    fleet = Fleet(tmp_path, {"known_broken": known})
    with_unknown_feature(write_days(fleet.lake / "events") and fleet.lake / "events")
    report = fleet.run()
    assert report.skipped == {"known_broken": 1}
    assert "TICKET-17" in report.troubles[0].message
    assert not report.has_news


def test_a_killed_night_is_accounted_for_by_the_next(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.run()
    night = fleet.night.begin()
    done = maintain(night, 0, fleet.store, FleetJob(), fleet.site, SilentProgress())
    assert [outcome.run.status for outcome in done.outcomes] == ["committed"]
    report = fleet.run()
    assert [outcome.table for outcome in report.done] == [night.decision.units[1].table]
    killed = fleet.nights()[-2]
    assert (killed.run_id, killed.is_finished, killed.outcomes) == (night.run_id, True, done.outcomes)
    assert len(fleet.store.history().tables[night.decision.units[0].table].runs) == 1
    assert not list((fleet.state / "results").rglob("*.z"))


def test_two_runs_of_one_fleet_do_not_meet(fleet: Fleet) -> None:
    lease = lease_of(fleet.store.storage, "other", fleet.site.runtime)
    assert isinstance(lease, Lease)
    with pytest.raises(InvalidRequest, match="is being maintained"):
        fleet.run()
    lease.release()
    assert fleet.run().skipped == {"reported": 2}


def test_a_table_that_another_run_works_on_is_left_alone(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.run()
    from delta_log.storage.opening import open_storage

    lease = lease_of(open_storage(str(fleet.lake / "events")), "other", fleet.site.runtime)
    assert isinstance(lease, Lease)
    report = fleet.run()
    assert _done(report) == ["optimize"]
    assert [(one.table, one.reason) for one in report.not_begun] == [(f"{fleet.lake}/events", "lease")]


def test_a_recorded_night_can_be_decided_again(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.run()
    for night in fleet.nights():
        assert decide(fleet.written, night.state) == night.decision
    others = Fleet(fleet.lake.parent, {"trust": {"new_table": "auto"}, "budget": {"read": "1GiB"}}).written
    found = list(compare(fleet.written, others, fleet.nights()))
    assert [(one.num_old, one.num_new) for one in found] == [(0, 2), (0, 2), (2, 2)]


def test_the_commands(fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, newer = tmp_path / "fleet.json", tmp_path / "newer.yaml"
    policy.write_text(fleet.written.text)
    newer.write_text(json.dumps({**json.loads(fleet.written.text), "trust": {"new_table": "auto"}}))
    shutil.rmtree(fleet.lake / "events" / "_delta_log")

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        code = main([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    state, orders = str(fleet.state), str(fleet.lake / "sales" / "orders")
    assert run("policy", "check", str(policy))[0] == 0
    code, refused = run("fleet", "report", "--state", state)
    assert (code, refused["error"]["type"]) == (2, "InvalidRequest")
    code, report = run("fleet", "run", str(policy), "--state", state)
    assert (code, report["skipped"]) == (0, {"reported": 1})
    assert run("fleet", "report", "--state", state)[1]["run_id"] == report["run_id"]
    code, explained = run("policy", "explain", str(policy), orders, "--state", state)
    assert (code, explained["unit"], explained["reports"]) == (0, None, 1)
    assert {one["name"]: one["origin"] for one in explained["settings"]}["trust.after"] == f"{policy}:1"
    code, compared = run("policy", "diff", str(policy), str(newer), "--state", state)
    assert (code, compared["nights"][0]["only_new"]) == (0, {orders: ["optimize"]})
    policy.write_text("healthy: {small_file: 3}")
    code, refused = run("fleet", "run", str(policy), "--state", state)
    assert code == 2
    assert refused["error"]["message"].startswith(f"{policy}:1: ")


def test_a_unit_goes_on_where_a_killed_process_has_left_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"trust": {"new_table": "auto"}})
    table = fleet.lake / "orders"
    write_days(table)
    # So many commits that a checkpoint is due, too.
    for _ in range(12):
        DeltaTable(str(table)).alter.set_table_properties({"delta.appendOnly": "false"})
    night = fleet.night.begin()
    assert [work.operation for work in night.decision.units[0].operations] == ["optimize", "checkpoint"]
    ran: list[str] = []

    def until_killed(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
        if spec.operation == "checkpoint" and not ran.count("checkpoint"):
            ran.append("checkpoint")
            raise KeyboardInterrupt
        ran.append(spec.operation)
        return run_job(spec, site, progress)

    runner = FleetRunner(night, fleet.store, FleetJob(), fleet.site, SilentProgress(), until_killed)
    with pytest.raises(KeyboardInterrupt):
        runner.run(None)
    (result,) = runner.run(None)
    assert ran == ["optimize", "checkpoint", "checkpoint"]
    assert [outcome.run.operation for outcome in result.outcomes] == ["optimize", "checkpoint"]
    assert not any(outcome.run.has_failed for outcome in result.outcomes)


def test_a_process_that_is_killed_after_its_commit_leads_to_no_second_one(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, {"trust": {"new_table": "auto"}})
    write_days(fleet.lake / "orders")
    night = fleet.night.begin()

    def killed_afterwards(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
        assert run_job(spec, site, progress).status == "committed"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FleetRunner(night, fleet.store, FleetJob(), fleet.site, SilentProgress(), killed_afterwards).run(None)
    # Meanwhile there is work again, which this night has not decided on.
    write_days(fleet.lake / "orders")
    (result,) = FleetRunner(night, fleet.store, FleetJob(), fleet.site, SilentProgress()).run(None)
    assert [outcome.run.status for outcome in result.outcomes] == ["already_done"]
    history = DeltaTable(str(fleet.lake / "orders")).history()
    assert [commit["operation"] for commit in history].count("OPTIMIZE") == 1
