"""One part of a distributed listing: a task lists it and compares it with the protected keys.

Nearly all files of a large table are protected. So the task looks them up itself, and its answer is small:

* the files that are not protected, with times and sizes;
* which of the protected keys were seen, one bit for each;
* the other facts of a listing (:meth:`~delta_maintenance.listing.listing.ListingCollector.facts`).

The collector decides what is hidden, entered and counted, exactly as for a listing in one process.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import astuple

from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.objects.object_listing import side_by_side
from delta_log.storage.storage import KeySpan, Storage, TreePage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import LISTING_SCHEMA, ListingCollector
from delta_maintenance.listing.sorted_keys import SortedKeys

#: The answer for one part: rows of files, then one row with the facts. ``seen`` has one bit for each protected key, from
#: the row ``seen_from`` on.
FOUND_SCHEMA = pa.schema(
    [*LISTING_SCHEMA, ("facts", pa.string()), ("seen_from", pa.int64()), ("seen", pa.binary())]
)
#: Requests of one part that run at the same time, since a task spends most of its time waiting for the store.
REQUESTS = 8
_COMPARED_ROWS = 1 << 18


class ListingPart(Struct, frozen=True):
    """What one task lists.

    :param number: number that identifies the part in messages.
    :param spans: ranges of keys.
    :param wants_files: ``True``: report unprotected files; otherwise only the protected keys that were seen.
    """

    number: int
    table_uri: str
    spans: tuple[KeySpan, ...]
    hidden: HiddenNames
    wants_files: bool

    def to_json(self) -> str:
        return json.dumps(
            {
                "number": self.number,
                "table_uri": self.table_uri,
                "spans": [astuple(span) for span in self.spans],
                "partition_prefixes": self.hidden.partition_prefixes,
                "hides_metadata": self.hidden.hides_metadata,
                "wants_files": self.wants_files,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> ListingPart:
        raw = json.loads(text)
        return cls(
            raw["number"],
            raw["table_uri"],
            tuple(KeySpan(*span) for span in raw["spans"]),
            HiddenNames(tuple(raw["partition_prefixes"]), raw["hides_metadata"]),
            raw["wants_files"],
        )


def list_part(storage: Storage, part: ListingPart, protected: SortedKeys) -> Iterator[pa.RecordBatch]:
    """List a part.

    :return: batches of :data:`FOUND_SCHEMA`.
    :raises VacuumRefused: the table is not visible from this machine.
    """
    if storage.has_directories and next(storage.list_from(LOG_DIRECTORY), None) is None:
        raise VacuumRefused(
            f"There is no table at {storage.uri} on {socket.gethostname()}, which was to list a part of it. Nothing was "
            "deleted. Mount the directory under the same path on every machine, or use the local engine."
        )
    collector = ListingCollector(part.hidden)
    met: dict[str, list[str]] = {}
    seen = np.zeros(len(protected), bool)

    def answers() -> Iterator[pa.RecordBatch]:
        files = pa.Table.from_batches(collector.drained(), LISTING_SCHEMA)
        if files.num_rows:
            found = _unprotected(files, protected, seen)
            yield from _with_times(storage, found) if part.wants_files else ()

    for page in _pages(storage, part.spans, collector, met):
        collector.take(page)
        if collector.num_held >= _COMPARED_ROWS:
            yield from answers()
    yield from answers()
    facts = {**collector.facts(), "met": met}
    first, bits = packed(seen)
    row: list[Any] = [*[None] * len(LISTING_SCHEMA), json.dumps(facts), first, bits]
    columns = [pa.array([value], field.type) for value, field in zip(row, FOUND_SCHEMA, strict=True)]
    yield pa.record_batch(columns, schema=FOUND_SCHEMA)


def _pages(
    storage: Storage, spans: Sequence[KeySpan], collector: ListingCollector, met: dict[str, list[str]]
) -> Iterator[TreePage]:
    def listed(span: KeySpan) -> Iterator[TreePage]:
        directory = span.prefix.rstrip("/")

        def tell(directories: Sequence[str]) -> tuple[()]:
            met.setdefault(directory, []).extend(directories)
            return ()

        return storage.list_part(span, collector.enter if span.deep else tell)

    works = [listed(span) for span in spans]
    if storage.concurrency < 2 or len(works) < 2:
        yield from chain.from_iterable(works)
        return
    requests = min(REQUESTS, storage.concurrency, len(works))
    with ThreadPoolExecutor(requests) as pool:
        yield from side_by_side(pool, requests, works)


def _unprotected(files: pa.Table, protected: SortedKeys, seen: npt.NDArray[np.bool_]) -> pa.Table:
    """Select the files that are not protected, and mark the others in ``seen``."""
    keys = files.column("key")
    least, greatest = pc.min_max(keys).as_py().values()
    # Pages come nearly in the order of their keys. So the keys near them suffice for the look-up.
    first = protected.row_of(least)
    near = protected.rows(first, protected.row_of(f"{greatest}\0"))
    rows = pc.index_in(keys, value_set=near)
    seen[first + pc.drop_null(rows).to_numpy()] = True
    return files.filter(pc.is_null(rows))


def _with_times(storage: Storage, files: pa.Table) -> Iterator[pa.RecordBatch]:
    """Look up times and sizes that the listing did not tell. Files that are gone meanwhile are left out."""
    for batch in files.to_batches(_COMPARED_ROWS):
        columns = batch.columns
        if columns[2].null_count:
            sizes, times = storage.sizes_and_times(columns[0].to_pylist())
            columns = [columns[0], pa.array(sizes, pa.int64()), pa.array(times, pa.int64())]
        rest = [pa.nulls(len(batch), field.type) for field in list(FOUND_SCHEMA)[len(columns) :]]
        found = pa.record_batch([*columns, *rest], schema=FOUND_SCHEMA)
        yield found.filter(pc.is_valid(found.column(2)))


def packed(seen: npt.NDArray[np.bool_]) -> tuple[int, bytes]:
    """Pack the range from the first row that is set to the last: the first row, and one bit for each row."""
    rows = np.flatnonzero(seen)
    if not len(rows):
        return 0, b""
    first = int(rows[0])
    return first, np.packbits(seen[first : rows[-1] + 1]).tobytes()


def unpack(seen: npt.NDArray[np.bool_], first: int, bits: bytes) -> None:
    """Set the rows that :func:`packed` packed."""
    flags = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(bool)[: len(seen) - first]
    seen[first : first + len(flags)] |= flags
