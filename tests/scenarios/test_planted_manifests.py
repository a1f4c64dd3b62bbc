"""Manifests planted by a user who may write below the table's root: no run does anything outside of its plan because of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.runs.maintenance_runs import RUN_KEY, WatchedEngine, keys, run
from tests.support.tables.planted_manifests import (
    FORGED_ID,
    forged,
    forged_file,
    of_gone_sources,
    planned,
    plant,
)
from tests.support.tables.small_tables import write_parts

from delta_log import Table
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.cli.main import main
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.errors import BadManifest
from delta_maintenance.job_interface import RUN_KEY_VARIABLE
from delta_maintenance.optimize.commit.resume import find_earlier_tries
from delta_maintenance.progress import ProgressReporter, SilentProgress
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

PARTS = "abc"
IDS = [0, 1, 2, 10, 11, 12]
ANY_BIN = "0" * 32


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two small files in each of three partitions: three bins."""
    return write_parts(tmp_path / "lake" / "t", PARTS)


def ids(table: Path) -> list[int]:
    found: list[int] = Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()
    return sorted(found)


def is_done(table: Path) -> bool:
    """Are all rows there, in one file of our own for each partition?"""
    return ids(table) == IDS and len(keys(table)) == len(PARTS) and "forged.parquet" not in keys(table)


def claim(table: Path, number: int) -> Path:
    """A forged manifest of one of the bins, with a file that is there."""
    task = planned(table)[number]
    file = forged_file(table / f"part={task.partition_values['part']}" / "forged.parquet")
    key = file.relative_to(table).as_posix()
    return plant(table, forged(task, path=key, key=key, size_bytes=file.stat().st_size))


def test_a_file_outside_of_the_table_that_a_manifest_names_is_not_deleted(table: Path) -> None:
    victim = table.parent / "victim" / "x"
    victim.parent.mkdir()
    victim.write_text("another user's")
    task = planned(table)[0]
    for number, key in enumerate(("../victim/x", "part=a/../../victim/x", str(victim))):
        manifest = {**of_gone_sources(forged(task, path=key, key=key)), "bin_id": f"{number:032x}"}
        plant(table, manifest)
    assert run(table).status == "committed"
    assert victim.read_text() == "another user's"
    assert is_done(table)


def test_a_file_outside_of_the_table_that_is_named_as_a_bin_is_not_deleted(table: Path) -> None:
    victim = table.parent / "victim" / "a.json"
    victim.parent.mkdir()
    victim.write_text("another user's")
    manifest = {**of_gone_sources(forged(planned(table)[0])), "bin_id": "../../../victim/a"}
    plant(table, manifest, name=ANY_BIN)
    assert run(table).status == "committed"
    assert victim.exists()
    assert is_done(table)


def test_no_commit_that_a_manifest_names_is_deleted(table: Path) -> None:
    log = sorted((table / "_delta_log").glob("*.json"))
    for number, path in enumerate(log):
        key = path.relative_to(table).as_posix()
        manifest = of_gone_sources(forged(planned(table)[0], path=key, key=key))
        plant(table, {**manifest, "bin_id": f"{number:032x}"})
    assert run(table).status == "committed"
    assert all(path.exists() for path in log)
    assert is_done(table)


def test_a_bin_that_is_claimed_done_is_done_all_the_same(table: Path) -> None:
    for number in range(len(PARTS)):
        claim(table, number)
    report = run(table)
    assert (report.status, report.metrics["numRemovedFiles"]) == ("committed", 6)
    assert is_done(table)
    assert FORGED_ID not in ids(table)


def test_a_bin_that_is_claimed_done_while_the_run_is_on_is_done_all_the_same(table: Path) -> None:
    """The run's id is seen in ``_maintenance/``; which bins it has yet to do, anybody can plan."""
    claimed: list[Path] = []

    def watch(number: int) -> None:
        (directory,) = (table / "_maintenance").iterdir()
        assert directory.name == "run"
        if number < len(PARTS):
            claimed.append(claim(table, number))

    report = run(table, engine=WatchedEngine(watch))
    assert (report.status, len(claimed)) == ("committed", 2)
    assert is_done(table)


def test_a_file_of_another_table_is_not_committed(table: Path) -> None:
    other = write_parts(table.parent / "other", "a")
    foreign = other / keys(other)[0]
    plant(
        table,
        forged(
            planned(table)[0],
            path=foreign.as_uri(),
            key=f"../other/{keys(other)[0]}",
            size_bytes=foreign.stat().st_size,
        ),
    )
    assert run(table).status == "committed"
    assert is_done(table)


def test_the_command_line_takes_nothing_over_by_a_run_id_alone(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(table, 0)
    assert main(["optimize", str(table), "--run-id", "run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["metrics"]["numRemovedFiles"]) == ("committed", 6)
    assert is_done(table)


def test_what_was_ignored_is_counted_in_one_line(table: Path) -> None:
    claim(table, 0)
    plant(table, {}, name="anything")
    told: list[str] = []

    class Told(SilentProgress):
        def message(self, text: str) -> None:
            told.append(text)

    run(table, progress=Told())
    assert [text for text in told if "ignored" in text] == [
        "ignored 2 files in _maintenance/run that are no manifests of this run's key"
    ]


def test_what_another_key_has_finished_is_done_again_and_its_files_are_left_alone(table: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(number: int) -> None:
        if number == 2:
            raise Killed

    with pytest.raises(Killed):
        run(table, engine=WatchedEngine(kill), run_key=RunKey("0f" * 32))
    left = set(table.rglob("*.parquet"))
    engine = WatchedEngine()
    assert run(table, engine=engine).status == "committed"
    assert len(engine.given) == len(PARTS)
    assert is_done(table)
    assert left <= set(table.rglob("*.parquet"))


def test_the_command_line_goes_on_with_a_run_of_the_same_key(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = planned(table)
    finished = rewrite_bin(tasks[0], LocalStorage(str(table)), RUN_KEY)
    monkeypatch.setenv(RUN_KEY_VARIABLE, RUN_KEY.text.upper())
    assert main(["optimize", str(table), "--run-id", "run", "--json"]) == 0
    assert is_done(table)
    assert finished.outputs[0].key in keys(table)
    assert RUN_KEY.text.lower() not in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    ("arguments", "key", "problem"),
    [
        (["--run-id", "../x"], None, "is not the name of a run"),
        (["--run-id", "run"], "secret", "32 to 1,024 hexadecimal digits"),
    ],
)
def test_the_command_line_refuses_odd_names_and_keys_before_it_writes(
    table: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    key: str | None,
    problem: str,
) -> None:
    if key is not None:
        monkeypatch.setenv(RUN_KEY_VARIABLE, key)
    before = sorted(table.rglob("*"))
    assert main(["optimize", str(table), *arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["retryable"]) == ("refused", False)
    assert problem in error["message"]
    assert sorted(table.rglob("*")) == before


class Lying:
    """The local engine, which gives back something else."""

    name = "local"

    def __init__(self, lie: Callable[[BinManifest], list[BinManifest]]) -> None:
        self._lie = lie

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        for result in LocalEngine({}).run(tasks, progress, run_key):
            assert isinstance(result, BinManifest)
            yield from self._lie(result)


@pytest.mark.parametrize(
    "lie",
    [
        lambda m: [m, m],
        lambda m: [replace(m, bin_id=ANY_BIN)],
        lambda m: [replace(m, run_id="another")],
        lambda m: [replace(m, sources=m.sources[:1])],
        lambda m: [replace(m, partition_values={"part": "z"})],
        lambda m: [replace(m, rewrite_tag="another")],
        lambda m: [replace(m, rows_deleted=1, rows_in=m.rows_out + 1)],
        lambda m: [replace(m, outputs=tuple(replace(o, tags={}) for o in m.outputs))],
        lambda m: [replace(m, outputs=tuple(replace(o, key="../x", path="../x") for o in m.outputs))],
    ],
)
def test_an_engine_that_gives_back_what_was_not_asked_for_commits_nothing(
    table: Path, lie: Callable[[BinManifest], list[BinManifest]]
) -> None:
    before = keys(table)
    with pytest.raises(BadManifest, match="Nothing of the bin was committed"):
        run(table, engine=Lying(lie))
    assert keys(table) == before


def test_a_batch_that_is_no_number_in_the_log_is_taken_for_the_first(table: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(number: int) -> None:
        if number == 2:
            raise Killed

    with pytest.raises(Killed):
        run(table, engine=WatchedEngine(kill), batch_size_bytes=1)
    commit = max((table / "_delta_log").glob("*.json"))
    for number in ("²", "9" * 5_000):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["tags"]["delta-maintenance.batch"] = number
        commit.write_text("\n".join(map(json.dumps, actions)))
        opened = Table(str(table))
        found = find_earlier_tries(
            opened.storage, "run", RUN_KEY, opened.snapshot(), planned(table)[0].rewrite_tag
        )
        assert found.num_batches == 1
