"""The script of the page Delta tables, which is part of the repository, is what its sources make."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.servers.program import NODE, teller

BUNDLE = ROOT / "provider" / "airflow_delta" / "monitoring" / "static" / "delta-tables.js"


def test_the_bundle_fits_its_sources_and_their_types(
    ui_sources: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    node = NODE.find(teller(pytestconfig))
    built = tmp_path / "delta-tables.js"
    for script in (["node_modules/typescript/bin/tsc"], ["build.mjs", str(built)]):
        done = subprocess.run(
            [str(node), *script], cwd=ui_sources, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert built.read_bytes() == BUNDLE.read_bytes(), "Run ./dev ui and commit the bundle."


def test_the_bundle_holds_nothing_of_other_places() -> None:
    content = BUNDLE.read_text()
    assert len(content) < 80_000
    for forbidden in ("http://", "https://", "innerHTML", "eval(", "localStorage", "document.cookie"):
        assert forbidden not in content, forbidden
