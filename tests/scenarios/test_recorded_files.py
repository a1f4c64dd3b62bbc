"""This release reads what every release from 0.2.0 on has left behind, and goes on with it.

``tests/support/recorded_files.py`` says what is recorded.
"""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.recorded_files import (
    CLUSTER_RUNNER,
    FINISHED_RUN,
    KILLED_RUN,
    LAUNCHED,
    PLACE,
    SUBMISSION,
    USER,
    handle,
    moved,
    releases,
    task_context,
    write_versions,
)
from tests.support.runs.maintenance_runs import RUN_KEY, WatchedEngine, keys, manifests, run
from tests.support.runs.triggerer import Triggerer, in_a_loop
from tests.support.schemas import published_schema
from tests.support.tables.written_log import add, deletion_vector, write_log

from airflow_delta import watch_memory
from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.operators.reporting.stats import counts_of
from airflow_delta.run_identity import recall_or_begin
from airflow_delta.runners.detached import DetachedRunner
from airflow_delta.runners.task_log import tell_report
from airflow_delta.sensors.baseline import Baselines
from airflow_delta.submitted_job import recall_job
from airflow_delta.testing import FakeAssetStateStore, FakeStateStore
from airflow_delta.triggers import (
    DeltaDeletionVectorRatioTrigger,
    DeltaTableHealthTrigger,
    DeltaTableVersionTrigger,
)
from airflow_delta.triggers.job import DeltaJobTrigger
from delta_log import Table
from delta_log.log.file_names import commit_key
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.options import plan_within
from delta_maintenance.status_file import StatusFile

#: Operations that are newer than what is recorded.
NEWER_OPERATIONS = {"restore", "expire", "drop-feature", "generate", "repair", "analyze"}

RELEASES = pytest.mark.parametrize("release", releases(), ids=lambda path: path.name)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def content(file: Path) -> Any:
    return json.loads(file.read_text())


def test_releases_are_recorded() -> None:
    assert [release.name for release in releases()][:1] == ["0.2.0"]


@RELEASES
def test_a_spec_is_read_and_asks_for_nothing_else(release: Path) -> None:
    for text in lines(release / "specs.jsonl"):
        spec = JobSpec.from_json(text)
        written = json.loads(spec.to_json())
        assert json.loads(text).items() <= written.items()
        OPERATIONS[spec.operation].require_known(spec.options)


@RELEASES
def test_a_report_is_read_shown_and_counted(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [JobReport.from_json(text) for text in lines(release / "reports.jsonl")]
    assert {report.operation for report in found} == set(OPERATIONS) - NEWER_OPERATIONS
    for text, report in zip(lines(release / "reports.jsonl"), found, strict=True):
        assert json.loads(text).items() <= report.to_dict().items()
        jsonschema.validate(json.loads(text), published_schema("job-report"))
        assert counts_of(report)[report.status] == 1
        if report.error is None:
            tell_report(DeltaOptimizeOperator(task_id="t", table="/t").log, report)
        if report.status == "planned" and report.operation == "optimize":
            # As `approved_plan` takes the XCom of a dry run.
            assert plan_within(json.loads(text))["digest"] == (report.plan or {})["digest"]


@RELEASES
def test_a_killed_run_is_continued_and_its_finished_bins_are_taken_over(
    release: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    # New files: old manifests would be deleted.
    shutil.copytree(release / "table", table, copy_function=shutil.copy)
    ((finished, *_), left) = manifests(table, KILLED_RUN), WatchedEngine()
    report = run(table, run_id=KILLED_RUN, engine=left)
    assert (report.status, report.version) == ("committed", 2)
    assert len(left.given) == 1, "the other bin alone is rewritten"
    assert finished.bin_id not in left.given
    assert {output.key for output in finished.outputs} <= set(keys(table))
    assert sorted(Table(str(table)).snapshot().to_arrow().column("id").to_pylist()) == [0, 1, 2, 3]


@RELEASES
def test_the_status_file_of_a_job_on_a_cluster_is_read(release: Path) -> None:
    status = StatusFile(Table(str(release / "table")).storage, FINISHED_RUN, SUBMISSION)
    report = status.report(RUN_KEY)
    assert report is not None
    assert (report.status, report.version, report.metrics) == ("committed", 7, {"numAddedFiles": 2})
    assert (status.progress() or {})["done_bins"] == 1


@RELEASES
def test_a_retry_recognises_its_work_and_its_job(release: Path) -> None:
    store = FakeStateStore()
    for key, value in content(release / "task_state.json").items():
        store.set(key, value)
    stored = store.get("delta_maintenance_run")
    context = task_context(store)
    identity = recall_or_begin(context, "optimize", PLACE, 2_000_000_000_000_000)
    assert (identity.run_id, identity.version) == (stored["run_id"], stored["version"])
    assert identity.secret == store.get("delta_maintenance_run_key")["key"]
    job = recall_job(context, identity.run_id, CLUSTER_RUNNER)
    assert job is not None
    assert (job.submission_id, job.handle) == (SUBMISSION, store.get("delta_maintenance_job")["handle"])
    assert Baselines(context, PLACE).begun() == 7  # type: ignore[arg-type]


@RELEASES
def test_a_deferred_trigger_is_made_of_what_was_stored(release: Path) -> None:
    for path, kwargs in content(release / "triggers.json"):
        module, _, name = path.rpartition(".")
        trigger = getattr(import_module(module), name)(**kwargs)
        again, today = trigger.serialize()
        assert again == path
        assert kwargs.items() <= today.items()
        if isinstance(trigger, DeltaJobTrigger):
            # Made without a connection, as it is when the triggerer starts.
            assert isinstance(trigger._runner, DetachedRunner)


@RELEASES
def test_the_handle_of_a_job_names_what_the_cluster_or_server_knows(release: Path) -> None:
    deferred = [kwargs for _, kwargs in content(release / "triggers.json") if "runner" in kwargs]
    drivers = {
        one["runner_kwargs"]["launcher"].rpartition(".")[2]: one["handle"]
        for one in deferred
        if "launcher" in one["runner_kwargs"]
    }
    known = {type(launcher).__name__: driver for launcher, driver in LAUNCHED}
    assert drivers == {name: handle(FINISHED_RUN, known[name]) for name in drivers}
    (connect,) = [one["handle"] for one in deferred if "launcher" not in one["runner_kwargs"]]
    rewrite, named = DetachedRewrite.from_dict(connect), DetachedRewrite.named(SUBMISSION, USER)
    assert (rewrite.session_id, rewrite.operation_id) == (named.session_id, named.operation_id)
    assert (rewrite.bins, rewrite.read_version, rewrite.facts) == (2, 1, {"foreign": None})
    assert rewrite.to_dict() == connect


@RELEASES
def test_a_watcher_of_versions_goes_on_after_what_was_told(release: Path, tmp_path: Path) -> None:
    table = tmp_path / "versions"
    write_versions(table, 3)
    store = kept(release, "versions", table)

    @in_a_loop
    async def story() -> None:
        watcher = DeltaTableVersionTrigger(str(table), poll_interval=0.05, start_from="earliest")
        async with Triggerer(watcher, store) as triggerer:
            (event, *_) = await triggerer.until(1)
            assert (event["firstVersion"], event["repeated"]) == (2, False)

    story()


@RELEASES
def test_a_watcher_of_deleted_rows_does_not_tell_again_what_it_has_told(
    release: Path, tmp_path: Path
) -> None:
    table = tmp_path / "deleted"
    stats = {"stats": '{"numRecords":10}'}
    with_deletions = [
        add(f"{day}.parquet", 100, {"day": day}, **stats, deletionVector=deletion_vector(5, 5))
        for day in "ab"
    ]
    write_log(table, with_deletions[:1], partition_by={"day": "string"})
    store = kept(release, "deleted_rows", table)

    @in_a_loop
    async def story() -> None:
        watcher = DeltaDeletionVectorRatioTrigger(str(table), poll_interval=0.05, ratio=0.1)
        async with Triggerer(watcher, store) as triggerer:
            await triggerer.wait_for(lambda: watcher._measured.get(str(table)) == 0)
            assert triggerer.events == []
            more = [{"commitInfo": {}}, {"add": with_deletions[1]}]
            (table / commit_key(1)).write_text("\n".join(map(json.dumps, more)))
            (event, *_) = await triggerer.until(1)
            assert {one["partition"]["day"] for one in event["partitions"]} == {"a", "b"}

    story()


@RELEASES
def test_a_watcher_of_health_does_not_tell_again_what_it_has_told(release: Path, tmp_path: Path) -> None:
    table = tmp_path / "versions"
    write_versions(table, 1)
    store = kept(release, "health", table)

    @in_a_loop
    async def story() -> None:
        watcher = DeltaTableHealthTrigger(str(table), poll_interval=0.05, commits_since_checkpoint=1)
        async with Triggerer(watcher, store) as triggerer:
            await triggerer.wait_for(lambda: watcher._measured.get(str(table)) == 1)
            assert (triggerer.events, watcher._known[str(table)]["over"]) == (
                [],
                ["numCommitsSinceCheckpoint"],
            )

    story()


@RELEASES
def test_which_versions_watchers_have_seen_is_read_from_what_they_kept(release: Path) -> None:
    for entries in content(release / "watchers.json").values():
        for key, value in entries.items():
            prefix, _, shard = key.rpartition(".")
            assert prefix in watch_memory.PREFIXES.values()
            if shard.isdigit():
                assert watch_memory.version_of(value[PLACE]) in (0, 1)


@RELEASES
def test_the_health_of_a_table_is_as_it_was_published(release: Path) -> None:
    jsonschema.validate(content(release / "health.json"), published_schema("health"))


def kept(release: Path, watcher: str, table: Path) -> FakeAssetStateStore:
    """What a watcher had kept, for a table in a place of this test."""
    store = FakeAssetStateStore()
    state = {key: json.dumps(value) for key, value in content(release / "watchers.json")[watcher].items()}
    store.values = {key: json.dumps(value) for key, value in moved(state, PLACE, str(table)).items()}
    return store
