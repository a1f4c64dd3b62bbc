"""An engine that shares every bin with a layout between the steps that Spark runs, in this process: the rows between the steps come in
another order, and some steps are repeated, as a cluster may do it.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from delta_log.storage.opening import open_storage
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.spark import spark_engine
from delta_maintenance.engine.spark.sharing import shared_bin, shared_bins
from delta_maintenance.engine.spark.sharing.shared_bin import Share
from delta_maintenance.engine.spark.sharing.shared_bins import SharedBins
from delta_maintenance.engine.spark.sharing.sharing_task import (
    SharedPlan,
    divide_shares,
    examine_shares,
    write_files,
)
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask


def share_every_bin(patch: pytest.MonkeyPatch) -> None:
    """Makes the Spark engine share bins of any size, also in an embedded session."""
    patch.setattr(shared_bins, "LEAST_BYTES", 1)
    patch.setattr(shared_bins, "SHARE_BYTES", 2000)
    patch.setattr(spark_engine, "own_processors", lambda session: None)


class ShuffleHere:
    """A :class:`~delta_maintenance.engine.spark.sharing.shared_bins.Shuffle` without a cluster.

    :param partitions: that the files are divided between; ``None``: each has one.
    """

    def __init__(self, partitions: int | None = None) -> None:
        self._partitions, self._chance = partitions, random.Random(5)

    def examine(self, shares: Sequence[Share]) -> list[dict[str, Any]]:
        found = self._of_each(shares, lambda batch: examine_shares([batch], {}, len(shares), "nonce"))
        return self._shuffled(row for rows in found for row in rows.to_pylist())

    def rewrite(self, shares: Sequence[Share], plan: SharedPlan) -> list[dict[str, Any]]:
        plan = SharedPlan.from_text(plan.to_text())
        found = self._of_each(shares, lambda batch: divide_shares([batch], {}, plan, "nonce"))
        count = self._partitions or plan.rule.num_files
        partitions: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for row in self._shuffled(found):
            partitions[row["file"][0].as_py() % count].append(row)
        written = (write_files(rows, {}, plan, "nonce") for rows in partitions.values())
        return self._shuffled(row for rows in written for batch in rows for row in batch.to_pylist())

    def _of_each(
        self, shares: Sequence[Share], step: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
    ) -> list[pa.RecordBatch]:
        """The rows of each share, the first of which is done twice: the first result is lost with its machine."""
        batches = [
            pa.record_batch({"share": [share.number], "text": [json.dumps(share.to_dict())]})
            for share in shares
        ]
        lost = list(step(batches[0]))
        again = list(step(batches[0]))
        assert [row.to_pylist() for row in lost] == [row.to_pylist() for row in again]
        return [*again, *(row for batch in batches[1:] for row in step(batch))]

    def _shuffled(self, rows: Iterable[Any]) -> list[Any]:
        found = list(rows)
        self._chance.shuffle(found)
        return found


class SharingEngine:
    """Shares the bins that have a layout.

    :param after: gets the number of bins that are finished.
    """

    name = "spark"

    def __init__(
        self, after: Callable[[int], object] = lambda number: None, partitions: int | None = None
    ) -> None:
        self._after, self._partitions = after, partitions

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        assert all(task.layout is not None for task in tasks)
        for number, task in enumerate(tasks, 1):
            bins = SharedBins(ShuffleHere(self._partitions), open_storage(task.table_uri), progress)
            # So small that even a small bin has several shares, and a share several chunks.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(shared_bins, "SHARE_BYTES", 4000)
                patch.setattr(shared_bin, "CHUNK_BYTES", 500)
                yield from bins.run([task], run_key, lambda: None)
            self._after(number)
