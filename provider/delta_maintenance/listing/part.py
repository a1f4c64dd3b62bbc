"""A part of a table's tree, listed and compared with what has to stay, by whichever process it was given to.

Of millions of files nearly all are protected. So a part is listed where it is read, its files are looked up there among
the protected keys, and what comes back is small:

* files that are not protected, with times and sizes;
* which of the protected keys were seen, a bit for each;
* what else a listing tells (:meth:`~delta_maintenance.listing.listing.ListingCollector.facts`).

What is hidden, what is entered and what is counted is decided by the collector that a listing in one process uses.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.object_listing import side_by_side
from delta_log.storage.storage import KeySpan, Storage, TreePage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import LISTING_SCHEMA, ListingCollector
from delta_maintenance.listing.sorted_keys import SortedKeys

#: What comes of a part: rows of files, and at last one row of what else there is to tell. ``seen`` has a bit for each
#: protected key from the row ``seen_from`` on.
FOUND_SCHEMA = pa.schema(
    [*LISTING_SCHEMA, ("facts", pa.string()), ("seen_from", pa.int64()), ("seen", pa.binary())]
)
#: So many requests of one part are under way together: a task waits for the store most of the time.
LANES = 8
_COMPARED_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class ListingPart:
    """
    :param wants_files: else nothing but the protected keys is looked for.
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
    """Batches of :data:`FOUND_SCHEMA`.

    :raises VacuumRefused: the table cannot be seen from this machine.
    """
    if storage.has_directories and next(storage.list_from(LOG_DIRECTORY), None) is None:
        raise VacuumRefused(
            f"There is no table at {storage.uri} on {socket.gethostname()}, which was to list a part of it. Nothing was "
            "deleted. Mount the directory under the same path on every machine, or use --engine local."
        )
    collector = ListingCollector(part.hidden)
    met: dict[str, list[str]] = {}
    seen = np.zeros(len(protected), bool)

    def compared() -> Iterator[pa.RecordBatch]:
        files = pa.Table.from_batches(collector.drained(), LISTING_SCHEMA)
        if files.num_rows:
            found = _compared(files, protected, seen)
            yield from _described(storage, found) if part.wants_files else ()

    for page in _pages(storage, part.spans, collector, met):
        collector.take(page)
        if collector.num_held >= _COMPARED_AT_ONCE:
            yield from compared()
    yield from compared()
    facts = {**collector.facts(), "met": met}
    first, bits = packed(seen)
    last: list[Any] = [*[None] * len(LISTING_SCHEMA), json.dumps(facts), first, bits]
    columns = [pa.array([value], field.type) for value, field in zip(last, FOUND_SCHEMA, strict=True)]
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
    lanes = min(LANES, storage.concurrency, len(works))
    with ThreadPoolExecutor(lanes) as pool:
        yield from side_by_side(pool, lanes, works)


def _compared(files: pa.Table, protected: SortedKeys, seen: npt.NDArray[np.bool_]) -> pa.Table:
    """Files that are not protected; the others are noted as seen."""
    keys = files.column("key")
    least, greatest = pc.min_max(keys).as_py().values()
    # Pages come more or less in order, so that few of all keys are looked up in.
    first = protected.row_of(least)
    near = protected.rows(first, protected.row_of(f"{greatest}\0"))
    rows = pc.index_in(keys, value_set=near)
    seen[first + pc.drop_null(rows).to_numpy()] = True
    return files.filter(pc.is_null(rows))


def _described(storage: Storage, files: pa.Table) -> Iterator[pa.RecordBatch]:
    """With times and sizes, where the listing told none; what is gone meanwhile is left out."""
    for batch in files.to_batches(_COMPARED_AT_ONCE):
        columns = batch.columns
        if columns[2].null_count:
            sizes, times = storage.sizes_and_times(columns[0].to_pylist())
            columns = [columns[0], pa.array(sizes, pa.int64()), pa.array(times, pa.int64())]
        rest = [pa.nulls(len(batch), field.type) for field in list(FOUND_SCHEMA)[len(columns) :]]
        found = pa.record_batch([*columns, *rest], schema=FOUND_SCHEMA)
        yield found.filter(pc.is_valid(found.column(2)))


def packed(seen: npt.NDArray[np.bool_]) -> tuple[int, bytes]:
    """From the first that is set to the last: its row, and a bit for each."""
    rows = np.flatnonzero(seen)
    if not len(rows):
        return 0, b""
    first = int(rows[0])
    return first, np.packbits(seen[first : rows[-1] + 1]).tobytes()


def unpack(seen: npt.NDArray[np.bool_], first: int, bits: bytes) -> None:
    """Set what :func:`packed` told of."""
    told = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(bool)[: len(seen) - first]
    seen[first : first + len(told)] |= told
