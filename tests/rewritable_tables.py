"""Generated tables with data in them: every type, nested and null, with and without column mapping, and with what time
leaves behind: columns that came later, columns that are gone, deletion vectors, statistics that somebody forgot.

The files are written by pyarrow and the log by hand, so that nothing of ours is needed to make a table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from delta_log.deletion_vector import RowBitmap, write_deletion_vectors
from delta_log.local_storage import LocalStorage
from delta_log.schema import ArrayType, DataType, StructType, arrow_schema, parse_schema

Rows = Sequence[Mapping[str, Any]]
PARTITION = "p"
ROW_TRACKING_COLUMNS = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-7",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-7",
}

_LONG = {"type": "long"}
_INNER = {"type": "struct", "fields": [{"name": "c", **_LONG, "nullable": True, "metadata": {}}]}
_STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "string", "nullable": True, "metadata": {}},
        {
            "name": "b",
            "type": {"type": "array", "elementType": _INNER, "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
    ],
}
_text = st.text(max_size=6) | st.sampled_from(["\U0010ffff" * 40, "z" * 70, "\x7f" * 33, "é" * 33, ""])
_moment = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
#: Of each column: its type in the schema, and its values.
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "flag": ("boolean", st.booleans()),
    "tiny": ("byte", st.integers(-128, 127)),
    "short": ("short", st.integers(-(2**15), 2**15 - 1)),
    "int": ("integer", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "money": ("decimal(38,10)", st.decimals(-(10**27), 10**27, places=10)),
    "day": ("date", st.dates(date(1, 1, 2), date(9999, 12, 30))),
    "moment": ("timestamp", _moment.map(lambda moment: moment.replace(tzinfo=timezone.utc))),
    "local": ("timestamp_ntz", _moment),
    "text": ("string", _text),
    "bytes": ("binary", st.binary(max_size=5)),
    "list": (
        {"type": "array", "elementType": "double", "containsNull": True},
        st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
    ),
    "map": (
        {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
        st.dictionaries(st.text(max_size=2), st.none() | st.integers(0, 9), max_size=2).map(
            lambda entries: list(entries.items())
        ),
    ),
    "struct": (
        _STRUCT,
        st.fixed_dictionaries(
            {
                "a": st.none() | _text,
                "b": st.none()
                | st.lists(
                    st.none() | st.fixed_dictionaries({"c": st.none() | st.integers(0, 9)}), max_size=2
                ),
            }
        ),
    ),
}


@dataclass(frozen=True)
class File:
    """
    :param columns: those that it has; the others came later.
    :param rows: with all columns; what the file does not have counts for nothing.
    :param deleted: positions that a deletion vector hides.
    :param extra: it holds a column that the table has dropped.
    """

    columns: tuple[str, ...]
    rows: Rows
    deleted: frozenset[int]
    partition: str | None
    extra: bool
    has_stats: bool
    row_group: int


@dataclass(frozen=True)
class GeneratedTable:
    """
    :param mapping: ``none``, ``name`` or ``id``, of column mapping.
    :param row_tracking: rows have stable ids; files with an ``extra`` column were rewritten before and keep some of theirs.
    """

    columns: tuple[str, ...]
    mapping: str
    partitioned: bool
    in_commit_timestamps: bool
    files: tuple[File, ...] = field(default=())
    row_tracking: bool = False

    def live_rows(self) -> list[dict[str, Any]]:
        """What a reader must find, in the logical columns."""
        found = []
        for file in self.files:
            for position, row in enumerate(file.rows):
                if position not in file.deleted:
                    live = {name: row[name] if name in file.columns else None for name in self.columns}
                    found.append(live | ({PARTITION: file.partition} if self.partitioned else {}))
        return found

    @property
    def schema(self) -> StructType:
        return parse_schema(self.schema_json(), mapped=self.mapping != "none")

    def schema_json(self) -> str:
        numbers = iter(range(1, 1000))
        fields = [
            {"name": name, "type": COLUMNS[name][0], "nullable": True, "metadata": {}}
            for name in self.columns
        ]
        if self.partitioned:
            fields.insert(0, {"name": PARTITION, "type": "string", "nullable": True, "metadata": {}})
        struct = {"type": "struct", "fields": fields}
        return json.dumps(struct if self.mapping == "none" else _mapped(struct, numbers))

    def write(self, path: Path) -> None:
        storage = LocalStorage(str(path))
        adds = [self._write_file(path, storage, file, number) for number, file in enumerate(self.files)]
        configuration = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": self.mapping}
        writer_features = ["columnMapping", "deletionVectors", "timestampNtz"]
        info: dict[str, Any] = {"operation": "WRITE", "timestamp": 1_700_000_000_000}
        if self.in_commit_timestamps:
            configuration["delta.enableInCommitTimestamps"] = "true"
            info["inCommitTimestamp"] = 4_000_000_000_000  # ahead of every clock
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": writer_features,
            "writerFeatures": [*writer_features, "inCommitTimestamp"],
        }
        metadata = {
            "id": str(uuid.UUID(int=7)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_json(),
            "partitionColumns": [PARTITION] if self.partitioned else [],
            "configuration": configuration,
        }
        actions = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]
        if self.row_tracking:
            protocol["writerFeatures"] = [
                *writer_features,
                "inCommitTimestamp",
                "rowTracking",
                "domainMetadata",
            ]
            configuration |= {"delta.enableRowTracking": "true", **ROW_TRACKING_COLUMNS}
            mark = json.dumps({"rowIdHighWaterMark": self.first_row_id(len(self.files)) - 1})
            domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
            actions.append({"domainMetadata": domain})
        log = path / "_delta_log"
        log.mkdir(parents=True)
        lines = [*actions, *({"add": add} for add in adds)]
        (log / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _write_file(self, path: Path, storage: LocalStorage, file: File, number: int) -> dict[str, Any]:
        schema = self.schema
        stored = StructType(tuple(schema.field(name) for name in file.columns))
        physical = arrow_schema(stored, physical=True)
        arrays = [
            pa.array([_renamed(row[column.name], column.type) for row in file.rows], there.type)
            for column, there in zip(stored, physical, strict=True)
        ]
        fields = list(physical)
        if file.extra:
            arrays.append(pa.array([b"gone"] * len(file.rows), pa.binary()))
            fields.append(pa.field("dropped", pa.binary(), metadata={b"PARQUET:field_id": b"9999"}))
        tracked = {}
        if self.row_tracking:
            tracked = {"baseRowId": self.first_row_id(number), "defaultRowCommitVersion": 0}
            if file.extra:
                # Below every base: ids that were given away long ago.
                kept = [None if at % 3 == 2 else number * 100 + at for at in range(len(file.rows))]
                arrays += [
                    pa.array(kept, pa.int64()),
                    pa.array([None if number is None else 0 for number in kept], pa.int64()),
                ]
                fields += [pa.field(column, pa.int64()) for column in ROW_TRACKING_COLUMNS.values()]
        name = f"part-{number:05}.parquet"
        path.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
            path / name,
            row_group_size=file.row_group,
            store_schema=False,
        )
        partition = {schema.field(PARTITION).physical_name: file.partition} if self.partitioned else {}
        stats = {"numRecords": len(file.rows), **({"tightBounds": False} if file.deleted else {})}
        vector = {}
        if file.deleted:
            (descriptor,) = write_deletion_vectors(storage, [RowBitmap(sorted(file.deleted))], uuid.uuid4())
            vector = {"deletionVector": descriptor.to_json()}
        return {
            "path": name,
            "size": (path / name).stat().st_size,
            "partitionValues": partition,
            "modificationTime": 1,
            "dataChange": True,
            **({"stats": json.dumps(stats)} if file.has_stats or file.deleted else {}),
            **vector,
            **tracked,
        }

    def first_row_id(self, number: int) -> int:
        """The base of a file; for the number of files, the first id that is free."""
        return 1000 + sum(len(file.rows) for file in self.files[:number])


def _mapped(raw: Any, numbers: Iterator[int]) -> Any:
    """A type with an id and a physical name for each field of its structs."""
    if not isinstance(raw, dict):
        return raw
    if raw["type"] == "struct":
        fields = []
        for member in raw["fields"]:
            number = next(numbers)
            metadata = {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number:04}",
            }
            fields.append({**member, "type": _mapped(member["type"], numbers), "metadata": metadata})
        return {**raw, "fields": fields}
    return {
        name: _mapped(value, numbers) if name in ("elementType", "keyType", "valueType") else value
        for name, value in raw.items()
    }


def _renamed(value: Any, kind: DataType) -> Any:
    """A value with the physical names of its structs' members."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {member.physical_name: _renamed(value[member.name], member.type) for member in kind}
    if isinstance(kind, ArrayType):
        return [_renamed(item, kind.element) for item in value]
    return value


@st.composite
def generated_tables(draw: st.DrawFn) -> GeneratedTable:
    columns = tuple(draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True)))
    partitioned = draw(st.booleans())
    row = st.fixed_dictionaries({name: st.none() | COLUMNS[name][1] for name in columns})
    files = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.lists(row, max_size=8))
        positions = st.integers(0, len(rows) - 1) if rows else st.nothing()
        files.append(
            File(
                columns=tuple(draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))),
                rows=rows,
                deleted=frozenset(draw(st.sets(positions))) if rows else frozenset(),
                partition=draw(st.sampled_from(["x", "y z", "é", None])) if partitioned else None,
                extra=draw(st.booleans()),
                has_stats=draw(st.booleans()),
                row_group=draw(st.integers(1, 8)),
            )
        )
    return GeneratedTable(
        columns,
        draw(st.sampled_from(["none", "name", "id"])),
        partitioned,
        draw(st.booleans()),
        tuple(files),
    )


def as_multiset(rows: Rows) -> list[str]:
    """Rows in a form that can be compared, NaN and both zeros told apart."""
    return sorted(repr([(name, _plain(row[name])) for name in sorted(row)]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value:.10f}"
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        return zoned, (value.astimezone(timezone.utc) if zoned else value).replace(tzinfo=None, fold=0)
    if isinstance(value, dict):
        return [(name, _plain(value[name])) for name in sorted(value)]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
