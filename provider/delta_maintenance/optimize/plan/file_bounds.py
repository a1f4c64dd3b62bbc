"""The bounds of a layout's columns in each file of a snapshot, by statistics, as numbers that can be compared whatever the type."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.file_stats import StatsColumn
from delta_log.stats.stats_columns import parse_stats_column
from delta_log.table_config.schema import DataType, StructType
from delta_maintenance.layout.layout import Layout
from delta_maintenance.optimize.plan.bin_packing import Int64s

#: Bytes of a text, behind the prefix that all bounds share, that make its number. More do not fit into a float.
_BYTES_OF_A_TEXT = 6
_Floats = npt.NDArray[np.float64]


class FileBounds(Struct, frozen=True, eq=False):
    """The least and greatest values of columns in files. Different values may have equal numbers, but never in another order.

    :param low: numbers of the least values, by column and file; where there are no bounds, minus infinity.
    :param high: numbers of the greatest values, likewise; where there are no bounds, infinity.
    :param rows: physical rows of each file; 1 where statistics do not say.
    """

    low: _Floats
    high: _Floats
    rows: Int64s

    @classmethod
    def of(
        cls, snapshot: Snapshot, where: pc.Expression | None, keys: pa.ChunkedArray, layout: Layout
    ) -> FileBounds:
        """
        :param keys: keys of the files, which `where` selects.
        """
        texts = snapshot.files(["key", "stats"], where)
        places = pc.index_in(keys, value_set=texts.column("key").combine_chunks()).combine_chunks()
        return cls.of_stats(snapshot.schema, texts.column("stats").combine_chunks().take(places), layout)

    @classmethod
    def of_stats(cls, schema: StructType, texts: pa.Array, layout: Layout) -> FileBounds:
        """
        :param texts: the statistics of each file.
        """
        columns = [StatsColumn(path, _type_of(schema, path)) for path in layout.columns]
        stats = parse_stats_column(texts, columns)
        shape = (len(columns), len(texts))
        low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
        for number, column in enumerate(columns):
            try:
                least, most = (
                    pc.struct_field(stats, [side, *column.path]) for side in ("minValues", "maxValues")
                )
            except (pa.ArrowInvalid, KeyError):
                continue  # values of this type have no bounds
            numbers = _as_numbers(pa.concat_arrays([least, most]))
            for found, of_side in ((low, numbers[: len(texts)]), (high, numbers[len(texts) :])):
                found[number] = np.where(np.isnan(of_side), found[number], of_side)
        rows = pc.fill_null(pc.struct_field(stats, "numRecords"), 1).to_numpy(zero_copy_only=False)
        return cls(low, high, np.maximum(1, rows.astype(np.int64)))


def _as_numbers(values: pa.Array) -> _Floats:
    """Return numbers in the order of the values; NaN for null."""
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return _text_numbers(values)
    numbers: _Floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _text_numbers(values: pa.Array) -> _Floats:
    texts = [None if value is None else str(value).encode() for value in values.to_pylist()]
    known = [text for text in texts if text is not None]
    shared = _shared_bytes(min(known), max(known)) if known else 0
    found = np.full(len(texts), np.nan)
    for place, text in enumerate(texts):
        if text is not None:
            part = text[shared : shared + _BYTES_OF_A_TEXT].ljust(_BYTES_OF_A_TEXT, b"\0")
            found[place] = int.from_bytes(part, "big")
    return found


def _shared_bytes(one: bytes, other: bytes) -> int:
    """Count the bytes with which both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _type_of(schema: StructType, path: tuple[str, ...]) -> DataType:
    within: DataType = schema
    for name in path:
        assert isinstance(within, StructType)
        within = next(member.type for member in within.fields if member.physical_name == name)
    return within
