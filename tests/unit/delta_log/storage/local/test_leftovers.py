"""What a killed process leaves beside a file: it goes after a day, and nothing else does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from delta_log.storage.local import leftovers as local_leftovers
from delta_log.storage.local.local_storage import LocalStorage

HEX = "0123456789abcdef" * 2
OURS = (f".00000000000000000007.json.{HEX}.tmp", f".{HEX}.tmp", f".{HEX}.tmp2", f".a b.{HEX}.tmp")
OTHERS = (
    ".00000000000000000007.json.9c1e3f6e-8f6e-4f0e-9d3f-0e8c6f1b2a3d.tmp",  # Hadoop
    "_commit_9c1e3f6e-8f6e-4f0e-9d3f-0e8c6f1b2a3d.json.tmp",  # delta-rs
    f"x.{HEX}.tmp", f".x.{HEX}.tmp2", f".x.{HEX}.tmp3", f".x.{HEX.upper()}.tmp", f".x.{HEX[1:]}.tmp", f".{HEX}", ".x.tmp",
)  # fmt: skip
NOW_MS = int(time.time() * 1000)
DAY_SECONDS = 86_400


def old(path: Path, days: float = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (NOW_MS / 1000 - days * DAY_SECONDS,) * 2)
    return path


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def test_what_a_kill_leaves_is_of_the_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern fits the temporary name of every file name."""
    monkeypatch.setattr(os, "unlink", lambda *_, **__: None)
    storage = LocalStorage(str(tmp_path))
    for name in ("00000000000000000007.json", "a", ".hidden", "\U0001f600" * 60, "x" * 255):
        storage.put_if_absent(f"dir/{name}", b"")
        assert local_leftovers._PATTERN.fullmatch(local_leftovers.temporary_name(name))
    monkeypatch.undo()
    left = {name for name in names(tmp_path) if name.endswith(".tmp")}
    assert len(left) == 5
    for name in left:
        old(tmp_path / name)
    assert set(storage.remove_leftovers(["dir"], NOW_MS)) == left


def test_old_ones_go_and_nothing_else_does(tmp_path: Path) -> None:
    for name in (*OURS, *OTHERS):
        old(tmp_path / "_delta_log" / name)
        old(tmp_path / "_delta_log" / "below" / name)
    young = old(tmp_path / "_delta_log" / OURS[1].replace("0", "1"), days=0.9)
    (tmp_path / "_delta_log" / OURS[1].replace("0", "2")).mkdir()
    before = names(tmp_path)
    storage = LocalStorage(str(tmp_path))
    expected = {f"_delta_log/{name}" for name in OURS}
    assert set(storage.remove_leftovers(["_delta_log", "absent"], NOW_MS, dry_run=True)) == expected
    assert names(tmp_path) == before
    assert set(storage.remove_leftovers(["_delta_log", "absent"], NOW_MS)) == expected
    assert names(tmp_path) == before - expected
    assert young.exists()


def test_a_clock_that_is_fast_removes_nothing(tmp_path: Path) -> None:
    """The file system's own clock says how old a file is."""
    old(tmp_path / OURS[0], days=0)
    assert LocalStorage(str(tmp_path)).remove_leftovers([""], NOW_MS + 40 * DAY_SECONDS * 1000) == []
    assert names(tmp_path) == {OURS[0]}


def test_links_are_left_alone(tmp_path: Path) -> None:
    victim = old(tmp_path / "outside" / OURS[0])
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "table" / OURS[0]).symlink_to(victim)
    os.utime(tmp_path / "table" / OURS[0], (0, 0), follow_symlinks=False)
    assert LocalStorage(str(tmp_path / "table")).remove_leftovers(["", "linked"], NOW_MS) == []
    assert victim.exists()
    assert (tmp_path / "table" / OURS[0]).is_symlink()
