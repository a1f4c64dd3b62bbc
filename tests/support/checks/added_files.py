"""Checks the ``add`` actions of a commit against the data files, which pyarrow alone reads and none of our code.

Each ``add`` must meet these rules, by the protocol's sections "Per-file Statistics" and "Column Mapping" and this project's own:

1. it only rearranges rows (no data change, no deletion vector), and its size and number of rows are those of the file;
2. the file has the schema's columns in their order, of the schema's types, under physical names; with column mapping
   each struct member at every depth has its field id; behind them are partition columns, if the protocol asks for them, and
   the columns of row tracking, and nothing else;
3. each leaf column that should have statistics has an exact ``nullCount``, and bounds wherever they can be written; no
   other column has any;
4. bounds are values of the file, apart from rounding and truncation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from delta_log import Snapshot, Table
from delta_log.log.file_names import commit_key

_FIELD_ID = b"PARQUET:field_id"
_ROW_TRACKING = tuple(
    f"delta.rowTracking.materialized{kind}ColumnName" for kind in ("RowId", "RowCommitVersion")
)
_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}

Names = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """A column that may have statistics; arrays and maps are leaves.

    :param path: physical names from the top down.
    :param names: the logical ones, in lower case.
    :param type: the name of its type, without what stands in brackets; of arrays and maps, ``array`` and ``map``.
    """

    path: Names
    names: Names
    type: str


def check_added_files(table: Path, version: int, *, copied: bool = False) -> int:
    """Check every file that a version adds; gives their number.

    :param copied: row groups of any size were copied: floats may have no bounds, arrays and maps no count of nulls, nor
        columns that the writer of a source did not count.
    """
    snapshot = Table(str(table)).snapshot(version)
    fields = _stored_fields(snapshot)
    columns = _with_stats(list(_leaves(fields, (), ())), snapshot.properties)
    adds = adds_of(table, version)
    for add in adds:
        file = pq.ParquetFile(table / unquote(add["path"]))
        assert add["dataChange"] is False
        assert add.get("deletionVector") is None
        assert add["size"] == (table / unquote(add["path"])).stat().st_size
        _check_schema(file.schema_arrow, fields, snapshot)
        uncounted = _uncounted(file.metadata) if copied else set()
        _check_stats(add["stats"], file.read(), columns, snapshot, copied, uncounted)
    return len(adds)


def adds_of(table: Path, version: int) -> list[dict[str, Any]]:
    # Lines of bytes: in a text, a NEL or a line separator within a string would end a line too.
    lines = (table / commit_key(version)).read_bytes().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def field_ids(table: Path) -> dict[Names, set[int]]:
    """The ids that the live files have for each struct member, by its physical path."""
    found: dict[Names, set[int]] = {}
    for key in Table(str(table)).snapshot().files(["key"]).column("key").to_pylist():
        for path, field in _members(pq.read_schema(table / key), ()):
            if (number := _id_of(field)) is not None:
                found.setdefault(path, set()).add(number)
    return found


def _stored_fields(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The schema's columns as the files should have them: each with its physical name as ``stored``."""
    mapped = snapshot.mapping_mode != "none"
    partition = set(snapshot.partition_columns)

    def stored(kind: Any) -> Any:
        if not isinstance(kind, dict):
            return kind
        inner = {name: stored(kind[name]) for name in ("elementType", "keyType", "valueType") if name in kind}
        members = [
            {
                **member,
                "type": stored(member["type"]),
                "stored": member["metadata"]["delta.columnMapping.physicalName"]
                if mapped
                else member["name"],
                "id": member["metadata"]["delta.columnMapping.id"] if mapped else None,
            }
            for member in kind.get("fields", ())
            if member["type"] != "void"
        ]
        return {**kind, **inner, "fields": members}

    fields = stored(json.loads(snapshot.metadata.schemaString))["fields"]
    return [field for field in fields if field["name"] not in partition]


def _leaves(fields: Sequence[Mapping[str, Any]], path: Names, names: Names) -> Iterator[Leaf]:
    for field in fields:
        at, called = (*path, field["stored"]), (*names, field["name"].lower())
        kind = field["type"]
        if isinstance(kind, str):
            yield Leaf(at, called, kind.partition("(")[0])
        elif kind["type"] == "struct":
            yield from _leaves(kind["fields"], at, called)
        else:
            yield Leaf(at, called, kind["type"])


def _with_stats(leaves: list[Leaf], properties: Mapping[str, str]) -> list[Leaf]:
    """Those that must have statistics. Tables with clustering columns, which always have, are not rewritten."""
    named = properties.get("delta.dataSkippingStatsColumns")
    if named is not None:
        wanted = [tuple(part.strip(" `").lower() for part in name.split(".")) for name in named.split(",")]
        return [leaf for leaf in leaves if any(leaf.names[: len(name)] == name for name in wanted)]
    count = int(properties.get("delta.dataSkippingNumIndexedCols", "32"))
    return leaves if count < 0 else leaves[:count]


def _check_schema(there: pa.Schema, fields: list[dict[str, Any]], snapshot: Snapshot) -> None:
    tracked = snapshot.properties.get("delta.enableRowTracking") == "true"
    extra = [snapshot.properties[name] for name in _ROW_TRACKING] if tracked else []
    partition = (
        snapshot.partition_columns
        if "materializePartitionColumns" in (snapshot.protocol.writerFeatures or ())
        else ()
    )
    assert there.names[len(fields) :] == [*partition, *extra]
    _check_members(list(there)[: len(fields)], fields)


def _check_members(there: Sequence[pa.Field], wanted: Sequence[Mapping[str, Any]]) -> None:
    assert [field.name for field in there] == [member["stored"] for member in wanted]
    for field, member in zip(there, wanted, strict=True):
        assert member["id"] is None or _id_of(field) == member["id"], field
        _check_type(field.type, member["type"])


def _check_type(there: pa.DataType, wanted: Any) -> None:
    if isinstance(wanted, str):
        assert there == _arrow_type(wanted)
    elif wanted["type"] == "struct":
        assert pa.types.is_struct(there)
        _check_members(list(there), wanted["fields"])
    elif wanted["type"] == "array":
        assert pa.types.is_list(there)
        _check_type(there.value_type, wanted["elementType"])
    else:
        assert pa.types.is_map(there)
        _check_type(there.key_type, wanted["keyType"])
        _check_type(there.item_type, wanted["valueType"])


def _arrow_type(name: str) -> pa.DataType:
    base, _, arguments = name.partition("(")
    if base == "decimal":
        precision, scale = arguments.rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _TYPES["string" if base in ("char", "varchar") else base]


def _members(fields: Any, path: Names) -> Iterator[tuple[Names, pa.Field]]:
    """Every struct member at every depth; lists and maps add to the path where they are passed."""
    for field in fields:
        at = (*path, field.name)
        yield at, field
        yield from _members_inside(field.type, at)


def _members_inside(kind: pa.DataType, path: Names) -> Iterator[tuple[Names, pa.Field]]:
    if pa.types.is_struct(kind):
        yield from _members(kind, path)
    elif pa.types.is_list(kind):
        yield from _members_inside(kind.value_type, (*path, "element"))
    elif pa.types.is_map(kind):
        yield from _members_inside(kind.key_type, (*path, "key"))
        yield from _members_inside(kind.item_type, (*path, "value"))


def _id_of(field: pa.Field) -> int | None:
    value = (field.metadata or {}).get(_FIELD_ID)
    return None if value is None else int(value)


def _uncounted(footer: pq.FileMetaData) -> set[Names]:
    """The leaves of which a row group does not say how many nulls it has, as old writers leave it."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(footer.num_columns)]
    return {
        tuple(chunk.path_in_schema.split("."))
        for chunk in chunks
        if chunk.statistics is None or not chunk.statistics.has_null_count
    }


def _check_stats(
    text: str,
    content: pa.Table,
    columns: Sequence[Leaf],
    snapshot: Snapshot,
    copied: bool,
    uncounted: set[Names],
) -> None:
    # Digits stay as they are: a float would lose those of a decimal. NaN and Infinity are no JSON.
    stats = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    assert stats["numRecords"] == content.num_rows > 0
    if "deletionVectors" in (snapshot.protocol.writerFeatures or ()):
        assert stats.get("tightBounds") is True
    else:
        assert stats.get("tightBounds", True) is True
    lows, highs, nulls = (dict(_flat(stats[part], ())) for part in ("minValues", "maxValues", "nullCount"))
    unknown = {column.path for column in columns if copied and column.type in ("array", "map")} | uncounted
    assert {column.path for column in columns} - unknown <= set(nulls) <= {column.path for column in columns}
    assert set(lows) | set(highs) <= set(nulls) | uncounted
    limit = int(snapshot.properties.get("delta.dataSkippingStringPrefixLength", "32"))
    for column in columns:
        values = values_of(content, column.path)
        present = [value for value in values if value is not None]
        assert column.path not in nulls or nulls[column.path] == len(values) - len(present), column
        low, high = lows.get(column.path), highs.get(column.path)
        if copied and column.type in ("float", "double") and (low, high) == (None, None):
            continue
        if present and column.type in _CHECKS:
            _CHECKS[column.type](present, low, high, limit)
        else:
            assert (low, high) == (None, None), column


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} in statistics")


def _flat(tree: Mapping[str, Any], path: Names) -> Iterator[tuple[Names, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, (*path, name))
        else:
            assert value is not None
            yield (*path, name), value


def values_of(content: pa.Table, path: Names) -> list[Any]:
    """The values of a leaf, null where a struct around it is; dates are days and times microseconds since 1970."""
    values = content.column(path[0]).combine_chunks()
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    found: list[Any] = values.to_pylist()
    return found


def _check_number(values: list[Any], low: Any, high: Any, limit: int) -> None:
    assert isinstance(low, int | Decimal)
    assert (low, high) == (min(values), max(values))


def _check_float(values: list[float], low: Any, high: Any, limit: int) -> None:
    if not all(map(math.isfinite, values)):
        assert (low, high) == (None, None)
        return
    assert (float(low), float(high)) == (min(values), max(values))
    # Whichever zero it is, the bounds include both.
    assert low != 0 or math.copysign(1, float(low)) == -1
    assert high != 0 or math.copysign(1, float(high)) == 1


def _check_date(values: list[int], low: Any, high: Any, limit: int) -> None:
    try:
        found = [str(date(1970, 1, 1) + timedelta(days=day)) for day in (min(values), max(values))]
    except OverflowError:  # before year 1 or after 9999, which has no spelling
        assert (low, high) == (None, None)
    else:
        assert [low, high] == found


def _check_time(zone: str) -> Callable[[list[int], Any, Any, int], None]:
    """Milliseconds, the minimum rounded down and the maximum up, and so less than one away from a value."""

    def check(values: list[int], low: Any, high: Any, limit: int) -> None:
        try:
            for moment in (min(values), max(values) + 999):
                datetime(1970, 1, 1) + timedelta(microseconds=moment)
        except OverflowError:
            assert (low, high) == (None, None)
            return
        for bound in (low, high):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}" + zone, bound)
        low_us, high_us = (_microseconds(bound.removesuffix("Z")) for bound in (low, high))
        assert 0 <= min(values) - low_us < 1000
        assert 0 <= high_us - max(values) < 1000

    return check


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def _check_text(values: list[str], low: Any, high: Any, limit: int) -> None:
    """Texts are ordered by their bytes; the minimum is cut, and a character above what was cut off ends the maximum."""
    least, greatest = (choose(values, key=str.encode) for choose in (min, max))
    assert low == least[:limit]
    if high is None:
        # As many of the last character of all as there may be: none is above it.
        assert "\U0010ffff" * (limit // 2) in greatest
    elif high != greatest:
        kept, last = high[:-1], high[-1]
        assert len(kept) < len(greatest)
        assert greatest.startswith(kept)
        assert limit <= _units(kept) <= 2 * limit
        assert last == ("\x7f" if greatest[len(kept)] < "\x7f" else "\U0010ffff")
        assert high.encode() > greatest.encode()
    else:
        assert _units(high) <= 2 * limit


def _units(text: str) -> int:
    """Counts UTF-16 code units, as the limits do."""
    return len(text.encode("utf-16-le")) // 2


_CHECKS: dict[str, Callable[[list[Any], Any, Any, int], None]] = {
    **dict.fromkeys(("byte", "short", "integer", "long", "decimal"), _check_number),
    **dict.fromkeys(("float", "double"), _check_float),
    "date": _check_date,
    "timestamp": _check_time("Z"),
    "timestamp_ntz": _check_time(""),
    **dict.fromkeys(("string", "char", "varchar"), _check_text),
}
