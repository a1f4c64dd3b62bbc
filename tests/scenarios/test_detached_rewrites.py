"""A rewrite that one job begins and another finishes: what happens to the table, and to the rewrite, between the two."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.runs.maintenance_runs import RUN_KEY, manifests, run_spec
from tests.support.tables.small_tables import write_parts

from delta_log import Table
from delta_log.runtime import Runtime
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.engine.choice import EngineChoice
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.engines import EngineFactory
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.errors import BadManifest, OperationLost
from delta_maintenance.job_context import JobContext
from delta_maintenance.optimize import run as optimize
from delta_maintenance.progress import ProgressReporter, SilentProgress
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask


@dataclass
class Server:
    """Rewrites the bins that it was given when the test says so, on the local engine.

    :ivar names: of the rewrites that were begun.
    """

    name = "spark"
    given: list[RewriteTask] = field(default_factory=list)
    names: list[DetachedRewrite] = field(default_factory=list)
    is_lost: bool = False

    def rewrite(self, count: int | None = None) -> None:
        list(LocalEngine({}).run(self.given[:count], SilentProgress(), RUN_KEY))

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        if self.is_lost:
            raise OperationLost("server:15002", "SESSION_NOT_FOUND")
        yield from ()  # what is finished has its manifest


@dataclass(frozen=True)
class ServerEngines(EngineFactory):
    server: Server = field(default_factory=Server)

    def choose(self, planned_bytes: int) -> EngineChoice:
        return EngineChoice("spark", "asked for")

    def begin(
        self, name: str, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> DetachedRewrite | None:
        if self.begins is None or not tasks:
            return None
        self.server.given = list(tasks)
        self.server.names.append(self.begins)
        return self.begins

    def make(self, name: str) -> Server:
        return self.server


def job(table: Path, server: Server, *, now_ms: int | None = None, **detached: Any) -> JobReport:
    opened, options = Table(str(table)), detached.pop("options", {})
    spec = JobSpec(
        "optimize", opened.uri, "run", options, engine="spark", transaction=TransactionId("app", 1)
    )
    runtime = Runtime() if now_ms is None else Runtime(now_ms=lambda: now_ms)
    engines = ServerEngines(spec, server=server, **detached)
    rewrite = detached.get("finishes")
    started_ms = runtime.now_ms() if rewrite is None else rewrite.started_ms
    return optimize.run(spec, JobContext(opened, SilentProgress(), runtime, engines, RUN_KEY, started_ms))


def begin(table: Path, server: Server, **options: Any) -> DetachedRewrite:
    report = job(table, server, begins=DetachedRewrite.named("first", "me"), options=options)
    return of(report)


def of(report: JobReport) -> DetachedRewrite:
    assert report.status == "begun"
    assert report.rewrite is not None
    return DetachedRewrite.from_dict(report.rewrite)


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


def test_the_job_that_finishes_reports_what_one_job_would_have(tmp_path: Path) -> None:
    one, two = (write_parts(tmp_path / name, "ab") for name in ("one", "two"))
    whole = run_spec(
        JobSpec("optimize", str(one), "run", transaction=TransactionId("app", 1)), Table(str(one))
    )
    server = Server()
    rewrite = begin(two, server)
    assert (rewrite.bins, rewrite.read_version) == (2, 1)
    assert Table(str(two)).snapshot().version == 1
    server.rewrite()
    report = job(two, server, finishes=rewrite)
    for name in ("status", "version", "read_version", "selection", "earlier_tries", "left", "dropped_bins"):
        assert getattr(report, name) == getattr(whole, name), name
    assert report.started_ms == rewrite.started_ms
    assert report.metrics["numRemovedFiles"] == whole.metrics["numRemovedFiles"]
    assert manifests(two) == []


def test_a_bin_that_another_writer_changed_meanwhile_is_left_out_and_new_files_are_not_taken(
    tmp_path: Path,
) -> None:
    table, server = write_parts(tmp_path / "t", "abc"), Server()
    rewrite = begin(table, server)
    server.rewrite()
    DeltaTable(str(table)).delete("part = 'b'")
    write_parts(table, "d")
    report = job(table, server, finishes=rewrite)
    assert (report.status, report.dropped_bins, report.read_version) == ("committed", 1, 1)
    assert report.metrics["numRemovedFiles"] == 4
    assert ids(table) == [0, 0, 2, 10, 10, 12]
    assert Table(str(table)).snapshot().num_files == 4


def test_bins_that_a_lost_rewrite_did_not_finish_are_begun_once_more(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "abc"), Server()
    rewrite = begin(table, server)
    server.rewrite(1)
    server.is_lost = True
    second = of(job(table, server, finishes=rewrite))
    assert (second.bins, len(server.given)) == (2, 2)
    assert server.names == [DetachedRewrite.named("first", "me"), rewrite.next()]
    assert second.facts == rewrite.facts
    assert second.started_ms == rewrite.started_ms
    server.rewrite()
    report = job(table, server, finishes=second)
    assert (report.status, report.metrics["numRemovedFiles"], report.left) == ("committed", 6, None)
    assert ids(table) == [0, 1, 2, 10, 11, 12]


def test_a_lost_rewrite_that_finished_everything_is_committed(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "ab"), Server()
    rewrite = begin(table, server)
    server.rewrite()
    server.is_lost = True
    assert job(table, server, finishes=rewrite).status == "committed"


def test_a_lost_rewrite_that_finished_nothing_is_an_outage(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "ab"), Server(is_lost=True)
    rewrite = begin(table, server)
    with pytest.raises(OperationLost) as lost:
        job(table, server, finishes=rewrite)
    assert lost.value.retryable
    assert len(server.names) == 1


def test_a_rewrite_of_which_it_is_not_known_whether_it_began_is_begun(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "ab"), Server(is_lost=True)
    named = DetachedRewrite.named("first", "me")
    report = job(table, server, now_ms=1, finishes=DetachedRewrite(**{**named.to_dict(), "started_ms": 1}))
    assert of(report).operation_id == named.next().operation_id


def test_bins_that_were_not_begun_in_time_are_left(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "abc"), Server()
    rewrite = begin(table, server, max_duration_seconds=60)
    assert [task.begin_before_ms for task in server.given[1:]] == [(rewrite.started_ms or 0) + 60_000] * 2
    server.rewrite(1)
    report = job(table, server, finishes=rewrite, options={"max_duration_seconds": 60})
    assert (report.status, report.left) == ("committed", {"bins": 2, "files": 4, "bytes": 1944})


def test_a_rewrite_that_ended_and_left_nothing_is_not_believed(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "ab"), Server()
    rewrite = begin(table, server)
    with pytest.raises(BadManifest, match="no bin has left one"):
        job(table, server, finishes=rewrite)
    assert Table(str(table)).snapshot().version == 1


def test_a_second_job_that_finishes_the_same_rewrite_commits_nothing(tmp_path: Path) -> None:
    table, server = write_parts(tmp_path / "t", "ab"), Server()
    rewrite = begin(table, server)
    server.rewrite()
    assert job(table, server, finishes=rewrite).status == "committed"
    report = job(table, server, finishes=rewrite)
    assert (report.status, report.version) == ("already_done", 2)
    assert Table(str(table)).snapshot().version == 2
