"""One watcher of the tail benchmark, as a process: reads its order from a line, says that it has looked at everything
once, then says of each version when it saw it, until it is told to stop."""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

THREADS = 16
_stopped = threading.Event()


def tell(table: str, version: int) -> None:
    print(json.dumps({"table": table, "version": version, "at": time.time()}), flush=True)


def usage() -> dict[str, float]:
    now = resource.getrusage(resource.RUSAGE_SELF)
    status = Path("/proc/self/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {"cpu": now.ru_utime + now.ru_stime, "peak_mb": peak_kb / 1024}


def ours(order: dict[str, Any]) -> None:
    os.environ["AIRFLOW_CONN_LAKE"] = json.dumps({"conn_type": "delta", "extra": order["options"]})
    from tests.support.runs.triggerer import Triggerer

    from airflow_delta.testing import FakeAssetStateStore
    from airflow_delta.triggers import DeltaTableVersionTrigger
    from airflow_delta.triggers.table_stream import streams

    async def watch() -> None:
        trigger = DeltaTableVersionTrigger(order["tables"], "lake", order["interval"])
        async with Triggerer(trigger, FakeAssetStateStore()) as triggerer:
            while len(trigger._remembered) < len(order["tables"]):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.2)
            print(json.dumps(usage()), flush=True)
            told = 0
            while not _stopped.is_set():
                await asyncio.sleep(0.02)
                for event in triggerer.events[told:]:
                    tell(event["table"], event["lastVersion"])
                told = len(triggerer.events)
        assert streams == {}

    asyncio.run(watch())


def on_schedule(order: dict[str, Any], look: Callable[[int], int]) -> None:
    """Look at each table once per interval, in threads; what a look gives is the version."""
    with ThreadPoolExecutor(THREADS) as pool:
        known = list(pool.map(look, range(len(order["tables"]))))
        print(json.dumps(usage()), flush=True)
        start = time.monotonic()
        due = [(start + order["interval"] * number / len(known), number) for number in range(len(known))]
        heapq.heapify(due)

        def again(number: int) -> None:
            version = look(number)
            if version > known[number]:
                known[number] = version
                tell(order["tables"][number], version)

        while not _stopped.is_set():
            moment, number = due[0]
            wait = moment - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, 0.1))
                continue
            heapq.heapreplace(due, (moment + order["interval"], number))
            pool.submit(again, number)


def by_listing(order: dict[str, Any]) -> None:
    from delta_log.log.log_segment import list_log
    from delta_log.storage.opening import StoragePool

    pool = StoragePool(order["options"])
    storages = [pool.open(table) for table in order["tables"]]
    known = [0] * len(storages)

    def look(number: int) -> int:
        known[number] = list_log(storages[number], known[number]).latest
        return known[number]

    on_schedule(order, look)


def by_delta_rs(order: dict[str, Any]) -> None:
    from deltalake import DeltaTable

    tables: list[DeltaTable | None] = [None] * len(order["tables"])

    def look(number: int) -> int:
        table = tables[number]
        if table is None:
            table = tables[number] = DeltaTable(
                order["tables"][number], storage_options=order["delta_rs_options"]
            )
        else:
            table.update_incremental()
        return table.version()

    on_schedule(order, look)


def main() -> None:
    order = json.loads(sys.stdin.readline())

    def wait_for_the_end() -> None:
        sys.stdin.readline()
        _stopped.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    {"ours": ours, "list": by_listing, "delta-rs": by_delta_rs}[order["watcher"]](order)
    print(json.dumps(usage()), flush=True)


if __name__ == "__main__":
    main()
