"""A bin with a layout whose work several processes share: the steps between which an engine moves rows.

1. :func:`shares_of` divides the sources between processes.
2. Each reads the layout's columns of its share (:func:`examine`). Their samples together give the rule by which rows get a file
   (:func:`rule_of`).
3. Each reads all of its share, and divides the rows between the new files (:func:`divide`).
4. For each new file, one process takes its rows from all shares, sorts and writes them (:class:`FileWriter`).
5. :func:`assembled` makes one manifest of the results, as if one process had done it all.

A step may be repeated: it gives the same rows again. A file that is written twice has two names, and only one of them is in the manifest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_log.errors import DeltaLogError
from delta_log.storage.storage import Storage
from delta_maintenance.errors import BadManifest, RewriteMismatch
from delta_maintenance.rewrite.bin import compare_with_rows
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.limits import CHUNK_BYTES, ROW_GROUP_BYTES, SAMPLED_ROWS
from delta_maintenance.rewrite.manifest.row_map import NotRemappable, RowMapWriter, numbers_in
from delta_maintenance.rewrite.output_files import write_outputs
from delta_maintenance.rewrite.part_feed import bloom_filters_of
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.read.segments import Segment, segments
from delta_maintenance.rewrite.read.sources import OpenedSource, Sources
from delta_maintenance.rewrite.sort.row_division import (
    DivisionRule,
    Sample,
    layout_columns,
    layout_names,
    one_batch,
    sample_of,
)
from delta_maintenance.rewrite.sort.shuffled_file import ReceivedFile
from delta_maintenance.rewrite.task import BinManifest, OutputFile, RewriteTask, RowMap, row_map_key

#: The sample has at least so many rows of each share.
_LEAST_SAMPLED = 256
#: Chunks of a share get random numbers of their own. No share has so many.
_MOST_CHUNKS = 1 << 20


class Share(Struct, frozen=True):
    """Sources that one process reads, or a part of one large source.

    :param number: number of the share in the bin.
    :param task: task of the bin, with the sources of this share only.
    :param first_source: the place of the first of them among the sources of the bin.
    :param part: number of this part of the one source's row groups, which are divided into ``parts`` parts.
    """

    number: int
    task: RewriteTask
    first_source: int
    part: int = 0
    parts: int = 1

    def to_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in self.__struct_fields__}, "task": self.task.to_json()}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Share:
        return cls(**{**raw, "task": RewriteTask.from_json(raw["task"])})

    @property
    def bytes_in(self) -> int:
        return self.task.bytes_in // self.parts


class ShareFacts(Struct, frozen=True):
    """What a process learns about its share.

    :param source_rows: physical rows of each source, as far as they are in the share.
    :param live_rows: the rows that no deletion vector hides.
    :param decoded_bytes: decoded size of the physical rows.
    :param bloom_filters: the leaves that have some in the first sources.
    """

    number: int
    source_rows: tuple[int, ...]
    live_rows: int
    decoded_bytes: int
    bloom_filters: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ShareFacts:
        found = {
            **raw,
            "source_rows": tuple(raw["source_rows"]),
            "bloom_filters": tuple(raw["bloom_filters"]),
        }
        return cls(**found)


class WrittenFile(Struct, frozen=True):
    """A new file, or what is known of one that got no rows.

    :param number: number of the file in the bin.
    :param read: the checksum of its rows as they were received, if the task asks for ``verify="full"``.
    :param row_map: row map of its rows, if the task asks for one.
    """

    number: int
    output: OutputFile | None
    rows: int
    read: RowHash = field(default_factory=RowHash)
    row_map: RowMap | None = None

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> WrittenFile:
        row_map = raw["row_map"]
        return cls(
            raw["number"],
            OutputFile(**raw["output"]) if raw["output"] is not None else None,
            raw["rows"],
            RowHash(**raw["read"]),
            RowMap(**{**row_map, "source_rows": tuple(row_map["source_rows"])}) if row_map else None,
        )


def shares_of(task: RewriteTask, share_bytes: int) -> list[Share]:
    """Divide the sources of a bin, in their order.

    :param share_bytes: the most of a share, about.
    """
    found: list[Share] = []
    start, size = 0, 0

    def take(stop: int, parts: int = 1) -> None:
        own, first = replace(task, sources=task.sources[start:stop]), len(found)
        found.extend(Share(first + part, own, start, part, parts) for part in range(parts))

    for number, source in enumerate(task.sources):
        if number > start and size + source.size_bytes > share_bytes:
            take(number)
            start, size = number, 0
        size += source.size_bytes
        if size > share_bytes:  # of one source
            take(number + 1, -(-size // share_bytes))
            start, size = number + 1, 0
    if start < len(task.sources):
        take(len(task.sources))
    return found


def examine(share: Share, storage: Storage, num_shares: int) -> tuple[ShareFacts, Sample]:
    """Read the layout's columns of a share.

    :param num_shares: number of shares of the bin.
    :raises CorruptLog: a source is missing, broken, or not what its statistics say.
    """
    reader = _Reader(share, storage)
    layout = share.task.layout
    assert layout is not None
    names = layout_names(layout)
    schema = reader.live.schema_of(names)
    sample = sample_of([], schema, layout, max(_LEAST_SAMPLED, SAMPLED_ROWS // num_shares))
    bloom_filters: frozenset[str] = frozenset()
    live_rows = 0
    for number, segment in enumerate(reader.segments()):
        if not number:
            bloom_filters = bloom_filters_of(segment)
        parts = (batch for part in segment for batch in reader.live.columns_of(part, names))
        rows = one_batch(parts, schema)
        live_rows += rows.num_rows
        sample.add(layout_columns(rows, layout))
    facts = ShareFacts(
        share.number,
        tuple(reader.source_rows),
        live_rows,
        reader.decoded_bytes,
        tuple(sorted(bloom_filters)),
    )
    return facts, sample


def rule_of(task: RewriteTask, facts: Sequence[ShareFacts], samples: Sequence[Sample]) -> DivisionRule:
    """Return the rule that gives the rows of a bin their files.

    :param samples: samples of all shares, in their order.
    """
    whole = Sample()
    for sample in samples:
        whole.include(sample)
    rows = sum(sum(share.source_rows) for share in facts)
    live_bytes = sum(share.decoded_bytes for share in facts) * sum(share.live_rows for share in facts)
    return DivisionRule.of(task, whole, live_bytes // max(1, rows), ROW_GROUP_BYTES)


def divide(
    share: Share, rule: DivisionRule, first: int, storage: Storage
) -> Generator[tuple[int, pa.RecordBatch], None, RowHash]:
    """Yield the rows of a share with the number of their file; return their checksum if the task asks for ``verify="full"``.

    :param first: the number of the share's first row among the live rows of the sources.
    """
    reader, task, read = _Reader(share, storage), share.task, RowHash()
    for number, segment in enumerate(reader.segments()):
        rows = one_batch(reader.live.batches(segment), reader.live.schema)
        if task.verify == "full":
            read = read.plus(RowHash.of(rows))
        chunk = share.number * _MOST_CHUNKS + number
        yield from rule.divided_by_file(
            rows, task.bin_id, chunk, first if task.keeps_row_map else None
        ).items()
        first += rows.num_rows
    return read


class FileWriter:
    """Collects the rows of one new file and writes it. As a context, it forgets them in the end.

    :param task: task of the bin; its sources are not needed.
    :param rows_in: physical rows of all sources of the bin.
    """

    def __init__(
        self,
        task: RewriteTask,
        rule: DivisionRule,
        number: int,
        rows_in: int,
        bloom_filters: Sequence[str],
        storage: Storage,
        pool: SegmentPool,
    ) -> None:
        self._context, self._rows_in, self._pool = BinContext.of(task, storage), rows_in, pool
        self._received = ReceivedFile(
            number,
            rule,
            self._context.live.schema,
            pool.row_memory,
            frozenset(bloom_filters),
            with_numbers=task.keeps_row_map,
            hashes_rows=task.verify == "full",
        )

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._received.__exit__()

    def add(self, rows: pa.RecordBatch) -> None:
        """
        :raises NoTemporarySpace: the rows fit neither into memory nor onto the disk.
        """
        self._received.add(rows)

    def write(self) -> WrittenFile:
        """
        :raises RewriteMismatch: the file holds other rows than were received.
        """
        context, received = self._context, self._received
        task, storage = context.task, context.storage
        # The numbers in the row map are as wide as the row numbers of the whole bin.
        sources = Sources(task, storage, source_rows=[self._rows_in])
        outputs = write_outputs(context, sources, self._pool, received=received)
        try:
            if outputs.rows != received.num_rows:
                raise RewriteMismatch(task.bin_id, received.num_rows, outputs.rows)
            if context.is_verified:
                compare_with_rows(context, outputs)
        except BaseException:
            with suppress(DeltaLogError):  # the error tells more
                storage.delete(_keys(task, outputs.files, outputs.row_map))
            raise
        output = outputs.files[0] if outputs.files else None
        return WrittenFile(received.number, output, outputs.rows, received.read, outputs.row_map)


def assembled(
    task: RewriteTask,
    shares: Sequence[Share],
    facts: Sequence[ShareFacts],
    read: RowHash,
    written: Sequence[WrittenFile],
    storage: Storage,
    token: str,
) -> BinManifest:
    """Return the manifest of a bin.

    :param facts: facts of all shares, in their order.
    :param read: the checksum of the rows of all shares, if the task asks for ``verify="full"``.
    :param written: every file of the bin.
    :param token: random part of the row map's name.
    :raises RewriteMismatch: the files hold other rows than the sources.
    :raises BadManifest: somebody has changed a row map.
    """
    written = sorted(written, key=lambda file: file.number)
    numbers = [file.number for file in written]
    if numbers != list(range(task.num_outputs)):
        raise AssertionError(f"bin {task.bin_id}: {task.num_outputs} files were to be written, not {numbers}")
    source_rows = _source_rows(task, shares, facts)
    rows_in, live_rows = sum(source_rows), sum(share.live_rows for share in facts)
    rows_out, received = sum(file.rows for file in written), RowHash()
    for file in written:
        received = received.plus(file.read)
    if rows_out != live_rows or (task.verify == "full" and received != read):
        raise RewriteMismatch(task.bin_id, live_rows, rows_out)
    return BinManifest(
        bin_id=task.bin_id,
        run_id=task.run_id,
        partition_values=task.partition_values,
        sources=task.sources,
        outputs=tuple(file.output for file in written if file.output is not None),
        rows_in=rows_in,
        rows_deleted=rows_in - live_rows,
        rows_out=rows_out,
        elapsed_ms=0,
        rewrite_tag=task.rewrite_tag,
        num_outputs=task.num_outputs,
        clustering_provider=task.clustering_provider,
        row_map=_whole_row_map(task, written, source_rows, storage, token) if task.keeps_row_map else None,
        verify=task.verify,
        rewrite=task.rewrite,
    )


def remove_written(task: RewriteTask, written: Sequence[WrittenFile], storage: Storage) -> None:
    """Remove the files of a bin that no manifest names."""
    for file in written:
        storage.delete(_keys(task, [file.output] if file.output is not None else [], file.row_map))


def _keys(task: RewriteTask, files: Sequence[OutputFile], row_map: RowMap | None) -> list[str]:
    maps = [] if row_map is None else [row_map_key(task.run_id, task.bin_id, row_map.token)]
    return [*(file.key for file in files), *maps]


def _source_rows(task: RewriteTask, shares: Sequence[Share], facts: Sequence[ShareFacts]) -> list[int]:
    rows = [0] * len(task.sources)
    for share, found in zip(shares, facts, strict=True):
        for place, count in enumerate(found.source_rows, share.first_source):
            rows[place] += count
    return rows


def _whole_row_map(
    task: RewriteTask,
    written: Sequence[WrittenFile],
    source_rows: Sequence[int],
    storage: Storage,
    token: str,
) -> RowMap | None:
    """Put the row maps of the files behind each other, and remove them.

    :raises BadManifest: somebody has changed one of them.
    """
    parts = [(file.row_map, file.rows) for file in written if file.row_map is not None]
    try:
        with RowMapWriter(storage, task.run_id, task.bin_id, token, source_rows) as whole:
            for part, rows in parts:
                for numbers in numbers_in(part, storage, task.run_id, task.bin_id, rows):
                    whole.add(numbers.astype(np.uint64))
            found = whole.finish()
    except NotRemappable as error:
        raise BadManifest(f"bin {task.bin_id}: {error}") from error
    storage.delete([row_map_key(task.run_id, task.bin_id, part.token) for part, _ in parts])
    return found


class _Reader:
    """Reads a share, and counts its rows.

    :ivar source_rows: physical rows of each source so far, as far as they are in the share.
    :ivar decoded_bytes: decoded size of these rows, by the footers.
    """

    def __init__(self, share: Share, storage: Storage) -> None:
        self._share, self._storage = share, storage
        self.live = BinContext.of(share.task, storage).live
        self.source_rows: list[int] = []
        self.decoded_bytes = 0

    def segments(self) -> Iterator[Segment]:
        return segments(self._opened(), self._share.task.bytes_in, CHUNK_BYTES, 1)

    def _opened(self) -> Iterator[OpenedSource]:
        share = self._share
        for opened in Sources(share.task, self._storage):
            groups = opened.num_row_groups
            wanted = range(groups * share.part // share.parts, groups * (share.part + 1) // share.parts)
            data_file = opened.data_file
            self.source_rows.append(data_file.first_row(wanted.stop) - data_file.first_row(wanted.start))
            self.decoded_bytes += sum(data_file.row_group_bytes[wanted.start : wanted.stop])
            if wanted:
                yield replace(opened, wanted=wanted)
