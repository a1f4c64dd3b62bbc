"""Counts the rows that commits have changed, and writes them to a file on request.

The ending of the file's name chooses the format: ``.parquet``, or ``.arrow`` (an Arrow IPC file). Both keep every type. The file gets its
name when it is complete, so that a reader never finds a part of the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.changes.change_reader import COMMIT_VERSION, ChangePlan
from delta_log.changes.changed_rows import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE
from delta_log.errors import InvalidRequest

#: Members of the result by change type. An update counts once, by its new row.
_COUNTERS = {
    INSERT: "numInsertedRows",
    DELETE: "numDeletedRows",
    UPDATE_POSTIMAGE: "numUpdatedRows",
}

Write = Callable[[pa.RecordBatch], None]


def counted_changes(plan: ChangePlan, rows: pa.RecordBatchReader, output: str | None) -> list[dict[str, Any]]:
    """Read all changed rows; return one entry for each commit that has changed rows, ascending.

    :param output: file to write the rows to, which must not exist.
    :returns: ``version``, ``timestamp`` (ms) and the number of inserted, deleted and updated rows of each.
    :raises InvalidRequest: the file exists, or its ending is unknown.
    """
    times_ms = {commit.version: commit.timestamp_ms for commit in plan.commits}
    counts: dict[int, dict[str, Any]] = {}
    with ExitStack() as files:
        write = files.enter_context(_new_file(Path(output), rows.schema)) if output is not None else None
        for batch in rows:
            version = batch.column(COMMIT_VERSION)[0].as_py()
            entry = counts.setdefault(
                version,
                {"version": version, "timestamp": times_ms[version], **dict.fromkeys(_COUNTERS.values(), 0)},
            )
            for change_type, counter in _COUNTERS.items():
                entry[counter] += pc.sum(pc.equal(batch.column(CHANGE_TYPE), change_type)).as_py()
            if write is not None:
                write(batch)
    return list(counts.values())


@contextmanager
def _new_file(path: Path, schema: pa.Schema) -> Iterator[Write]:
    if path.suffix not in _WRITERS:
        raise InvalidRequest(f"{path} ends with neither {' nor '.join(_WRITERS)}, which choose the format.")
    if path.exists():
        raise InvalidRequest(f"{path} exists. Name another file, or remove it.")
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _WRITERS[path.suffix](draft, schema) as writer:
            yield writer.write_batch
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(path, schema, compression="zstd")


def _arrow_writer(path: Path, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(path, schema)


_WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".parquet": _parquet_writer,
    ".arrow": _arrow_writer,
}
