"""The options of the operations that look after the log, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_maintenance.contract import CHECKPOINT_POLICIES, CHECKPOINT_TOP_FORMATS
from delta_maintenance.options import Choice, Operation, Options, Switch, option, table_of

if TYPE_CHECKING:
    from delta_log.checkpoint.staged import TopFormat
    from delta_log.checkpoint.writer import CheckpointPolicy


@dataclass(frozen=True, slots=True)
class CheckpointOptions(Options):
    """Which checkpoint to write, and what else to do about the log."""

    policy: CheckpointPolicy | None = option(
        Choice(CHECKPOINT_POLICIES),
        "classic: one file; v2: a small file that names others",
        otherwise="the table's delta.checkpointPolicy",
    )
    top_format: TopFormat = option(
        Choice(CHECKPOINT_TOP_FORMATS), "format of the first file of a V2 checkpoint", default="json"
    )
    full: bool = option(
        Switch(),
        "write all sidecars of a V2 checkpoint; else those that did not change are used again",
        default=False,
    )
    # After a bulk load a caller may want a checkpoint in any case. A DAG mostly runs every day.
    if_due: bool = option(
        Switch(),
        "write a checkpoint only if readers have much of the log to replay",
        default=False,
        argument_default=True,
    )
    compact_log: bool = option(
        Switch(), "if no checkpoint is due, put many commits into one log compaction", default=False
    )
    cleanup_log: bool = option(
        Switch(), "afterwards, delete files of the log that no version in retention needs", default=False
    )
    repair_checksum: bool = option(
        Switch(),
        "write the version's checksum file where it is missing or wrong, if the right content can be proved",
        default=False,
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> CheckpointOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown, or has a value of a wrong kind.
        """
        return cls.from_spec(CHECKPOINT, raw)


CHECKPOINT = Operation(
    "checkpoint",
    "write a checkpoint, so that readers need no commits before it",
    table_of(CheckpointOptions),
)
CLEANUP_LOG = Operation("cleanup-log", "delete files of the log that no version in retention needs")
COMPACT_LOG = Operation("compact-log", "put the commits since the newest checkpoint into one file")
