"""Decides which directories and files a predicate on partition columns selects.

The log states the partition of the files that it names. An unnamed file belongs to the partition of the Hive-style
directories that it lies in. No predicate selects an unnamed file outside of such directories, where column mapping puts
files. The scope only ever narrows a listing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.data_path import HIVE_NULL
from delta_log.snapshot.partition_filter import matching_files
from delta_log.snapshot.snapshot import Snapshot

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_MAPS = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class PartitionScope:
    """
    :raises InvalidRequest: not a predicate on partition columns.
    """

    snapshot: Snapshot = field(repr=False)
    predicate: pc.Expression

    @classmethod
    def of(cls, snapshot: Snapshot, where: str) -> PartitionScope:
        # Imported here, since most jobs have no predicate to parse.
        from delta_maintenance.partitions.predicate import partition_predicate

        return cls(snapshot, partition_predicate(where, snapshot.schema, snapshot.partition_columns))

    def contains(self, directories: Sequence[str]) -> list[bool | None]:
        """Tell for each directory whether the predicate holds; ``None``: it does not determine a partition (yet)."""
        values = [self._values(directory) for directory in directories]
        known = [number for number, found in enumerate(values) if found is not None]
        answers: list[bool | None] = [None] * len(directories)
        for number, holds in zip(known, self._holds([values[n] for n in known]), strict=True):
            answers[number] = holds
        return answers

    def mask(self, keys: pa.ChunkedArray, known_keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Tell for each file whether it is in scope.

        :param known_keys: files in scope by the log.
        """
        directories = pc.replace_substring_regex(keys, r"/?[^/]*$", "").combine_chunks().dictionary_encode()
        inside = pa.array(
            [bool(answer) for answer in self.contains(directories.dictionary.to_pylist())], pa.bool_()
        )
        return pc.or_(inside.take(directories.indices), pc.is_in(keys, value_set=known_keys))

    def _values(self, directory: str) -> dict[str, str | None] | None:
        found: dict[str, str | None] = {}
        for segment in directory.split("/"):
            name, equals, value = segment.partition("=")
            if equals:
                found[_unescape(name)] = None if value == HIVE_NULL else _unescape(value)
        values: dict[str, str | None] = {}
        for column in self.snapshot.partition_schema:
            name = column.name if column.name in found else column.physical_name
            if name not in found:
                return None
            values[column.physical_name] = found[name]
        return values

    def _holds(self, values: Sequence[dict[str, str | None] | None]) -> list[bool]:
        if not values:
            return []
        maps = pa.array([list((entry or {}).items()) for entry in values], _MAPS)
        # Where a value cannot be read, the directory only looks like the directory of a partition.
        matched = matching_files(self.snapshot.partition_schema, maps, self.predicate)
        holds: list[bool] = matched.matching.to_pylist()
        return holds


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
