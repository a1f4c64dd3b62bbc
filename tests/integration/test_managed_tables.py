"""Tables whose commits Unity Catalog ratifies: maintained by name, beside a writer that goes through the same catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.managed_tables import (
    FIRST,
    NAME,
    OtherWriter,
    commit_path,
    published_ids,
    write_managed,
)

from delta_log import Table
from delta_log.testing.fake_catalogs import FakeUnityCatalog
from delta_maintenance.cli.main import main


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FakeUnityCatalog]:
    write_managed(tmp_path / "events")
    with FakeUnityCatalog.running() as fake:
        assert isinstance(fake, FakeUnityCatalog)
        fake.manage(NAME, f"file://{tmp_path}/events", FIRST)
        yield fake


def options_of(catalog: FakeUnityCatalog, **more: Any) -> dict[str, Any]:
    return {"unity": {**catalog.option, **more}}


def ids(table: Table) -> list[int]:
    return sorted(table.snapshot().to_arrow()["id"].to_pylist())


def test_a_managed_table_is_maintained_by_its_name(
    catalog: FakeUnityCatalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, options = OtherWriter(tmp_path / "events", catalog), options_of(catalog)
    other.append(10_000)
    other.append(10_001)
    wanted = [*range(600), 10_000, 10_001]
    table = Table(f"uc://{NAME}", options)
    assert ids(table) == wanted
    for command in ("health", "optimize", "purge", "checkpoint", "vacuum", "compact-log", "cleanup-log"):
        assert main([command, f"uc://{NAME}", "--storage-options", json.dumps(options), "--json"]) == 0, (
            command
        )
        found = json.loads(capsys.readouterr().out)
        assert ids(table) == wanted
    assert table.snapshot().num_files == 2
    assert catalog.managed(NAME).commits == {}
    latest = catalog.managed(NAME).latest_version
    assert [commit_path(tmp_path / "events", version).exists() for version in range(FIRST, latest + 2)] == [
        *[True] * (latest + 1 - FIRST),
        False,
    ]
    assert published_ids(tmp_path / "events", tmp_path / "copy") == wanted
