"""Plans a repair: which live files lack their data or their deletion vector, and the actions that take them out of the log. Pure.

A missing data file is removed with ``dataChange``, as its rows are lost. Where only the deletion vector is missing, the rows are there, and
which of them were deleted is not known any more; the request says what to do (:data:`~delta_maintenance.repair.options.LOST_VECTORS`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.snapshot.snapshot import Snapshot
from delta_log.transaction.file_actions import ROW_COLUMNS, add_of_row, remove_of_row
from delta_maintenance.repair.options import KEEP, RESTORE_ROWS
from delta_maintenance.vacuum.plan.protected_files import vector_key

_SHOWN_FILES = 10


class DamagedFile(Struct, frozen=True):
    """A live file that cannot be read.

    :param lost_vector: key of its deletion vector, which is missing while the data file is there; ``None``: the data file is missing.
    :param num_records: number of its rows by the statistics; ``None``: they do not say.
    """

    row: Mapping[str, Any]
    lost_vector: str | None
    num_records: int | None

    def to_dict(self) -> dict[str, Any]:
        """The file as JSON values."""
        return {
            "path": self.row["path"],
            "partitionValues": dict(self.row["partition_values"] or ()),
            "size": self.row["size"],
            "numRecords": self.num_records,
            "missing": "data" if self.lost_vector is None else "deletion vector",
        }


class RepairPlan(Struct, frozen=True):
    """What is damaged, and what a repair does about it.

    :param num_files: number of live files below the root, and ``num_external`` the number of files outside, which are not looked for.
    """

    version: int
    damaged: tuple[DamagedFile, ...]
    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]
    num_files: int
    num_external: int

    @property
    def is_empty(self) -> bool:
        return not self.removes

    @property
    def num_missing(self) -> int:
        return sum(file.lost_vector is None for file in self.damaged)

    @property
    def digest(self) -> str:
        """Identify the actions, so that a run can be held to a plan that was approved."""
        removes = [
            (file.path, file.deletionVector and file.deletionVector.unique_id) for file in self.removes
        ]
        adds = [file.path for file in self.adds]
        return hashlib.sha256(json.dumps([sorted(removes, key=str), sorted(adds)]).encode()).hexdigest()[:32]

    @property
    def metrics(self) -> dict[str, int]:
        return {
            "numFilesScanned": self.num_files,
            "numMissingFiles": self.num_missing,
            "numRemovedFiles": len(self.removes),
            "numAddedFiles": len(self.adds),
        }

    def to_dict(self) -> dict[str, Any]:
        """Summarise the plan as JSON values, small however many files are missing."""
        records = [file.num_records for file in self.damaged if file.lost_vector is None]
        return {
            "digest": self.digest,
            "readVersion": self.version,
            "numFilesScanned": self.num_files,
            "numExternalFiles": self.num_external,
            "numMissingFiles": self.num_missing,
            "numMissingBytes": sum(file.row["size"] for file in self.damaged if file.lost_vector is None),
            "numMissingRecords": None if None in records else sum(filter(None, records)),
            "numLostDeletionVectors": len(self.damaged) - self.num_missing,
            "numFilesToRemove": len(self.removes),
            "numFilesToAdd": len(self.adds),
            "files": [file.to_dict() for file in self.damaged[:_SHOWN_FILES]],
        }

    def lines(self) -> Iterator[bytes]:
        """Write every damaged file as a line of JSON."""
        for file in self.damaged:
            yield (json.dumps(file.to_dict()) + "\n").encode()


def plan_repair(
    snapshot: Snapshot, absent: Collection[str], num_external: int, lost_vectors: str, now_ms: int
) -> RepairPlan:
    """Plan what to do about files that are absent.

    :param absent: keys of data files and of deletion vectors.
    :param lost_vectors: what to do where only the deletion vector is absent.
    """
    damaged = tuple(_damaged(snapshot, absent)) if absent else ()
    to_remove = [file for file in damaged if file.lost_vector is None or lost_vectors != KEEP]
    to_add = [file for file in damaged if file.lost_vector is not None and lost_vectors == RESTORE_ROWS]
    return RepairPlan(
        snapshot.version,
        damaged,
        tuple(replace(add_of_row(file.row, data_change=True), deletionVector=None) for file in to_add),
        tuple(remove_of_row(file.row, now_ms) for file in to_remove),
        snapshot.num_files - num_external,
        num_external,
    )


def _damaged(snapshot: Snapshot, absent: Collection[str]) -> Iterator[DamagedFile]:
    keys = pa.array(sorted(absent), pa.string())
    for batch in snapshot.file_batches(("key", *ROW_COLUMNS)):
        is_absent = pc.is_in(batch.column("key"), value_set=keys)
        has_vector = pc.is_valid(batch.column("deletion_vector"))
        suspected = batch.filter(pc.or_(is_absent, has_vector))
        yield from _damaged_rows(suspected.to_pylist(), absent, snapshot.table_uri)


def _damaged_rows(
    rows: Sequence[Mapping[str, Any]], absent: Collection[str], table_uri: str
) -> Iterator[DamagedFile]:
    for row in rows:
        if row["key"] in absent:
            yield DamagedFile(row, None, _num_records(row["stats"]))
            continue
        vector = vector_key(DeletionVector.from_row(row["deletion_vector"]), table_uri)
        if vector in absent:
            yield DamagedFile(row, vector, _num_records(row["stats"]))


def _num_records(stats: str | None) -> int | None:
    try:
        found = json.loads(stats or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, int) else None
