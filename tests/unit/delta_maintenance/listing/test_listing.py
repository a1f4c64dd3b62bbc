"""Collecting the pages of a storage into a listing."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa

from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import ListingCollector, list_key_hashes
from delta_maintenance.progress import SilentProgress


def test_files_are_counted_by_directory(tmp_path: Path) -> None:
    names = ["x", "_hidden", "b=1/x", "b=1/y", "b=1/.crc", "_p=1/x", "_x/y", "deep/er/x", "metadata"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "deep" / "link").symlink_to(tmp_path / "x")
    hidden = HiddenNames(("_p=", "b="), hides_metadata=True)
    collector = ListingCollector(hidden)
    for page in LocalStorage(str(tmp_path)).list_tree(collector.enter):
        collector.take(page)
    listing = collector.listing()
    found = listing.files.column("key").to_pylist()
    assert sorted(found) == ["_p=1/x", "b=1/x", "b=1/y", "deep/er/x", "x"]
    assert listing.counts == Counter(os.path.dirname(key) for key in found)
    assert listing.untouched == {"", "b=1", "deep"}
    assert (listing.num_directories, listing.others) == (5, 1)
    hashes = list_key_hashes(LocalStorage(str(tmp_path)), hidden, SilentProgress())
    absent = hashes.absent(pa.chunked_array([names], pa.string())).to_pylist()
    assert [name for name, is_absent in zip(names, absent, strict=True) if not is_absent] == [
        name for name in names if name in found
    ]
