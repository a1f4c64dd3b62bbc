"""File actions of replayed commits, by identity: as a dictionary where they are few, as Arrow columns where they are many.

A million actions as Python objects take six times the memory of columns. Columns for all logs would be simpler, and too
slow for the usual ones: with 1,000 commits of one file each, opening took 15 % longer (23 against 20 ms), and 50
refreshes of a snapshot ten times as long (1.1 against 0.1 s).

Both forms are mappings from identity to action, in the same order. The functions of this module accept both; no other
module distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, action_batch, member_of, shared_nulls

#: More actions than these, of one kind, become columns.
MANY_ACTIONS = 50_000
#: Between path and deletion vector id in an identity; neither can contain it.
SEPARATOR = "\x00"
#: So many actions become columns at a time.
_BATCH_ROWS = 1 << 16

Item = TypeVar("Item", Add, Remove)
VectorColumn = TypeVar("VectorColumn", pa.Array, pa.ChunkedArray)


def identities_of(keys: pa.Array, vectors: pa.StructArray) -> pa.Array:
    """The identities of some files: decoded path, :data:`SEPARATOR`, deletion vector id."""
    return pc.binary_join_element_wise(keys, deletion_vector_ids(vectors), SEPARATOR)


def deletion_vector_ids(vectors: VectorColumn, text_type: pa.DataType | None = None) -> VectorColumn:
    """:func:`~delta_log.log.actions.deletion_vector_id` of a column; the empty text where there is no vector.

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
    """Actions by identity, as columns.

    :ivar table: ``key`` (the decoded path), and the columns of the action; newest first.
    """

    def __init__(self, action: str, table: pa.Table) -> None:
        self.action, self.table = action, table

    @classmethod
    def emptying(cls, action: str, actions: dict[str, Item]) -> ActionColumns[Item]:
        """Convert a dictionary and empty it step by step, so that memory never holds both forms of all actions."""
        schema = ADD_SCHEMA if action == "add" else REMOVE_SCHEMA
        batches = []
        identities = list(actions)
        for start in range(0, len(identities), _BATCH_ROWS):
            part = identities[start : start + _BATCH_ROWS]
            batch = action_batch(action, [actions.pop(identity) for identity in part], schema.names)
            identities[start : start + _BATCH_ROWS] = [""] * len(part)
            keys = pa.array([identity.partition(SEPARATOR)[0] for identity in part], pa.string())
            paths = batch.column("path")
            # A column of nulls takes memory like any other.
            arrays: list[pa.Array] = [
                shared_nulls(len(column), column.type) if column.null_count == len(column) else column
                for column in batch.columns
            ]
            batches.append(pa.record_batch([paths if keys.equals(paths) else keys, *arrays], _schema(action)))
        return cls(action, pa.Table.from_batches(batches, _schema(action)))

    def identities(self) -> pa.ChunkedArray:
        batches = self.table.select(["key", "deletion_vector"]).to_batches()
        return pa.chunked_array([identities_of(*batch.columns) for batch in batches], pa.string())

    def without(self, identities: pa.Array) -> ActionColumns[Item]:
        kept = pc.invert(pc.is_in(self.identities(), value_set=identities))
        return ActionColumns(self.action, self.table.filter(kept))

    def then(self, older: ActionColumns[Item]) -> ActionColumns[Item]:
        """These actions before some older ones; they have no identity in common."""
        return ActionColumns(self.action, pa.concat_tables([self.table, older.table]))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[str]:
        for chunk in self.identities().chunks:
            yield from chunk.to_pylist()

    def __contains__(self, identity: object) -> bool:
        return identity in self._rows

    def __getitem__(self, identity: str) -> Item:
        return self._action(next(iter(self.table.slice(self._rows[identity], 1).to_pylist())))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {identity: row for row, identity in enumerate(self)}

    def _action(self, row: dict[str, Any]) -> Item:
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


def columns_if_many(action: str, actions: Mapping[str, Item]) -> Mapping[str, Item]:
    """The actions as columns where they are more than :data:`MANY_ACTIONS`, which empties the dictionary."""
    if len(actions) <= MANY_ACTIONS or not isinstance(actions, dict):
        return actions
    return ActionColumns.emptying(action, actions)


def merged(
    action: str,
    newer: Mapping[str, Item],
    older: Mapping[str, Item],
    newer_adds: Mapping[str, Add],
    newer_removes: Mapping[str, Remove],
) -> Mapping[str, Item]:
    """The actions of newer and older commits; an older one counts where no newer add or remove has its identity."""
    if not isinstance(newer, ActionColumns) and not isinstance(older, ActionColumns):
        counting = {
            identity: item
            for identity, item in older.items()
            if identity not in newer_adds and identity not in newer_removes
        }
        return {**newer, **counting}
    first, second = (
        found if isinstance(found, ActionColumns) else ActionColumns.emptying(action, dict(found))
        for found in (newer, older)
    )
    seen = pa.concat_arrays([identities_in(newer_adds), identities_in(newer_removes)])
    return first.then(second.without(seen) if len(seen) else second)


def identities_in(actions: Mapping[str, Any]) -> pa.Array:
    """The identities of some actions, as a column."""
    if isinstance(actions, ActionColumns):
        return _one_array(actions.identities())
    return pa.array(list(actions), pa.string())


def keys_in(actions: Mapping[str, Any]) -> pa.Array:
    """The decoded paths of some actions, as a column."""
    if isinstance(actions, ActionColumns):
        return _one_array(actions.table.column("key"))
    return pa.array([identity.partition(SEPARATOR)[0] for identity in actions], pa.string())


def action_table(
    action: str, actions: Mapping[str, Any], columns: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Some columns of the actions; ``key`` may be one of them."""
    if isinstance(actions, ActionColumns):
        return actions.table.select(list(columns))
    batch = action_batch(action, list(actions.values()), [name for name in columns if name != "key"])
    arrays = [keys_in(actions) if name == "key" else batch.column(name) for name in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _schema(action: str) -> pa.Schema:
    return pa.schema([("key", pa.string()), *(ADD_SCHEMA if action == "add" else REMOVE_SCHEMA)])
