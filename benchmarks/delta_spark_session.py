"""A session of Delta Lake on Spark for benchmarks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.environment.delta_spark import delta_spark_jars, start_delta_spark, stop_spark

_HEAP = "6g"


@contextlib.contextmanager
def delta_session(scratch: Path, target_bytes: int) -> Iterator[Any]:
    """Start a session whose OPTIMIZE makes files of a size; stop it at the end."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {_HEAP} pyspark-shell"
    spark = start_delta_spark(delta_spark_jars(), scratch)
    try:
        for size in ("minFileSize", "maxFileSize"):
            spark.conf.set(f"spark.databricks.delta.optimize.{size}", str(target_bytes))
        yield spark
    finally:
        stop_spark(spark)
