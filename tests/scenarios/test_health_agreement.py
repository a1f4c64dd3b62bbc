"""What a health reading recommends finds work to do, and where its plan is empty, OPTIMIZE finds none.

On every table of the corpus, and on 200 random tables; on thousands in `./dev campaign properties`.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.repetition import repeated
from tests.support.schemas import published_schema
from tests.support.tables.neglected_tables import write_neglected

from delta_maintenance.cli.main import main

#: Made once: `jsonschema.validate` would check the schema itself with each of a thousand documents.
VALIDATOR = jsonschema.Draft202012Validator(published_schema("health"))
#: The smallest limits, so that whatever an operation would do is a finding.
STRICT = ("--small-files=1", "--deleted-rows-ratio=0.02", "--reclaimable-size=0", "--expired-log-files=1")
DONE = {"committed", "written", "cleaned"}


def command(*words: str) -> tuple[int, dict[str, Any]]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main([*words, "--json"])
    return code, json.loads(output.getvalue())


def health(table: Path, *options: str) -> dict[str, Any]:
    code, document = command("health", str(table), *options)
    assert code == 0, document
    VALIDATOR.validate(document)
    return document


def check_agreement(
    table: Path, document: dict[str, Any], scratch: Path, *, rewrites_alone: bool = False
) -> list[str]:
    """Run on copies what is recommended, and OPTIMIZE where it has nothing to do. Return what was run."""
    plan = document["facts"]["optimize"]
    recommended = document["recommendations"]
    if rewrites_alone:
        recommended = [advice for advice in recommended if advice["operation"] in ("optimize", "purge")]
    for advice in recommended:
        words = shlex.split(advice["command"])
        assert words[2] == str(table)
        copy = shutil.copytree(table, scratch / advice["operation"], symlinks=True)
        code, report = command(words[1], str(copy), *words[3:])
        assert (code, report["status"] in DONE) == (0, True), (advice, report)
        if advice["operation"] in ("optimize", "purge"):
            assert report["metrics"]["numRemovedFiles"] == advice["gain"]["filesBefore"]
            assert report["metrics"]["numRemovedBytes"] == advice["gain"]["bytesBefore"]
        shutil.rmtree(copy)
    named = [advice["operation"] for advice in recommended]
    if plan is None:
        assert document["status"] == "unsupported"
        assert "optimize" not in named
        assert command("optimize", str(table))[0] == 2
    elif not plan["numBins"]:
        assert command("optimize", str(table))[1]["status"] == "nothing_to_do"
    return named


@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"]))
def test_a_table_of_the_corpus_needs_what_its_operations_do(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    document = health(table, *STRICT)
    if entry["data"] == "full":
        check_agreement(table, document, tmp_path)


@pytest.mark.random_tables
@pytest.mark.parametrize("seed", range(repeated(4)))
def test_a_neglected_table_needs_what_its_operations_do(seed: int, tmp_path: Path) -> None:
    recommended: set[str] = set()
    for number in range(50):
        table = tmp_path / str(number)
        write_neglected(table, 1000 * seed + number, tmp_path / "parts", int(time.time() * 1000))
        # Where there are small files, OPTIMIZE is recommended in place of a purge.
        lax = ["--small-files=1000"] if number % 3 == 1 else []
        document = health(table, *STRICT, *lax)
        # A checkpoint, a vacuum and a log cleanup take longer than all the rest, and depend less on the files.
        recommended.update(
            check_agreement(table, document, tmp_path / "copies", rewrites_alone=number % 5 != 0)
        )
        shutil.rmtree(table)
    assert {"optimize", "purge"} <= recommended, "else the tables are too healthy to show anything"
    assert recommended & {"checkpoint", "vacuum", "cleanup-log"}
