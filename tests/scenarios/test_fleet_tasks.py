"""The tasks of a fleet's run, one after the other, with the XComs that Airflow would keep between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from deltalake import DeltaTable
from msgspec import msgpack
from tests.support.tables.small_tables import with_unknown_feature, write_days

from airflow_delta.assets import shared_maintenance_asset
from airflow_delta.fleet import DeltaMaintenanceOperator, delta_fleet
from airflow_delta.fleet.fleet_task import TaskKilled
from airflow_delta.monitoring.fleets.record import HEAD, HOLDS, read_head, read_view
from airflow_delta.notifications import DeltaFleetReportNotifier
from airflow_delta.testing import FakeStateStore
from delta_log.runtime import Runtime
from delta_log.storage.opening import open_storage
from delta_maintenance.fleet.account.approvals import ApprovalFolder, not_used_up
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.account.view import FleetView
from delta_maintenance.fleet.lease import lease_of

MakeContext = Callable[..., dict[str, Any]]


class Airflow:
    """A lake, and runs of a DAG with its fleet."""

    def __init__(self, directory: Path, make_context: MakeContext, **arguments: Any) -> None:
        self.lake, self.state = directory / "lake", directory / "state"
        self._make_context, self._arguments = make_context, arguments
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.runs = 0
        #: The state store of the fleet's asset.
        self.asset_store = FakeStateStore()
        self.policy: dict[str, Any] = {
            "tables": {"include": [f"{self.lake}/**"]},
            "healthy": {"small_files": 2},
            "disruption": {"quiet": "0m"},
            "other_maintainer": "maintain",
            "jitter": "0m",
            "trust": {"after": 1, "deletions": "approve"},
        }

    def dag(self) -> DAG:
        with DAG("nightly", schedule=None, max_active_runs=1) as dag:
            delta_fleet(policy=self.policy, state=str(self.state), **self._arguments)
        return dag

    def context(self, task: Any) -> dict[str, Any]:
        def push(key: str, value: Any) -> None:
            # What Airflow cannot store would fail the task.
            self.xcoms[task.task_id, key] = json.loads(json.dumps(value))

        def pull(task_ids: str, key: str) -> Any:
            return self.xcoms.get((task_ids, key))

        context = self._make_context(
            task_id=task.task_id, run_id=f"run {self.runs}", xcom_push=push, xcom_pull=pull, task=task
        )
        return {**context, "asset_state_store": {shared_maintenance_asset("fleet"): self.asset_store}}

    def decide(self) -> list[dict[str, Any]]:
        self.runs += 1
        self.xcoms.clear()
        task: Any = self.dag().get_task("fleet.decide")
        return list(json.loads(json.dumps(task.execute(self.context(task)))))

    def maintain(self, arguments: Mapping[str, Any]) -> Any:
        mapped: Any = self.dag().get_task("fleet.maintain")
        task = mapped.unmap(arguments)
        return task.execute(self.context(task))

    def account(self) -> dict[str, Any]:
        task: Any = self.dag().get_task("fleet.account")
        self.accounted = self.context(task)
        return dict(task.execute(self.accounted))

    def run(self) -> dict[str, Any]:
        """A whole run; tasks that fail do not keep the last one from its work."""
        for arguments in self.decide():
            try:
                self.maintain(arguments)
            except AirflowException:
                continue
        return self.account()

    def answer(self, choice: str) -> None:
        task: Any = self.dag().get_task("fleet.approve")
        event = {
            "chosen_options": [choice],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": {"id": "1", "name": "Ada"},
        }
        task.execute_complete(self.context(task), event)


@pytest.fixture
def airflow(tmp_path: Path, make_context: MakeContext) -> Airflow:
    made = Airflow(tmp_path, make_context)
    write_days(made.lake / "sales" / "orders")
    write_days(made.lake / "events", files=4)
    return made


def operations(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(Path(one["table"]).name, one["run"]["operation"]) for one in report["done"]]


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def keep_no_removed_files(table: Path) -> None:
    # The clock of a store is compared with ours, so a test cannot wait a week; the table's retention can be short.
    retention = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    DeltaTable(str(table)).alter.set_table_properties(retention)


def test_the_first_night_reports_and_the_second_does(airflow: Airflow) -> None:
    rows = ids(airflow.lake / "events")
    first = airflow.run()
    assert (first["figures"]["num_unhealthy"], first["done"]) == (2, [])
    (group,) = airflow.decide()
    assert group["units"] == [0, 1]
    assert group["title"].startswith(str(airflow.lake))
    assert group["title"].endswith(" and 1 more")
    assert airflow.maintain(group) == {"done": 2, "not_begun": 0}
    second = airflow.account()
    assert sorted(operations(second)) == [("events", "optimize"), ("orders", "optimize")]
    assert ids(airflow.lake / "events") == rows
    event = airflow.accounted["outlet_events"][shared_maintenance_asset("fleet")]
    assert event.extra["figures"]["num_done"] == 2
    assert airflow.run()["skipped"] == {"healthy": 2}


def test_another_try_repeats_nothing(airflow: Airflow) -> None:
    airflow.run()
    (group,) = airflow.decide()
    airflow.maintain(group)
    versions = [DeltaTable(str(airflow.lake / name)).version() for name in ("events", "sales/orders")]
    assert airflow.maintain(group) == {"done": 2, "not_begun": 0}
    assert versions == [DeltaTable(str(airflow.lake / name)).version() for name in ("events", "sales/orders")]
    assert len(airflow.account()["done"]) == 2


def test_a_try_takes_over_the_lease_of_the_one_that_was_killed_and_of_no_other_run(airflow: Airflow) -> None:
    airflow.run()
    (group,) = airflow.decide()
    lease_of(open_storage(str(airflow.lake / "events"), {}), group["night"], Runtime())
    lease_of(open_storage(str(airflow.lake / "sales/orders"), {}), "another", Runtime())
    assert airflow.maintain(group) == {"done": 1, "not_begun": 1}
    report = airflow.account()
    assert operations(report) == [("events", "optimize")]
    assert [Path(one["table"]).name for one in report["not_begun"]] == ["orders"]


def test_a_task_that_airflow_ends_stops_where_it_is(airflow: Airflow) -> None:
    task: Any = airflow.dag().get_task("fleet.decide")
    task.on_kill()
    with pytest.raises(TaskKilled), task.at_work():
        task.on_kill()


def test_the_run_is_red_for_new_failures_alone(airflow: Airflow) -> None:
    with_unknown_feature(airflow.lake / "events")
    with pytest.raises(AirflowFailException, match="events"):
        airflow.run()
    assert airflow.xcoms["fleet.account", "return_value"]["troubles"][0]["is_new"]
    again = airflow.run()
    assert [trouble["is_new"] for trouble in again["troubles"]] == [False]


def test_a_table_that_fails_fails_its_task_after_all_others_had_their_turn(airflow: Airflow) -> None:
    airflow.run()
    (group,) = airflow.decide()
    # A file that the log names is gone.
    next((airflow.lake / "events").rglob("*.parquet")).unlink()
    with pytest.raises(AirflowException, match=r"1 operation failed.*events: OPTIMIZE"):
        airflow.maintain(group)
    with pytest.raises(AirflowFailException, match="events: OPTIMIZE"):
        airflow.account()
    assert operations(airflow.xcoms["fleet.account", "return_value"]) == [("orders", "optimize")]


def test_deletions_wait_for_a_person_and_the_next_run_does_what_was_approved(airflow: Airflow) -> None:
    table = airflow.lake / "events"
    keep_no_removed_files(table)
    keep_no_removed_files(airflow.lake / "sales/orders")
    airflow.run()
    airflow.run()
    announced = airflow.run()
    assert {Path(name).name for name in announced["announced"]} == {"events", "orders"}
    approve: Any = airflow.dag().get_task("fleet.approve")
    with pytest.raises(AirflowSkipException):
        approve.execute(airflow.context(approve))
    assert airflow.run()["skipped"] == {"approval": 2}
    airflow.answer("Reject")
    assert airflow.run()["skipped"] == {"approval": 2}
    files, rows = len(list(table.rglob("*.parquet"))), ids(table)
    airflow.answer("Approve")
    assert sorted(operations(airflow.run())) == [("events", "vacuum"), ("orders", "vacuum")]
    assert len(list(table.rglob("*.parquet"))) < files
    assert ids(table) == rows
    # Each deletion needs an approval of its own.
    store = FleetStore.open(str(airflow.state), {})
    (approval,) = ApprovalFolder(store.storage).valid(Runtime().now_ms())
    assert approval.by == "Ada"
    assert not_used_up([approval], store.history()) == {}


def test_a_run_that_was_killed_is_accounted_for_by_the_next(airflow: Airflow) -> None:
    airflow.run()
    (group,) = airflow.decide()
    airflow.maintain(group)
    assert airflow.decide() == []
    store = FleetStore.open(str(airflow.state), {})
    assert len(store.night(group["night"]).outcomes) == 2
    with pytest.raises(AirflowFailException, match="accounted for already"):
        airflow.maintain(group)
    assert airflow.account()["skipped"] == {"healthy": 2}


def test_without_a_decision_the_last_task_says_so(airflow: Airflow) -> None:
    with pytest.raises(AirflowFailException, match=r"fleet\.decide of this run has decided nothing"):
        airflow.account()


def test_the_policy_may_be_a_file_beside_the_dag(tmp_path: Path, airflow: Airflow) -> None:
    (tmp_path / "fleet.yaml").write_text("tables: {include: [/nowhere/**]}\nhealty: {}\n")
    airflow.policy = str(tmp_path / "fleet.yaml")  # type: ignore[assignment]
    with pytest.raises(AirflowFailException, match=r"fleet\.yaml:2: there is no member 'healty'"):
        airflow.decide()
    airflow.policy = "fleet-of-nobody.yaml"  # type: ignore[assignment]
    with pytest.raises(
        AirflowFailException, match="scenarios/fleet-of-nobody.yaml cannot be read as a policy"
    ):
        airflow.decide()


def test_a_table_outside_of_the_allowed_roots_is_a_finding(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA__ALLOWED_ROOTS", f"{airflow.lake}/sales, {airflow.state}")
    with pytest.raises(AirflowFailException, match="events"):
        airflow.run()
    report = airflow.xcoms["fleet.account", "return_value"]
    assert (report["figures"]["num_tables"], report["figures"]["num_unread"]) == (2, 1)
    monkeypatch.setenv("AIRFLOW__DELTA__ALLOWED_ROOTS", str(airflow.lake))
    with pytest.raises(AirflowFailException, match="state"):
        airflow.decide()


def test_a_report_is_sent_whether_the_run_is_red_or_not(tmp_path: Path, make_context: MakeContext) -> None:
    room: list[dict[str, Any]] = []
    airflow = Airflow(tmp_path, make_context, report_to=lambda context: room.append(context["delta"]))
    write_days(airflow.lake / "events")
    airflow.run()
    task = airflow.accounted["ti"].task
    (notifier,) = task.on_success_callback
    assert task.on_failure_callback == [notifier]
    assert shown(airflow).run_id == task.report.run_id
    notifier(airflow.accounted)
    assert room[0]["subject"] == "Fleet: 1 of 1 tables unhealthy, 0 operations done"
    assert room[0]["markdown"].startswith("## Fleet")
    DeltaFleetReportNotifier(room.append, when="news")(airflow.accounted)
    assert len(room) == 1
    task.report = None
    notifier({**airflow.accounted, "exception": "No such bucket."})
    assert "No such bucket." in room[1]["text"]


def shown(airflow: Airflow) -> FleetView:
    """The night that the page shows."""
    store = airflow.asset_store
    return read_view(read_head(store.get(HEAD)), {key: store.get(key) for key in store.values})


def test_a_table_that_a_person_has_paused_on_the_page_is_left_alone(airflow: Airflow) -> None:
    airflow.run()
    pause = {"kind": "pause", "match": f"{airflow.lake}/events", "why": "migration"}
    airflow.asset_store.set(HOLDS, {"holds": [pause]})
    report = airflow.run()
    assert (operations(report), report["skipped"]) == ([("orders", "optimize")], {"paused": 1})
    states = {
        Path(one.table).name: (one.state, [left.why for left in one.left]) for one in shown(airflow).tables
    }
    assert states == {"events": ("paused", ["migration."]), "orders": ("done", [])}
    airflow.asset_store.set(HOLDS, {"holds": []})
    assert operations(airflow.run()) == [("events", "optimize")]


def test_a_failure_that_a_person_has_acknowledged_makes_no_run_red(airflow: Airflow) -> None:
    with_unknown_feature(airflow.lake / "events")
    known = {"kind": "acknowledge", "match": "**/events", "why": "TICKET-17", "until": "2999-12-31"}
    airflow.asset_store.set(HOLDS, {"holds": [known]})
    report = airflow.run()
    assert [trouble["is_new"] for trouble in report["troubles"]] == [False]
    assert report["skipped"] == {"known_broken": 1, "reported": 1}


def test_nothing_is_decided_if_what_is_paused_cannot_be_read(airflow: Airflow) -> None:
    airflow.asset_store.set(HOLDS, {"holds": "all"})
    with pytest.raises(AirflowFailException, match="delta_fleet_holds of the state store .* cannot be read"):
        airflow.decide()


def test_a_page_that_cannot_be_told_fails_no_run(airflow: Airflow) -> None:
    context = airflow.context
    airflow.decide()
    airflow.context = lambda task: {**context(task), "asset_state_store": {}}  # type: ignore[method-assign]
    assert airflow.account()["figures"]["num_tables"] == 2
    assert airflow.asset_store.values == {}


def test_alerts_are_sent_and_a_night_without_any_is_not(tmp_path: Path, make_context: MakeContext) -> None:
    room: list[dict[str, Any]] = []
    airflow = Airflow(tmp_path, make_context, alert_to=lambda context: room.append(context["delta"]))
    write_days(airflow.lake / "events")
    airflow.run()
    (notifier,) = airflow.accounted["ti"].task.on_success_callback
    notifier(airflow.accounted)
    assert room == []
    with_unknown_feature(airflow.lake / "events")
    with pytest.raises(AirflowFailException):
        airflow.run()
    notifier(airflow.accounted)
    (alert,) = room[0]["alerts"]
    assert alert.startswith("1 new failure: ")
    assert room[0]["text"].startswith(f"ALERT: {alert}")


def test_runs_of_one_fleet_share_no_time() -> None:
    with DAG("nightly", schedule=None), pytest.raises(ValueError, match="max_active_runs=1"):
        delta_fleet(policy={}, state="/state")


def test_what_a_run_keeps_in_airflow_is_small(tmp_path: Path, make_context: MakeContext) -> None:
    airflow = Airflow(tmp_path, make_context)
    airflow.policy["trust"] = {"new_table": "auto"}
    for number in range(30):
        write_days(airflow.lake / f"table {number:02d}")
    groups = airflow.decide()
    assert sum(len(group["units"]) for group in groups) == 30
    assert len(msgpack.encode(groups)) < 400


def test_one_operator_does_what_is_due_for_one_table(airflow: Airflow) -> None:
    def run(name: str) -> dict[str, Any]:
        with DAG("nightly", schedule=None):
            task: Any = DeltaMaintenanceOperator(
                task_id="maintain",
                table=str(airflow.lake / name),
                policy=airflow.policy,
                state=str(airflow.state),
            )
        return dict(task.execute(airflow.context(task)))

    assert run("events")["skipped"] == {"reported": 1}
    assert operations(run("events")) == [("events", "optimize")]
    assert run("events")["skipped"] == {"healthy": 1}
    with pytest.raises(AirflowException, match="table"):
        run("nowhere")
