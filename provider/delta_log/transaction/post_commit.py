"""Writes what helps readers after a commit of ours: its checksum file and, when one is due, a checkpoint.

Neither is part of the commit. A failure here is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    """Write the checksum file of a version that was just committed, and a checkpoint when one is due.

    :param snapshot: snapshot of that version.
    :param checkpointed: the version of which an earlier call wrote a checkpoint; a snapshot that was advanced by commits does
        not know of it.
    :return: ``checkpointed``, or the version of the checkpoint that this call wrote.
    """
    try:
        write_version_checksum(storage, snapshot, transaction_id)
    except Exception as error:  # noqa: BLE001 - the commit stands, and its caller must learn that
        _LOG.warning("%s: no checksum file for version %d: %s", storage.uri, snapshot.version, error)
    try:
        if is_checkpoint_due(snapshot, checkpointed):
            # Imported here, since most commits are followed by none.
            from delta_log.checkpoint.writer import write_checkpoint

            result = write_checkpoint(storage, snapshot, runtime)
            checkpointed = result.version
            for warning in result.warnings:
                _LOG.warning("%s: %s", storage.uri, warning)
    except Exception as error:  # noqa: BLE001 - as above
        _LOG.warning("%s: no checkpoint of version %d: %s", storage.uri, snapshot.version, error)
    return checkpointed


def is_checkpoint_due(snapshot: Snapshot, checkpointed: int | None = None) -> bool:
    """Tell whether ``delta.checkpointInterval`` commits follow the newest known checkpoint."""
    commits = snapshot.commits_since_checkpoint
    if checkpointed is not None:
        commits = min(commits, snapshot.version - checkpointed)
    return snapshot.version > 0 and commits >= checkpoint_interval(snapshot.properties)


def checkpoint_interval(properties: Mapping[str, str | None]) -> int:
    """Return the number of commits between two checkpoints."""
    return positive_number(properties, CHECKPOINT_INTERVAL, _DEFAULT_INTERVAL)
