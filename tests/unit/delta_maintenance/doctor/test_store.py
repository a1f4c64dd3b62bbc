"""The checks of a store: what they find on a disk, and that they leave nothing behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.small_tables import write_days

from delta_log.runtime import Runtime
from delta_maintenance.doctor.check import Examination
from delta_maintenance.doctor.store import examine_store

NAMES = [
    "store.open",
    "store.list",
    "store.create",
    "store.read",
    "store.overwrite",
    "store.delete",
    "store.clock",
    "table",
]


def examined(address: str, *, hours_ahead: float = 0, **options: Any) -> Examination:
    examination = Examination()
    now_ms = lambda: round(1000 * (time.time() + 3600 * hours_ahead))  # noqa: E731 - as the runtime has it
    examine_store(examination, address, options, Runtime(now_ms=now_ms))
    return examination


def statuses(examination: Examination) -> dict[str, str]:
    return {check.name: check.status for check in examination.checks}


def test_all_is_well_and_nothing_is_left(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=2)
    before = sorted(tmp_path.rglob("*"))
    found = examined(str(tmp_path / "t"))
    assert statuses(found) == dict.fromkeys(NAMES, "ok")
    assert found.checks[-1].message == "version 1, 2 files"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("hours", "status", "says"), [(1, "failure", "60 minutes ahead"), (-1, "warning", "60 minutes behind")]
)
def test_a_clock_that_is_off_by_an_hour(tmp_path: Path, hours: float, status: str, says: str) -> None:
    write_days(tmp_path / "t", files=1)
    found = examined(str(tmp_path / "t"), hours_ahead=hours)
    (clock,) = (check for check in found.checks if check.name == "store.clock")
    assert (clock.status, says in clock.message) == (status, True)
    assert "NTP" in clock.remedy
    assert found.status == status


def test_a_place_without_a_table_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    found = examined(str(tmp_path / "t"))
    assert statuses(found) == {**dict.fromkeys(NAMES, "ok"), "table": "warning"}
    assert list((tmp_path / "t").iterdir()) == []


def test_a_store_that_can_only_be_read_fails_where_it_would_be_written() -> None:
    found = statuses(examined("memory://doctor/t"))
    assert found["store.create"] == "failure"
    assert found["store.delete"] == "skipped"


def test_secrets_are_never_shown() -> None:
    found = examined("s3://lake/t", key="AKIAKEY", secret="hunter2", endpoint_url="http://127.0.0.1:1")
    shown = str(found.document("s3://lake/t", None))
    assert "by the access key" in shown
    assert "hunter2" not in shown
    assert "AKIAKEY" not in shown
