"""The engines that one job may use: chooses one, and makes it."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_log.storage.ambient_options import AmbientOptions, ambient_options
from delta_maintenance.contract import JobSpec, SparkApplication
from delta_maintenance.engine.choice import EngineChoice, choose_engine, choose_lister
from delta_maintenance.engine.connect.sessions import end_connect_sessions
from delta_maintenance.engine.engine import Engine
from delta_maintenance.engine.spark.application import application_name

if TYPE_CHECKING:
    from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
    from delta_maintenance.engine.spark.spark_engine import DetachedSparkEngine, SparkEngine
    from delta_maintenance.progress import ProgressReporter
    from delta_maintenance.rewrite.manifest.manifest_file import RunKey
    from delta_maintenance.rewrite.task import RewriteTask


@dataclasses.dataclass(frozen=True, slots=True)
class EngineFactory:
    """Chooses and makes the engines of one job.

    :param storage_options: storage options of the table; never part of a spec, a report or a log.
    :param spark_master: the master to which ``engine="auto"`` may send heavy work; ``None``: not known here.
    :param can_use_spark: ``True``: this process is a Spark driver, or can become one.
    :param begins: the job begins this rewrite on a Spark Connect server, and does not wait for it.
    :param finishes: the job finishes this rewrite, which another job has begun.
    :param applications: the Spark applications that were used, see :func:`~delta_maintenance.engine.spark.session.application_of`.
    """

    spec: JobSpec
    storage_options: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    spark_master: str | None = None
    can_use_spark: bool = False
    begins: DetachedRewrite | None = None
    finishes: DetachedRewrite | None = None
    applications: list[SparkApplication] = dataclasses.field(default_factory=list)

    def choose(self, planned_bytes: int) -> EngineChoice:
        """Choose the engine for a rewrite of so many bytes."""
        return choose_engine(
            self.spec, planned_bytes, spark_master=self.spark_master, can_use_spark=self.can_use_spark
        )

    def choose_lister(self, count_files: Callable[[], int]) -> EngineChoice:
        """Choose the engine for a listing.

        :param count_files: function that counts the files that the log knows; called only where the number matters.
        """
        return choose_lister(
            self.spec, count_files, spark_master=self.spark_master, can_use_spark=self.can_use_spark
        )

    def make(self, name: str) -> Engine:
        """
        :param name: name of the engine in an :class:`~delta_maintenance.engine.choice.EngineChoice`.
        :raises InvalidRequest: it is Spark, and PySpark is not installed.
        """
        if name != "local":
            return self.spark() if self.finishes is None else self._detached(self.finishes)
        # Imported here: a job with nothing to do needs neither this engine nor Parquet.
        from delta_maintenance.engine.local import LocalEngine

        return LocalEngine(
            self.storage_options,
            memory_limit_bytes=self.spec.memory_limit_bytes,
            parallelism=self.spec.parallelism,
        )

    def begin(
        self, name: str, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> DetachedRewrite | None:
        """Begin a rewrite that outlives this job, if the job was asked for that; ``None``: the job rewrites by itself.

        :param name: name of the engine in an :class:`~delta_maintenance.engine.choice.EngineChoice`.
        :raises InvalidRequest: the environment names no Spark Connect server, or the server refuses this client.
        :raises SparkUnreachable: the server does not answer.
        """
        if self.begins is None or name == "local" or not tasks:
            return None
        engine = self._detached(self.begins)
        begun = engine.begin(tasks, progress, run_key)
        self.applications[:] = [engine.application]
        return replace(begun, spark=engine.application)

    def instead_of_lost(self) -> EngineFactory:
        return dataclasses.replace(
            self, begins=self.finishes.next() if self.finishes is not None else None, finishes=None
        )

    def end(self) -> None:
        """End the sessions of this job on Spark Connect servers, with what still runs in them.

        A rewrite that the job has begun goes on. One that it finishes is over with the job.

        :raises SparkUnreachable: a server does not answer.
        """
        end_connect_sessions()
        if self.finishes is not None:
            self._detached(self.finishes).end()

    def _detached(self, rewrite: DetachedRewrite) -> DetachedSparkEngine:
        _require_pyspark()
        from delta_maintenance.engine.spark.spark_engine import DetachedSparkEngine

        remote = os.environ.get("SPARK_REMOTE")
        if remote is None:
            raise InvalidRequest(
                "A detached rewrite needs a Spark Connect server, and SPARK_REMOTE names none. Set it to sc://host:port."
            )
        return DetachedSparkEngine(
            remote,
            rewrite,
            self.storage_options,
            executor_options=self._executor_options(),
            parallelism=self.spec.parallelism,
        )

    def spark(self) -> SparkEngine:
        """
        :raises InvalidRequest: PySpark is not installed.
        """
        _require_pyspark()
        # Imported here, since most jobs do not need PySpark.
        from delta_maintenance.engine.spark.spark_engine import SparkEngine

        return SparkEngine(
            self._session,
            self.storage_options,
            executor_options=self._executor_options(),
            parallelism=self.spec.parallelism,
        )

    def _executor_options(self) -> AmbientOptions | None:
        """
        :return: ``None``: executors get the storage options of the job.
        :raises InvalidRequest: an option must not travel, and executors might need it.
        """
        if self.spec.executor_credentials != "ambient":
            return None
        return ambient_options(self.spec.table, self.storage_options)

    def _session(self) -> Any:
        from delta_maintenance.engine.spark.session import application_of, spark_session

        session = spark_session(self.spark_master, application_name(self.spec))
        self.applications[:] = [application_of(session)]
        return session

    @property
    def application(self) -> SparkApplication | None:
        """The Spark application that this job has used."""
        return self.applications[-1] if self.applications else None


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidRequest(
            "The Spark engine needs PySpark, which is not installed here. Install "
            "airflow-provider-delta[spark], or use the local engine."
        )
