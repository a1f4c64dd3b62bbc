"""A listing of a table's tree by Spark's executors, in parts.

1. Each part is a row of a DataFrame; ``mapInArrow`` lists it and looks up its files among the protected keys.
2. The protected keys travel as one file, which Spark sends to each machine once and all tasks there share. In the rows, the
   size of one Spark message would limit them.
3. The result is Arrow, and small where most files are protected.
4. Storage options and errors are sent in the same way as in a rewrite (:mod:`delta_maintenance.engine.spark.spark_engine`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_log.errors import DeltaLogError
from delta_maintenance.contract import ErrorReport
from delta_maintenance.engine.spark.executors import with_executors
from delta_maintenance.engine.spark.rewriting_task import Secrets, task_error
from delta_maintenance.engine.spark.session import processors_of, sent_files, sent_secrets
from delta_maintenance.errors import TaskFailed
from delta_maintenance.listing.part import FOUND_SCHEMA, ListingPart
from delta_maintenance.progress import ProgressReporter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_INPUT = "part int, listing string"
_OUTPUT = (
    "key string, size bigint, modification_time_ms bigint, facts string, seen_from bigint, seen binary, "
    "error string"
)
#: A cluster that grows on demand may begin with few processors.
_LEAST_TASKS = 32


class SparkListing:
    """A :data:`~delta_maintenance.listing.distributed.RunParts` on a Spark session.

    :param tasks: the most parts at a time; ``None``: as many as the cluster has processors.
    :param nonce: text that marks the errors of tasks within Spark's errors.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage_options: Mapping[str, Any],
        tasks: int | None,
        nonce: str,
        progress: ProgressReporter,
    ) -> None:
        self._spark, self._storage_options, self._tasks = spark, dict(storage_options), tasks
        self._nonce, self._progress = nonce, progress
        self._sent: Path | None = None

    @property
    def parallelism(self) -> int:
        if self._tasks is not None:
            return self._tasks
        return max(_LEAST_TASKS, processors_of(self._spark))

    def run(self, parts: Sequence[ListingPart], keys: Path) -> Iterator[pa.RecordBatch]:
        """List some parts.

        :raises TaskFailed: a part could not be listed.
        :raises SparkUnavailable: the executors, or the driver, are gone.
        """
        if not parts:
            return
        spark = self._spark
        self._send(keys)
        rows = [(part.number, part.to_json()) for part in parts]
        frame = spark.createDataFrame(rows, _INPUT)
        partitions = len(rows) if self._tasks is None else min(len(rows), max(1, self._tasks))
        frame = frame.repartitionById(partitions, frame["part"] % partitions)
        secrets = sent_secrets(spark, {"storage_options": self._storage_options})
        frame = frame.mapInArrow(_listing(secrets, keys.name, self._nonce), _OUTPUT)
        try:
            found = with_executors(spark, self._progress, frame.toArrow)
        except DeltaLogError:
            raise
        except Exception as error:
            raise task_error(error, self._nonce) from error
        errors = found.column("error").drop_null()
        if len(errors):
            report = ErrorReport.from_dict(json.loads(errors[0].as_py()))
            raise TaskFailed(report.facts["bin_id"], report)
        yield from found.drop_columns("error").cast(FOUND_SCHEMA).to_batches()

    def _send(self, keys: Path) -> None:
        sent = sent_files() / keys.name
        if self._sent == sent:
            return
        shutil.copyfile(keys, sent)
        self._spark.addArtifacts(str(sent), file=True)
        if self._sent is not None:  # Spark cannot delete a sent file, but it can shrink
            os.truncate(self._sent, 0)
        self._sent = sent


def _listing(
    secrets: Secrets, keys: str, nonce: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Spark pickles a nested function by value. Its imports are found on the executor, in the bundle or installed.
    def list_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles

        from delta_maintenance.process.fast_start import prepare_spark_worker

        prepare_spark_worker()  # before what converts values when it is imported

        from delta_maintenance.engine.spark.listing_task import list_batch
        from delta_maintenance.engine.spark.rewriting_task import received

        storage_options = received(secrets, SparkFiles.get)["storage_options"]
        for batch in batches:
            yield from list_batch(batch, SparkFiles.get(keys), storage_options, nonce)

    return list_parts
