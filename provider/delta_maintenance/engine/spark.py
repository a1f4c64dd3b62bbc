"""The Spark engine: a DataFrame of bins, and ``mapInArrow`` running our own rewrite on each.

1. DataFrame API only, so that the same job runs classic and under Spark Connect. Spark never sees a column of
   the table: it schedules, retries and ships, the rewriter does the rest.
2. Each bin is a task of its own (``repartitionById``; hashing would put several bins into one partition), and
   there is one action (a second one would rewrite everything twice).
3. Progress is what storage shows: manifests appear as bins finish, also where Spark's own tracker cannot be
   asked. Only those count that this run wrote and that answer their task.
4. Storage options and the run's key travel in the closure of the task, never in a configuration, which logs and the
   Spark UI show.
5. A bin that fails for a reason that repeating cannot change comes back as a value; any other error is raised
   in the task, so that Spark tries it again, perhaps elsewhere. A repeated task finds the manifest of one
   that finished. What the table holds cannot pass for such an error
   (:mod:`~delta_maintenance.engine.spark_task`).

This module and :mod:`~delta_maintenance.engine.spark_listing` are the only ones that import PySpark.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_log.errors import InvalidRequest
from delta_log.storage.storage import FileInfo, Storage, open_storage
from delta_maintenance.bundle import build_bundle
from delta_maintenance.contract import ErrorReport
from delta_maintenance.engine.cluster_check import ClusterVersions, check
from delta_maintenance.engine.engine import BinResult, is_spark_driver
from delta_maintenance.engine.spark_task import reported_error
from delta_maintenance.errors import TaskFailed
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import MANIFEST_DIRECTORY, read_manifest
from delta_maintenance.rewrite.manifest_file import RunKey, parsed_text
from delta_maintenance.rewrite.task import RewriteTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from delta_maintenance.engine.spark_listing import SparkListing

_POLL_SECONDS = 1.0
_INPUT, _OUTPUT = "bin int, task string", "bin int, manifest string, error string"

#: An embedded session serves one short job: no optimising compiler, serial collector, no web UI, deaf to the
#: network.
_EMBEDDED = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


class SparkEngine:
    """An :class:`~delta_maintenance.engine.engine.Engine` on a Spark session.

    :param session: makes or finds the session, when work begins.
    :param parallelism: at most so many bins at a time; ``None``: what the cluster has.
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
    ) -> Iterator[BinResult]:
        if not tasks:
            return
        spark = self._ready(progress)
        collecting = _Collecting(self._frame(spark, tasks, run_key), self._nonce)
        storage = open_storage(tasks[0].table_uri, self._storage_options)
        #: Number and bytes of each bin that is not done.
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
        """What lists parts of a tree on this engine.

        :raises ClusterIncomplete: a machine lacks what that needs.
        """
        from delta_maintenance.engine.spark_listing import SparkListing

        return SparkListing(self._ready(progress), self._storage_options, self._parallelism, self._nonce)

    def _ready(self, progress: ProgressReporter) -> SparkSession:
        """The session, once every machine is seen to have what the work needs."""
        progress.message("starting Spark")
        spark = self._session()
        versions = check_cluster(spark)
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


@cache
def _sent_files() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="delta-maintenance-")


def sent_files() -> Path:
    """A directory for files that Spark sends to its machines: it does so when a task first runs there, and again for every
    machine that joins later, so they have to be there for as long as this process is."""
    return Path(_sent_files().name)


class _Collecting:
    """The one action, in a thread, so that progress can be watched meanwhile."""

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
        """Is it over?"""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def rows(self) -> list[Any]:
        if self._error is not None:
            raise task_error(self._error, self._nonce) from self._error
        return self._rows


def task_error(error: Exception, nonce: str) -> Exception:
    """The error of our task inside of Spark's, if there is one."""
    report = reported_error(str(error), nonce)
    return error if report is None else TaskFailed(report.facts["bin_id"], report)


def _changed(storage: Storage, run_id: str, wanted: Collection[str], seen: dict[str, FileInfo]) -> list[str]:
    """Of some bins, those whose manifest appeared or changed since it was looked at last.

    :param seen: by bin; what somebody else left there is looked at once.
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
    # A nested function goes by value; what it imports is found on the executor, in the bundle or installed.
    def rewrite(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from delta_maintenance.engine.spark_task import rewrite_batch
        from delta_maintenance.rewrite.manifest_file import RunKey

        for batch in batches:
            yield from rewrite_batch(batch, storage_options, RunKey(run_key), nonce)

    return rewrite


def check_cluster(spark: SparkSession) -> ClusterVersions:
    """What driver and executors have.

    :raises ClusterIncomplete: something is missing; named, machine by machine.
    """
    from pyspark.sql import functions

    return check(spark, functions.udf)


def spark_session(master: str | None, app_name: str) -> SparkSession:
    """The session of this process: the one that spark-submit or a notebook made, else a new one.

    :param master: for a new one; ``None``: what Spark's own configuration says, else all processors of this
        machine.
    :raises InvalidRequest: there is no PySpark, or it cannot start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequest(
            "The Spark engine needs PySpark, which is not installed here. Install "
            "airflow-provider-delta[spark], or use --engine local."
        ) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(app_name)
    remote = os.environ.get("SPARK_REMOTE")
    if remote is not None and remote.startswith("local"):
        _use_this_python()
    if not is_spark_driver() and remote is None:
        master = master or os.environ.get("SPARK_MASTER") or "local[*]"
        builder = builder.master(master)
        if master.startswith("local"):
            for name, value in _EMBEDDED.items():
                builder = builder.config(name, value)
            _use_this_python()
    try:
        return builder.getOrCreate()
    except Exception as error:  # PySpark raises half a dozen unrelated kinds
        raise InvalidRequest(
            f"Spark cannot be started ({type(error).__name__}: {error}). Is there a Java 17 or newer "
            f"(JAVA_HOME), and does master {master or 'of the environment'} exist? --engine local needs none."
        ) from error


def _use_this_python() -> None:
    """Python workers of an embedded Spark find modules and libraries where this process found them."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(str(Path(p).resolve()) for p in sys.path))
