"""OPTIMIZE on an object store: ours against delta-rs. ``./dev bench optimize_s3`` prints the ratios.

A local S3 server whose every answer takes 0, 20 or 60 ms more; two tables, each contender on a copy of its own:

a. 200 files of 1.1 MB, 32 columns of mixed types, into files of 64 MiB;
b. 300 files of 30 kB in 100 partitions, into one file for each.

Clients are imported before the clock starts, connections and worker processes are not. Rows are compared afterwards.

2026-11-28, 2 cores, deltalake 1.6.6; three rounds, two at 60 ms:

======================  =========  =========  ======
case                    ours       delta-rs   ratio
======================  =========  =========  ======
a, 0 ms                 2.5 s      2.8 s      1.1
a, 20 ms                3.0 s      6.1 s      2.0
a, 60 ms                4.7 s      14.7 s     3.1
b, 0 ms                 0.83 s     0.89 s     1.1
b, 20 ms                1.6 s      12.2 s     7.5
b, 60 ms                3.9 s      33.3 s     8.6
======================  =========  =========  ======

The release before, with s3fs beside obstore, on the same day: a 2.6 and 3.2 s, b 1.00 s (0, 20 and 0 ms).

Without latency, processor time counts: 2.9 s against 3.2 s in a. and 0.74 s against 0.46 s in b. With latency, requests count that wait
for each other: ours makes one for a small file where delta-rs makes three, has eight files of a bin on their way, and eight small bins
beside each other; four where the store is near, since more would wait for Python's lock.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import optimize_tables
import pyarrow as pa
import side_by_side
import vacuum_latency
from side_by_side import Contender

from delta_log import Table
from delta_log.arrow.row_hash import RowHash
from delta_log.storage.opening import open_storage

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.s3 import MINIO, running_minio

CONTENDERS = (
    Contender("ours", "optimize_contenders:our_far"),
    Contender("delta-rs", "optimize_contenders:delta_rs_far", peer=True),
)
_TARGET_BYTES = 64 << 20
_PARTITIONS, _APPENDS = 100, 3


def main(arguments: list[str] | None = None) -> None:
    compare(
        lambda home: running_minio(MINIO.find(lambda line: print(line, flush=True)), home),
        lambda server: f"s3://{server.make_bucket()}",
        arguments,
    )


def compare(
    running: Callable[[Path], AbstractContextManager[Any]],
    make_place: Callable[[Any], str],
    arguments: list[str] | None,
) -> None:
    """Measure all cases on one server.

    :param running: function that runs the server of a store, which keeps its data in a directory.
    :param make_place: function that makes a bucket or container of a server, and returns its address.
    """
    parser = argparse.ArgumentParser(description="OPTIMIZE on an object store, side by side")
    parser.add_argument("directory", nargs="?", type=Path, help="where the tables are")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[0, 20, 60])
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    tables = {
        "a 200 files": optimize_tables.mixed(root / "mixed-200", 200),
        "b 100 partitions": _in_partitions(root / "partitions-100"),
    }
    home = root / "optimize-store"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    try:
        with running(home) as server:
            for name, table in tables.items():
                for latency_ms in given.latency_ms:
                    title = f"{name}, {latency_ms:g} ms"
                    _measure(title, table, server, make_place(server), latency_ms, given.rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _in_partitions(table: Path) -> Path:
    if table.exists():
        return table
    draft = table.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    count = 1_000 * _PARTITIONS
    for number in range(_APPENDS):
        random = np.random.default_rng(number)
        rows = pa.table(
            {
                "part": pa.array(np.arange(count) % _PARTITIONS, pa.int32()),
                "price": random.random(count),
                "account": random.integers(0, 2**60, count),
                "text": [f"text {n}" for n in range(count)],
            }
        )
        deltalake.write_deltalake(str(draft), rows, partition_by=["part"], mode="append")
    draft.rename(table)
    return table


def _measure(name: str, table: Path, server: Any, place: str, latency_ms: float, rounds: int) -> None:
    walls: dict[str, list[float]] = {contender.name: [] for contender in CONTENDERS}
    told = {}
    for number in range(rounds):
        found = []
        for contender in CONTENDERS:
            uri = f"{place}/{contender.name}-{number}"
            storage = open_storage(uri, server.storage_options)
            for path in filter(Path.is_file, table.rglob("*")):
                storage.put(path.relative_to(table).as_posix(), path.read_bytes())
            with vacuum_latency.at_a_distance(server.endpoint, latency_ms) as far:
                near = dataclasses.replace(server, endpoint=far.endpoint)
                options = {"ours": near.storage_options, "delta-rs": near.delta_rs_options}[contender.name]
                measured = side_by_side._measure(contender, (uri, options, _TARGET_BYTES))
                counts = ", ".join(f"{n} {kind}" for kind, n in sorted(far.requests.items()))
            walls[contender.name].append(measured["wall"])
            told[contender.name] = f"{measured['cpu']:6.2f} s cpu {measured['peak_mb']:5.0f} MB  {counts}"
            found.append(_checksum(uri, server.storage_options))
            storage.delete([key for page in storage.list_tree(list) for key in page.names()])
        if found[0] != found[1]:
            raise SystemExit(f"{name}: the rows differ: {found}")
    medians = {who: statistics.median(times) for who, times in walls.items()}
    for contender in CONTENDERS:
        who = contender.name
        print(
            f"{name:<24} {who:<9} {medians[who]:7.2f} s ({min(walls[who]):.2f}-{max(walls[who]):.2f}) {told[who]}"
        )
    print(f"{name:<24} {medians['delta-rs'] / medians['ours']:.2f}x, rows equal", flush=True)


def _checksum(uri: str, options: dict[str, Any]) -> tuple[int, int, RowHash]:
    """Files, and all columns of all rows."""
    snapshot, rows = Table(uri, options).snapshot(), RowHash()
    for batch in snapshot.scan():
        rows = rows.plus(RowHash.of(batch))
    return snapshot.num_files, rows.rows, rows


if __name__ == "__main__":
    main()
