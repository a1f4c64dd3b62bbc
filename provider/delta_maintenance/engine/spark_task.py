"""What runs inside of a Spark task: rows of tasks in, rows of manifests out. Knows Arrow, not PySpark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from delta_log.storage import Storage, open_storage
from delta_maintenance.engine.engine import describe_error, is_too_late
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask

#: Spark tells the driver of an error by its text; what follows is the error as JSON.
ERROR_MARK = "DELTA_TASK_ERROR "
_SCHEMA = pa.schema([("bin", pa.int32()), ("manifest", pa.string()), ("error", pa.string())])


def opened(table_uri: str, storage_options: Mapping[str, Any]) -> Storage:
    """A client is worth keeping: one process of an executor does task after task."""
    return _opened(table_uri, json.dumps(storage_options, sort_keys=True))


@lru_cache(maxsize=1)
def _opened(table_uri: str, storage_options: str) -> Storage:
    return open_storage(table_uri, json.loads(storage_options))


def rewrite_batch(
    batch: pa.RecordBatch, storage_options: Mapping[str, Any], run_key: RunKey
) -> Iterator[pa.RecordBatch]:
    """Rewrite each task of a batch; a row each, with the manifest or with the error that repeating cannot
    change.

    :raises RuntimeError: an error that repeating may change; its message says all about the original.
    """
    for number, text in zip(*batch.select(["bin", "task"]).to_pydict().values(), strict=True):
        task = RewriteTask.from_json(text)
        if is_too_late(task):
            continue
        manifest = failure = None
        try:
            manifest = rewrite_bin(task, opened(task.table_uri, storage_options), run_key).to_json()
        except Exception as error:
            description = {**describe_error(error), "bin_id": task.bin_id}
            if description["retryable"]:
                raise RuntimeError(ERROR_MARK + json.dumps(description)) from error
            failure = json.dumps(description)
        yield pa.record_batch([[number], [manifest], [failure]], schema=_SCHEMA)
