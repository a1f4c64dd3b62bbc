"""The code of Spark tasks that share a bin: takes and yields rows that hold Arrow batches as bytes. Uses Arrow, not PySpark.

Spark moves the rows between the tasks and never sees a column of the table. An error that a repetition cannot change is a row, as
in :mod:`~delta_maintenance.engine.spark.rewriting_task`.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from delta_log.arrow.row_hash import RowHash
from delta_maintenance.engine.spark.rewriting_task import error_for_spark, opened
from delta_maintenance.engine.spark.sharing.shared_bin import FileWriter, Share, divide, examine
from delta_maintenance.errors import error_report
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.sort.row_division import DivisionRule, Sample
from delta_maintenance.rewrite.task import RewriteTask

#: About the most bytes of a row between tasks. Spark holds some rows at a time, and each of them whole.
_ROW_BYTES = 1 << 20

_T = TypeVar("_T")


class SharedPlan(Struct, frozen=True):
    """What all tasks of a bin know, made of what they have found out about their shares.

    :param task: task of the bin, without sources.
    :param firsts: number of the first row of each share among the live rows of the sources.
    :param rows_in: physical rows of all sources.
    """

    task: RewriteTask
    rule: DivisionRule
    firsts: tuple[int, ...]
    rows_in: int
    bloom_filters: tuple[str, ...]

    def to_text(self) -> str:
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> SharedPlan:
        """
        :param text: text from the driver, which also sends the code that reads it.
        """
        found = pickle.loads(base64.b64decode(text))  # noqa: S301 - see above
        assert isinstance(found, cls)
        return found


def examine_shares(
    batches: Iterable[pa.RecordBatch], storage_options: Mapping[str, Any], num_shares: int, nonce: str
) -> Iterator[pa.RecordBatch]:
    """Examine each share of some batches. Yield a row for each.

    :raises RuntimeError: an error that a repetition may change; its message describes the original.
    """
    for share in _shares(batches):
        storage = opened(share.task.table_uri, storage_options)
        examined, error = _tried(lambda: examine(share, storage, num_shares), share.task.bin_id, nonce)  # noqa: B023
        if examined is None:
            yield _row(facts=None, every=0, sample=None, error=error)
            continue
        facts, sample = examined
        yield _row(
            facts=json.dumps(facts.to_dict()), every=sample.every, sample=packed(sample.rows), error=None
        )


def divide_shares(
    batches: Iterable[pa.RecordBatch], storage_options: Mapping[str, Any], plan: SharedPlan, nonce: str
) -> Iterator[pa.RecordBatch]:
    """Divide the rows of each share between the new files. A last row of a share holds the checksum of its rows, or its error.

    :raises RuntimeError: an error that a repetition may change; its message describes the original.
    """
    for share in _shares(batches):
        storage = opened(share.task.table_uri, storage_options)
        rows = divide(share, plan.rule, plan.firsts[share.number], storage)
        # Any task that writes a file passes it on.
        file = share.number % plan.rule.num_files
        while True:
            found, error = _tried(lambda: _next(rows), share.task.bin_id, nonce)  # noqa: B023
            if found is None or isinstance(found, RowHash):
                read = None if found is None else json.dumps({"rows": found.rows, "total": found.total})
                yield _row(file=file, rows=None, read=read, error=error)
                break
            number, of_file = found
            for piece in _pieces(of_file):
                yield _row(file=number, rows=packed(piece), read=None, error=None)


def write_files(
    batches: Iterable[pa.RecordBatch], storage_options: Mapping[str, Any], plan: SharedPlan, nonce: str
) -> Iterator[pa.RecordBatch]:
    """Take the rows of some files, and write the files. Yield a row for each file, and the last rows of shares as they are.

    :raises RuntimeError: an error that a repetition may change; its message describes the original.
    """
    task = plan.task
    storage = opened(task.table_uri, storage_options)
    with ExitStack() as stack:
        pool = stack.enter_context(SegmentPool())
        writers: dict[int, FileWriter] = {}

        def collect(file: int, rows: bytes) -> bool:
            if file not in writers:
                writers[file] = stack.enter_context(
                    FileWriter(task, plan.rule, file, plan.rows_in, plan.bloom_filters, storage, pool)
                )
            writers[file].add(unpacked(pa.py_buffer(rows)))
            return True

        for batch in batches:
            columns = [batch.column(name) for name in ("file", "rows", "read", "error")]
            for file, rows, read, error in zip(*columns, strict=True):
                if not rows.is_valid:
                    yield _row(written=None, read=read.as_py(), error=error.as_py())
                    continue
                done, error_text = _tried(lambda: collect(file.as_py(), rows.as_py()), task.bin_id, nonce)  # noqa: B023
                if done is None:
                    yield _row(written=None, read=None, error=error_text)
                    return
        for file in sorted(writers):
            written, error_text = _tried(writers[file].write, task.bin_id, nonce)
            text = None if written is None else json.dumps(written.to_dict())
            yield _row(written=text, read=None, error=error_text)


def packed(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch with its schema as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def unpacked(content: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(content) as stream:
        return stream.read_next_batch()


def unpacked_sample(content: bytes, every: int) -> Sample:
    return Sample.given(unpacked(pa.py_buffer(content)), every)


def _shares(batches: Iterable[pa.RecordBatch]) -> Iterator[Share]:
    for batch in batches:
        for text in batch.column("text").to_pylist():
            yield Share.from_dict(json.loads(text))


def _next(rows: Any) -> Any:
    """Return the next item of a generator, or what it returns in the end."""
    try:
        return next(rows)
    except StopIteration as end:
        return end.value


def _tried(step: Callable[[], _T], bin_id: str, nonce: str) -> tuple[_T | None, str | None]:
    """Return the result of a step, or the description of an error that a repetition cannot change."""
    try:
        return step(), None
    except Exception as error:  # noqa: BLE001 - the driver decides by the description
        report = error_report(error).with_facts(bin_id=bin_id)
        if report.retryable:
            raise error_for_spark(report, error, nonce) from None
        return None, json.dumps(report.to_dict())


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut rows into pieces of bounded size."""
    most = max(1, rows.num_rows * _ROW_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, most):
        yield rows.slice(start, most)


_TYPES: dict[str, pa.DataType] = {
    "file": pa.int32(),
    "every": pa.int64(),
    "rows": pa.binary(),
    "sample": pa.binary(),
}


def _row(**values: Any) -> pa.RecordBatch:
    arrays = {
        name: _binary(value)
        if isinstance(value, pa.Buffer)
        else pa.array([value], _TYPES.get(name, pa.string()))
        for name, value in values.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def _binary(content: pa.Buffer) -> pa.Array:
    """One value, without a copy."""
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
