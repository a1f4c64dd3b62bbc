"""What runs inside of a Spark task: rows of tasks in, rows of manifests out. Knows Arrow, not PySpark.

Spark tells the driver of an error by its text alone, in which it also quotes what the table holds. So an error of ours
stands there as JSON behind a mark with a nonce, which the driver draws for each engine and sends with the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from delta_log.printable import print_traceback
from delta_log.storage.storage import Storage, open_storage
from delta_maintenance.checked_json import ContractError, first_object
from delta_maintenance.contract import ErrorReport
from delta_maintenance.engine.engine import is_too_late
from delta_maintenance.errors import error_report
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask

_SCHEMA = pa.schema([("bin", pa.int32()), ("manifest", pa.string()), ("error", pa.string())])


def opened(table_uri: str, storage_options: Mapping[str, Any]) -> Storage:
    """A client is worth keeping: one process of an executor does task after task."""
    return _opened(table_uri, json.dumps(storage_options, sort_keys=True))


@lru_cache(maxsize=1)
def _opened(table_uri: str, storage_options: str) -> Storage:
    return open_storage(table_uri, json.loads(storage_options))


def error_mark(nonce: str) -> str:
    return f"DELTA_TASK_ERROR {nonce} "


def error_for_spark(report: ErrorReport, error: Exception, nonce: str) -> RuntimeError:
    """What to raise so that Spark tries a task again, and lets the driver know why if it gives up.

    To be raised without its cause, which Spark would quote raw; the traceback of that goes to the executor's standard error.
    """
    print_traceback(error)
    return RuntimeError(error_mark(nonce) + json.dumps(report.to_dict()))


def reported_error(text: str, nonce: str) -> ErrorReport | None:
    """What :func:`error_for_spark` put into the text of an error of Spark, if this is one."""
    _, mark, rest = text.partition(error_mark(nonce))
    try:
        return ErrorReport.from_dict(first_object("error of a task", rest)[0]) if mark else None
    except ContractError:
        return None


def rewrite_batch(
    batch: pa.RecordBatch, storage_options: Mapping[str, Any], run_key: RunKey, nonce: str
) -> Iterator[pa.RecordBatch]:
    """Rewrite each task of a batch; a row each, with the manifest or with the error that repeating cannot
    change.

    :param nonce: marks errors for the driver.
    :raises RuntimeError: an error that repeating may change; its message says all about the original.
    """
    for number, text in zip(*batch.select(["bin", "task"]).to_pydict().values(), strict=True):
        task = RewriteTask.from_json(text)
        if is_too_late(task):
            continue
        manifest = failure = None
        try:
            manifest = rewrite_bin(task, opened(task.table_uri, storage_options), run_key).to_json()
        except Exception as error:  # noqa: BLE001 - the driver decides, by what it is told
            report = error_report(error).with_facts(bin_id=task.bin_id)
            if report.retryable:
                raise error_for_spark(report, error, nonce) from None
            failure = json.dumps(report.to_dict())
        yield pa.record_batch([[number], [manifest], [failure]], schema=_SCHEMA)
