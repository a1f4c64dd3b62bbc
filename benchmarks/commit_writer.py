"""One writer of the commit benchmark, as a process: opens the table, says so, waits for a line, commits, reports.

``python commit_writer.py ours|delta-rs URI OPTIONS COMMITS``
"""

from __future__ import annotations

import json
import resource
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTITION: dict[str, str | None] = {"day": "2024-01-01"}
STATS = '{"numRecords":1}'
Commit = Callable[[], None]


def ours(uri: str, options: dict[str, Any]) -> Commit:
    from delta_log import Table
    from delta_log.log.actions import Add
    from delta_log.runtime import Runtime
    from delta_log.table_config.features import Operation
    from delta_log.transaction.commit_body import Change, FileGroup
    from delta_log.transaction.transaction import Transaction

    table = Table(uri, options)
    snapshot = table.snapshot()

    def commit() -> None:
        nonlocal snapshot
        add = Add(f"{uuid.uuid4()}.parquet", 100, 1, dataChange=True, partitionValues=PARTITION, stats=STATS)
        change = Change("WRITE", [FileGroup([add])], parameters={"mode": "Append"})
        result = Transaction(table.storage, snapshot, Operation.OPTIMIZE, Runtime()).commit(change)
        assert result.snapshot is not None
        snapshot = result.snapshot

    return commit


def delta_rs(uri: str, options: dict[str, Any]) -> Commit:
    import deltalake
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction

    table = deltalake.DeltaTable(uri, storage_options=options or None)
    schema = table.schema()

    def commit() -> None:
        add = AddAction(f"{uuid.uuid4()}.parquet", 100, PARTITION, 1, True, STATS)
        while True:
            try:
                table.create_write_transaction([add], "append", schema, partition_by=["day"])
                break
            except CommitFailedError:
                table.update_incremental()
        # Its own commit is not part of what it knows; without this, every next one would check all of them again.
        table.update_incremental()

    return commit


def main(kind: str, uri: str, options: str, commits: str) -> None:
    commit = {"ours": ours, "delta-rs": delta_rs}[kind](uri, json.loads(options))
    before = resource.getrusage(resource.RUSAGE_SELF)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(commits)):
        commit()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu": cpu, "peak_mb": _peak_mb()}), flush=True)


def _peak_mb() -> float:
    """Returns this program's peak; `getrusage` would include the memory of its parent before the start."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
