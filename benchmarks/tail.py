"""What it costs to watch 2,000 tables on S3: ``./dev bench tail [TABLES] [INTERVAL_SECONDS] [SECONDS]``.

Three watchers, one after the other, each in a process on one core, with the S3 server on another: ours (one trigger, in
Airflow's own manager of shared streams), a loop that LISTs each log from the version that it knows, and delta-rs's
``DeltaTable.update_incremental()`` and ``version()``. All look at each table once per interval. Meanwhile two commits a
second are put into tables at random. Counted are the server's requests by kind, the seconds from a commit to the moment
when the watcher says so, and the watcher's own CPU.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.s3 import MINIO, S3Server, running_minio

WATCHERS = ("ours", "list", "delta-rs")
COMMITS_PER_SECOND = 2.0
_METRIC = re.compile(r'^minio_s3_requests_total\{api="(\w+)".*\} (\d+)', re.MULTILINE)
SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


def main(arguments: list[str]) -> None:
    tables, interval, seconds = (int(a) for a in [*arguments, *("2000", "30", "60")[len(arguments) :]])
    os.environ["MINIO_PROMETHEUS_AUTH_TYPE"] = "public"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-1:])
    program = MINIO.find(lambda line: print(line, flush=True))
    rows = []
    with tempfile.TemporaryDirectory() as scratch, running_minio(program, Path(scratch)) as server:
        bucket = server.make_bucket()
        _create(server, bucket, tables)
        versions = dict.fromkeys(range(tables), 0)
        for name in WATCHERS:
            rows.append(_measure(name, server, bucket, versions, interval, seconds, cores[0]))
            print(_line(rows[-1]), flush=True)
    (Path(tempfile.gettempdir()) / "tail.json").write_text(json.dumps(rows, indent=1))


def _key(bucket: str, table: int, version: int) -> str:
    return f"{bucket}/table{table:05d}/_delta_log/{version:020d}.json"


def _create(server: S3Server, bucket: str, tables: int) -> None:
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    body = "\n".join(map(json.dumps, actions)).encode()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda table: server.put(_key(bucket, table, 0), body), range(tables)))


def _measure(
    name: str,
    server: S3Server,
    bucket: str,
    versions: dict[int, int],
    interval: int,
    seconds: int,
    core: int,
) -> dict[str, Any]:
    order = {
        "watcher": name,
        "tables": [f"s3://{bucket}/table{table:05d}" for table in versions],
        "interval": interval,
        "options": server.storage_options,
        "delta_rs_options": server.delta_rs_options,
    }
    watcher = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "tail_watchers.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, [core]),  # noqa: PLW1509 - before any thread
    )
    assert watcher.stdin is not None
    assert watcher.stdout is not None
    watcher.stdin.write(json.dumps(order) + "\n")
    watcher.stdin.flush()
    ready = json.loads(watcher.stdout.readline())
    seen: dict[tuple[int, int], float] = {}

    def listen() -> None:
        assert watcher.stdout is not None
        for line in watcher.stdout:
            said = json.loads(line)
            if "version" in said:
                seen[int(said["table"][-5:]), said["version"]] = said["at"]
            else:
                ready["end"] = said

    listener = threading.Thread(target=listen)
    listener.start()
    requests = _requests(server)
    committed = _commit(server, bucket, versions, seconds)
    time.sleep(interval + 5)
    watched = seconds + interval + 5
    requests = _requests(server) - requests
    watcher.stdin.write("stop\n")
    watcher.stdin.close()
    listener.join()
    watcher.wait()
    # A version may be told together with a later one of the same table.
    latencies = []
    for (table, version), at in committed.items():
        told = [moment for (of, upto), moment in seen.items() if of == table and upto >= version]
        if told:
            latencies.append(min(told) - at)
    latencies.sort()
    return {
        "watcher": name,
        "commits": len(committed),
        "missed": len(committed) - len(latencies),
        "median": statistics.median(latencies) if latencies else None,
        "p99": latencies[int(len(latencies) * 0.99)] if latencies else None,
        "cpu_share": (ready["end"]["cpu"] - ready["cpu"]) / watched,
        "start_cpu": ready["cpu"],
        "peak_mb": ready["end"]["peak_mb"],
        "requests": dict(requests),
        "polls": len(versions) * watched / interval,
    }


def _commit(
    server: S3Server, bucket: str, versions: dict[int, int], seconds: int
) -> dict[tuple[int, int], float]:
    """Puts commits; when each was there."""
    committed: dict[tuple[int, int], float] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        table = random.choice(list(versions))  # noqa: S311
        versions[table] += 1
        add = {"path": f"{versions[table]}.parquet", "size": 1, "modificationTime": 1, "dataChange": True}
        actions = [
            {"commitInfo": {"timestamp": 1, "operation": "WRITE"}},
            {"add": {**add, "partitionValues": {}, "stats": '{"numRecords":1}'}},
        ]
        body = "\n".join(map(json.dumps, actions)).encode()
        server.put(_key(bucket, table, versions[table]), body)
        committed[table, versions[table]] = time.time()
        time.sleep(random.expovariate(COMMITS_PER_SECOND))
    return committed


def _requests(server: S3Server) -> Counter[str]:
    """The server's own count, by kind, without what the committer does."""
    with urllib.request.urlopen(f"{server.endpoint}/minio/v2/metrics/cluster") as answer:  # noqa: S310
        found = Counter({name: int(count) for name, count in _METRIC.findall(answer.read().decode())})
    found.pop("putobject", None)
    return found


def _line(row: dict[str, Any]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(row["requests"].items()) if count)
    per_poll = sum(row["requests"].values()) / row["polls"]
    return (
        f"{row['watcher']:9} {per_poll:.2f} requests per poll ({kinds}); latency median {row['median']:.1f} s, "
        f"p99 {row['p99']:.1f} s; {row['cpu_share']:.0%} of a core, {row['start_cpu']:.1f} s CPU to start, "
        f"{row['peak_mb']:.0f} MB; {row['missed']} of {row['commits']} missed"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
