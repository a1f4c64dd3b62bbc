"""Many file actions of the log's tail as columns: a million of them take what Arrow takes, not six times that.

They stand for the dictionary from identity to action that :mod:`delta_log.log.log_replay` makes of few: same order, same keys.
What a snapshot needs of them is columns again; whoever asks for a single action gets one made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, action_batch, member_of, shared_nulls

#: Between path and deletion vector id in a key; it can be in neither.
SEPARATOR = "\x00"
#: So many become columns at a time.
_BATCH_ROWS = 1 << 16

Item = TypeVar("Item", Add, Remove)
VectorColumn = TypeVar("VectorColumn", pa.Array, pa.ChunkedArray)


def identities_of(keys: pa.Array, vectors: pa.StructArray) -> pa.Array:
    """File action keys of some files: *(decoded path, deletion vector id)*."""
    return pc.binary_join_element_wise(keys, deletion_vector_ids(vectors), SEPARATOR)


def deletion_vector_ids(vectors: VectorColumn, text_type: pa.DataType | None = None) -> VectorColumn:
    """:func:`~delta_log.log.deletion_vector_id.deletion_vector_id` of a column; the empty text where there is no vector.

    :param text_type: ``string`` (the default) or ``large_string``.
    """
    text_type = text_type or pa.string()
    kind, where, offset = (
        pc.struct_field(vectors, name).cast(text_type) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    nothing = pa.scalar("", text_type)
    at = pc.coalesce(pc.binary_join_element_wise(pa.scalar("@", text_type), offset, nothing), nothing)
    return pc.coalesce(pc.binary_join_element_wise(kind, where, at, nothing), nothing)


class ActionColumns(Mapping[str, Item]):
    """
    :ivar table: ``key`` (the decoded path), and the columns of the action; newest first.
    """

    def __init__(self, action: str, table: pa.Table) -> None:
        self.action, self.table = action, table

    @classmethod
    def emptying(cls, action: str, actions: dict[str, Item]) -> ActionColumns[Item]:
        """Of actions by identity, which are given up one by one: both together would take twice the memory."""
        schema = ADD_SCHEMA if action == "add" else REMOVE_SCHEMA
        batches = []
        identities = list(actions)
        for start in range(0, len(identities), _BATCH_ROWS):
            part = identities[start : start + _BATCH_ROWS]
            batch = action_batch(action, [actions.pop(identity) for identity in part], schema.names)
            identities[start : start + _BATCH_ROWS] = [""] * len(part)
            keys = pa.array([identity.partition(SEPARATOR)[0] for identity in part], pa.string())
            paths = batch.column("path")
            # A column of which nothing is there takes memory all the same.
            arrays: list[pa.Array] = [
                shared_nulls(len(column), column.type) if column.null_count == len(column) else column
                for column in batch.columns
            ]
            batches.append(pa.record_batch([paths if keys.equals(paths) else keys, *arrays], _schema(action)))
        return cls(action, pa.Table.from_batches(batches, _schema(action)))

    def select(self, names: list[str]) -> pa.Table:
        return self.table.select(names)

    def identities(self) -> pa.ChunkedArray:
        batches = self.table.select(["key", "deletion_vector"]).to_batches()
        return pa.chunked_array([identities_of(*batch.columns) for batch in batches], pa.string())

    def without(self, identities: pa.Array) -> ActionColumns[Item]:
        kept = pc.invert(pc.is_in(self.identities(), value_set=identities))
        return ActionColumns(self.action, self.table.filter(kept))

    def then(self, older: ActionColumns[Item]) -> ActionColumns[Item]:
        """Both, these first; they have no identity in common."""
        return ActionColumns(self.action, pa.concat_tables([self.table, older.table]))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[str]:
        for chunk in self.identities().chunks:
            yield from chunk.to_pylist()

    def __contains__(self, identity: object) -> bool:
        return identity in self._rows

    def __getitem__(self, identity: str) -> Item:
        return self._made(next(iter(self.table.slice(self._rows[identity], 1).to_pylist())))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {identity: row for row, identity in enumerate(self)}

    def _made(self, row: dict[str, Any]) -> Item:
        members: dict[str, Any] = {}
        for name in islice(self.table.column_names, 1, None):
            value = row[name]
            if value is not None and name == "deletion_vector":
                value = DeletionVector.from_row(value)
            elif value is not None and name in ("partition_values", "tags"):
                value = dict(value)
            members[member_of(self.action, name)] = value
        made: Any = Add(**members) if self.action == "add" else Remove(**members)
        return made  # type: ignore[no-any-return]


def _schema(action: str) -> pa.Schema:
    return pa.schema([("key", pa.string()), *(ADD_SCHEMA if action == "add" else REMOVE_SCHEMA)])
