"""Moves the rows of a shared bin by Spark: a :class:`~delta_maintenance.engine.spark.sharing.shared_bins.Shuffle`.

1. A first action reads the layout's columns, a second one everything.
2. A row between the tasks of the second one is ``(file, Arrow batch)``, of bounded size. ``repartitionById`` brings the rows of a file
   to one task. It gives a row the same task whenever it is repeated, in whatever order rows come.
3. Secrets and the rule of the division, which holds values of the table, are sent in the same way as in a rewrite
   (:mod:`delta_maintenance.engine.spark.spark_engine`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from delta_maintenance.engine.spark.rewriting_task import Secrets, task_error
from delta_maintenance.engine.spark.session import sent_secrets
from delta_maintenance.engine.spark.sharing.shared_bin import Share
from delta_maintenance.engine.spark.sharing.sharing_task import SharedPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Rows that Spark hands to a Python process at once. A row between tasks has about a megabyte at most.
_ROWS_AT_ONCE = ("spark.sql.execution.arrow.maxRecordsPerBatch", "64")
_SHARE = "share int, text string"
_EXAMINED = "facts string, every bigint, sample binary, error string"
_DIVIDED = "file int, rows binary, read string, error string"
_WRITTEN = "written string, read string, error string"


class SparkShuffle:
    """A shuffle on a Spark session.

    :param storage_options: storage options that executors get.
    :param tasks: the most tasks of a bin at a time; ``None``: as many as the cluster has processors.
    :param nonce: text that marks the errors of tasks within Spark's errors.
    """

    def __init__(
        self, spark: SparkSession, storage_options: Mapping[str, Any], tasks: int | None, nonce: str
    ) -> None:
        self._spark, self._storage_options = spark, dict(storage_options)
        self._tasks, self._nonce = tasks, nonce

    def examine(self, shares: Sequence[Share]) -> list[Any]:
        secrets = sent_secrets(self._spark, {"storage_options": self._storage_options})
        examining = _examining(secrets, len(shares), self._nonce)
        return self._collected(self._frame(shares).mapInArrow(examining, _EXAMINED))

    def rewrite(self, shares: Sequence[Share], plan: SharedPlan) -> list[Any]:
        secrets = sent_secrets(
            self._spark, {"storage_options": self._storage_options, "plan": plan.to_text()}
        )
        divided = self._frame(shares).mapInArrow(_following(secrets, "divide_shares", self._nonce), _DIVIDED)
        files = self._spread(divided, "file", plan.rule.num_files)
        return self._collected(files.mapInArrow(_following(secrets, "write_files", self._nonce), _WRITTEN))

    def _frame(self, shares: Sequence[Share]) -> DataFrame:
        rows = [(share.number, json.dumps(share.to_dict())) for share in shares]
        return self._spread(self._spark.createDataFrame(rows, _SHARE), "share", len(rows))

    def _spread(self, frame: DataFrame, column: str, count: int) -> DataFrame:
        partitions = count if self._tasks is None else min(count, max(1, self._tasks))
        return frame.repartitionById(partitions, frame[column] % partitions)

    def _collected(self, frame: DataFrame) -> list[Any]:
        try:
            return frame.collect()
        except Exception as error:
            raise task_error(error, self._nonce) from error


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Bound what Spark hands to a Python process at once, as long as the context lasts. The session may belong to a notebook."""
    name, value = _ROWS_AT_ONCE
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(Exception):  # the session may have ended
            if before is not None:
                spark.conf.set(name, before)


# Spark pickles a nested function by value. Its imports are found on the executor, in the bundle or installed.


def _examining(
    secrets: Secrets, num_shares: int, nonce: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def examine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles

        from delta_maintenance.process.fast_start import prepare_spark_worker

        prepare_spark_worker()  # before what converts values when it is imported

        from delta_maintenance.engine.spark.rewriting_task import received
        from delta_maintenance.engine.spark.sharing.sharing_task import examine_shares

        options = received(secrets, SparkFiles.get)["storage_options"]
        yield from examine_shares(batches, options, num_shares, nonce)

    return examine


def _following(
    secrets: Secrets, step: str, nonce: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """
    :param step: the function of :mod:`~delta_maintenance.engine.spark.sharing.sharing_task` that follows the plan.
    """

    def follow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles

        from delta_maintenance.process.fast_start import prepare_spark_worker

        prepare_spark_worker()  # before what converts values when it is imported

        from delta_maintenance.engine.spark.rewriting_task import received
        from delta_maintenance.engine.spark.sharing import sharing_task

        found = received(secrets, SparkFiles.get)
        plan = sharing_task.SharedPlan.from_text(found["plan"])
        yield from getattr(sharing_task, step)(batches, found["storage_options"], plan, nonce)

    return follow
