"""Tables whose log says that each commit may be read as changes, so that delta-spark reads the changes of any table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

#: delta-spark reads no changes of commits that are older than the retention.
_PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.deletedFileRetentionDuration": "interval 5000 weeks",
}
#: The first writer version that implies the feature.
_WRITER_VERSION = 4


def enable_change_feed(table: Path) -> bool:
    """Enable the feed in every version of a table. Return whether the log allows that: it must have all its commits.

    Checkpoints and checksums are deleted, since they hold the old metadata.
    """
    log = table / "_delta_log"
    commits = sorted(path for path in log.glob("*.json") if path.stem.isdigit())
    if [int(path.stem) for path in commits] != list(range(len(commits))):
        return False
    for number, path in enumerate(commits):
        lines = [json.dumps(_enabled(json.loads(line))) for line in path.read_text().splitlines() if line]
        path.write_text("".join(f"{line}\n" for line in lines))
        # Copies of a table may give all commits one time; a time of its own for each commit needs no adjustment by a reader.
        moment = 1_700_000_000 + 60 * number
        os.utime(path, (moment, moment))
    for path in [*log.iterdir()]:
        if path not in commits and path.is_file():
            path.unlink()
    return True


def _enabled(action: dict[str, Any]) -> dict[str, Any]:
    if metadata := action.get("metaData"):
        metadata["configuration"] = {**(metadata.get("configuration") or {}), **_PROPERTIES}
    if protocol := action.get("protocol"):
        if protocol["minWriterVersion"] >= 7:
            protocol["writerFeatures"] = sorted({*protocol.get("writerFeatures", ()), "changeDataFeed"})
        else:
            protocol["minWriterVersion"] = max(protocol["minWriterVersion"], _WRITER_VERSION)
    return action
