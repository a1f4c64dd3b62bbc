"""Generates tables with data: every type, nested and null, with and without column mapping, and with a past: columns that
were added, dropped or widened later, deletion vectors, and missing statistics.

pyarrow writes the data files, and the log is written by hand, so that none of our code makes the table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from delta_log.data.deletion_vector import write_deletion_vectors
from delta_log.data.row_bitmap import RowBitmap
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table_config.schema import ArrayType, DataType, MapType, StructType, arrow_schema, parse_schema

Rows = Sequence[Mapping[str, Any]]
PARTITION = "p"
ROW_TRACKING_COLUMNS = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-7",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-7",
}


def _struct(**members: Any) -> dict[str, Any]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in members.items()
    ]
    return {"type": "struct", "fields": fields}


def _array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def _members(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({name: st.none() | value for name, value in values.items()})


def _entries(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generates the entries of a map, in pyarrow's form."""
    return st.dictionaries(keys, st.none() | values, max_size=2).map(lambda found: list(found.items()))


_digit = st.integers(0, 9)
#: Short, or about as long as bounds in statistics may be.
_text = st.text(max_size=6) | st.builds(
    lambda character, count, rest: character * count + rest,
    st.sampled_from("az\x7fé\U0010ffff"),
    st.integers(15, 70),
    st.text(max_size=2),
)
_day = st.dates(date(1, 1, 2), date(9999, 12, 30))
_moment = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_zoned = _moment.map(lambda moment: moment.replace(tzinfo=timezone.utc))


def _decimals(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    """Generates decimals with at most this number of digits."""
    return st.decimals(-(10**digits) + 1, 10**digits - 1, places=places)


#: Columns by name: the type in the schema, and a strategy for values.
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "flag": ("boolean", st.booleans()),
    "tiny": ("byte", st.integers(-128, 127)),
    "short": ("short", st.integers(-(2**15), 2**15 - 1)),
    "int": ("integer", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "cents": ("decimal(5,2)", _decimals(3, 2)),
    "rate": ("decimal(18,4)", _decimals(14, 4)),
    "money": ("decimal(38,10)", _decimals(28, 10)),
    "day": ("date", _day),
    "moment": ("timestamp", _zoned),
    "local": ("timestamp_ntz", _moment),
    "text": ("string", _text),
    "bytes": ("binary", st.binary(max_size=5)),
    "list": (_array("double"), st.lists(st.none() | st.floats(allow_nan=False), max_size=3)),
    "map": (_map("string", "integer"), _entries(st.text(max_size=2), _digit)),
    "map_of_structs": (
        _map("integer", _struct(x="long", y="string")),
        _entries(_digit, _members(x=_digit, y=_text)),
    ),
    "map_of_lists": (
        _map("string", _array("date")),
        _entries(st.text(max_size=2), st.lists(_day, max_size=2)),
    ),
    "struct": (
        _struct(a="string", b=_array(_struct(c="long"))),
        _members(a=_text, b=st.lists(st.none() | _members(c=_digit), max_size=2)),
    ),
    "deep": (
        _struct(d=_struct(e=_struct(f="double", g="timestamp"), h="decimal(18,4)"), i="date"),
        _members(
            d=_members(e=_members(f=st.floats(), g=_zoned), h=_decimals(14, 4)),
            i=_day,
        ),
    ),
}


@dataclass(frozen=True)
class Narrow:
    """The narrower type of a column in files written before its type was widened.

    :param where: inside the column, as ``fieldPath`` of ``delta.typeChanges`` has it; empty: the column itself.
    :param values: of the wide type, such as the narrow one can hold.
    :param as_narrow: such a value as the narrow type has it.
    """

    type: str
    values: st.SearchStrategy[Any]
    as_narrow: Callable[[Any], Any] = lambda value: value
    where: str = ""


#: Default values of columns, as SQL.
DEFAULTS = {"int": "17", "text": "'none'", "day": "DATE'2024-02-29'"}
#: What tables say of their statistics.
STATS_PROPERTIES: tuple[Mapping[str, str], ...] = (
    {},
    {"delta.dataSkippingNumIndexedCols": "0"},
    {"delta.dataSkippingNumIndexedCols": "2"},
    {"delta.dataSkippingNumIndexedCols": "-1"},
    {"delta.dataSkippingStatsColumns": "deep.D.e, struct.a,`long`"},
    {"delta.dataSkippingStringPrefixLength": "4"},
)
#: Narrower types of columns: all that the protocol's section "Type Widening" allows.
NARROW: dict[str, tuple[Narrow, ...]] = {
    "short": (Narrow("byte", st.integers(-128, 127)),),
    "int": (Narrow("short", st.integers(-(2**15), 2**15 - 1)), Narrow("byte", st.integers(-128, 127))),
    "long": (Narrow("integer", st.integers(-(2**31), 2**31 - 1)), Narrow("short", st.integers(-9, 9))),
    "double": (
        Narrow("float", st.floats(width=32)),
        Narrow("integer", st.integers(-(2**31), 2**31 - 1).map(float), int),
    ),
    "rate": (
        Narrow("decimal(16,2)", _decimals(14, 2)),
        Narrow("integer", st.integers(-9, 9).map(Decimal), int),
    ),
    "money": (Narrow("decimal(18,4)", _decimals(14, 4)), Narrow("decimal(5,2)", _decimals(3, 2))),
    "local": (Narrow("date", _day.map(lambda day: datetime(day.year, day.month, day.day)), datetime.date),),
    "list": (
        Narrow(
            "float", st.lists(st.none() | st.floats(width=32, allow_nan=False), max_size=3), where="element"
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
    :param narrow: columns that it holds as they were before their types were widened.
    """

    columns: tuple[str, ...]
    rows: Rows
    deleted: frozenset[int]
    partition: str | None
    extra: bool
    has_stats: bool
    row_group: int
    narrow: frozenset[str] = frozenset()


@dataclass(frozen=True)
class GeneratedTable:
    """
    :param mapping: ``none``, ``name`` or ``id``, of column mapping.
    :param row_tracking: rows have stable ids; files with an ``extra`` column were rewritten before and keep some of theirs.
    :param narrow: columns whose types were widened, and how they were before.
    :param defaults: columns have default values, which writers give to rows that have none.
    :param properties: beside those that follow from the others.
    :param dictionaries: files may have some.
    """

    columns: tuple[str, ...]
    mapping: str
    partitioned: bool
    in_commit_timestamps: bool
    files: tuple[File, ...] = field(default=())
    row_tracking: bool = False
    narrow: Mapping[str, Narrow] = field(default_factory=dict)
    defaults: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    dictionaries: bool = True

    def live_rows(self) -> list[dict[str, Any]]:
        """Returns the rows that a reader must find, with logical column names."""
        found = []
        for file in self.files:
            for position, row in enumerate(file.rows):
                if position not in file.deleted:
                    live = {name: row[name] if name in file.columns else None for name in self.columns}
                    found.append(live | ({PARTITION: file.partition} if self.partitioned else {}))
        return found

    @property
    def schema(self) -> StructType:
        return self._schema(frozenset())

    def _schema(self, narrow: frozenset[str]) -> StructType:
        """
        :param narrow: columns whose types are not widened yet.
        """
        return parse_schema(self.schema_json(narrow), mapped=self.mapping != "none")

    def schema_json(self, narrow: frozenset[str] = frozenset()) -> str:
        fields = [
            {
                "name": name,
                "type": _narrowed(COLUMNS[name][0], self.narrow[name])
                if name in narrow
                else COLUMNS[name][0],
                "nullable": True,
                "metadata": self._metadata(name),
            }
            for name in self.columns
        ]
        if self.partitioned:
            fields.insert(0, {"name": PARTITION, "type": "string", "nullable": True, "metadata": {}})
        struct = {"type": "struct", "fields": fields}
        return json.dumps(struct if self.mapping == "none" else _mapped(struct, iter(range(1, 1000))))

    def _metadata(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if name in self.narrow:
            was = self.narrow[name]
            kind = COLUMNS[name][0]
            wide = kind["elementType"] if was.where else kind
            change = {"fromType": was.type, "toType": wide, **({"fieldPath": was.where} if was.where else {})}
            found["delta.typeChanges"] = [change]
        if self.defaults and name in DEFAULTS:
            found["CURRENT_DEFAULT"] = DEFAULTS[name]
        return found

    def write(self, path: Path) -> None:
        storage = LocalStorage(str(path))
        adds = [self._write_file(path, storage, file, number) for number, file in enumerate(self.files)]
        configuration = {
            "delta.enableDeletionVectors": "true",
            "delta.columnMapping.mode": self.mapping,
            **self.properties,
        }
        reader_features = ["columnMapping", "deletionVectors", "timestampNtz"]
        writer_features = ["inCommitTimestamp"]
        info: dict[str, Any] = {"operation": "WRITE", "timestamp": 1_700_000_000_000}
        if self.in_commit_timestamps:
            configuration["delta.enableInCommitTimestamps"] = "true"
            info["inCommitTimestamp"] = 4_000_000_000_000  # ahead of every clock
        if self.narrow:
            reader_features.append("typeWidening")
            configuration["delta.enableTypeWidening"] = "true"
        if self.defaults:
            writer_features.append("allowColumnDefaults")
        if self.row_tracking:
            writer_features += ["rowTracking", "domainMetadata"]
            configuration |= {"delta.enableRowTracking": "true", **ROW_TRACKING_COLUMNS}
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": reader_features,
            "writerFeatures": [*reader_features, *writer_features],
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
            mark = json.dumps({"rowIdHighWaterMark": self.first_row_id(len(self.files)) - 1})
            domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
            actions.append({"domainMetadata": domain})
        log = path / "_delta_log"
        log.mkdir(parents=True)
        lines = [*actions, *({"add": add} for add in adds)]
        (log / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _write_file(self, path: Path, storage: LocalStorage, file: File, number: int) -> dict[str, Any]:
        schema = self._schema(file.narrow)
        stored = StructType(tuple(schema.field(name) for name in file.columns))
        physical = arrow_schema(stored, physical=True)
        arrays = [
            pa.array([_renamed(value, column.type) for value in self._values(file, column.name)], there.type)
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
            use_dictionary=self.dictionaries,
        )
        partition = {schema.field(PARTITION).physical_name: file.partition} if self.partitioned else {}
        stats = {"numRecords": len(file.rows), **({"tightBounds": False} if file.deleted else {})}
        vector = {}
        if file.deleted:
            (descriptor,) = write_deletion_vectors(storage, [RowBitmap(sorted(file.deleted))], uuid.uuid4())
            vector = {"deletionVector": msgspec.to_builtins(descriptor)}
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

    def _values(self, file: File, name: str) -> list[Any]:
        """Returns a column's values as the file holds them."""
        values = [row[name] for row in file.rows]
        if name not in file.narrow:
            return values
        return [None if value is None else self.narrow[name].as_narrow(value) for value in values]

    def first_row_id(self, number: int) -> int:
        """Returns the first row id of a file; for the number of files, the first free id."""
        return 1000 + sum(len(file.rows) for file in self.files[:number])


def _narrowed(kind: Any, was: Narrow) -> Any:
    return {**kind, "elementType": was.type} if was.where else was.type


def _mapped(raw: Any, numbers: Iterator[int]) -> Any:
    """A type with an id and a physical name for each field of its structs."""
    if not isinstance(raw, dict):
        return raw
    if raw["type"] == "struct":
        fields = []
        for member in raw["fields"]:
            number = next(numbers)
            metadata = {
                **member["metadata"],
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
    if isinstance(kind, MapType):
        return [(_renamed(key, kind.key), _renamed(item, kind.value)) for key, item in value]
    return value


@st.composite
def generated_tables(draw: st.DrawFn, *, alike: bool = False) -> GeneratedTable:
    """
    :param alike: all files hold all columns as the table has them, and no row is deleted.
    """
    columns = tuple(draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True)))
    partitioned = draw(st.booleans())
    narrow = {
        name: draw(st.sampled_from(NARROW[name]))
        for name in columns
        if name in NARROW and not alike and draw(st.booleans())
    }
    files = []
    for _ in range(draw(st.integers(1, 4))):
        there = columns if alike else tuple(draw(st.lists(st.sampled_from(columns), unique=True)))
        older = frozenset(name for name in narrow if name in there and draw(st.booleans()))
        values = {name: narrow[name].values if name in older else COLUMNS[name][1] for name in columns}
        row = st.fixed_dictionaries({name: st.none() | values[name] for name in columns})
        rows = draw(st.lists(row, max_size=8))
        positions = st.integers(0, len(rows) - 1) if rows else st.nothing()
        files.append(
            File(
                columns=there,
                rows=rows,
                deleted=frozenset(draw(st.sets(positions))) if rows and not alike else frozenset(),
                partition=draw(st.sampled_from(["x", "y z", "é", None])) if partitioned else None,
                # A file without any column of the table has rows all the same, by another.
                extra=not there or draw(st.booleans()),
                has_stats=draw(st.booleans()),
                row_group=draw(st.integers(1, 8)),
                narrow=older,
            )
        )
    return GeneratedTable(
        columns,
        draw(st.sampled_from(["none", "name", "id"])),
        partitioned,
        draw(st.booleans()),
        tuple(files),
        narrow=narrow,
        defaults=draw(st.booleans()),
        properties=draw(st.sampled_from(STATS_PROPERTIES)),
        dictionaries=not alike or draw(st.booleans()),
    )


def as_multiset(rows: Rows) -> list[str]:
    """Returns rows in a comparable form that distinguishes NaN and both zeros."""
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
