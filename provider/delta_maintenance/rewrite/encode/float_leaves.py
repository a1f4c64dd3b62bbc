"""Finds the float and double leaves of a row group that hold values which readers compare in different ways.

===========  =========================================================  ==============================================
value        what goes wrong                                            what the footer must leave out for the chunk
===========  =========================================================  ==============================================
NaN          Arrow leaves it out of the bounds of row group and pages;  bounds, in the statistics and the page index;
             Spark, DuckDB and DataFusion sort it above all numbers     the dictionary's and the Bloom filter's claims
0.0, -0.0    queries treat them as equal, but their bytes differ, and   the claim that the dictionary holds all
             parquet-java looks up one of them in the dictionary or     values, and the Bloom filter
             the Bloom filter, and skips the other
===========  =========================================================  ==============================================

A reader with fewer statistics skips less; its answers stay right.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.arrays import leaves
from delta_maintenance.rewrite.encode.dictionary_choice import leaf_paths
from parquet_parts.assembled_file import OmittedClaims

#: Equals a zero of either sign.
_ZERO = pa.scalar(0.0, pa.float32())


class FloatLeaves(Struct, frozen=True):
    """The float and double leaves of a schema, at any depth.

    :param columns: numbers of the columns with such leaves, each with the number of its first leaf in the file.
    :param searchable: numbers of the leaves that have a dictionary or a Bloom filter.
    """

    columns: tuple[tuple[int, int], ...] = ()
    searchable: frozenset[int] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema, searchable: Collection[str]) -> FloatLeaves:
        """Find the leaves of a schema.

        :param searchable: paths of the leaves that have a dictionary or a Bloom filter.
        """
        columns: list[tuple[int, int]] = []
        numbers: set[int] = set()
        first = 0
        for column, schema_field in enumerate(schema):
            paths = leaf_paths(schema_field)
            if any(pa.types.is_floating(leaf) for leaf in leaf_types(schema_field.type)):
                columns.append((column, first))
                numbers.update(first + n for n, path in enumerate(paths) if path in searchable)
            first += len(paths)
        return cls(tuple(columns), frozenset(numbers))

    def distrust(self, group: pa.Table) -> OmittedClaims:
        """Return what the footer must not say about a row group, because a leaf holds such values."""
        nan: set[int] = set()
        zero: set[int] = set()
        for column, first in self.columns:
            chunks = (leaves([chunk]) for chunk in group.column(column).chunks)
            for leaf, arrays in enumerate(zip(*chunks, strict=True), start=first):
                if pa.types.is_floating(arrays[0].type):
                    values = pa.chunked_array(arrays)
                    if _has_nan(values):
                        nan.add(leaf)
                    if leaf in self.searchable and _any(pc.equal(values, _ZERO)):
                        zero.add(leaf)
        return OmittedClaims(bounds=nan, membership=nan | zero)


def _has_nan(values: pa.ChunkedArray) -> bool:
    # A sum takes a third of the time. It is a NaN if a value is one, or if there are infinities of both signs.
    total = pc.sum(values).as_py()
    return total is not None and math.isnan(total) and _any(pc.is_nan(values))


def _any(found: pa.ChunkedArray) -> bool:
    return bool(pc.any(found).as_py())


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the leaves of a type, in the order of the leaves of a file."""
    if pa.types.is_map(kind):
        yield from leaf_types(kind.key_type)
        yield from leaf_types(kind.item_type)
    elif pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from leaf_types(kind.field(number).type)
    else:
        yield kind
