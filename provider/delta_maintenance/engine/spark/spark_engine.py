"""The Spark engine: a DataFrame of bins, each of which ``mapInArrow`` rewrites with our own code.

1. The engine uses the DataFrame API only, so that the same job runs on classic Spark and on Spark Connect. Spark never sees
   a column of the table: it schedules tasks, retries them and ships code; the rewriter does the rest.
2. Each bin is one task (``repartitionById``; hashing would put several bins into one partition). There is one action: a
   second one would rewrite everything twice. A large bin whose rows a layout moves is shared by several tasks instead
   (:mod:`~delta_maintenance.engine.spark.sharing.shared_bins`), unless the rewrite is detached.
3. The driver follows progress in the storage, where manifests appear as bins finish. Spark Connect offers no other tracker.
   A manifest counts only if this run wrote it and it answers its task.
4. Storage options and the run's key travel in the closure of the task, never in a configuration, which logs and the
   Spark UI show. To a Spark Connect server, whose log may show closures, they travel in a file of the session. Where executors
   use the identity of their machines, only the options without an identity travel (:mod:`delta_log.storage.ambient_options`).
5. An error that a repetition cannot change comes back as a row. Any other error is raised in the task, so that Spark
   repeats the task, perhaps on another machine. A repeated task finds the manifest of one that finished. Text in the table
   cannot imitate such an error (:mod:`~delta_maintenance.engine.spark.rewriting_task`).
6. On a Spark Connect server the action may outlive this process (:class:`DetachedSparkEngine`). Its result then holds errors only,
   since the server buffers it: manifests are in the storage.

PySpark is imported by this module, :mod:`~delta_maintenance.engine.spark.session`, :mod:`~delta_maintenance.engine.spark.sharing.shuffle` and
:mod:`~delta_maintenance.engine.spark.listing` only.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delta_log.errors import DeltaLogError
from delta_log.storage.ambient_options import AmbientOptions
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import FileInfo, Storage
from delta_maintenance.contract import ErrorReport, SparkApplication
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.engine.connect.server import ConnectServer
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.spark.cluster_check import check_cluster
from delta_maintenance.engine.spark.executors import Background, executor_wait, with_executors
from delta_maintenance.engine.spark.failure import spark_errors
from delta_maintenance.engine.spark.listing import SparkListing
from delta_maintenance.engine.spark.rewriting_task import Secrets, reported_error, task_error
from delta_maintenance.engine.spark.session import (
    application_of,
    connect_session,
    own_processors,
    processors_of,
    sent_files,
    sent_secrets,
)
from delta_maintenance.engine.spark.sharing.shared_bins import BINS_AT_ONCE, SharedBins, is_shared
from delta_maintenance.engine.spark.sharing.shuffle import SparkShuffle, small_batches
from delta_maintenance.errors import OperationFailed, OperationLost, TaskFailed
from delta_maintenance.process.bundle import build_bundle
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import read_manifest
from delta_maintenance.rewrite.manifest.manifest_file import RunKey, parsed_text
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY, BinManifest, RewriteTask
from delta_maintenance.units import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_POLL_SECONDS = 1.0
#: Names that a detached rewrite tries: each task that is cancelled leaves one that cannot be used again.
_NAMES = 5
_INPUT, _OUTPUT = "bin int, task string", "bin int, manifest string, error string"


class SparkEngine:
    """An :class:`~delta_maintenance.engine.engine.Engine` on a Spark session.

    :param session: function that makes or finds the session; called when work begins.
    :param storage_options: storage options that this process uses.
    :param executor_options: storage options that executors get, if they use the identity of their machines; ``None``: the same.
    :param parallelism: the most bins at a time; ``None``: as many as the cluster has processors.
    """

    name = "spark"

    def __init__(
        self,
        session: Callable[[], SparkSession],
        storage_options: Mapping[str, Any] | None = None,
        *,
        executor_options: AmbientOptions | None = None,
        parallelism: int | None = None,
    ) -> None:
        self._session = session
        self._storage_options = dict(storage_options or {})
        self._ambient = executor_options
        self._executor_options = (
            self._storage_options if executor_options is None else executor_options.options
        )
        self._parallelism = parallelism
        self._nonce = secrets.token_hex(16)

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        if not tasks:
            return
        spark = self._ready(progress)
        look = executor_wait(spark, progress).look
        shared, alone = self._divided(spark, tasks)
        if alone:
            with spark_errors():
                collecting = _Collecting(self._frame(spark, alone, run_key, self._nonce).collect)
            # Stopping the session ends the tasks; it was for this job.
            yield from self._results(alone, collecting, progress, run_key, self._nonce, look, spark.stop)
        if shared:
            yield from self._shared(spark, shared, progress, run_key, look)

    def _divided(
        self, spark: SparkSession, tasks: Sequence[RewriteTask]
    ) -> tuple[Sequence[RewriteTask], Sequence[RewriteTask]]:
        """Return the bins that several Spark tasks share, and those that one does alone.

        Where the driver works itself, one task can use all processors, and no rows have to be moved.
        """
        if tasks[0].layout is None or own_processors(spark) is not None:
            return [], tasks
        total_bytes = sum(task.bytes_in for task in tasks)
        processors = processors_of(spark) if self._parallelism is None else self._parallelism
        shared = {number for number, task in enumerate(tasks) if is_shared(task, total_bytes, processors)}
        if not shared:
            return [], tasks
        return [tasks[number] for number in sorted(shared)], [
            task for number, task in enumerate(tasks) if number not in shared
        ]

    def _shared(
        self,
        spark: SparkSession,
        tasks: Sequence[RewriteTask],
        progress: ProgressReporter,
        run_key: RunKey,
        look: Callable[[], None],
    ) -> Generator[BinResult, None, None]:
        storage = open_storage(tasks[0].table_uri, self._storage_options)
        shuffle = SparkShuffle(spark, self._executor_options, self._parallelism, self._nonce)
        sizes = {task.bin_id: task.bytes_in for task in tasks}
        # Each bin has as many tasks as there may be.
        at_once = BINS_AT_ONCE if self._parallelism is None else 1
        bins = SharedBins(shuffle, storage, progress, at_once)
        try:
            with small_batches(spark):
                for result in bins.run(tasks, run_key, look):
                    if isinstance(result, BinManifest):
                        progress.bin_done(result.bin_id, sizes[result.bin_id])
                    yield result
        except BaseException:
            if bins.running:
                spark.stop()
            raise

    def _results(
        self,
        tasks: Sequence[RewriteTask],
        collecting: _Collecting,
        progress: ProgressReporter,
        run_key: RunKey,
        nonce: str,
        look: Callable[[], None],
        stop: Callable[[], None],
    ) -> Generator[BinResult, None, None]:
        """Yield bins as their manifests appear, and the rest when the action is over.

        :param look: function that is called while the action runs; an error that it raises ends the action.
        :param stop: function that ends the action, if this process does not wait for it to the end.
        """
        storage = open_storage(tasks[0].table_uri, self._storage_options)
        # Number and bytes of each bin that is not done.
        left = {task.bin_id: (number, task.bytes_in) for number, task in enumerate(tasks)}
        seen: dict[str, FileInfo] = {}

        def finished() -> Iterator[BinManifest]:
            for bin_id in _changed(storage, tasks[0].run_id, left, seen):
                manifest = read_manifest(storage, run_key, tasks[0].run_id, bin_id)
                number, size_bytes = left[bin_id]
                if manifest is not None and manifest.differs_from(tasks[number]) is None:
                    del left[bin_id]
                    progress.bin_done(bin_id, size_bytes)
                    yield manifest

        try:
            while not collecting.wait(_POLL_SECONDS):
                look()
                yield from finished()
        except BaseException:
            stop()
            raise
        for row in collecting.rows(nonce):
            if row["error"] is not None:
                report = ErrorReport.from_dict(json.loads(row["error"]))
                if left.pop(report.facts["bin_id"], None) is not None:
                    yield TaskFailed(report.facts["bin_id"], report)
                continue
            manifest = parsed_text(row["manifest"])
            if manifest.bin_id in left:
                progress.bin_done(manifest.bin_id, left.pop(manifest.bin_id)[1])
                yield manifest
        yield from finished()

    def listing(self, progress: ProgressReporter) -> SparkListing:
        """Return a listing of parts of a tree that runs on this session.

        :raises ClusterIncomplete: a machine lacks a library that the listing needs.
        """
        return SparkListing(
            self._ready(progress), self._executor_options, self._parallelism, self._nonce, progress
        )

    def _ready(self, progress: ProgressReporter) -> SparkSession:
        """Return the session after a check that every machine has what the work needs."""
        from pyspark.sql import functions

        progress.message("starting Spark")
        spark = self._session()
        if self._ambient is not None:
            withheld = ", ".join(self._ambient.withheld)
            stays = f"; {withheld} of the storage options stay with the driver" if withheld else ""
            progress.message(f"executors use the identity of their own machines{stays}")
        with spark_errors():
            versions = with_executors(spark, progress, lambda: check_cluster(spark, functions.udf))
            application = application_of(spark)
            where = ", ".join(
                str(application[name]) for name in ("application_id", "ui_url") if application[name]
            )
            progress.application(
                f"Spark {spark.version} is ready ({versions.describe()}): {where}", application
            )
            if not versions.has_library:
                spark.addArtifacts(str(build_bundle(sent_files())), pyfile=True)
        return spark

    def _frame(
        self,
        spark: SparkSession,
        tasks: Sequence[RewriteTask],
        run_key: RunKey,
        nonce: str,
        *,
        errors_only: bool = False,
    ) -> DataFrame:
        rows = [(index, task.to_json()) for index, task in enumerate(tasks)]
        frame = spark.createDataFrame(rows, _INPUT)
        partitions = len(rows) if self._parallelism is None else min(len(rows), max(1, self._parallelism))
        frame = frame.repartitionById(partitions, frame["bin"] % partitions)
        secrets = {"storage_options": dict(self._executor_options), "run_key": run_key.text}
        processors = own_processors(spark) or 1
        if self._parallelism is not None:
            processors = min(processors, self._parallelism)
        rewriting = _rewriting(
            sent_secrets(spark, secrets), nonce, max(1, processors // partitions), errors_only
        )
        return frame.mapInArrow(rewriting, _OUTPUT)


class DetachedSparkEngine(SparkEngine):
    """A :class:`SparkEngine` whose rewrite one process begins and another finishes, on a Spark Connect server.

    :param remote: the address of the server.
    :param rewrite: the names by which the server knows session and operation.
    """

    def __init__(
        self,
        remote: str,
        rewrite: DetachedRewrite,
        storage_options: Mapping[str, Any] | None = None,
        *,
        executor_options: AmbientOptions | None = None,
        parallelism: int | None = None,
    ) -> None:
        super().__init__(
            self._open_session, storage_options, executor_options=executor_options, parallelism=parallelism
        )
        self._remote, self._rewrite = remote, rewrite
        #: What a report says of the server, once there is a session.
        self.application: SparkApplication = {}

    def begin(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> DetachedRewrite:
        """Start the rewrite and leave it running; return its name, which is another one if the server has forgotten the first.

        A rewrite that an earlier try has begun under this name goes on. It may have been given other tasks.
        """
        for _ in range(_NAMES):
            with ConnectServer(self._remote, self._rewrite) as server:
                try:
                    server.require_answer()
                    spark = self._ready(progress)
                    self._tell_large(spark, tasks, progress)
                    nonce = _nonce_of(self._rewrite, run_key)
                    frame = self._frame(spark, tasks, run_key, nonce, errors_only=True)
                    server.start(_plan_of(spark, frame))
                except OperationLost as error:
                    lost = error
                    progress.message(f"the Spark Connect server has forgotten an earlier try ({error.why})")
                    self._rewrite = self._rewrite.next()
                except BaseException:
                    with suppress(DeltaLogError):  # the error tells more
                        server.release()
                    raise
                else:
                    return self._rewrite
        raise lost

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        """Wait for the rewrite that :meth:`begin` has started, and yield its bins. Nothing is rewritten here.

        :raises OperationLost: the server has forgotten it, and some of the tasks are not done.
        """
        if not tasks:
            return
        nonce = _nonce_of(self._rewrite, run_key)
        with ConnectServer(self._remote, self._rewrite) as server:

            def fetch() -> list[Any]:
                try:
                    return server.fetch()
                except OperationFailed as error:
                    report = reported_error(error.text, nonce)
                    raise error if report is None else TaskFailed(report.facts["bin_id"], report) from None

            def nothing() -> None:
                """Leave executors to the server, and the session, which is ended with the job (:meth:`end`)."""

            yield from self._results(tasks, _Collecting(fetch), progress, run_key, nonce, nothing, nothing)

    def _tell_large(
        self, spark: SparkSession, tasks: Sequence[RewriteTask], progress: ProgressReporter
    ) -> None:
        large, _ = self._divided(spark, tasks)
        if large:
            progress.message(
                f"one Spark task alone lays out {counted(len(large), 'large bin')}: several share a bin only where the job waits for "
                "the rewrite (deferrable=False)"
            )

    def end(self) -> None:
        """End the session, with all that still runs in it.

        :raises SparkUnreachable: the server does not answer.
        """
        with ConnectServer(self._remote, self._rewrite) as server:
            server.release()

    def _open_session(self) -> SparkSession:
        session = connect_session(self._remote, self._rewrite)
        self.application = application_of(session)
        return session


def _plan_of(spark: SparkSession, frame: DataFrame) -> Any:
    """The plan of a DataFrame of Spark Connect, as its protocol has it. PySpark shows it under this name only."""
    return frame._plan.to_proto(spark.client)  # type: ignore[operator]


def _nonce_of(rewrite: DetachedRewrite, run_key: RunKey) -> str:
    """The nonce of the tasks' errors: the process that reads them knows it, and the table does not."""
    return run_key.mac(rewrite.operation_id, "nonce", b"")


class _Collecting:
    """Runs the one action in a thread, so that the engine can report progress meanwhile.

    :param collect: function that returns the rows of the result.
    """

    def __init__(self, collect: Callable[[], list[Any]]) -> None:
        self._running = Background(collect)

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; tell whether the action is over."""
        return self._running.wait(seconds)

    def rows(self, nonce: str) -> list[Any]:
        """
        :param nonce: text that marks the errors of tasks within Spark's errors.
        """
        try:
            return self._running.result()
        except DeltaLogError:
            raise
        except Exception as error:
            raise task_error(error, nonce) from error


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
    secrets: Secrets, nonce: str, threads: int, errors_only: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Spark pickles a nested function by value. Its imports are found on the executor, in the bundle or installed.
    def rewrite(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles

        from delta_maintenance.process.fast_start import prepare_spark_worker

        prepare_spark_worker()  # before what converts values when it is imported

        from delta_maintenance.engine.spark.rewriting_task import received, rewrite_batch
        from delta_maintenance.rewrite.manifest.manifest_file import RunKey

        found = received(secrets, SparkFiles.get)
        for batch in batches:
            run_key = RunKey(found["run_key"])
            for row in rewrite_batch(batch, found["storage_options"], run_key, nonce, threads):
                if not errors_only or row.column("error").is_valid()[0].as_py():
                    yield row

    return rewrite
