"""Opening the snapshot benchmark's tables with Delta Lake's own implementation, in a session that is long running.

Starting Spark is not counted, and one open of each table before the measured ones is not either, so its code is
compiled. Every measured open begins with Delta's caches cleared: the log is listed and replayed, and path, partition
values, size, deletion vector and the text of the statistics of every live file are collected in the JVM.

``python snapshot_spark.py TABLE…`` prints a line of JSON for each table, or one with ``missing`` where there is no Java or
Maven.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
from pyspark.sql import DataFrame
from tests.support.environment.delta_spark import delta_spark_jars, start_delta_spark

_ROUNDS = 3
#: A million files are collected.
_HEAP = "6g"


def main(tables: list[str]) -> None:
    try:
        jars = delta_spark_jars()
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {_HEAP} pyspark-shell"
        with tempfile.TemporaryDirectory() as scratch:
            spark = start_delta_spark(jars, Path(scratch))
            try:
                for table in tables:
                    print(json.dumps(_measured(spark, table)), flush=True)
            finally:
                spark.stop()
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:
        print(json.dumps({"missing": missing.msg}))


def _measured(spark: Any, table: str) -> dict[str, Any]:
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    files = _open(spark, table)
    walls, cpus = [], []
    for _ in range(_ROUNDS):
        cpu, started = _cpu_seconds(pid), time.perf_counter()
        assert _open(spark, table) == files
        walls.append(time.perf_counter() - started)
        cpus.append(_cpu_seconds(pid) - cpu)
    return {
        "files": files,
        "wall": statistics.median(walls),
        "spread": f"{min(walls):.3f}-{max(walls):.3f}",
        "cpu": statistics.median(cpus),
        "peak_mb": _peak_mb(pid),
    }


def _open(spark: Any, table: str) -> int:
    delta_log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    delta_log.clearCache()
    spark.catalog.clearCache()
    snapshot = delta_log.forTable(spark._jsparkSession, table).unsafeVolatileSnapshot()
    columns = ["path", "partitionValues", "size", "deletionVector", "stats"]
    files = DataFrame(snapshot.allFiles().toDF(), spark).select(*columns)
    return int(files._jdf.collectAsList().size())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    """The JVM's in all: its heap grows as far as it may."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/{pid}/status has no VmHWM")


if __name__ == "__main__":
    main(sys.argv[1:])
