"""A listing of a disk: columns of names, grouped by directory, with what has no key put aside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from delta_log.storage.local import listing as local_tree
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import TreePage


def pages_of(root: Path) -> list[TreePage]:
    return list(LocalStorage(str(root)).list_tree(lambda names: names))


@pytest.mark.parametrize("page_files", [1, 3, 1 << 14])
def test_files_come_grouped_by_their_directories(
    tmp_path: Path, page_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_tree, "_PAGE_FILES", page_files)
    expected = [f"{place}{name}" for place in ("", "ü=1/", "a/b/", "a/") for name in ("x", "é", "_y", "zz")]
    for key in expected:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).touch()
    (tmp_path / "empty").mkdir()
    pages = pages_of(tmp_path)
    assert sorted(key for page in pages for key in page.names()) == sorted(expected)
    for page in pages:
        assert page.runs is not None
        grouped = [directory for directory, files in page.runs.items() for _ in range(files)]
        assert [os.path.dirname(key) for key in page.names()] == grouped
    assert {name for page in pages for name in page.directories} == {"ü=1", "a", "a/b", "empty"}


@pytest.mark.parametrize("directory", ["", "d/"])
def test_names_that_are_no_text_are_put_aside(tmp_path: Path, directory: str) -> None:
    root = os.fsencode(tmp_path)
    (tmp_path / directory).mkdir(exist_ok=True)
    # Two of them would be text if they were one.
    for name in (b"\xc3", b"\xa9", b"plain", b"\xff"):
        open(os.path.join(root, directory.encode(), name), "x").close()
    os.mkdir(os.path.join(root, b"\xfe"))
    (tmp_path / directory / "link").symlink_to("plain")
    pages = pages_of(tmp_path)
    assert [key for page in pages for key in page.names()] == [f"{directory}plain"]
    aside = {os.fsencode(name) for page in pages for name in page.others}
    names = {os.path.join(directory.encode(), name) for name in (b"\xc3", b"\xa9", b"\xff", b"link")}
    assert aside == names | {b"\xfe"}


@pytest.mark.parametrize("page_files", [1, 40])
def test_names_of_every_length_are_read_whole(
    tmp_path: Path, page_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_tree, "_PAGE_FILES", page_files)
    expected = [
        f"{place}{'n' * length}" for place in ("", "d/", "e=1/") for length in (*range(1, 80), 254, 255)
    ]
    # Names of one length, as programs make them up, and one of another length.
    expected += [f"same/{number:020d}" for number in range(300)] + [
        "same/other",
        *(f"x/{n:04d}" for n in range(99)),
    ]
    for key in expected:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).touch()
    pages = pages_of(tmp_path)
    assert sorted(key for page in pages for key in page.names()) == sorted(expected)
    assert len(pages) > 3


def test_what_is_no_directory_any_more_is_passed_over(tmp_path: Path) -> None:
    for name in ("gone", "link", "file", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()

    def enter(names: Sequence[str]) -> Sequence[str]:
        for name in ("gone", "link", "file"):
            shutil.rmtree(tmp_path / name)
        (tmp_path / "file").touch()
        (tmp_path / "link").symlink_to("kept")
        return names

    pages = LocalStorage(str(tmp_path)).list_tree(enter)
    assert [key for page in pages for key in page.names()] == ["kept/x"]


def test_a_table_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "x").touch()
    (tmp_path / "link").symlink_to("table")
    assert [key for page in pages_of(tmp_path / "link") for key in page.names()] == ["x"]
