"""The code of a Spark task that rewrites: takes rows of tasks, yields rows of manifests. Uses Arrow, not PySpark.

Spark reports an error to the driver as text, and that text may quote the table. So a task writes its own error as JSON
behind a mark. The mark holds a nonce, which the driver draws for each engine and sends with the task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_log.printable import print_traceback
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.contract import ErrorReport
from delta_maintenance.contract_json import first_object
from delta_maintenance.engine.engine import is_too_late
from delta_maintenance.engine.spark.failure import spark_error
from delta_maintenance.errors import TaskFailed, error_report
from delta_maintenance.job_interface import ContractError
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.task import RewriteTask

#: The secrets of a task, as they arrive in its closure, or the name of the file of its session that has them.
Secrets = dict[str, Any] | str

_SCHEMA = pa.schema([("bin", pa.int32()), ("manifest", pa.string()), ("error", pa.string())])


def received(secrets: Secrets, find_file: Callable[[str], str]) -> dict[str, Any]:
    """Return the secrets of a task.

    :param find_file: ``pyspark.SparkFiles.get``.
    """
    if isinstance(secrets, dict):
        return secrets
    found: dict[str, Any] = json.loads(Path(find_file(secrets)).read_text(encoding="utf-8"))
    return found


def opened(table_uri: str, storage_options: Mapping[str, Any]) -> Storage:
    """Open a table's storage, or return the open one: a process of an executor runs many tasks of one table."""
    return _opened(table_uri, json.dumps(storage_options, sort_keys=True))


@lru_cache(maxsize=1)
def _opened(table_uri: str, storage_options: str) -> Storage:
    return open_storage(table_uri, json.loads(storage_options))


def error_mark(nonce: str) -> str:
    return f"DELTA_TASK_ERROR {nonce} "


def error_for_spark(report: ErrorReport, error: Exception, nonce: str) -> RuntimeError:
    """Make the error that a task raises so that Spark repeats it, and reports the reason if it gives up.

    The caller raises it without a cause, which Spark would quote unescaped. The traceback goes to the executor's standard error.
    """
    print_traceback(error)
    return RuntimeError(error_mark(nonce) + json.dumps(report.to_dict()))


def reported_error(text: str, nonce: str) -> ErrorReport | None:
    """Return the error that :func:`error_for_spark` put into the text of a Spark error, if there is one."""
    _, mark, rest = text.partition(error_mark(nonce))
    try:
        return ErrorReport.from_dict(first_object("error of a task", rest)[0]) if mark else None
    except ContractError:
        return None


def task_error(error: Exception, nonce: str) -> Exception:
    """Return the error of our task that a Spark error reports, else what the Spark error means."""
    report = reported_error(str(error), nonce)
    return spark_error(error) if report is None else TaskFailed(report.facts["bin_id"], report)


def rewrite_batch(
    batch: pa.RecordBatch, storage_options: Mapping[str, Any], run_key: RunKey, nonce: str, threads: int = 1
) -> Iterator[pa.RecordBatch]:
    """Rewrite each task of a batch. Yield a row for each, with the manifest or an error that a repetition cannot change.

    :param nonce: text that marks errors for the driver.
    :param threads: number of threads that encode a bin: more than one where the bins leave processors idle.
    :raises RuntimeError: an error that a repetition may change; its message describes the original.
    """
    for number, text in zip(*batch.select(["bin", "task"]).to_pydict().values(), strict=True):
        task = RewriteTask.from_json(text)
        if is_too_late(task):
            continue
        manifest = failure = None
        try:
            storage = opened(task.table_uri, storage_options)
            with SegmentPool(threads) as pool:
                manifest = rewrite_bin(task, storage, run_key, pool=pool).to_json()
        except Exception as error:  # noqa: BLE001 - the driver decides by the description
            report = error_report(error).with_facts(bin_id=task.bin_id)
            if report.retryable:
                raise error_for_spark(report, error, nonce) from None
            failure = json.dumps(report.to_dict())
        yield pa.record_batch([[number], [manifest], [failure]], schema=_SCHEMA)
