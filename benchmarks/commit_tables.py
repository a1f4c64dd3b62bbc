"""The tables of the commit benchmark: 10,000 versions with a checkpoint near the end, one copy for each contender."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import deltalake
import snapshot_tables

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.s3 import S3Server

VERSIONS = 10_000


def local(root: Path, contender: str) -> str:
    """A copy of its own for a contender; it grows by what the runs commit, for all contenders alike."""
    table = root / f"commit-{contender}"
    if not table.exists():
        shutil.copytree(_template(root), table)
    return str(table)


def on_s3(root: Path, contender: str, bucket: str, server: S3Server) -> str:
    server.put_tree(_template(root), f"{bucket}/{contender}")
    return f"s3://{bucket}/{contender}"


def _template(root: Path) -> Path:
    table = root / "commit-template"
    if table.exists():
        return table
    scratch = root / "commit-template.part"
    shutil.rmtree(scratch, ignore_errors=True)
    snapshot_tables.commits(scratch, VERSIONS, 1)
    first = scratch / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            # What delta-rs does where nothing is said; ours would write a checkpoint every ten commits.
            line["metaData"]["configuration"]["delta.checkpointInterval"] = "100"
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    deltalake.DeltaTable(str(scratch)).create_checkpoint()
    scratch.rename(table)
    return table
