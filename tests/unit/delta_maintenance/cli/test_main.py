from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.version import VERSION
from delta_maintenance.cli.main import main


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "events"
    write_days(path)
    return str(path)


class Ran:
    """What one command did."""

    def __init__(self, code: int, captured: Any) -> None:
        self.code, self.out, self.err = code, captured.out, captured.err

    @property
    def result(self) -> dict[str, Any]:
        """Standard output as the one JSON object that it must be."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> Ran:
        return Ran(main(arguments), capsys.readouterr())

    return command


def test_inspect_tells_the_facts_of_a_version(run: Any, table: str) -> None:
    ran = run("inspect", table, "--json")
    assert ran.code == 0
    assert {
        "version",
        "protocol",
        "metadata",
        "numFiles",
        "sizeInBytes",
        "numDeletionVectors",
        "numDeletedRows",
        "numTombstones",
        "transactions",
        "domainMetadata",
    } <= set(ran.result)
    assert (ran.result["version"], ran.result["numFiles"]) == (5, 6)
    assert ran.result["metadata"]["partitionColumns"] == ["day"]


def test_inspect_goes_back_by_version_and_by_time(run: Any, table: str) -> None:
    assert run("inspect", table, "--json", "--version", "2").result["numFiles"] == 3
    moment = Table(table).snapshot(version=3).timestamp.isoformat().replace("+00:00", "Z")
    assert run("inspect", table, "--json", "--timestamp", moment).result["version"] == 3


def test_people_get_aligned_lines(run: Any, table: str) -> None:
    ran = run("inspect", table)
    assert "version         5, committed 20" in ran.out
    assert "partitioned by  day" in ran.out
    assert "columns         day date, id long, text string" in ran.out
    assert ran.err == ""


def test_history_is_newest_first_and_limited(run: Any, table: str) -> None:
    assert [c["version"] for c in run("history", table, "--json", "--limit", "2").result["history"]] == [5, 4]
    assert [c["version"] for c in run("history", table, "--json", "--version", "1").result["history"]] == [
        1,
        0,
    ]
    header, first, *_ = run("history", table).out.splitlines()
    assert header.split() == ["version", "time", "operation", "by", "added", "removed"]
    assert first.split()[0] == "5"


def test_optimize_commits_once_and_then_has_nothing_to_do(run: Any, table: str) -> None:
    rows = Table(table).snapshot().to_arrow().sort_by("id")
    first = run("optimize", table, "--engine", "local", "--json")
    assert (first.code, first.result["status"], first.result["version"]) == (0, "committed", 6)
    assert (first.result["metrics"]["numRemovedFiles"], first.result["metrics"]["numAddedFiles"]) == (6, 2)
    assert Table(table).snapshot().to_arrow().sort_by("id").equals(rows)
    second = run("optimize", table, "--engine", "local", "--json")
    assert (second.code, second.result["status"]) == (0, "nothing_to_do")
    assert Table(table).snapshot().version == 6


def test_optimize_full_converges(run: Any, table: str) -> None:
    # Files that an ordinary run wrote are as good as those of a full one.
    assert run("optimize", table, "--json").result["status"] == "committed"
    assert run("optimize", table, "--full", "--json").result["status"] == "nothing_to_do"
    assert run("optimize", table, "--full", "--target-size", "7MB", "--json").result["status"] == "committed"
    assert (
        run("optimize", table, "--full", "--target-size", "7MB", "--json").result["status"] == "nothing_to_do"
    )


def test_a_dry_run_is_the_plan_and_writes_nothing(run: Any, table: str) -> None:
    before = sorted(Path(table).rglob("*"))
    ran = run("optimize", table, "--dry-run", "--json", "--where", "day = '2024-01-01'")
    assert (ran.code, ran.result["status"]) == (0, "planned")
    assert ran.result["plan"]["numFilesToRemove"] == 3
    text = run("optimize", table, "--dry-run").out
    assert "6 files" in text
    assert "day=2024-01-02" in text
    assert sorted(Path(table).rglob("*")) == before


def test_the_same_transaction_is_done_once(run: Any, table: str) -> None:
    assert run("optimize", table, "--txn", "nightly:7", "--json").result["status"] == "committed"
    again = run("optimize", table, "--txn", "nightly:7", "--json")
    assert (again.code, again.result["status"], again.result["version"]) == (0, "already_done", 6)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["optimize", "TABLE", "--where", "id > 3"], "id is a data column"),
        (["optimize", "TABLE", "--where", "nope = 3"], "no column nope"),
        (["optimize", "TABLE", "--target-size", "0"], "target_size_bytes is 0"),
        (["optimize", "TABLE", "--target-size", "big"], "'big' is not a size such as 512MB"),
        (["optimize", "TABLE", "--max-deleted-rows-ratio", "7"], "not a number from 0 to 1"),
        (["optimize", "TABLE", "--target-size", "9" * 400 + ".5"], "is not a size such as 512MB"),
        (["optimize", "TABLE", "--memory-limit", "9" * 400], "is not a size such as 512MB"),
        (["optimize", "TABLE", "--memory-limit", "9" * 5000], "of at most 1 PiB"),
        (["optimize", "TABLE", "--parallelism", "9" * 5000], "is not a whole number from 1 on"),
        (["optimize", "TABLE", "--max-files", "²"], "'²' is not a whole number from 1 on"),
        (["optimize", "TABLE", "--txn", "nightly"], "is not APP_ID:VERSION"),
        (["optimize", "TABLE", "--txn", "nightly:" + "9" * 23], "an integer of at most 18 digits"),
        (["optimize", "TABLE", "--txn", "nightly:--5"], "is not APP_ID:VERSION"),
        (["inspect", "TABLE", "--version", "9" * 5000], "is not a version number"),
        (["inspect", "TABLE", "--version", "²"], "'²' is not a version number"),
        (["inspect", "TABLE", "--version", "9" * 18], "reconstruct versions 0 to 5"),
        (
            ["inspect", "TABLE", "--timestamp", "9999-12-31T23:59:59.999999-23:59"],
            "reconstruct versions 0 to 5",
        ),
        (["history", "TABLE", "--limit", "9" * 5000], "is not a whole number from 1 on"),
        (["vacuum", "TABLE", "--retain-hours", "1e400"], "is not a number of hours"),
        (["vacuum", "TABLE", "--retain-hours", "nan"], "is not a number of hours"),
        (["vacuum", "TABLE", "--retain-hours=-1"], "is not a number of hours"),
        (["inspect", "TABLE", "--storage-options", "[" * 5000], "it is not a JSON object"),
        (["purge", "TABLE", "--zorder-by", "id"], "unrecognized arguments"),
        (["optimize", "TABLE", "--storage-options", "secret"], "it is not a JSON object"),
        (["inspect", "TABLE", "--version", "99"], "reconstruct versions 0 to 5"),
        (["inspect", "TABLE", "--version", "1", "--timestamp", "2024-01-01"], "not allowed with"),
        (["inspect", "TABLE", "--timestamp", "yesterday"], "is not a time such as"),
        (["inspect", "/nowhere/at/all"], "is not a Delta table"),
        (["defragment", "TABLE"], "invalid choice"),
        (["inspect"], "required: TABLE"),
    ],
)
def test_a_bad_request_is_refused_in_words_and_in_json(
    run: Any, table: str, arguments: list[str], problem: str
) -> None:
    arguments = [table if argument == "TABLE" else argument for argument in arguments]
    for_people = run(*arguments)
    assert (for_people.code, for_people.out) == (2, "")
    assert problem in for_people.err
    assert "Traceback" not in for_people.err
    for_programs = run(*arguments, "--json")
    assert for_programs.code == 2
    assert problem in for_programs.result["error"]["message"]
    assert for_programs.result["error"]["kind"] == "refused"
    assert "secret" not in for_people.err + for_programs.out
    assert Table(table).snapshot().version == 5


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 1 << 30),
        ("512MB", 512 << 20),
        ("1.5k", 1536),
        ("1048576", 1 << 20),
        ("2 TB", 2 << 40),
        ("7b", 7),
    ],
)
def test_sizes_may_be_written_in_many_ways(run: Any, table: str, text: str, size: int) -> None:
    ran = run("optimize", table, "--dry-run", "--json", "--target-size", text)
    assert ran.result["plan"]["targetSizeBytes"] == size


def test_an_unforeseen_error_is_told_with_its_traceback_beside(
    run: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "snapshot", lambda *_: 1 / 0)
    ran = run("inspect", table, "--json")
    assert (ran.code, ran.result["error"]["type"]) == (1, "ZeroDivisionError")
    assert "Traceback" in ran.err


def test_standard_output_is_one_object_whatever_libraries_print(table: str) -> None:
    program = (
        "import os, sys; from delta_maintenance.cli import main as cli; inspect = cli.inspect; "
        "cli.COMMANDS['inspect'] = lambda options: (print('chatter'), os.write(1, b'more'), inspect(options))[2]; "
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, "inspect", table, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout)["version"] == 5
    assert "chatter" in result.stderr
    assert "more" in result.stderr


def test_storage_options_come_from_the_environment_too(
    run: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTA_MAINTENANCE_STORAGE_OPTIONS", "secret")
    ran = run("inspect", table)
    assert ran.code == 2
    assert "$DELTA_MAINTENANCE_STORAGE_OPTIONS: it is not a JSON object" in ran.err


def test_help_needs_nothing_heavy() -> None:
    program = (
        "import sys; from delta_maintenance.cli import main as cli\n"
        "try: cli.main(['optimize', '--help'])\n"
        "except SystemExit: print([m for m in ('pyarrow', 'numpy', 'sqlglot', 'pyspark') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("[]")
    assert "--max-deleted-rows-ratio" in result.stdout


def test_without_pyspark_the_spark_engine_names_the_extra(table: str, tmp_path: Path) -> None:
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name.startswith('pyspark') else find(name, *a)\n"
    )
    path = os.pathsep.join((str(blocker), os.environ.get("PYTHONPATH", "")))
    result = subprocess.run(
        [sys.executable, "-m", "delta_maintenance.cli.main", "optimize", table, "--engine", "spark"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 2
    assert "Install airflow-provider-delta[spark]" in result.stderr


@pytest.mark.parametrize("command", ["-m delta_maintenance", "-m delta_maintenance.cli.main"])
def test_the_package_is_the_program_too(command: str, table: str) -> None:
    def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, *command.split(), *arguments]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    told = run_program("--version")
    assert (told.returncode, told.stdout, told.stderr) == (0, f"delta-maintenance {VERSION}\n", "")
    facts = run_program("inspect", table, "--version", "2", "--json")
    assert (facts.returncode, json.loads(facts.stdout)["version"]) == (0, 2)
    refused = run_program("inspect")
    assert refused.returncode == 2
    assert refused.stderr.startswith("delta-maintenance: ")


def test_discover_prints_a_file_of_addresses_and_ends_with_1_where_a_place_cannot_be_listed(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lake/gold/events", "lake/gold/tmp_x", "lake/raw/clicks"):
        write_days(tmp_path / name, files=1)
    monkeypatch.chdir(tmp_path)
    ran = run("discover", "lake/**", "--exclude", "**/tmp_*")
    assert (ran.code, ran.out) == (0, f"{tmp_path}/lake/gold/events\n{tmp_path}/lake/raw/clicks\n")
    (tmp_path / "tables.txt").write_text(f"{tmp_path}/lake/*/clicks\n{tmp_path}/absent/*\nnosuch://lake/**\n")
    ran = run("discover", "@tables.txt", "--json")
    assert ran.code == 1
    assert ran.result["tables"] == [
        {"table": f"{tmp_path}/lake/raw/clicks", "location": f"{tmp_path}/lake/raw/clicks"}
    ]
    assert ran.result["withoutTables"] == [f"{tmp_path}/absent/*"]
    assert [(one["table"], one["error"]["type"]) for one in ran.result["unlisted"]] == [
        ("nosuch://lake", "InvalidRequest")
    ]
    told = run("discover", "@tables.txt")
    assert told.out.splitlines()[0] == f"{tmp_path}/lake/raw/clicks"
    assert all(line.startswith("# ") for line in told.out.splitlines()[1:])
    assert run("discover", "@absent.txt").code == run("discover", "s3://*/x").code == 2
