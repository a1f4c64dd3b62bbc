"""Keeps the rows of buckets until all rows were read: in memory while they fit, else in files on a local disk."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter

import pyarrow as pa

from delta_maintenance.rewrite.row_memory import RowMemory
from delta_maintenance.rewrite.spill_file import SpillFile


class BucketStore:
    """Takes record batches of buckets, and returns them bucket by bucket, by their numbers. Several threads may use it at once.

    :param schema: of the batches.
    :param memory: where rows are kept while it has room.
    """

    def __init__(self, schema: pa.Schema, memory: RowMemory) -> None:
        self._schema, self._memory = schema, memory
        self._lock = threading.Lock()
        self._kept: dict[int, list[tuple[int, pa.RecordBatch]]] = defaultdict(list)
        self._kept_bytes = 0
        self._spills = False
        self._spilled: dict[int, list[tuple[int, SpillFile, int, int]]] = defaultdict(list)
        #: One for each thread that writes at a time, and those of them that no thread uses now.
        self._files: list[SpillFile] = []
        self._idle: list[SpillFile] = []

    def close(self) -> None:
        """Forget all rows."""
        self._memory.give_back(self._kept_bytes)
        self._kept.clear()
        self._kept_bytes = 0
        for file in self._files:
            file.close()
        self._files, self._idle = [], []

    def add(self, number: int, pieces: dict[int, pa.RecordBatch]) -> None:
        """Take some rows of several buckets.

        :param number: gives these rows their place among the others of a bucket.
        :raises NoTemporarySpace: they do not fit into memory, and there is no room for temporary files.
        """
        size = sum(piece.nbytes for piece in pieces.values())
        with self._lock:
            if not self._spills and self._memory.take(size):
                self._kept_bytes += size
                for bucket, piece in pieces.items():
                    self._kept[bucket].append((number, piece))
                return
            self._spills = True
            waiting, self._kept = self._kept, defaultdict(list)
            freed, self._kept_bytes = self._kept_bytes, 0
        try:
            self._spill(
                (bucket, place, batch) for bucket, batches in waiting.items() for place, batch in batches
            )
        finally:
            # Other bins of the process use the memory, whether or not this one goes on.
            self._memory.give_back(freed)
        self._spill((bucket, number, piece) for bucket, piece in pieces.items())

    def take(self, bucket: int) -> pa.Table:
        """Return the rows of a bucket, and forget those in memory."""
        with self._lock:
            batches = self._kept.pop(bucket, [])
            places = self._spilled.pop(bucket, [])
            size = sum(batch.nbytes for _, batch in batches)
            self._kept_bytes -= size
        self._memory.give_back(size)
        read = ((number, file.read(start, size)) for number, file, start, size in places)
        found = sorted([*read, *batches], key=itemgetter(0))
        return pa.Table.from_batches([batch for _, batch in found], self._schema)

    def _spill(self, rows: Iterable[tuple[int, int, pa.RecordBatch]]) -> None:
        """Write rows of buckets, each with the number that gives them their place."""
        file = self._file()
        written = [(bucket, (number, file, *file.add(batch))) for bucket, number, batch in rows]
        file.flush()
        with self._lock:
            for bucket, place in written:
                self._spilled[bucket].append(place)
            self._idle.append(file)

    def _file(self) -> SpillFile:
        """Return a file that no other thread uses."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        file = SpillFile(self._schema)
        with self._lock:
            self._files.append(file)
        return file
