"""The Spark engine: a DataFrame of bins, each of which ``mapInArrow`` rewrites with our own code.

1. The engine uses the DataFrame API only, so that the same job runs on classic Spark and on Spark Connect. Spark never sees
   a column of the table: it schedules tasks, retries them and ships code; the rewriter does the rest.
2. Each bin is one task (``repartitionById``; hashing would put several bins into one partition). There is one action: a
   second one would rewrite everything twice.
3. The driver follows progress in the storage, where manifests appear as bins finish. Spark Connect offers no other tracker.
   A manifest counts only if this run wrote it and it answers its task.
4. Storage options and the run's key travel in the closure of the task, never in a configuration, which logs and the
   Spark UI show.
5. An error that a repetition cannot change comes back as a row. Any other error is raised in the task, so that Spark
   repeats the task, perhaps on another machine. A repeated task finds the manifest of one that finished. Text in the table
   cannot imitate such an error (:mod:`~delta_maintenance.engine.rewriting_task`).

PySpark is imported by this module, :mod:`~delta_maintenance.engine.spark_session` and
:mod:`~delta_maintenance.engine.spark_listing` only.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta_log.storage.opening import open_storage
from delta_log.storage.storage import FileInfo, Storage
from delta_maintenance.bundle import build_bundle
from delta_maintenance.contract import ErrorReport
from delta_maintenance.engine.cluster_check import check_cluster
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.rewriting_task import task_error
from delta_maintenance.engine.spark_listing import SparkListing
from delta_maintenance.engine.spark_session import sent_files
from delta_maintenance.errors import TaskFailed
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import MANIFEST_DIRECTORY, read_manifest
from delta_maintenance.rewrite.manifest_file import RunKey, parsed_text
from delta_maintenance.rewrite.task import RewriteTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_POLL_SECONDS = 1.0
_INPUT, _OUTPUT = "bin int, task string", "bin int, manifest string, error string"


class SparkEngine:
    """An :class:`~delta_maintenance.engine.engine.Engine` on a Spark session.

    :param session: makes or finds the session; called when work begins.
    :param parallelism: the most bins at a time; ``None``: as many as the cluster has processors.
    """

    name = "spark"

    def __init__(
        self,
        session: Callable[[], SparkSession],
        storage_options: Mapping[str, Any] | None = None,
        *,
        parallelism: int | None = None,
    ) -> None:
        self._session = session
        self._storage_options = dict(storage_options or {})
        self._parallelism = parallelism
        self._nonce = secrets.token_hex(16)

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        if not tasks:
            return
        spark = self._ready(progress)
        collecting = _Collecting(self._frame(spark, tasks, run_key), self._nonce)
        storage = open_storage(tasks[0].table_uri, self._storage_options)
        # Number and bytes of each bin that is not done.
        left = {task.bin_id: (number, task.bytes_in) for number, task in enumerate(tasks)}
        seen: dict[str, FileInfo] = {}
        try:
            while not collecting.wait(_POLL_SECONDS):
                for bin_id in _changed(storage, tasks[0].run_id, left, seen):
                    manifest = read_manifest(storage, run_key, tasks[0].run_id, bin_id)
                    number, size_bytes = left[bin_id]
                    if manifest is not None and manifest.differs_from(tasks[number]) is None:
                        del left[bin_id]
                        progress.bin_done(bin_id, size_bytes)
                        yield manifest
        except BaseException:
            spark.stop()  # ends the tasks; the session was for this job
            raise
        for row in collecting.rows():
            if row["error"] is not None:
                yield TaskFailed(tasks[row["bin"]].bin_id, ErrorReport.from_dict(json.loads(row["error"])))
                continue
            bin_id = tasks[row["bin"]].bin_id
            if bin_id in left:
                progress.bin_done(bin_id, left.pop(bin_id)[1])
                yield parsed_text(row["manifest"])

    def listing(self, progress: ProgressReporter) -> SparkListing:
        """Return a listing of parts of a tree that runs on this session.

        :raises ClusterIncomplete: a machine lacks a library that the listing needs.
        """
        return SparkListing(self._ready(progress), self._storage_options, self._parallelism, self._nonce)

    def _ready(self, progress: ProgressReporter) -> SparkSession:
        """Return the session after a check that every machine has what the work needs."""
        from pyspark.sql import functions

        progress.message("starting Spark")
        spark = self._session()
        versions = check_cluster(spark, functions.udf)
        progress.message(f"Spark {spark.version} is ready ({versions.describe()})")
        if not versions.has_library:
            spark.addArtifacts(str(build_bundle(sent_files())), pyfile=True)
        return spark

    def _frame(self, spark: SparkSession, tasks: Sequence[RewriteTask], run_key: RunKey) -> DataFrame:
        rows = [(index, task.to_json()) for index, task in enumerate(tasks)]
        frame = spark.createDataFrame(rows, _INPUT)
        partitions = len(rows) if self._parallelism is None else min(len(rows), max(1, self._parallelism))
        frame = frame.repartitionById(partitions, frame["bin"] % partitions)
        return frame.mapInArrow(_rewriting(self._storage_options, run_key.text, self._nonce), _OUTPUT)


class _Collecting:
    """Runs the one action in a thread, so that the engine can report progress meanwhile."""

    def __init__(self, frame: DataFrame, nonce: str) -> None:
        self._frame, self._nonce = frame, nonce
        self._rows: list[Any] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        try:
            self._rows = self._frame.collect()
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; tell whether the action is over."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def rows(self) -> list[Any]:
        if self._error is not None:
            raise task_error(self._error, self._nonce) from self._error
        return self._rows


def _changed(storage: Storage, run_id: str, wanted: Collection[str], seen: dict[str, FileInfo]) -> list[str]:
    """Return the bins whose manifest appeared or changed since the last call.

    :param seen: the manifest of each bin at the last call; updated. A foreign file is returned once, not at each call.
    """
    found = []
    for info in storage.list_from(f"{MANIFEST_DIRECTORY}/{run_id}"):
        bin_id, _, ending = info.name.partition(".")
        if ending == "json" and bin_id in wanted and seen.get(bin_id) != info:
            seen[bin_id] = info
            found.append(bin_id)
    return found


def _rewriting(
    storage_options: dict[str, Any], run_key: str, nonce: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Spark pickles a nested function by value. Its imports are found on the executor, in the bundle or installed.
    def rewrite(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from delta_maintenance.engine.rewriting_task import rewrite_batch
        from delta_maintenance.rewrite.manifest_file import RunKey

        for batch in batches:
            yield from rewrite_batch(batch, storage_options, RunKey(run_key), nonce)

    return rewrite
