"""A copy of a V2 checkpoint under the classic name, for readers that do not know V2 checkpoints.

Protocol sections "V2 Spec" and "Metadata Cleanup". After a cleanup of the log, such a reader would find commits without
a beginning and report a broken log. A checkpoint under the classic name lets it read the protocol and name the feature
that it lacks. The copy names the same sidecars, so it is one small file even for a large table.
"""

from __future__ import annotations

import io

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_log.checkpoint.schema import V2_COLUMNS, CheckpointSchema, StatsForms
from delta_log.checkpoint.writer import CheckpointMismatch, write_checkpoint
from delta_log.errors import vanished
from delta_log.log.actions import Action
from delta_log.log.checkpoint_reader import CheckpointReader, OtherActions
from delta_log.log.file_names import LOG_DIRECTORY, LogFile, LogFileKind
from delta_log.log.log_segment import Checkpoint, LogSegment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.replayed_log import complete_metadata
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage

_SIDECAR, _CHECKPOINT_METADATA = V2_COLUMNS["sidecar"], V2_COLUMNS["checkpointMetadata"]


def write_classic_copy(storage: Storage, checkpoint: Checkpoint, runtime: Runtime) -> str:
    """Write the copy unless it exists. A checkpoint without sidecars is written again as a classic one.

    :param checkpoint: checkpoint with a unique name.
    :return: the key of the copy.
    :raises UnreadableCheckpoint: the checkpoint cannot be read.
    :raises CheckpointMismatch: a different checkpoint has the classic name.
    """
    key = f"{LOG_DIRECTORY}/{checkpoint.version:020d}.checkpoint.parquet"
    other = CheckpointReader(storage, checkpoint).other
    last_commit = list_log(storage, checkpoint.version).commits.get(checkpoint.version)
    snapshot = Snapshot(storage, LogSegment(checkpoint.version, checkpoint, (), (), last_commit))
    if not other.sidecars:
        write_checkpoint(storage, snapshot, runtime, "classic")
        return key
    storage.put_if_absent(key, _body(checkpoint.version, other, snapshot))
    found = _classic(storage, key, checkpoint.version)
    if _comparable(CheckpointReader(storage, found).other) != _comparable(other):
        raise CheckpointMismatch(key, ("the actions of its V2 checkpoint",), published=True)
    return key


def _body(version: int, other: OtherActions, snapshot: Snapshot) -> bytes:
    assert other.protocol is not None
    assert other.metadata is not None
    actions = [
        Action(protocol=other.protocol),
        Action(metaData=complete_metadata(other.metadata)),
        *(Action(txn=transaction) for transaction in other.transactions.values()),
        *(Action(domainMetadata=domain) for domain in other.domains.values()),
    ]
    others = CheckpointSchema(StatsForms.of(snapshot), snapshot).others(actions)
    sidecars = [msgspec.to_builtins(sidecar) for sidecar in other.sidecars]
    others = _with(others, "sidecar", pa.nulls(others.num_rows, _SIDECAR))
    others = _with(others, "checkpointMetadata", pa.nulls(others.num_rows, _CHECKPOINT_METADATA))
    more = pa.table(
        {
            "sidecar": pa.array([*sidecars, None], _SIDECAR),
            "checkpointMetadata": pa.array(
                [*(None for _ in sidecars), {"version": version}], _CHECKPOINT_METADATA
            ),
        }
    )
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables([others, more], promote_options="default"), sink, compression="zstd")
    return sink.getvalue()


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.append_column(pa.field(name, column.type), column)


def _classic(storage: Storage, key: str, version: int) -> Checkpoint:
    for checkpoint in list_log(storage, version).checkpoints:
        if [file.key for file in checkpoint.files] == [key]:
            return checkpoint
    raise vanished(key)


def _comparable(other: OtherActions) -> tuple[object, ...]:
    assert other.protocol is not None
    assert other.metadata is not None
    return (
        other.protocol,
        complete_metadata(other.metadata),
        other.transactions,
        other.domains,
        sorted(sidecar.path for sidecar in other.sidecars),
    )


def is_needed(remaining: list[Checkpoint]) -> bool:
    """Whether all remaining checkpoints have names that only readers of V2 checkpoints know."""
    return bool(remaining) and all(_has_unique_name(checkpoint.files[0]) for checkpoint in remaining)


def _has_unique_name(file: LogFile) -> bool:
    return file.kind is LogFileKind.UUID_CHECKPOINT
