"""The rows of one new file of a layout, which other processes have read and divided.

See :mod:`delta_maintenance.engine.spark.sharing.shared_bin`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from delta_log.arrow.row_hash import RowHash
from delta_maintenance.layout.ranks import Uint64s
from delta_maintenance.rewrite.read.segment_pool import RowMemory
from delta_maintenance.rewrite.sort.bucket_store import BucketStore
from delta_maintenance.rewrite.sort.laid_out_rows import Bucket, sorted_bucket
from delta_maintenance.rewrite.sort.row_division import DivisionRule, by_bucket, divided_schema


@dataclass(slots=True)
class ReceivedFile:
    """Collects the rows of a file, then yields them bucket by bucket. As a context, it keeps the rows until then.

    :param number: number of the file.
    :param schema: schema of the rows, with the table's own columns.
    :param with_numbers: ``True``: rows know their numbers, for a row map.
    :param hashes_rows: ``True``: compute the checksum of the rows.
    :ivar read: the checksum.
    """

    number: int
    rule: DivisionRule
    schema: pa.Schema
    memory: RowMemory
    bloom_filters: frozenset[str] = frozenset()
    with_numbers: bool = False
    hashes_rows: bool = False
    read: RowHash = field(default_factory=RowHash)
    num_rows: int = 0
    _pieces: int = 0
    _store: BucketStore = field(init=False)
    _numbers: dict[int, Uint64s] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._store = BucketStore(divided_schema(self.schema, with_numbers=self.with_numbers), self.memory)

    def __enter__(self) -> ReceivedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows, as :meth:`~delta_maintenance.rewrite.sort.row_division.DivisionRule.divided_by_file` returns them.

        :raises NoTemporarySpace: they fit neither into memory nor onto the disk.
        """
        self.num_rows += rows.num_rows
        if self.hashes_rows:
            self.read = self.read.plus(RowHash.of(rows.select(self.schema.names)))
        self._pieces += 1
        self._store.add(self._pieces, by_bucket(rows))

    def buckets(self) -> Generator[Bucket, None, None]:
        """Yield the buckets of the file, in their order."""
        first = self.number * self.rule.buckets_of_a_file
        for number in range(first, first + self.rule.buckets_of_a_file):
            numbers = partial(self._numbers.pop, number) if self.with_numbers else None
            batches = partial(sorted_bucket, self._store, self.schema, self._numbers, number)
            yield Bucket(number, self.rule.num_buckets, self.number, batches, numbers)
