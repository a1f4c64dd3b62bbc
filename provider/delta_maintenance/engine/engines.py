"""The engines that one job may use: chooses one, and makes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_log.errors import InvalidRequest
from delta_maintenance.contract import JobSpec
from delta_maintenance.engine.choice import EngineChoice, choose_engine, choose_lister
from delta_maintenance.engine.engine import Engine

if TYPE_CHECKING:
    from delta_maintenance.engine.spark import SparkEngine


@dataclass(frozen=True, slots=True)
class Engines:
    """Chooses and makes the engines of one job.

    :param storage_options: of the table; never part of a spec, a report or a log.
    :param spark_master: where ``engine="auto"`` may send heavy work; ``None``: not known here.
    :param can_use_spark: this process is a Spark driver, or can become one.
    """

    spec: JobSpec
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark_master: str | None = None
    can_use_spark: bool = False

    def choose(self, planned_bytes: int) -> EngineChoice:
        """Choose the engine for a rewrite of so many bytes."""
        return choose_engine(
            self.spec, planned_bytes, spark_master=self.spark_master, can_use_spark=self.can_use_spark
        )

    def choose_lister(self, count_files: Callable[[], int]) -> EngineChoice:
        """Choose the engine for a listing.

        :param count_files: counts the files that the log knows; called only where the number matters.
        """
        return choose_lister(
            self.spec, count_files, spark_master=self.spark_master, can_use_spark=self.can_use_spark
        )

    def make(self, name: str) -> Engine:
        """
        :param name: of an :class:`~delta_maintenance.engine.choice.EngineChoice`.
        :raises InvalidRequest: it is Spark, and PySpark is not installed.
        """
        if name != "local":
            return self.spark()
        # Imported here: a job with nothing to do needs neither this engine nor Parquet.
        from delta_maintenance.engine.local import LocalEngine

        return LocalEngine(
            self.storage_options,
            memory_limit_bytes=self.spec.memory_limit_bytes,
            parallelism=self.spec.parallelism,
        )

    def spark(self) -> SparkEngine:
        """
        :raises InvalidRequest: PySpark is not installed.
        """
        if importlib.util.find_spec("pyspark") is None:
            raise InvalidRequest(
                "The Spark engine needs PySpark, which is not installed here. Install "
                "airflow-provider-delta[spark], or use the local engine."
            )
        # Imported here, since most jobs do not need PySpark.
        from delta_maintenance.engine.spark import SparkEngine
        from delta_maintenance.engine.spark_session import spark_session

        name = f"delta-maintenance {self.spec.operation} {self.spec.run_id}"
        return SparkEngine(
            lambda: spark_session(self.spark_master, name),
            self.storage_options,
            parallelism=self.spec.parallelism,
        )
