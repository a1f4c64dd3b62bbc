"""The sensors, poked and deferred, on real tables. What Airflow keeps between runs is a fake in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralTimeout,
    TaskDeferred,
)
from tests.support.runs.tail_runs import TailedTable
from tests.support.tables.hostile_text import CONTROLS, FORGED_LINE
from tests.support.tables.written_log import add, deletion_vector, write_log

from airflow_delta.sensors import (
    DeltaDeletionVectorRatioSensor,
    DeltaTableHealthSensor,
    DeltaTableVersionSensor,
)
from airflow_delta.testing import FakeStateStore
from airflow_delta.triggers.table_wait import refusal
from delta_log.errors import NoCredentials
from delta_log.log.file_names import checksum_key, commit_key

pytestmark = pytest.mark.usefixtures("settled_deferrals")


@pytest.fixture
def table(tmp_path: Path) -> TailedTable:
    created = TailedTable("events", str(tmp_path / "events"))
    created.create()
    return created


class Runs:
    """What Airflow keeps of the runs of one task: XComs and states."""

    def __init__(self) -> None:
        self.xcoms: dict[tuple[str, int, str], Any] = {}
        self.states: dict[str, str] = {}

    def context(self, run_id: str, map_index: int = -1, **more: Any) -> Any:
        def push(key: str, value: Any) -> None:
            self.xcoms[run_id, map_index, key] = value

        def pull(*, key: str, **_: Any) -> list[Any]:
            return [value for (_, _, name), value in self.xcoms.items() if name == key]

        def states(*, run_ids: list[str], task_ids: list[str], **_: Any) -> dict[str, Any]:
            return {run: {task_ids[0]: self.states[run]} for run in run_ids if run in self.states}

        self.states[run_id] = "running"
        instance = SimpleNamespace(
            dag_id="dag",
            task_id="wait",
            run_id=run_id,
            map_index=map_index,
            max_tries=0,
            xcom_push=push,
            xcom_pull=pull,
            get_task_states=states,
        )
        return {"ti": instance, **more}


@pytest.fixture
def runs() -> Runs:
    return Runs()


def sensor(table: TailedTable, **more: Any) -> DeltaTableVersionSensor:
    arguments = {"start_from": "earliest", "poke_interval": 0.05, "timeout": 60, **more}
    return DeltaTableVersionSensor(task_id="wait", table=table.uri, **arguments)


def done(runs: Runs, run_id: str, table: TailedTable, map_index: int = -1, **more: Any) -> tuple[int, int]:
    """The range that a run finds; the run succeeds."""
    found = sensor(table, **more).execute(runs.context(run_id, map_index))
    runs.states[run_id] = "success"
    return found["firstVersion"], found["lastVersion"]


def event_of(caught: pytest.ExceptionInfo[TaskDeferred]) -> Any:
    """Returns the trigger that a task waits for."""

    async def run() -> Any:
        return [event.payload async for event in caught.value.trigger.run()]

    (payload,) = asyncio.run(run())
    return payload


def test_each_run_goes_on_where_the_previous_successful_one_left_off(table: TailedTable, runs: Runs) -> None:
    table.append_by_delta_rs()
    assert done(runs, "1", table) == (0, 1)
    table.append_by_delta_rs()
    table.commit_by_ours()
    assert done(runs, "2", table) == (2, 3)


def test_what_a_run_noted_that_did_not_succeed_is_still_open(table: TailedTable, runs: Runs) -> None:
    table.append_by_delta_rs()
    assert done(runs, "1", table) == (0, 1)
    table.append_by_delta_rs()
    sensor(table).execute(runs.context("2"))
    runs.states["2"] = "failed"
    table.append_by_delta_rs()
    assert done(runs, "3", table) == (2, 3)


def test_a_retry_of_a_run_sets_out_from_where_its_first_try_did(table: TailedTable, runs: Runs) -> None:
    asset = Asset(name="events", uri=f"file://{table.uri}")
    store = FakeStateStore()
    context = runs.context("1", task=SimpleNamespace(inlets=[asset]), asset_state_store={asset: store})
    table.append_by_delta_rs()
    first = sensor(table).execute(context)
    assert sensor(table).execute(context)["firstVersion"] == first["firstVersion"] == 0
    assert runs.xcoms == {}


def test_a_first_run_that_is_rescheduled_sees_what_came_between_two_looks(
    table: TailedTable, runs: Runs
) -> None:
    table.append_by_delta_rs()
    context = runs.context("1", task_state_store=FakeStateStore())

    def look(**more: Any) -> Any:
        # Each look is a process of its own.
        return sensor(table, start_from="latest", **more).poke(context)

    assert not look()
    table.append_by_delta_rs()
    assert not look(min_rows=1_000)
    table.append_by_delta_rs()
    found = look()
    assert (found.xcom_value["firstVersion"], found.xcom_value["lastVersion"]) == (2, 3)
    # A user who clears it wants it to begin with the version that is the latest then.
    runs.xcoms.clear()
    context["ti"].max_tries += 1
    assert not look()


def test_a_mapped_task_knows_its_tables_by_name_whatever_their_map_index(tmp_path: Path, runs: Runs) -> None:
    tables = [TailedTable(name, str(tmp_path / name)) for name in ("a", "b")]
    for one in tables:
        one.create()
        one.append_by_delta_rs()
    assert done(runs, "1", tables[0], map_index=0) == (0, 1)
    tables[0].append_by_delta_rs()
    assert done(runs, "2", tables[1], map_index=0) == (0, 1)
    assert done(runs, "3", tables[0], map_index=1) == (2, 2)


def test_the_first_run_starts_where_it_is_told_to(table: TailedTable, runs: Runs) -> None:
    for _ in range(3):
        table.append_by_delta_rs()
    assert done(runs, "1", table, start_from=2) == (2, 3)
    with pytest.raises(AirflowSensorTimeout):
        sensor(table, start_from="latest", timeout=0.1).execute(Runs().context("1"))


def test_a_baseline_of_ones_own_wins(table: TailedTable, runs: Runs) -> None:
    for _ in range(3):
        table.append_by_delta_rs()
    assert done(runs, "1", table) == (0, 3)
    assert done(runs, "2", table, baseline="1") == (2, 3)


def test_a_version_a_moment_and_a_transaction_can_be_waited_for(table: TailedTable, runs: Runs) -> None:
    table.append_by_delta_rs()
    table.append_by_delta_rs()
    assert done(runs, "1", table, version=2) == (2, 2)
    with pytest.raises(AirflowSensorTimeout):
        sensor(table, version=3, timeout=0.1).execute(runs.context("2"))
    now = datetime.now(UTC)
    assert done(runs, "3", table, newer_than=now - timedelta(hours=1))[1] == 2
    with pytest.raises(AirflowSensorTimeout):
        sensor(table, newer_than=(now + timedelta(hours=1)).isoformat(), timeout=0.1).execute(
            runs.context("4")
        )
    from deltalake import CommitProperties, DeltaTable, Transaction

    opened = DeltaTable(table.uri)
    properties = CommitProperties(app_transactions=[Transaction("app", 7)])
    opened.create_write_transaction([], "append", opened.schema(), ["day"], commit_properties=properties)
    assert done(runs, "5", table, transaction=("app", 7)) == (3, 3)
    with pytest.raises(AirflowSensorTimeout):
        sensor(table, transaction=("app", 8), timeout=0.1).execute(runs.context("6"))


def test_what_there_is_already_defers_nothing(table: TailedTable, runs: Runs) -> None:
    table.append_by_delta_rs()
    found = sensor(table, deferrable=True).execute(runs.context("1"))
    assert found["lastVersion"] == 1


def test_a_deferred_sensor_finds_what_a_poking_one_does(table: TailedTable, runs: Runs) -> None:
    waiting = sensor(table, deferrable=True, baseline=0)
    context = runs.context("1")
    with pytest.raises(TaskDeferred) as caught:
        waiting.execute(context)
    assert caught.value.timeout is not None
    assert timedelta(0) < caught.value.timeout <= timedelta(seconds=60)
    table.append_by_delta_rs()
    # The task that goes on is another process.
    assert sensor(table, deferrable=True).execute_complete(context, event_of(caught))["lastVersion"] == 1


def test_a_timeout_fails_or_skips_as_for_every_sensor(table: TailedTable, runs: Runs) -> None:
    with pytest.raises(AirflowSkipException):
        sensor(table, baseline=0, timeout=0.1, soft_fail=True).execute(runs.context("1"))
    with pytest.raises(AirflowSkipException):
        sensor(table, baseline=5, deferrable=True, soft_fail=True).execute(runs.context("1"))
    for soft_fail, outcome in ((False, AirflowSensorTimeout), (True, AirflowSkipException)):
        waiting = sensor(table, soft_fail=soft_fail, deferrable=True)
        waiting.execute_complete = _times_out  # type: ignore[method-assign]
        with pytest.raises(outcome):
            waiting.resume_execution("execute_complete", {"event": {}}, runs.context("1"))


def _times_out(*_: Any, **__: Any) -> Any:
    raise TaskDeferralTimeout("too long")


def test_a_deferred_sensor_waits_no_longer_than_the_execution_timeout_of_its_task(
    table: TailedTable, runs: Runs
) -> None:
    waiting = sensor(table, baseline=0, deferrable=True, timeout=6000, execution_timeout=timedelta(minutes=9))
    with pytest.raises(TaskDeferred) as caught:
        waiting.execute(runs.context("1"))
    assert caught.value.timeout is not None
    assert timedelta(0) < caught.value.timeout <= timedelta(minutes=9)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_that_never_fails_is_skipped_for_a_table_at_fault(
    table: TailedTable, runs: Runs, *, deferrable: bool
) -> None:
    with pytest.raises(AirflowSkipException):
        sensor(table, baseline=5, never_fail=True, deferrable=deferrable).execute(runs.context("1"))


def test_a_log_cleaned_past_the_baseline_fails_or_goes_on_and_says_so(table: TailedTable, runs: Runs) -> None:
    for _ in range(6):
        table.append_by_delta_rs()
    table.clean_log(keep=2)
    with pytest.raises(AirflowFailException, match=r"commits 1 to 3 are gone.*\[LogCleaned\]"):
        sensor(table, baseline=0).execute(runs.context("1"))
    found = sensor(table, baseline=0, on_cleaned="continue").execute(runs.context("2"))
    assert (found["cleaned"], found["lastVersion"]) == ([1, 3], 6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": "x"},
        {"newer_than": "2026-01-01T00:00:00"},
        {"transaction": "app"},
        {"operations": "WRITE"},
        {"on_cleaned": "hope"},
        {"start_from": "now"},
        {"min_rows": 0},
    ],
)
def test_a_senseless_argument_is_refused_when_the_dag_is_parsed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DeltaTableVersionSensor(task_id="wait", table="s3://lake/a", **wrong)


@pytest.mark.parametrize("kind", [DeltaTableVersionSensor, DeltaDeletionVectorRatioSensor])
def test_every_template_field_is_an_attribute_that_the_arguments_set(kind: Callable[..., Any]) -> None:
    made = kind(task_id="wait", table="{{ params.table }}")
    assert all(hasattr(made, name) for name in type(made).template_fields)


def vacuumed(tmp_path: Path) -> Path:
    """Two of ten rows are deleted in one partition, half of them in another, none in a third."""
    stats = {"stats": '{"numRecords":10}'}
    write_log(
        tmp_path / "deleted",
        [
            add("a", 100, {"day": "1"}, deletionVector=deletion_vector(2), **stats),
            add("b", 100, {"day": "2"}, deletionVector=deletion_vector(5, 9), **stats),
            add("c", 100, {"day": "3"}, **stats),
        ],
        partition_by={"day": "string"},
    )
    return tmp_path / "deleted"


def test_deleted_rows_are_found_with_their_partitions(tmp_path: Path, runs: Runs) -> None:
    waiting = DeltaDeletionVectorRatioSensor(task_id="wait", table=str(vacuumed(tmp_path)), ratio=0.1)
    found = waiting.execute(runs.context("1"))
    assert [one["partition"] for one in found["partitions"]] == [{"day": "2"}, {"day": "1"}]
    assert found["where"] == "(`day` = '2') OR (`day` = '1')"
    assert (found["numDeletedRows"], found["numRows"], found["ratio"]) == (7, 30, 0.233333)


@pytest.mark.parametrize(
    ("limits", "partitions"),
    [
        ({"ratio": 0.3}, ["2"]),
        ({"ratio": 0.6}, None),
        ({"ratio": 0.2, "per_partition": False}, ["2", "1"]),
        ({"ratio": 0.3, "per_partition": False}, None),
        ({"ratio": None, "size": "99B"}, ["2", "1"]),
        ({"ratio": None, "size": "99B", "file_ratio": 0.4}, ["2"]),
        ({"ratio": None, "files": 1}, None),
        ({"ratio": None, "files": 1, "per_partition": False}, ["2", "1"]),
    ],
)
def test_a_limit_is_on_rows_files_or_bytes_of_a_partition_or_the_table(
    tmp_path: Path, runs: Runs, limits: dict[str, Any], partitions: list[str] | None
) -> None:
    waiting = DeltaDeletionVectorRatioSensor(
        task_id="wait", table=str(vacuumed(tmp_path)), timeout=0, poke_interval=0, **limits
    )
    if partitions is None:
        with pytest.raises(AirflowSensorTimeout):
            waiting.execute(runs.context("1"))
    else:
        found = waiting.execute(runs.context("1"))
        assert [one["partition"]["day"] for one in found["partitions"]] == partitions


def test_the_health_of_a_table_is_waited_for_in_the_task_and_in_the_triggerer(
    table: TailedTable, runs: Runs
) -> None:
    waiting = DeltaTableHealthSensor(
        task_id="wait", table=table.uri, commits_since_checkpoint=2, poke_interval=0.05, deferrable=True
    )
    with pytest.raises(TaskDeferred) as caught:
        waiting.execute(runs.context("1"))
    table.append_by_delta_rs()
    table.append_by_delta_rs()
    found = waiting.execute_complete(runs.context("1"), event_of(caught))
    assert (found["passed"], found["numCommitsSinceCheckpoint"]) == (["numCommitsSinceCheckpoint"], 3)


def test_small_files_are_those_that_optimize_would_merge(
    tmp_path: Path, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    day = {"day": "string"}
    one_each = [add(f"{number}", 100, {"day": str(number)}) for number in range(40)]
    write_log(tmp_path / "lone", one_each, partition_by=day)
    write_log(
        tmp_path / "several",
        [*one_each, *(add(f"x{n}", 100, {"day": "7"}) for n in range(3))],
        partition_by=day,
    )

    def sensor_on(name: str, **more: Any) -> Any:
        wait = {"timeout": 0, "poke_interval": 0, **more}
        return DeltaTableHealthSensor(task_id="wait", table=str(tmp_path / name), **wait)

    with pytest.raises(AirflowSensorTimeout):
        sensor_on("lone", small_files=1).execute(runs.context("1"))
    assert "files that OPTIMIZE would merge: 0 (limit: more than 1)" in caplog.text
    with pytest.raises(AirflowSensorTimeout):
        sensor_on("several", small_files=4).execute(runs.context("2"))
    found = sensor_on("several", small_files=3).execute(runs.context("3"))
    assert (found["passed"], found["numSmallFiles"], found["numFiles"]) == (["numSmallFiles"], 4, 43)
    assert sensor_on("several", small_files=3, small_file_size="5GiB").execute(runs.context("4"))
    with pytest.raises(AirflowSensorTimeout):
        sensor_on("several", small_files=1, small_file_size=100).execute(runs.context("5"))


def test_a_table_that_optimize_refuses_has_no_small_files_to_wait_for(tmp_path: Path, runs: Runs) -> None:
    write_log(tmp_path / "odd", [add(name, 100) for name in "ab"])
    (commit,) = (tmp_path / "odd" / "_delta_log").glob("*.json")
    text = commit.read_text().replace('"writerFeatures": [', '"writerFeatures": ["collations", ')
    commit.write_text(text)
    waiting = DeltaTableHealthSensor(task_id="wait", table=str(tmp_path / "odd"), small_files=1)
    with pytest.raises(AirflowFailException, match=r"Cannot optimize this table: it uses collations"):
        waiting.execute(runs.context("1"))


def test_a_checksum_spares_the_list_of_files_where_there_are_too_few(tmp_path: Path, runs: Runs) -> None:
    write_log(tmp_path / "few", [add(name, 100) for name in "abc"])
    checksum = {"tableSizeBytes": 300, "numFiles": 3, "numDeletionVectorsOpt": 0}
    (tmp_path / "few" / checksum_key(0)).write_text(json.dumps(checksum))
    # The log would be refused, were it replayed.
    (tmp_path / "few" / commit_key(0)).write_text(
        '{"protocol":{"minReaderVersion":99,"minWriterVersion":99}}'
    )
    waiting: dict[str, Any] = {
        "task_id": "wait",
        "table": str(tmp_path / "few"),
        "timeout": 0,
        "poke_interval": 0,
    }
    with pytest.raises(AirflowSensorTimeout):
        DeltaTableHealthSensor(small_files=3, **waiting).execute(runs.context("1"))
    with pytest.raises(AirflowFailException, match="The log is incomplete"):
        DeltaTableHealthSensor(small_files=2, **waiting).execute(runs.context("2"))


def test_a_refusal_that_quotes_the_table_is_one_printable_line(runs: Runs, table: TailedTable) -> None:
    event = {"status": "refused", "type": "CorruptLog", "message": f"{FORGED_LINE}{CONTROLS}"}
    with pytest.raises(AirflowFailException, match="forged line") as caught:
        sensor(table).execute_complete(runs.context("run"), event)
    assert str(caught.value).isprintable()


def test_a_sensor_that_the_store_refuses_names_its_connection(table: TailedTable, runs: Runs) -> None:
    refused = refusal(NoCredentials(table.uri, "Unable to locate credentials"))
    with pytest.raises(AirflowFailException, match="Put them into connection 'lake'"):
        sensor(table, delta_conn_id="lake").execute_complete(runs.context("run"), refused)
