"""Tables of the checkpoint benchmark: a million files, with a V2 checkpoint, and with changes since."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import snapshot_tables

from delta_log import Table
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.runtime import Runtime

V2_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}


def linked(table: Path, copy: Path) -> Path:
    """Makes a copy for one run. The files are shared hard links, which no contender changes."""
    shutil.rmtree(copy, ignore_errors=True)
    for directory, _, names in os.walk(table / "_delta_log"):
        target = copy / Path(directory).relative_to(table)
        target.mkdir(parents=True)
        for name in names:
            # The pointer is overwritten: it may not be shared.
            place = shutil.copy if name == "_last_checkpoint" else os.link
            place(Path(directory) / name, target / name)
    return copy


def with_struct(source: Path, table: Path) -> Path:
    """The same table; its next checkpoint is to have statistics as a struct."""
    return _with_commits(source, table, [[_metadata({"delta.checkpoint.writeStatsAsStruct": "true"})]])


def with_v2_feature(source: Path, table: Path) -> Path:
    """The same table, which may have V2 checkpoints."""
    return _with_commits(source, table, [[V2_PROTOCOL, _metadata({})]])


def as_v2(source: Path, table: Path) -> Path:
    """The same table with a V2 checkpoint of ours at the end of its log."""
    if table.exists():
        return table
    draft = with_v2_feature(source, table.with_suffix(".draft"))
    opened = Table(str(draft))
    write_checkpoint(opened.storage, opened.snapshot(), Runtime(), "v2")
    draft.rename(table)
    return table


def with_newest_compacted(source: Path, table: Path, files: int) -> Path:
    """Some appends, and the newest files are compacted into one for each hundred."""
    numbers = range(files + 111, files + 211)
    appended = [[snapshot_tables._add(number)] for number in numbers]
    # The first file actions of a checkpoint are its newest ones, in ours and in others.
    names = Table(str(source)).snapshot().files(["path"]).column(0)[: files // 100].to_pylist()
    removed = [_remove(path) for path in names]
    made = [snapshot_tables._add(2 * files + number) for number in range(files // 10_000)]
    return _with_commits(source, table, [*appended, [*removed, *made]])


def with_churn(source: Path, table: Path, files: int) -> Path:
    """One file in a hundred, anywhere, takes another's place."""
    names = Table(str(source)).snapshot().files(["path"]).column(0).to_pylist()
    removed = [_remove(path) for path in random.Random(7).sample(names, files // 100)]  # noqa: S311
    made = [snapshot_tables._add(2 * files + number) for number in range(files // 100)]
    return _with_commits(source, table, [[*removed, *made]])


def _metadata(properties: dict[str, str]) -> dict[str, Any]:
    return {"metaData": {**snapshot_tables._METADATA["metaData"], "configuration": properties}}


def _remove(path: str) -> dict[str, Any]:
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": 4_000_000_000_000,
            "dataChange": False,
            "size": 1_000_000,
        }
    }


def _with_commits(source: Path, table: Path, commits: list[list[dict[str, Any]]]) -> Path:
    if table.exists():
        return table
    draft = linked(source, table.with_suffix(".new"))
    log = draft / "_delta_log"
    last = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal())
    for version, actions in enumerate(commits, last + 1):
        (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    draft.rename(table)
    return table
