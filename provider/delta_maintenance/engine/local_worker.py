"""A worker process of the local engine. It reads tasks from standard input and answers on standard output, line by line.

The engine starts it as ``python -m delta_maintenance.engine.local_worker`` and never forks it: fsspec's event loops and Arrow's
threads do not survive a fork. The first line holds the storage options and the run's key, so that neither stands in argv or in
the environment. When its input ends, or the engine's process dies, the worker abandons its bins and ends.

Lines in: ``{"storage_options": {…}, "run_key": "…", "threads": 4, "row_bytes": 1024}`` once, then tasks, as many at a time as
:func:`~delta_maintenance.engine.concurrent_bins.has_capacity` allows. Lines out: ``{"bin": id}`` with ``"read": bytes``, ``"manifest": {…}``
or ``"error": {…}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, BinaryIO

_SECONDS_TO_UNWIND = 10


def main() -> None:
    # Text that a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, _unwind)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(lines,), daemon=True).start()
    _work(lines, answers)


def _receive(lines: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    # The engine is gone. The signal unwinds the bin, which removes its unfinished file.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_SECONDS_TO_UNWIND)
    os._exit(1)


def _unwind(_signal: int, _frame: object) -> None:
    sys.exit(0)


def _work(lines: queue.SimpleQueue[bytes], answers: BinaryIO) -> None:
    from delta_maintenance.fast_start import start_fast

    start_fast()

    import pyarrow as pa

    from delta_log.storage.opening import open_storage
    from delta_maintenance.engine.concurrent_bins import ConcurrentBins
    from delta_maintenance.errors import error_report
    from delta_maintenance.rewrite.manifest.manifest_file import RunKey
    from delta_maintenance.rewrite.task import RewriteTask

    one_at_a_time = threading.Lock()

    def answer(bin_id: str, facts: dict[str, Any]) -> None:
        if "manifest" in facts:
            facts = {"manifest": facts["manifest"].to_dict()}
        line = json.dumps({"bin": bin_id, **facts}).encode() + b"\n"
        with one_at_a_time:
            answers.write(line)

    setup = json.loads(lines.get())
    pa.set_cpu_count(setup["threads"])
    run_key = RunKey(setup["run_key"])
    slots: ConcurrentBins | None = None
    with contextlib.ExitStack() as work:
        while True:
            task = RewriteTask.from_json(lines.get().decode())
            try:
                storage = open_storage(task.table_uri, setup["storage_options"]) if slots is None else None
            except Exception as error:  # noqa: BLE001 - the engine decides
                answer(task.bin_id, {"error": error_report(error).to_dict()})
                continue
            if storage is not None:
                slots = work.enter_context(
                    ConcurrentBins(storage, run_key, answer, setup["threads"], setup["row_bytes"])
                )
            assert slots is not None
            slots.begin(task)


if __name__ == "__main__":
    main()
