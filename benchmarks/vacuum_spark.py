"""The vacuum benchmark's table, vacuumed by Delta Lake's own implementation in a session that is long running.

Starting Spark is not counted, and where one run takes seconds, neither is the first, in which its code is compiled. Delta's
caches are cleared before each, and it lists in as few tasks as suit one machine.

``python vacuum_spark.py TABLE`` prints a line of JSON, or one with ``missing`` where there is no Java or Maven.
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
from tests.support.environment.delta_spark import delta_spark_jars, start_delta_spark

_ROUNDS = 3
#: Where one run takes longer, it is the only one.
_PATIENCE_SECONDS = 30


def main(table: str) -> None:
    try:
        jars = delta_spark_jars()
        os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 4g pyspark-shell"
        with tempfile.TemporaryDirectory() as scratch:
            spark = start_delta_spark(jars, Path(scratch))
            # Left alone, it lists in 10,000 tasks, which take minutes on one machine whatever there is to list.
            spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "8")
            try:
                walls = [_vacuumed(spark, table)]
                if walls[0] < _PATIENCE_SECONDS:
                    walls = [_vacuumed(spark, table) for _ in range(_ROUNDS)]
            finally:
                spark.stop()
        print(json.dumps({"wall": statistics.median(walls), "spread": f"{min(walls):.3f}-{max(walls):.3f}"}))
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:
        print(json.dumps({"missing": missing.msg}))


def _vacuumed(spark: Any, table: str) -> float:
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    spark.catalog.clearCache()
    started = time.perf_counter()
    found = spark.sql(f"VACUUM delta.`{table}` DRY RUN").collect()
    assert found
    return time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1])
