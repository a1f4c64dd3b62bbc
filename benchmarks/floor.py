"""The least work of a compaction, as a program of its own: ``floor.py codec|copy TABLE BYTES``. Nothing is read from a log or written to it.

``codec``: Polars, the fastest codec at hand, decodes all data files of a table and encodes their rows into files of so many bytes.
``copy``: the bytes of all data files are copied into such files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path


def groups(table: Path, target_bytes: int) -> Iterator[list[Path]]:
    """Yield the data files that go into one new file each."""
    group: list[Path] = []
    group_bytes = 0
    for file in sorted(table.rglob("*.parquet")):
        if group and group_bytes + file.stat().st_size > target_bytes:
            yield group
            group, group_bytes = [], 0
        group.append(file)
        group_bytes += file.stat().st_size
    yield group


def encode(files: list[Path], target: Path) -> None:
    import polars as pl

    pl.scan_parquet(files).sink_parquet(target, compression="snappy")


def copy(files: list[Path], target: Path) -> None:
    with target.open("wb") as sink:
        for file in files:
            with file.open("rb") as source:
                left = os.fstat(source.fileno()).st_size
                while left:
                    left -= os.copy_file_range(source.fileno(), sink.fileno(), left)


def main(how: str, table: str, target_bytes: str) -> None:
    work = {"codec": encode, "copy": copy}[how]
    for number, files in enumerate(list(groups(Path(table), int(target_bytes)))):
        work(files, Path(table) / f"new-{number}.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
