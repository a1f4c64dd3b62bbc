"""The conformance corpus: Delta tables that other projects wrote, and what a reader must find in each.

The corpus is a directory beside the checkout (``../shared/corpus``) or at ``$DELTA_CORPUS`` and is no part of this repository. Its
archive is unpacked once per run of pytest, however many workers the run has.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PosixPath
from typing import Any

import pyarrow as pa
import pytest

from tests.support import ROOT
from tests.support.environment.prerequisites import absent

_DIRECTORY = Path(os.environ.get("DELTA_CORPUS") or ROOT.parent / "shared" / "corpus")

#: One object of the manifest; the corpus's README explains the fields.
Entry = Mapping[str, Any]


class Corpus(PosixPath):
    """The directory of the unpacked tables, shared by all tests: copy one before writing to it."""

    def table(self, name: str) -> Path:
        return Path(self, name)

    def entry(self, name: str) -> Entry:
        return next(entry for entry in manifest() if entry["name"] == name)

    def copy_of(self, name: str, target: Path) -> Path:
        """A copy of one table, inside the directory `target`."""
        return Path(shutil.copytree(self.table(name), target / name, symlinks=True))

    def digest(self, rows: pa.Table) -> str:
        """Order-independent digest of rows, as in the manifest's ``content_digest``."""
        digest: str = _digest_module().digest(rows)
        return digest


def corpus_is_there() -> bool:
    return (_DIRECTORY / "manifest.json").is_file()


@cache
def manifest() -> tuple[Entry, ...]:
    """Empty where the corpus is absent."""
    return tuple(json.loads((_DIRECTORY / "manifest.json").read_text())) if corpus_is_there() else ()


def corpus_cases(where: Callable[[Entry], bool] = lambda entry: True) -> list[Any]:
    """Parameters for a test with one case per table; the test asks for the fixture `corpus`, too.

    Without a corpus there is one case, and that fixture skips or fails it.
    """
    cases = [pytest.param(entry, id=entry["name"]) for entry in manifest() if where(entry)]
    return cases or [pytest.param({"name": "absent"}, id="absent")]


def unpack_corpus(run_directory: Path) -> Corpus:
    """Unpacks the corpus into a directory that all workers of a run share; the first worker does, the others find it."""
    if not corpus_is_there():
        absent(
            "the corpus of Delta tables",
            f"no manifest.json in {os.path.relpath(_DIRECTORY, ROOT)}; see DELTA_CORPUS",
        )
    target = run_directory / "corpus"
    if not target.exists():
        draft = run_directory / f"corpus-{os.getpid()}"
        with tarfile.open(_DIRECTORY / "tables.tar.gz") as archive:
            # Python 3.11 has filters since 3.11.4; before that there is nothing to choose.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(draft)
        try:
            draft.rename(target)
        except OSError:  # another worker was faster
            shutil.rmtree(draft)
    return Corpus(target / "tables")


@cache
def _digest_module() -> Any:
    spec = importlib.util.spec_from_file_location("corpus_digest", _DIRECTORY / "digest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
