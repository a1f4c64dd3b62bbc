"""Which layout the files of a table get, by the request and by the table's clustering."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from delta_log.errors import InvalidMetadata, InvalidRequest
from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.file_stats import stats_columns
from delta_log.table_config.clustering import (
    CLUSTERING_DOMAIN,
    CUBE_COLUMNS_TAG,
    CUBE_TAG,
    OWN_PROVIDER,
    PROVIDER,
    clustering_columns,
)
from delta_log.table_config.schema import DataType, PrimitiveType, StructField, StructType, to_arrow_type
from delta_maintenance.layout.layout import HILBERT, MAX_COLUMNS, MAX_HILBERT_COLUMNS, ZORDER, Layout
from delta_maintenance.layout.ranks import has_order
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.options import written_column

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_WHY_STATISTICS = "Readers skip files by the statistics of the log, so a layout by it would gain nothing"


class TableLayout(Struct, frozen=True):
    """The layout that a run gives the files.

    :param names: the columns as people know them.
    :param provider: provider of the clustered files, where the table's own clustering asks for the layout, and not a request.
    """

    layout: Layout
    names: tuple[str, ...]
    provider: str | None = None

    @property
    def is_clustering(self) -> bool:
        return self.provider is not None

    @property
    def cube_columns(self) -> str:
        """The columns as files of a cube name them."""
        return json.dumps(self.names, ensure_ascii=False, separators=(",", ":"))

    def cube_tags(self, bin_id: str) -> dict[str, str]:
        """The tags of the files of a new cube, which is named after the bin that makes it."""
        digits = [bin_id[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
        return {CUBE_TAG: "-".join(digits), CUBE_COLUMNS_TAG: self.cube_columns}

    def to_dict(self) -> dict[str, Any]:
        """The member ``layout`` of a plan."""
        kind = "clustering" if self.is_clustering else self.layout.kind
        return {"kind": kind, "columns": list(self.names)}


def table_layout(snapshot: Snapshot, options: OptimizeOptions) -> TableLayout | None:
    """The layout for a run; ``None``: files keep the order of their rows.

    :raises InvalidRequest: the request does not suit the table.
    """
    clustered_by = clustered_columns(snapshot)
    if options.sorts is None:
        clusters = bool(clustered_by) and options.layout is None and not options.purge
        _require_options(options, clusters)
        provider = OWN_PROVIDER if options.own_cubes else PROVIDER
        return _clustering(snapshot, clustered_by, provider) if clusters else None
    if clustered_by:
        raise InvalidRequest(
            f"The table is clustered by {', '.join(_clustering(snapshot, clustered_by, PROVIDER).names)}, and another layout would undo "
            "that. Leave the layout out to cluster it, or end the clustering with ALTER TABLE … CLUSTER BY NONE. Nothing was "
            "written."
        )
    _require_options(options, False)
    asked = options.zorder_by or options.by or ()
    found = [_column(snapshot, name) for name in asked]
    paths = tuple(path for path, _ in found)
    _require_columns(options.sorts, paths, asked)
    _require_statistics(snapshot, paths, asked)
    return TableLayout(Layout(options.sorts, paths), tuple(name for _, name in found))


def usable_column(snapshot: Snapshot, name: str) -> tuple[tuple[str, ...], str]:
    """Find a column that a layout may use; return its physical names, and its name as options have it.

    :raises InvalidRequest: it cannot be used.
    """
    path, full = _column(snapshot, name)
    _require_statistics(snapshot, [path], [full])
    fields = _physical(snapshot.schema, path)
    assert fields is not None
    return path, written_column(field.name for field in fields)


def clustered_columns(snapshot: Snapshot) -> tuple[tuple[str, ...], ...]:
    """The columns by which a table is clustered: physical names from the top down; empty: it is not clustered."""
    found = []
    for path in clustering_columns(snapshot.domain_metadata):
        parts = tuple(path)
        if len(parts) == 1 and _physical(snapshot.schema, parts) is None:
            parts = tuple(parts[0].split("."))
        found.append(parts)
    return tuple(found)


def _clustering(snapshot: Snapshot, paths: Sequence[tuple[str, ...]], provider: str) -> TableLayout:
    names = []
    for path in paths:
        found = _physical(snapshot.schema, path)
        if found is None or _is_interval(found[-1].type) or not has_order(to_arrow_type(found[-1].type)):
            raise InvalidMetadata(
                f"domainMetadata {CLUSTERING_DOMAIN}",
                f"{'.'.join(path)} is no column that rows can be sorted by",
            )
        names.append(".".join(field.name for field in found))
    kind = ZORDER if len(paths) == 1 else HILBERT
    _require_columns(kind, paths, names)
    return TableLayout(Layout(kind, tuple(paths)), tuple(names), provider)


def _require_options(options: OptimizeOptions, clusters: bool) -> None:
    """
    :raises InvalidRequest: an option has no meaning with this layout.
    """
    sorts = clusters or options.sorts is not None
    what = "The table is clustered" if clusters else "The request asks for a layout"
    refused: Mapping[str, tuple[bool, str]] = {
        "where": (
            clusters and options.where is not None,
            "a clustered table has no partitions to choose from. Leave it out",
        ),
        "max_file_size": (
            sorts and options.max_file_size_bytes is not None,
            "all files get the target size. Leave it out",
        ),
    }
    for name, (is_refused, why) in refused.items():
        if is_refused:
            raise InvalidRequest(f"{what}, and {name} does not go with that: {why}. Nothing was written.")
    for name, is_given in (
        ("seal_size", options.seal_size_bytes is not None),
        ("own_cubes", options.own_cubes),
    ):
        if is_given and not clusters:
            raise InvalidRequest(
                f"{name} is for clustered tables, and this run clusters none. Leave it out. Nothing was written."
            )


def _column(snapshot: Snapshot, name: str) -> tuple[tuple[str, ...], str]:
    """Find a column by the name that a person writes; return its physical names, and its name.

    :raises InvalidRequest: rows cannot be sorted by it.
    """
    parts = _parts(name)
    fields: list[StructField] = []
    within = snapshot.schema
    for number, part in enumerate(parts):
        try:
            fields.append(within.field(part))
        except KeyError:
            known = ", ".join(member.name for member in within.fields)
            rest = ".".join(parts[number:])
            quoted = ".".join([*parts[:number], f"`{rest}`"])
            dots = (
                f" Write {quoted} for the name with the dot."
                if rest in {f.name for f in within.fields}
                else ""
            )
            raise InvalidRequest(
                f"The table has no column {name}: {'.'.join(parts[:number]) or 'it'} has {known}.{dots} Nothing was written."
            ) from None
        kind = fields[-1].type
        if number < len(parts) - 1:
            if not isinstance(kind, StructType):
                raise InvalidRequest(
                    f"The table has no column {name}: {'.'.join(parts[: number + 1])} has no members. Nothing was written."
                )
            within = kind
    full = ".".join(member.name for member in fields)
    if fields[0].name in snapshot.partition_columns:
        raise InvalidRequest(
            f"The table is partitioned by {full}, so its files hold one value of it each, and a layout by it would change "
            "nothing. Leave it out. Nothing was written."
        )
    if isinstance(fields[-1].type, StructType) or not has_order(to_arrow_type(fields[-1].type)):
        raise InvalidRequest(
            f"Rows cannot be sorted by {full}, whose values have no order. Name another column, or a member of it. Nothing was "
            "written."
        )
    if _is_interval(fields[-1].type):
        raise InvalidRequest(
            f"Rows cannot be sorted by {full}: files state no bounds of intervals, so that queries would skip nothing. Name another "
            "column. Nothing was written."
        )
    return tuple(member.physical_name for member in fields), full


def _is_interval(kind: DataType) -> bool:
    return isinstance(kind, PrimitiveType) and kind.interval is not None


def _parts(name: str) -> list[str]:
    parts = [(quoted.replace("``", "`") or bare).strip() for quoted, bare in _PART.findall(name)]
    if not parts or ".".join(parts).strip() == "" or _PART.sub("", name).strip(" .") != "":
        raise InvalidRequest(f"{name!r} is no name of a column. Write a name, or a path such as a.b.")
    return parts


def _require_columns(kind: str, paths: Sequence[tuple[str, ...]], names: Sequence[str]) -> None:
    most, what = (MAX_HILBERT_COLUMNS, "Hilbert curve") if kind == HILBERT else (MAX_COLUMNS, "layout")
    if len(paths) > most:
        raise InvalidRequest(
            f"A {what} by {len(paths)} columns would help queries on none of them; at most {most} are allowed. Name the few "
            "columns that most queries filter by. Nothing was written."
        )
    twice = sorted({name for path, name in zip(paths, names, strict=True) if paths.count(path) > 1})
    if twice:
        raise InvalidRequest(f"The layout names {', '.join(twice)} twice. Nothing was written.")


def _require_statistics(snapshot: Snapshot, paths: Sequence[tuple[str, ...]], names: Sequence[str]) -> None:
    indexed = {
        column.path
        for column in stats_columns(
            snapshot.schema, partition_columns=snapshot.partition_columns, properties=snapshot.properties
        )
    }
    missing = [name for path, name in zip(paths, names, strict=True) if path not in indexed]
    if missing:
        raise InvalidRequest(
            f"The table keeps no statistics of {', '.join(missing)}. {_WHY_STATISTICS}. Name it in the table's property "
            "delta.dataSkippingStatsColumns, or raise delta.dataSkippingNumIndexedCols. Nothing was written."
        )


def _physical(schema: StructType, path: Sequence[str]) -> list[StructField] | None:
    """The fields along a path of physical names; ``None``: there is no such column."""
    fields: list[StructField] = []
    within: StructType | None = schema
    for name in path:
        members = within.fields if within is not None else ()
        field = next((member for member in members if member.physical_name == name), None)
        if field is None:
            return None
        fields.append(field)
        within = field.type if isinstance(field.type, StructType) else None
    return fields
