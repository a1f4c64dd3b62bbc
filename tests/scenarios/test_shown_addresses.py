"""What the command line and a job print holds no credential of an address, and a job stays below its allowed roots."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.small_tables import write_days
from tests.support.tables.written_log import add, write_log

from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, places, run_job
from delta_maintenance.job_interface import STORAGE_OPTIONS_VARIABLE, ContractError
from delta_maintenance.progress import HumanProgress, ProgressLines, SilentProgress

SECRET = "wJalrXUtnFEMI"
WITH_SECRET = (f"s3://AKIAKEY:{SECRET}@lake/t", f"https://a.blob.core.windows.net/c/t?sv=1&sig={SECRET}")
COMMANDS = (
    "inspect",
    "history",
    "discover",
    "optimize",
    "purge",
    "checkpoint",
    "vacuum",
    "cleanup-log",
    "compact-log",
)


def job(spec: JobSpec, **environment: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "delta_maintenance.entrypoint.run_job", "--spec", spec.to_json()],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done, json.loads(done.stdout.splitlines()[-1].partition(" ")[2])


def files_below(directory: Path) -> set[str]:
    return {str(path) for path in directory.rglob("*")}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("address", WITH_SECRET)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_table_with_credentials_in_its_address_is_refused_and_not_shown(
    capsys: pytest.CaptureFixture[str], command: str, address: str, *, as_json: bool
) -> None:
    assert main([command, address, *(["--json"] if as_json else [])]) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert "into the storage options" in said.out + said.err


def test_neither_is_an_argument_that_is_wrong_in_another_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "/t", "--json", WITH_SECRET[0]]) == 2
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--output", "--inventory"])
def test_other_addresses_of_a_vacuum_may_carry_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    write_days(tmp_path / "t")
    assert (
        main(["vacuum", str(tmp_path / "t"), "--dry-run", option, f"{WITH_SECRET[0]}/x.json", "--json"]) == 2
    )
    said = capsys.readouterr()
    assert "carries credentials" in said.out
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize(
    "path", [f"https://a.blob.core.windows.net/c/x?sig={SECRET}", f"s3://lake/x.parquet%3Fsig%3D{SECRET}"]
)
def test_what_a_log_says_is_shown_without_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    table = tmp_path / "t"
    write_log(table, [add("a", 100), add("b", 100)], properties={"source": WITH_SECRET[0]})
    first = table / "_delta_log" / f"{0:020}.json"
    first.write_text(first.read_text().replace('"path": "a"', f'"path": "{path}"'))
    assert SECRET in first.read_text()
    info = {"timestamp": 1, "operation": "CLONE", "operationParameters": {"source": WITH_SECRET[1]}}
    (table / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    for command in COMMANDS:
        for more in ([], ["--json"]):
            main([command, str(table), *more])
            said = capsys.readouterr()
            assert said.out + said.err
            assert SECRET not in said.out + said.err, command
    if "%3F" in path:  # a process is dear
        done, report = job(JobSpec("optimize", str(table), "run-1"))
        assert SECRET not in done.stdout + done.stderr
        assert "***" in str(report["foreign"])


def test_a_job_shows_neither_credentials_of_an_address_nor_storage_options() -> None:
    spec = JobSpec("optimize", WITH_SECRET[0], "run-1")
    options = json.dumps({"key": SECRET, "secret": SECRET, "lock": {"secret": SECRET}})
    done, report = job(spec, **{STORAGE_OPTIONS_VARIABLE: options})
    assert SECRET not in done.stdout + done.stderr
    assert (report["error"]["kind"], report["table"]) == ("refused", "s3://***@lake/t")
    assert SECRET not in run_job(spec, JobSite(), SilentProgress()).to_json()
    assert SECRET not in repr(JobSite({"secret": SECRET}))


def test_an_unforeseen_error_is_reported_without_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SilentProgress):
        def start(self, total_bins: int, total_bytes: int) -> None:
            raise RuntimeError(f"GET {WITH_SECRET[1]}")

    write_days(tmp_path)
    report = run_job(JobSpec("optimize", str(tmp_path), "run-1", engine="local"), JobSite(), Broken())
    assert "GET https://a.blob" in str(report.error)
    assert "RuntimeError: GET https://a.blob" in caplog.text
    assert SECRET not in report.to_json() + caplog.text


def test_progress_shows_no_credentials() -> None:
    for kind in (HumanProgress, ProgressLines):
        stream = io.StringIO()
        kind(stream).message(f"reading {WITH_SECRET[0]}")
        assert "reading s3://***@lake/t" in stream.getvalue()


def test_the_places_of_a_job_are_what_it_opens() -> None:
    for options, named in (
        ({"where": "s3://x"}, ()),
        ({"output": "s3://b/d/plan.json"}, ("s3://b/d/plan.json", "s3://b/d")),
        ({"inventory": "/lists/today"}, ("/lists/today",)),
        ({"inventory": "s3://b/inv/2026/manifest.json"}, ("s3://b/inv",)),
    ):
        assert places(JobSpec("vacuum", "/t", "run", options)) == ("/t", *named)


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("vacuum", {"output": "{outside}/plan.json"}),
        ("vacuum", {"output": "{root}"}),
        ("vacuum", {"inventory": "{outside}/list.csv"}),
        ("vacuum", {"inventory": "{root}/manifest.json"}),
        ("optimize", {"output": "{root}/way_out/plan.json"}),
        ("optimize", None),
    ],
)
def test_a_job_opens_nothing_outside_of_its_allowed_roots(
    tmp_path: Path, operation: str, options: dict[str, str] | None
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    write_days(root / "t")
    write_days(outside / "t")
    (root / "way_out").symlink_to(outside)
    table = root / "t" if options is not None else root / "way_out" / "t"
    given = {name: text.format(root=root, outside=outside) for name, text in (options or {}).items()}
    before = files_below(tmp_path)
    spec = JobSpec(operation, str(table), "run-1", given, dry_run=True, allowed_roots={"a test": [str(root)]})
    report = JobReport.from_json(run_job(spec, JobSite(), SilentProgress()).to_json())
    assert report.error is not None
    assert (report.error.type, report.error.kind) == ("OutsideAllowedRoots", "refused")
    assert f"the allowed roots of a test: {root}" in report.error.message
    assert files_below(tmp_path) == before


def test_a_job_works_below_its_allowed_roots(tmp_path: Path) -> None:
    write_days(tmp_path / "t")
    spec = JobSpec(
        "optimize",
        str(tmp_path / "t"),
        "run-1",
        {"output": f"{tmp_path}/plan.json"},
        dry_run=True,
        allowed_roots={"a test": [str(tmp_path)]},
    )
    assert JobSpec.from_json(spec.to_json()) == spec
    assert run_job(spec, JobSite(), SilentProgress()).status == "planned"
    assert (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("value", ["", None, "false", 0])
def test_a_dry_run_that_is_neither_true_nor_false_is_refused(value: Any) -> None:
    """An empty text would have been a run that writes."""
    raw = json.loads(JobSpec("optimize", "/t", "run-1").to_json())
    with pytest.raises(ContractError, match="dry_run"):
        JobSpec.from_json(json.dumps({**raw, "dry_run": value}))


@pytest.mark.parametrize("value", ["", "/data", ["/data"], {"me": "/data"}, {"me": []}, {"me": [7]}, None])
def test_allowed_roots_that_are_none_are_refused(value: Any) -> None:
    raw = json.loads(JobSpec("optimize", "/t", "run-1").to_json())
    with pytest.raises(ContractError, match="allowed_roots"):
        JobSpec.from_json(json.dumps({**raw, "allowed_roots": value}))
