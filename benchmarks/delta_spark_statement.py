"""Runs a statement of Delta Lake on Spark as a program of its own: ``delta_spark_statement.py BYTES STATEMENT``."""

import sys
import tempfile
from pathlib import Path

from delta_spark_session import delta_session

target_bytes, statement = sys.argv[1:]
with tempfile.TemporaryDirectory() as scratch, delta_session(Path(scratch), int(target_bytes)) as spark:
    spark.sql(statement).collect()
