"""The Parquet columns of a checkpoint, and Arrow batches in them.

Protocol section "Checkpoint Schema". There is a column for each kind of action; a row has a value in one of them, and
everything may be null. JVM writers use the same types, so that JVM readers need not convert.

Statistics have two forms, JSON texts and a struct; see :class:`StatsForms`. The struct has the types of the current
schema, under physical names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from delta_log.checkpoint.sidecar_tags import form_of
from delta_log.checkpoint.state import REMOVE_COLUMNS
from delta_log.log.actions import Action
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, STRING_MAP, member_of
from delta_log.log.struct_stats import stats_of_struct
from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.file_stats import NUM_INDEXED_COLUMNS, StatsColumn, stats_columns
from delta_log.stats.stats_columns import parse_stats_column, stats_type
from delta_log.table_config.clustering import clustering_columns
from delta_log.table_config.features import supports
from delta_log.table_config.properties import flag
from delta_log.table_config.schema import to_arrow_type

STATS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"
#: Features whose statistics do not fit into the struct.
_MORE_THAN_A_STRUCT = ("collations", "variantShredding", "variantShredding-preview")
#: Features that require a number of records, or bounds, for every live file.
_STATS_REQUIRED = (
    "deletionVectors",
    "rowTracking",
    "clustering",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "icebergWriterCompatV1",
)

_LIST = pa.list_(pa.string())
_OTHER_COLUMNS: dict[str, pa.StructType] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _LIST),
            ("configuration", STRING_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _LIST),
            ("writerFeatures", _LIST),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
}
#: Further columns of the first file of a V2 checkpoint.
V2_COLUMNS: dict[str, pa.StructType] = {
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", STRING_MAP)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", STRING_MAP),
        ]
    ),
}
#: Texts that hardly repeat: the writer would build a dictionary of them and drop it.
_DISTINCT = ("add.path", "add.stats", "remove.path")


class StatsForms(Struct, frozen=True):
    """How a checkpoint holds the statistics of its files.

    1. ``delta.checkpoint.writeStatsAsJson`` and ``delta.checkpoint.writeStatsAsStruct`` choose the forms. A table that
       switches JSON off and does not set the other gets the struct, as from the JVM writer.
    2. A table that switches both off gets no statistics, unless one of its features requires them: then it gets JSON.
    3. JSON is written in any case where the struct cannot hold everything (collated and variant bounds).
    4. The struct has the columns that get statistics; as the only form, every column that may have statistics.
    """

    json: bool
    struct_columns: tuple[StatsColumn, ...] | None

    @classmethod
    def of(cls, snapshot: Snapshot) -> StatsForms:
        properties, protocol = snapshot.properties, snapshot.protocol
        as_json = flag(properties, STATS_AS_JSON, default=True)
        as_struct = flag(properties, STATS_AS_STRUCT, default=not as_json)
        needing_json = _MORE_THAN_A_STRUCT if as_struct else _STATS_REQUIRED
        as_json = as_json or any(supports(protocol, name) for name in needing_json)
        if not as_struct:
            return cls(as_json, None)
        columns = stats_columns(
            snapshot.schema,
            partition_columns=snapshot.partition_columns,
            properties=properties if as_json else {NUM_INDEXED_COLUMNS: "-1"},
            clustering_columns=clustering_columns(snapshot.domain_metadata),
        )
        return cls(as_json, columns)

    @property
    def names(self) -> tuple[str, ...]:
        return (*(["json"] if self.json else []), *(["struct"] if self.struct_columns is not None else []))


@dataclass(frozen=True)
class CheckpointSchema:
    """The columns of a checkpoint of one snapshot, and conversions into them."""

    forms: StatsForms
    _snapshot: Snapshot = field(repr=False)

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns of a classic checkpoint."""
        return pa.schema(
            [
                ("txn", _OTHER_COLUMNS["txn"]),
                *self.file_columns,
                *((name, kind) for name, kind in _OTHER_COLUMNS.items() if name != "txn"),
            ]
        )

    @cached_property
    def file_columns(self) -> pa.Schema:
        """The columns of a sidecar."""
        return pa.schema([("add", self._add_type), ("remove", _REMOVE_TYPE)])

    @cached_property
    def top_columns(self) -> pa.Schema:
        """The columns of the first file of a V2 checkpoint; its sidecars hold the file actions."""
        return pa.schema([*self.columns, *V2_COLUMNS.items()])

    @cached_property
    def form(self) -> str:
        """See :func:`~delta_log.checkpoint.sidecar_tags.form_of`."""
        return form_of(self.file_columns, texts=self.forms.json)

    @cached_property
    def _add_type(self) -> pa.StructType:
        members = [
            (member_of("add", name), ADD_SCHEMA.field(name).type)
            for name in _ADD_ORDER
            if name != "stats" or self.forms.json
        ]
        members.insert(4, ("dataChange", pa.bool_()))
        if self.forms.struct_columns is not None:
            if self._snapshot.partition_columns:
                partitions = [
                    (c.physical_name, to_arrow_type(c.type)) for c in self._snapshot.partition_schema
                ]
                members.append(("partitionValues_parsed", pa.struct(partitions)))
            members.append(("stats_parsed", _without_empty(stats_type(self.forms.struct_columns))))
        return pa.struct(members)

    def adds(self, files: pa.RecordBatch, columns: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Convert live files.

        :param files: files with the columns :data:`~delta_log.checkpoint.state.ADD_COLUMNS`.
        :return: a batch in ``columns``, and the files as a reader of the checkpoint will see them.
        """
        texts = files.column("stats")
        members: dict[str, pa.Array] = {member_of("add", name): files.column(name) for name in _ADD_ORDER}
        members["dataChange"] = pa.repeat(False, files.num_rows)
        read = texts if self.forms.json else pa.nulls(len(texts), pa.string())
        if self.forms.struct_columns is not None:
            kind = self._add_type.field("stats_parsed").type
            members["stats_parsed"] = _parsed(texts, self.forms.struct_columns, kind)
            if not self.forms.json:
                read = stats_of_struct(members["stats_parsed"])
            if self._snapshot.partition_columns:
                members["partitionValues_parsed"] = self._partition_values(files.column("partition_values"))
        actions = pa.StructArray.from_arrays(
            [members[f.name] for f in self._add_type], fields=list(self._add_type)
        )
        at = files.schema.get_field_index("stats")
        return _alone("add", actions, columns), files.set_column(at, "stats", read)

    def _partition_values(self, maps: pa.MapArray) -> pa.StructArray:
        # As in checkpoints of Spark, a value that cannot be read is null here; the raw map is beside it.
        typed = self._snapshot.partition_values_or_null(maps)
        kind = self._add_type.field("partitionValues_parsed").type
        return pa.StructArray.from_arrays([c.combine_chunks() for c in typed.columns], fields=list(kind))

    def removes(self, files: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
        """Convert tombstones, given in :data:`~delta_log.checkpoint.state.REMOVE_COLUMNS`."""
        arrays = [files.column(name) for name in REMOVE_COLUMNS]
        return _alone("remove", pa.StructArray.from_arrays(arrays, fields=list(_REMOVE_TYPE)), columns)

    def others(self, actions: Iterable[Action], columns: pa.Schema | None = None) -> pa.Table:
        """Convert actions that are not about files.

        :param columns: columns of the result; default: the columns of a classic checkpoint.
        """
        columns = self.columns if columns is None else columns
        rows = [_row(action) for action in actions]
        known = {*_OTHER_COLUMNS, *V2_COLUMNS}
        return pa.table(
            [
                pa.array([row.get(column.name) for row in rows], column.type)
                if column.name in known
                else pa.nulls(len(rows), column.type)
                for column in columns
            ],
            schema=columns,
        )


#: The columns of an ``add`` in the order of other writers; ``dataChange`` comes after the first four.
_ADD_ORDER = (
    "path",
    "partition_values",
    "size",
    "modification_time",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
    "stats",
)
_REMOVE_TYPE = pa.struct(
    [(member_of("remove", name), REMOVE_SCHEMA.field(name).type) for name in REMOVE_COLUMNS]
)


def parquet_writer(sink: Any, columns: pa.Schema) -> pq.ParquetWriter:
    """A writer of a file in these columns; each table that it writes becomes a row group."""
    leaves = list(_leaves(columns, ""))
    repeating = [path for path, kind in leaves if pa.types.is_string(kind) and path not in _DISTINCT]
    return pq.ParquetWriter(
        sink,
        columns,
        compression="zstd",
        use_dictionary=repeating,
        # No reader makes use of the bounds of JSON texts.
        write_statistics=[path for path, _ in leaves if path != "add.stats"],
        store_schema=False,
        store_decimal_as_integer=True,
        # Most of the several dozen columns have no value. With Arrow's smaller default, writing takes 5 % longer.
        write_batch_size=8 << 10,
        data_page_size=256 << 10,
    )


def _leaves(fields: Iterable[pa.Field], above: str) -> Iterator[tuple[str, pa.DataType]]:
    """Every leaf column: its path in Parquet and its type."""
    for member in fields:
        path, kind = f"{above}{member.name}", member.type
        if pa.types.is_struct(kind):
            yield from _leaves(kind, f"{path}.")
        elif pa.types.is_map(kind):
            yield from _leaves((kind.key_field, kind.item_field), f"{path}.key_value.")
        elif pa.types.is_list(kind):
            yield f"{path}.list.element", kind.value_type
        else:
            yield path, kind


def _alone(name: str, actions: pa.StructArray, columns: pa.Schema) -> pa.RecordBatch:
    """A batch in which all rows hold one kind of action."""
    arrays = [actions if f.name == name else pa.nulls(len(actions), f.type) for f in columns]
    return pa.record_batch(arrays, schema=columns)


def _row(action: Action) -> dict[str, Any]:
    """An action as a row for :func:`pyarrow.array`, with maps as lists of pairs."""
    row: dict[str, Any] = msgspec.to_builtins(action)
    metadata = row.get("metaData")
    if metadata is not None:
        stated: Mapping[str, Any] = metadata["format"]
        metadata["format"] = {"provider": stated["provider"], "options": list(stated["options"].items())}
        metadata["configuration"] = list(metadata["configuration"].items())
    sidecar = row.get("sidecar")
    if sidecar is not None and "tags" in sidecar:
        sidecar["tags"] = list(sidecar["tags"].items())
    return row


def _without_empty(kind: pa.StructType) -> pa.StructType:
    """Drop members that are structs without members, which Parquet does not have."""
    return pa.struct([f for f in kind if not (pa.types.is_struct(f.type) and f.type.num_fields == 0)])


def _parsed(texts: pa.StringArray, columns: tuple[StatsColumn, ...], kind: pa.StructType) -> pa.StructArray:
    """Statistics as a struct; null where there is no text."""
    parsed = parse_stats_column(texts, columns)
    members = [pc.struct_field(parsed, [parsed.type.get_field_index(f.name)]) for f in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=pc.is_null(texts))
