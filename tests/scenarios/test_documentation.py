"""What the documentation shows works: its commands and programs run on real tables, its links lead somewhere.

Each page has tables of its own, and its blocks run from top to bottom in one process, as a reader would run them. An
output that a page shows has the lines of the real one, but for numbers. Addresses such as ``s3://lake/events`` and
``/data/events`` stand for tables in a temporary directory.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import tomllib
from deltalake import DeltaTable, write_deltalake
from tests.support import ROOT
from tests.support.checks.documented_blocks import Block, Shell, blocks, commands, pages, prose, shape

import delta_log
import delta_maintenance
from delta_log.errors import DeltaLogError
from delta_maintenance.cli.main import main
from delta_maintenance.fleet.policy.reading import read_policy

PAGES = pages(ROOT)
DAY_S = 86_400
#: Languages of blocks that hold no command and no program.
SHOWN = {"text", "mermaid", "sql"}
HELP = (ROOT / "dev").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with small files, files that were removed long ago, a file without a version, and an old log."""
    table = tmp_path_factory.mktemp("documented") / "events"
    for batch in range(4):
        for day, region in ((1, "eu"), (2, "us")):
            rows = {
                "day": pa.array([date(2026, 1, day)] * 100),
                "region": [region] * 100,
                "id": pa.array(range(batch * 100, batch * 100 + 100), pa.int64()),
                "x": [id_ / 7 for id_ in range(100)],
                "s": [f"row {id_}" for id_ in range(100)],
            }
            write_deltalake(str(table), pa.table(rows), mode="append", partition_by=["day", "region"])
            if batch == 0:
                DeltaTable(str(table)).create_checkpoint()
        if batch == 1:
            DeltaTable(str(table)).optimize.compact()
    (table / "day=2026-01-01" / "region=eu" / "part-of-nothing.parquet").write_bytes(b"left by a writer")
    (table / "_delta_log" / f".{5:020d}.json.{0:032x}.tmp").write_bytes(b"left by a writer, too")
    _age(table, days=60, versions=7)
    return table


def _age(table: Path, days: int, versions: int) -> None:
    """Let the first versions, and every file in the table, be so many days older than they are."""
    for path in table.rglob("*"):
        version = re.match(r"\.?(\d{20})", path.name)
        if not path.is_file() or (version and int(version[1]) >= versions):
            continue
        old = path.stat().st_mtime - days * DAY_S
        if path.suffix == ".json":
            path.write_text(
                re.sub(
                    r'("(?:deletionTimestamp|timestamp|modificationTime)":)(\d{13})\b',
                    lambda found: f"{found[1]}{int(found[2]) - days * DAY_S * 1000}",
                    path.read_text(),
                )
            )
        os.utime(path, (old, old))


@pytest.fixture
def home(tmp_path: Path, lake: Path) -> Path:
    for place in ("data", "lake", "data/lake"):
        shutil.copytree(lake, tmp_path / place / "events", copy_function=shutil.copy2)
    (tmp_path / "lake" / "plans").mkdir()
    return tmp_path


def _localised(text: str, home: Path) -> str:
    """The text with its example addresses in a temporary directory."""
    text = text.replace("s3://lake/", f"{home}/lake/")
    return re.sub(r"(?<![\w./-])/data/", f"{home}/data/", text)


def _delta_maintenance(arguments: list[str], *, capture: pytest.CaptureFixture[str]) -> str:
    capture.readouterr()
    code = main(arguments)
    said = capture.readouterr()
    assert code == 0, said.err
    return said.err + said.out


def _python(arguments: list[str], **kwargs: pytest.CaptureFixture[str]) -> str:
    assert arguments[:2] == ["-m", "delta_maintenance"]
    return _delta_maintenance(arguments[2:], **kwargs)


def _dev(arguments: list[str]) -> str:
    """Checks that ``./dev`` has such a command: most take minutes."""
    if not arguments:
        return ""
    assert re.search(rf"^  {re.escape(arguments[0])}\b", HELP, re.MULTILINE), f"./dev has no {arguments[0]}"
    if arguments[0] == "campaign":
        assert re.search(
            rf"^ +(?:campaign NAME .*)?{arguments[1]} \(|^    {arguments[1]}\)", HELP, re.MULTILINE
        )
    if arguments[0] == "bench" and len(arguments) > 1:
        assert (ROOT / "benchmarks" / f"{arguments[1]}.py").is_file()
    return ""


def _pip(arguments: list[str]) -> str:
    """Checks that the project has the extras that are installed."""
    assert arguments[0] == "install"
    for requirement in arguments[1:]:
        if requirement == "deltalake":  # stands in for the writer of a table
            continue
        found = re.fullmatch(r"airflow-provider-delta(?:\[([\w,]+)\])?", requirement)
        assert found, requirement
        assert set((found[1] or "dev").split(",")) <= set(EXTRAS)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_runs(
    page: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(
        {
            "delta-maintenance": partial(_delta_maintenance, capture=capsys),
            "python": partial(_python, capture=capsys),
            "./dev": _dev,
            "pip": _pip,
        },
        {},
    )
    names: dict[str, object] = {"__name__": "__documentation__"}
    monkeypatch.chdir(home)
    for block in blocks(page.read_text()):
        if block.not_run is not None or block.language in SHOWN or block.language.startswith("{"):
            continue
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        try:
            _run(block, shell, names, home)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and not error.code:  # --help and --version
                continue
            raise AssertionError(f"{where}: {error}") from error
        for name, value in shell.environment.items():
            monkeypatch.setenv(name, value)


def _run(block: Block, shell: Shell, names: dict[str, object], home: Path) -> None:
    text = _localised(block.text, home)
    match block.language:
        case "console":
            assert text.startswith("$ "), "a console block begins with a prompt"
            for command in commands(text):
                said = {shape(line) for line in shell.run(command.words).splitlines()}
                missing = [line for line in command.output if shape(line) not in said]
                assert missing == [], f"{command.words} does not print {missing}, but {sorted(said)}"
        case "python":
            exec(compile(text, f"line {block.line}", "exec"), names)
        case "json":
            json.loads(text)
        case "yaml":
            _write_policy(text, home)
        case "ini":
            configparser.ConfigParser().read_string(text)
        case _:
            raise AssertionError(f"no test knows what a block of {block.language!r} is")


def _write_policy(text: str, home: Path) -> None:
    """Checks a policy of a fleet, and lets the commands below find it. Its first line may name the file in a comment."""
    read_policy(text, "the block")
    named = re.match(r"# (\w+\.yaml)$", text, re.MULTILINE)
    (home / (named[1] if named else "fleet.yaml")).write_text(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_stands_in_a_block_that_runs_or_says_why_not(page: Path) -> None:
    text = page.read_text()
    command = re.compile(r"^ *(\$ |(delta-maintenance|\./dev|pip install|python -m) )")
    hidden = [number for number, line in prose(text) if line.startswith("    ") and command.match(line)]
    for block in blocks(text):
        if block.language in SHOWN and any(command.match(line) for line in block.text.splitlines()):
            hidden.append(block.line)
        for named in re.findall(r"tests/[\w/]+\.py", block.not_run or ""):
            assert (ROOT / named).is_file(), f"{page.name}, line {block.line}: there is no {named}"
    assert hidden == []


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as MyST and GitHub make them."""
    found = set()
    for _, line in prose(page.read_text()):
        if heading := re.match(r"#{1,4} (.+)$", line):
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    broken = []
    text = "\n".join(line for _, line in prose(page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("sphinx-build")
    built = ("-b", "html", "-d", tmp_path / "trees", ROOT / "docs", tmp_path / "html")
    done = subprocess.run(
        [program, "-q", "-W", "--keep-going", *built], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _names_of_modules() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for name in re.findall(
            r"`((?:parquet_parts|delta_log|delta_maintenance|airflow_delta)(?:\.\w+)+)`", page.read_text()
        ):
            yield str(page.relative_to(ROOT)), name


@pytest.mark.parametrize(("page", "name"), sorted(set(_names_of_modules())))
def test_a_module_or_object_that_a_page_names_is_there(page: str, name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return


def test_a_docstring_names_other_modules_by_their_names() -> None:
    home = ROOT / "provider"
    paths = {
        ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__"): path
        for path in home.rglob("*.py")
    }
    named = [
        (own, name)
        for own, path in paths.items()
        for name in re.findall(r":mod:`~?([\w.]+)`", path.read_text())
    ]
    ours = tuple(name for name in paths if "." not in name)
    wrong = [
        (own, name) for own, name in named if name.startswith(ours) and (name not in paths or name == own)
    ]
    assert wrong == [("delta_log", "delta_log")]  # the example of an import


@pytest.mark.parametrize("package", ["delta_log", "delta_maintenance", "airflow_delta"])
def test_the_architecture_lists_every_package(package: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition(f"### `{package}`")[2].partition("### ")[0]
    there = {path.parent.name for path in (ROOT / "provider" / package).glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == there


#: Errors that one module raises and another of ours catches.
INTERNAL = {"BadManifest", "ContentChanged", "CreationConflict"}


def _errors(base: type[DeltaLogError]) -> Iterator[type[DeltaLogError]]:
    for error in base.__subclasses__():
        yield error
        yield from _errors(error)


def test_troubleshooting_names_every_error_that_a_user_may_see() -> None:
    for package in (delta_log, delta_maintenance):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    shown = (ROOT / "docs" / "operations" / "troubleshooting.md").read_text()
    ours = {
        error.__name__
        for error in _errors(DeltaLogError)
        if error.__module__.startswith("delta_") and not error.__name__.startswith("_")
    }
    bases = {"TableError", "CommitFailed"}
    assert sorted(name for name in ours - INTERNAL - bases if f"`{name}`" not in shown) == []


def _messages() -> Iterator[str]:
    """Every text of the code, as a reader sees it: with an ellipsis for each value in it."""
    for module in (ROOT / "provider").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_troubleshooting_quotes_messages_as_they_are() -> None:
    page = (ROOT / "docs" / "operations" / "troubleshooting.md").read_text()
    seen = [line.split(" | ")[0] for _, line in prose(page) if line.startswith("| ")]
    quotes = [quote for cell in seen for quote in re.findall(r"`([^`]+)`", cell) if " " in quote]
    assert len(quotes) > 30
    messages = "\n".join(_messages())
    fragments = {piece.strip() for quote in quotes for piece in quote.split("…") if len(piece.strip()) > 3}
    assert sorted(piece for piece in fragments if piece not in messages) == []


def _rows_outside_of_tables(text: str) -> Iterator[str]:
    """Lines that look like a row of a table, and belong to none: an empty line, or no line of dashes, is before them."""
    in_table, before, lines = False, "", [line for _, line in prose(text)]
    for line, following in pairwise([*lines, ""]):
        if not line.startswith("|"):
            in_table = False
        elif not in_table:
            in_table = before == "" and re.fullmatch(r"\|[-:| ]+\|", following) is not None
            if not in_table:
                yield line
        before = line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_follows_the_row_before_it(page: Path) -> None:
    assert list(_rows_outside_of_tables(page.read_text())) == []


def test_every_example_dag_stands_in_the_documentation() -> None:
    shown = "".join(page.read_text() for page in PAGES)
    missing = [path.name for path in sorted((ROOT / "dags_examples").glob("*.py")) if path.name not in shown]
    assert missing == []
