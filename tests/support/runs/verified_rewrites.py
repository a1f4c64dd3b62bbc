"""Rewrites random tables of many writers with ``verify="full"``, and compares rows and the answers to filters before and after."""

from __future__ import annotations

import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from msgspec import Struct, field

from delta_log import Table
from tests.support.runs.maintenance_runs import keys, mark_deleted, run
from tests.support.tables.tables_of_writers import (
    COLUMNS,
    chosen_columns,
    make_table,
    random_rows,
)

_WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"rewrite": "copy"},
    {"rewrite": "copy"},
    {"rewrite": "encode"},
    {"zorder_by": ["id"]},
    {"purge": True},
    {"purge": True, "rewrite": "copy"},
)
_VECTORS = {"delta.enableDeletionVectors": "true"}
#: Columns that all readers compare alike, each with a way to write a value of it.
_FILTERED = ("n", "small", "x", "y", "word", "text", "long")


class Recipe(Struct, frozen=True):
    """A table before it is written. Its files are in the order of their rows."""

    number: int
    seed: str
    way: Mapping[str, Any]
    files: list[tuple[str, pa.Table]]

    @classmethod
    def of(cls, seed: int, number: int, weights: Mapping[str, float]) -> Recipe:
        rng = random.Random(f"{seed} {number}")
        count = rng.choice((2, 2, 3, 4))
        of_files = rng.choices(list(weights), list(weights.values()), k=count)
        if rng.random() < 0.4:
            of_files = of_files[:1] * count
        columns, files, first = chosen_columns(rng, of_files), [], 0
        for writer in of_files:
            rows = rng.choice((1, 5, 40, 40, 300, 300, 2_500))
            if rng.random() < 0.005:
                rows = 123_000
            files.append((writer, random_rows(rng, columns, first, rows)))
            first += rows
        return cls(number, f"{seed} {number}", rng.choice(_WAYS), files)


class Tally(Struct):
    """What was done, and what went wrong."""

    tables: int = 0
    files: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    filters: int = 0
    misread: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    failures: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        files = ", ".join(f"{count:,} by {writer}" for writer, count in sorted(self.files.items()))
        ways = ", ".join(f"{count:,} {way}" for way, count in sorted(self.ways.items()))
        return [
            f"{self.tables:,} tables; files: {files}",
            f"runs with verify=full: {ways}",
            f"{self.filters:,} filters; answered wrongly from the sources, too: {dict(self.misread)}",
            f"{self.unreadable:,} more tables with a file that its own writer cannot read; {len(self.failures)} failures",
        ]


def check(recipe: Recipe, directory: Path, by_spark: Mapping[int, Path], tally: Tally) -> None:
    """Write a table and rewrite it. A failure is noted, and its table is kept."""
    table, rng = directory / f"table-{recipe.number}", random.Random(f"write {recipe.seed}")
    try:
        _check(recipe, table, rng, by_spark, tally)
    except Exception as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        writers = "+".join(sorted({writer for writer, _ in recipe.files}))
        tally.failures.append(f"table {recipe.number} ({writers}, {dict(recipe.way)}), {table}: {text}")
    else:
        shutil.rmtree(table)


def _check(
    recipe: Recipe, table: Path, rng: random.Random, by_spark: Mapping[int, Path], tally: Tally
) -> None:
    options = dict(recipe.way)
    purges = options.pop("purge", False)
    make_table(table, rng, recipe.files, by_spark, _VECTORS if purges else None)
    if not all(_arrow_reads(table / key) for key in keys(table)):
        tally.unreadable += 1
        return
    if purges:
        positions = {
            key: rng.sample(range(count), rng.randrange(1, count))
            for key, count in _row_counts(table).items()
            if count > 1
        }
        if positions:
            mark_deleted(table, positions)
    before, sources = _rows(table), [str(table / key) for key in keys(table)]
    report = run(table, "purge" if purges else "optimize", verify="full", **options)
    if report.status not in ("committed", "nothing_to_do"):
        raise AssertionError(f"{report.status}: {report.error}")
    tally.tables += 1
    tally.files.update(writer for writer, _ in recipe.files)
    tally.ways[("purge" if purges else "optimize") + "".join(f" {k}={v}" for k, v in options.items())] += 1
    after = _rows(table)
    if not _same(before, after):
        raise AssertionError("rows differ")
    if not Table(str(table)).snapshot().num_deletion_vectors:
        _check_filters(sources, [str(table / key) for key in keys(table)], after, rng, tally)


def _arrow_reads(path: Path) -> bool:
    """Tell whether Arrow can read a file. With very small pages, it writes lists that it cannot read."""
    try:
        pq.read_table(path)
    except pa.ArrowInvalid:
        return False
    return True


def _row_counts(table: Path) -> dict[str, int]:
    return {key: pq.read_metadata(table / key).num_rows for key in keys(table)}


def _rows(table: Path) -> pa.Table:
    return Table(str(table)).snapshot().to_arrow().sort_by("id")


def _same(one: pa.Table, other: pa.Table) -> bool:
    if one.schema.names != other.schema.names or one.num_rows != other.num_rows:
        return False
    # A NaN equals no other one in Arrow, and `repr` tells the zeros apart.
    return one.equals(other) or repr(one.to_pydict()) == repr(other.to_pydict())


def _check_filters(
    sources: Sequence[str], paths: Sequence[str], rows: pa.Table, rng: random.Random, tally: Tally
) -> None:
    """Compare what readers find in the new files by their statistics with what they find in memory.

    An answer that was wrong before, from the sources, is the reader's own fault.
    """
    names = [name for name in _FILTERED if name in rows.schema.names]
    for name in rng.sample(names, min(2, len(names))):
        value = rng.choice(rows.column(name).to_pylist() or [None])
        for condition in _conditions(name, value):
            for reader, (by_files, in_memory) in _READERS.items():
                found, expected = by_files(paths, condition), in_memory(rows, condition)
                tally.filters += 1
                if found == expected:
                    continue
                live = set(rows.column("id").to_pylist())
                if [row for row in by_files(sources, condition) if row in live] != expected:
                    tally.misread[reader] += 1
                    continue
                raise AssertionError(f"{reader}: {condition.sql} finds {len(found)} rows of {len(expected)}")


def _duckdb_files(paths: Sequence[str], condition: _Condition) -> list[int]:
    text = f"SELECT id FROM read_parquet({list(paths)}) WHERE {condition.sql} ORDER BY id"
    return [row for (row,) in duckdb.connect().execute(text).fetchall()]


def _duckdb_rows(rows: pa.Table, condition: _Condition) -> list[int]:
    connection = duckdb.connect()
    connection.register("rows", rows)
    found = connection.execute(f"SELECT id FROM rows WHERE {condition.sql} ORDER BY id").fetchall()
    return [row for (row,) in found]


def _arrow_files(paths: Sequence[str], condition: _Condition) -> list[int]:
    found: list[int] = ds.dataset(list(paths)).to_table(["id"], filter=condition.arrow)["id"].to_pylist()
    return sorted(found)


def _arrow_rows(rows: pa.Table, condition: _Condition) -> list[int]:
    found: list[int] = rows.filter(condition.arrow)["id"].to_pylist()
    return sorted(found)


def _polars_files(paths: Sequence[str], condition: _Condition) -> list[int]:
    # Files that were written one by one may hold decimals in two ways, or lists whose elements have two names.
    found = [pl.scan_parquet(path).filter(condition.polars).select("id").collect() for path in paths]
    return sorted(row for frame in found for row in frame["id"].to_list())


def _polars_rows(rows: pa.Table, condition: _Condition) -> list[int]:
    frame = pl.from_arrow(rows.select(["id", condition.column]))
    assert isinstance(frame, pl.DataFrame)
    return sorted(frame.filter(condition.polars)["id"].to_list())


_Reader = tuple[
    Callable[[Sequence[str], "_Condition"], list[int]], Callable[[pa.Table, "_Condition"], list[int]]
]
_READERS: dict[str, _Reader] = {
    "DuckDB": (_duckdb_files, _duckdb_rows),
    "Arrow": (_arrow_files, _arrow_rows),
    "Polars": (_polars_files, _polars_rows),
}


class _Condition(Struct, frozen=True):
    column: str
    sql: str
    arrow: Any
    polars: Any


def _conditions(name: str, value: Any) -> Iterator[_Condition]:
    column, by_arrow = pl.col(name), pc.field(name)
    yield _Condition(name, f"{name} IS NULL", by_arrow.is_null(), column.is_null())
    if value is None:
        return
    kind = COLUMNS[name][0]
    literal, scalar, same = _literal(value, kind), pa.scalar(value, kind), value
    if kind == pa.float32():
        same = pl.lit(value, dtype=pl.Float32)
    yield _Condition(name, f"{name} = {literal}", by_arrow == scalar, column == same)
    yield _Condition(name, f"{name} > {literal}", by_arrow > scalar, column > same)
    yield _Condition(name, f"{name} <= {literal}", by_arrow <= scalar, column <= same)


def _literal(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, float):
        return f"'{value!r}'::{'FLOAT' if kind == pa.float32() else 'DOUBLE'}"
    return str(value)
