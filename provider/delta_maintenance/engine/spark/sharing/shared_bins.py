"""Large bins with a layout: several processes share the work of a bin, and an engine moves the rows between them.

The driver makes the rule of the division of what the first step has found, and publishes the manifest in the end, as a worker does that
rewrites a bin alone. :mod:`delta_maintenance.engine.spark.sharing.shared_bin` has the steps, and :mod:`delta_maintenance.engine.spark.sharing.sharing_task` the
tasks that do them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_log.errors import DeltaLogError
from delta_log.storage.storage import Storage
from delta_maintenance.contract import ErrorReport
from delta_maintenance.engine.engine import BinResult, is_too_late
from delta_maintenance.engine.spark.executors import Background
from delta_maintenance.engine.spark.sharing.shared_bin import (
    Share,
    ShareFacts,
    WrittenFile,
    assembled,
    remove_written,
    rule_of,
    shares_of,
)
from delta_maintenance.engine.spark.sharing.sharing_task import SharedPlan, unpacked_sample
from delta_maintenance.errors import TaskFailed
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import publish, read_manifest
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import BinManifest, RewriteTask
from delta_maintenance.units import counted, format_bytes

#: The smallest bin that is worth two steps and a shuffle.
LEAST_BYTES = 256 << 20
#: Bytes of sources that one process takes at a time.
SHARE_BYTES = 64 << 20
#: Bins that are shared at a time. One that ends leaves processors idle until the next one has its rule.
BINS_AT_ONCE = 4
_POLL_SECONDS = 0.2


class Shuffle(Protocol):
    """Runs the steps of a bin on several processes, and moves rows between them.

    Rows have the form that :mod:`delta_maintenance.engine.spark.sharing.sharing_task` gives them, in any order.
    """

    def examine(self, shares: Sequence[Share]) -> Iterable[Mapping[str, Any]]:
        """Run ``examine_shares`` on all shares."""
        ...

    def rewrite(self, shares: Sequence[Share], plan: SharedPlan) -> Iterable[Mapping[str, Any]]:
        """Run ``divide_shares`` on all shares, and ``write_files`` on the rows of each file together."""
        ...


def is_shared(task: RewriteTask, total_bytes: int, processors: int) -> bool:
    """Tell whether several processes share a bin: alone, one would work on it when all others have long been done.

    :param total_bytes: size of all bins.
    :param processors: number of processors of the cluster.
    """
    if task.layout is None or task.num_outputs < 2 or task.bytes_in < LEAST_BYTES:
        return False
    return task.bytes_in * processors >= 2 * total_bytes


class SharedBins:
    """Rewrites bins, several processes each.

    :param storage: storage of the driver.
    :param at_once: the most bins at a time.
    :ivar running: the bins that are at work.
    """

    def __init__(
        self, shuffle: Shuffle, storage: Storage, progress: ProgressReporter, at_once: int = BINS_AT_ONCE
    ) -> None:
        self._shuffle, self._storage, self._progress, self._at_once = shuffle, storage, progress, at_once
        self.running: list[Background[BinResult | None]] = []

    def run(
        self, tasks: Sequence[RewriteTask], run_key: RunKey, look: Callable[[], None]
    ) -> Generator[BinResult, None, None]:
        """Yield the result of each bin.

        :param look: function that is called now and then; an error that it raises ends the work.
        """
        waiting, running = deque(tasks), self.running
        while waiting or running:
            while waiting and len(running) < self._at_once:
                running.append(Background(partial(self._rewritten, waiting.popleft(), run_key)))
            look()
            for done in [bin_ for bin_ in running if bin_.wait(_POLL_SECONDS / len(running))]:
                running.remove(done)
                result = done.result()
                if result is not None:
                    yield result

    def _rewritten(self, task: RewriteTask, run_key: RunKey) -> BinResult | None:
        """
        :return: ``None``: the task's time is over.
        """
        if is_too_late(task):
            return None
        started = time.monotonic()
        finished = read_manifest(self._storage, run_key, task.run_id, task.bin_id)
        if finished is not None and finished.differs_from(task) is None:
            return finished
        try:
            manifest = self._shared(task)
        except _BinFailed as error:
            return TaskFailed(task.bin_id, error.report)
        elapsed_ms = int((time.monotonic() - started) * 1000)
        return publish(replace(manifest, elapsed_ms=elapsed_ms), self._storage, run_key)

    def _shared(self, task: RewriteTask) -> BinManifest:
        """
        :raises _BinFailed: a repetition cannot help.
        """
        shares = shares_of(task, SHARE_BYTES)
        self._progress.message(
            f"bin {task.bin_id}, {format_bytes(task.bytes_in)}: {counted(len(shares), 'task')} read it, and "
            f"{counted(task.num_outputs, 'task')} write the new files"
        )
        facts, samples = [], []
        for row in self._shuffle.examine(shares):
            if row["error"] is not None:
                raise _BinFailed(ErrorReport.from_dict(json.loads(row["error"])))
            facts.append(ShareFacts.from_dict(json.loads(row["facts"])))
            samples.append(unpacked_sample(bytes(row["sample"]), row["every"]))
        order = sorted(range(len(facts)), key=lambda place: facts[place].number)
        facts, samples = [facts[place] for place in order], [samples[place] for place in order]
        plan = SharedPlan(
            replace(task, sources=()),
            rule_of(task, facts, samples),
            (0, *accumulate(share.live_rows for share in facts)),
            sum(sum(share.source_rows) for share in facts),
            facts[0].bloom_filters,
        )
        return self._assembled(task, shares, facts, self._shuffle.rewrite(shares, plan))

    def _assembled(
        self,
        task: RewriteTask,
        shares: Sequence[Share],
        facts: Sequence[ShareFacts],
        rows: Iterable[Mapping[str, Any]],
    ) -> BinManifest:
        read, written, failed = RowHash(), list[WrittenFile](), list[_BinFailed]()
        for row in rows:
            if row["error"] is not None:
                failed.append(_BinFailed(ErrorReport.from_dict(json.loads(row["error"]))))
            elif row["read"] is not None:
                read = read.plus(RowHash(**json.loads(row["read"])))
            else:
                written.append(WrittenFile.from_dict(json.loads(row["written"])))
        try:
            if failed:
                raise failed[0]
            there = {file.number for file in written}
            # No row went to these.
            empty = [
                WrittenFile(number, None, 0) for number in range(task.num_outputs) if number not in there
            ]
            return assembled(task, shares, facts, read, [*written, *empty], self._storage, uuid.uuid4().hex)
        except BaseException:
            with suppress(DeltaLogError):  # the error tells more
                remove_written(task, written, self._storage)
            raise


class _BinFailed(Exception):
    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report.message)
        self.report = report
