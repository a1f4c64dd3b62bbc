"""What compactions cost the writers beside them: `./dev campaign writers [--statements 200] [--at-once 8] [--only TEXT …]`.

A cell is a kind of writer, a number of sessions on one table, and the share of time that each is busy. In each cell the same
sessions live beside our compaction (`commit_when` `now` and `gap`) and beside delta-spark's OPTIMIZE, each on tables of their own, until
there are so many statements. Prints how many statements failed because of a compaction, per committed compaction, and what waiting cost. The
exit code is 1 where the rows of a table are not those of the serial history, or a cell is worse than it may be.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.environment.delta_spark import delta_spark_jars, start_delta_spark, stop_spark
from tests.support.mixed_writers.parts import writers_extensions
from tests.support.mixed_writers.scenarios import create_with_deletion_vectors
from tests.support.mixed_writers.sessions import (
    COMPACTIONS,
    FIRST_ROWS,
    IDS_PER_SESSION,
    SCHEMA,
    DeltaRsSession,
    Session,
    SparkSessionOfTable,
    Tally,
    compact,
    live,
    serial_rows,
)
from tests.support.servers.s3 import MINIO, running_minio

from delta_log import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUSY = (0.2, 0.5, 0.9, 1.0)
_COMPACT_EVERY_SECONDS = 10.0
#: Statements that failed per committed compaction: what `gap` may cost one writer, by how busy it is.
_ONE_WRITER_LIMITS = {0.2: 0.05, 0.5: 0.05, 0.9: 0.2, 1.0: 0.4}


@dataclass(frozen=True, slots=True)
class Cell:
    store: str
    writer: str
    sessions: int
    busy: float

    @property
    def tables(self) -> int:
        """How many tables the cell has. Where sessions pause much, one table would take long."""
        return round(1 / self.busy)

    def __str__(self) -> str:
        return f"{self.store}, {self.sessions} {self.writer}, busy {self.busy:.0%}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tables of a store are.

    :param options: for us, and those of delta-rs.
    """

    root: str
    options: Mapping[str, Any]
    delta_rs_options: Mapping[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev campaign writers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--statements", type=int, default=200, help="of each cell, at least (default 200)")
    parser.add_argument("--at-once", type=int, default=8, help="so many tables at a time (default 8)")
    parser.add_argument("--minutes", type=float, default=60, help="the longest time for one table")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="only cells and ways whose name contains one of these texts"
    )
    options = parser.parse_args()
    cells = [Cell(*facts) for facts in product(("local", "s3"), ("delta-spark",), (1, 3), _BUSY)]
    cells += [Cell(*facts) for facts in product(("local", "s3"), ("delta-rs",), (1,), _BUSY)]
    # Those that take longest go first.
    cells.sort(key=lambda cell: (cell.sessions, cell.busy))
    jobs = [
        (cell, how)
        for cell in cells
        for how in COMPACTIONS
        for _ in range(cell.tables)
        if any(text in f"{cell}, {how}" for text in options.only)
    ]
    tallies: dict[tuple[Cell, str], Tally] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = {"local": Place(str(scratch / "tables"), {}, {})}
        settings: dict[str, str] = {}
        if any(cell.store == "s3" for cell, _ in jobs):
            (scratch / "minio").mkdir()
            server = stack.enter_context(running_minio(MINIO.find(print), scratch / "minio"))
            places["s3"] = Place(
                f"s3a://{server.make_bucket()}", server.storage_options, server.delta_rs_options
            )
            settings = dict(server.spark_conf)
        spark = _spark(scratch, settings)
        stack.callback(stop_spark, spark)
        failed = 0
        with ThreadPoolExecutor(options.at_once) as pool:
            running = {
                pool.submit(_lived, cell, how, places[cell.store], spark, number, limits): (cell, how)
                for number, (cell, how) in enumerate(jobs)
                for limits in [(-(-options.statements // cell.tables), 60 * options.minutes)]
            }
            for done in as_completed(running):
                cell, how = running[done]
                try:
                    tally = done.result()
                    tallies.setdefault((cell, how), Tally()).include(tally)
                    print(f"{cell}, {how}: {_line(tally)}", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAILED {cell}, {how}\n{traceback.format_exc()}", flush=True)
    print()
    print("\n".join(_table(tallies)))
    worse = _worse(tallies)
    print("\n".join(worse))
    return 1 if failed or worse else 0


def _spark(scratch: Path, settings: Mapping[str, str]) -> SparkSession:
    extensions, more = writers_extensions(scratch, with_s3=bool(settings))
    confs = {**settings, **more}
    arguments = [part for name, value in confs.items() for part in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    jars = (*delta_spark_jars(), *map(Path, extensions))
    spark = start_delta_spark(jars, scratch / "spark", runs_long=True, threads=64, memory="6g")
    # A statement that fails is what is counted here.
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _lived(
    cell: Cell, how: str, place: Place, spark: SparkSession, seed: int, limits: tuple[int, float]
) -> Tally:
    """Let sessions and compactions live on one table.

    :param limits: statements, and seconds.
    :raises AssertionError: the rows at the end are not those of the serial history.
    """
    uri = f"{place.root}/{uuid.uuid4().hex}"
    table = Table(uri, place.options)
    first = {
        number * IDS_PER_SESSION + row: 0 for number in range(cell.sessions) for row in range(FIRST_ROWS)
    }
    _create(table, first)
    sessions: list[Session] = []
    for number in range(cell.sessions):
        if cell.writer == "delta-spark":
            sessions.append(SparkSessionOfTable(spark, uri, number, 10 * seed + number))
        else:
            sessions.append(DeltaRsSession(uri, place.delta_rs_options, number, 10 * seed + number))

    def compacts(tally: Tally, ends: threading.Event) -> None:
        compact(uri, place.options, how, _COMPACT_EVERY_SECONDS, spark.newSession(), tally, ends)

    began = time.monotonic()
    tally = live(sessions, cell.busy, compacts, *limits)
    expected = serial_rows(table, first)
    found = table.snapshot().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)
    rows = spark.sql(f"SELECT count(*) AS c, sum(id) AS i, sum(n) AS n FROM delta.`{uri}`").collect()[0]
    assert (rows["c"], rows["i"], rows["n"]) == (len(expected), sum(expected), sum(expected.values()))
    assert time.monotonic() - began < limits[1] + 600
    return tally


def _create(table: Table, rows: Mapping[int, int]) -> None:
    """Write version 0 with its rows in four files."""
    ids, adds = sorted(rows), []
    for number in range(4):
        part = ids[number::4]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": part, "n": [0] * len(part)}, SCHEMA), sink)
        body = sink.getvalue().to_pybytes()
        add = {
            "path": f"first-{number}.parquet",
            "partitionValues": {},
            "size": len(body),
            "modificationTime": 1,
        }
        table.storage.put(f"first-{number}.parquet", body)
        adds.append({**add, "dataChange": True, "stats": json.dumps({"numRecords": len(part)})})
    create_with_deletion_vectors(table, SCHEMA, (), adds)


def _rate(tally: Tally) -> float:
    return tally.statements["lost to a compaction"] / max(1, tally.compactions["committed"])


def _line(tally: Tally) -> str:
    busy = tally.busy_seconds / max(0.001, tally.seconds)
    text = (
        f"{tally.num_statements} statements, busy {busy:.0%}: {dict(tally.statements)}; compactions "
        f"{dict(tally.compactions)}; {_rate(tally):.3f} failed per committed compaction"
    )
    if tally.waits:
        waited = [wait["waited_ms"] / 1000 for wait in tally.waits]
        requests = statistics.mean(wait["requests"] for wait in tally.waits)
        decisions = [moment["decision"] for wait in tally.waits for moment in wait["moments"]]
        counts = {name: decisions.count(name) for name in sorted(set(decisions))}
        text += f"; waited {statistics.median(waited):.1f} s, at most {max(waited):.1f} s, {requests:.0f} requests; {counts}"
    return text


def _table(tallies: Mapping[tuple[Cell, str], Tally]) -> list[str]:
    lines = ["| writers | now | gap | delta-spark's OPTIMIZE | waited: median, longest | requests | given up |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for cell in sorted({cell for cell, _ in tallies}, key=str):
        rates = [
            f"{_rate(tallies[cell, how]):.2f} ({tallies[cell, how].compactions['committed']} committed, "
            f"{tallies[cell, how].compactions['lost']} lost)"
            if (cell, how) in tallies
            else ""
            for how in COMPACTIONS
        ]
        waits = tallies[cell, "gap"].waits if (cell, "gap") in tallies else []
        waited = [wait["waited_ms"] / 1000 for wait in waits] or [0.0]
        requests = statistics.median([wait["requests"] for wait in waits] or [0])
        ends = [moment["decision"] for wait in waits for moment in wait["moments"]]
        lines.append(
            f"| {cell} | {' | '.join(rates)} | {statistics.median(waited):.1f} s, {max(waited):.1f} s | {requests:.0f} | "
            f"{ends.count('give_up')} |"
        )
    return lines


def _worse(tallies: Mapping[tuple[Cell, str], Tally]) -> list[str]:
    """Name the cells in which waiting for a gap costs writers more than it may."""
    found = []
    for (cell, how), tally in tallies.items():
        if how != "gap" or cell.writer != "delta-spark":
            continue
        now = tallies.get((cell, "now"))
        limit = _ONE_WRITER_LIMITS[cell.busy] if cell.sessions == 1 else _rate(now) / 2 if now else None
        if limit is not None and _rate(tally) > limit:
            found.append(f"WORSE than {limit:.2f}: {cell}: {_rate(tally):.3f}")
    return found


if __name__ == "__main__":
    sys.exit(main())
