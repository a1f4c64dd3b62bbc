"""What follows a commit of ours, for the sake of those who read the table next: its checksum file and, when one is
due, a checkpoint.

Neither is part of the commit. Whatever goes wrong here is told in the log of this process and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.printable import printable_logger
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import write_version_checksum
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import positive_number

_LOG = printable_logger(__name__)
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
#: The protocol names no default; this is Spark's.
_DEFAULT_INTERVAL = 10


def look_after(
    snapshot: Snapshot,
    storage: Storage,
    transaction_id: str,
    runtime: Runtime,
    checkpointed: int | None = None,
) -> int | None:
    """Write what readers of a version that we just committed are glad of.

    :param snapshot: of that version.
    :param checkpointed: the version that an earlier call wrote a checkpoint of; a snapshot that was brought up to date
        by commits alone does not know of it.
    :return: the same, or the version of the checkpoint that was written now.
    """
    try:
        write_version_checksum(storage, snapshot, transaction_id)
    except Exception as error:  # noqa: BLE001 - the commit stands, and whoever made it must be told so
        _LOG.warning("%s: no checksum file for version %d: %s", storage.uri, snapshot.version, error)
    try:
        if is_checkpoint_due(snapshot, checkpointed):
            result = write_checkpoint(storage, snapshot, runtime)
            checkpointed = result.version
            for warning in result.warnings:
                _LOG.warning("%s: %s", storage.uri, warning)
    except Exception as error:  # noqa: BLE001 - the same
        _LOG.warning("%s: no checkpoint of version %d: %s", storage.uri, snapshot.version, error)
    return checkpointed


def is_checkpoint_due(snapshot: Snapshot, checkpointed: int | None = None) -> bool:
    """Has the log grown by ``delta.checkpointInterval`` commits since the newest checkpoint that we know of?"""
    commits = snapshot.commits_since_checkpoint
    if checkpointed is not None:
        commits = min(commits, snapshot.version - checkpointed)
    return snapshot.version > 0 and commits >= checkpoint_interval(snapshot.properties)


def checkpoint_interval(properties: Mapping[str, str | None]) -> int:
    """Commits between two checkpoints."""
    return positive_number(properties, CHECKPOINT_INTERVAL, _DEFAULT_INTERVAL)
