"""Commits per second: ours against delta-rs. ``./dev bench commit`` makes the tables and prints the ratios.

A table of 10,000 versions with a checkpoint near its end, on this machine's disk and on a local S3 server; one writer, and
four processes at once. Each commit adds one file (an append without data), each writer goes on from what it knows of the
table, and both write a checkpoint every 100 commits. Ours also writes a checksum file with every commit and syncs each
file and its directory to the disk, which the peer does not.

Then the requests of one quiet commit of ours on S3 are counted.

2026-11-21, 2 cores and nothing else on them, deltalake 1.6.6, medians of five; memory is our share of the peer's:

=====  =======  ======  ==========  ====  ======
store  writers  ours s  delta-rs s  time  memory
=====  =======  ======  ==========  ====  ======
local        1    0.44        3.73   8.5     1.9
local        4    0.94        4.57   4.9     1.4
S3           1    1.09        8.20   7.5     2.3
S3           4    1.48        7.62   5.2     1.8
=====  =======  ======  ==========  ====  ======

A quiet commit on S3: one LIST and two conditional PUTs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import commit_tables
import side_by_side
from side_by_side import Case, Contender

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.s3 import MINIO, S3Server, running_minio

CONTENDERS = (
    Contender("ours", "commit_contenders:ours"),
    Contender("delta-rs", "commit_contenders:delta_rs", peer=True),
)
ONE, FOUR = 25, 8


def main(arguments: list[str]) -> None:
    root = Path(arguments[0]) if arguments else Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    local = {
        contender.name: {"uri": commit_tables.local(root, contender.name), "options": {}}
        for contender in CONTENDERS
    }
    program = MINIO.find(lambda line: print(line, flush=True))
    with tempfile.TemporaryDirectory(dir=root) as scratch, running_minio(program, Path(scratch)) as server:
        remote = _remote(root, server)
        rows = side_by_side.run_cases(
            [
                Case(f"local, 1 writer, {ONE} commits", CONTENDERS, (local, 1, ONE)),
                Case(f"local, 4 writers, {FOUR} commits each", CONTENDERS, (local, 4, FOUR)),
                Case(f"S3, 1 writer, {ONE} commits", CONTENDERS, (remote, 1, ONE)),
                Case(f"S3, 4 writers, {FOUR} commits each", CONTENDERS, (remote, 4, FOUR)),
            ]
        )
        print(f"requests of a quiet commit of ours on S3: {_requests(remote['ours'])}")
    (root / "commit.json").write_text(json.dumps(rows, indent=1))


def _remote(root: Path, server: S3Server) -> dict[str, Any]:
    bucket = server.make_bucket()
    uris = {
        contender.name: commit_tables.on_s3(root, contender.name, bucket, server) for contender in CONTENDERS
    }
    return {
        "ours": {"uri": uris["ours"], "options": server.storage_options},
        "delta-rs": {"uri": uris["delta-rs"], "options": server.delta_rs_options},
    }


def _requests(table: dict[str, Any]) -> str:
    """Counted at the client of the store, one call for each request."""
    from delta_log import Table
    from delta_log.log.actions import Add
    from delta_log.runtime import Runtime
    from delta_log.table_config.features import Operation
    from delta_log.testing import FaultyStorage
    from delta_log.transaction.commit_body import Change, FileGroup
    from delta_log.transaction.transaction import Transaction

    opened = Table(table["uri"], table["options"])
    snapshot = opened.snapshot()
    calls: Counter[str] = Counter()
    counted = FaultyStorage(opened.storage, before=lambda name, key: calls.update([name]))
    add = Add("quiet.parquet", 1, 1, dataChange=True, partitionValues={"day": "2024-01-01"})
    Transaction(counted, snapshot, Operation.OPTIMIZE, Runtime()).commit(Change("WRITE", [FileGroup([add])]))
    return ", ".join(f"{n} {name}" for name, n in calls.items())


if __name__ == "__main__":
    main(sys.argv[1:])
