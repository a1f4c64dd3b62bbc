"""Tells whether this process is a Spark driver. Loading this module loads nothing else."""

from __future__ import annotations

import os


def is_spark_driver() -> bool:
    """Tell whether spark-submit started this process. It then sets the master and the configuration."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
