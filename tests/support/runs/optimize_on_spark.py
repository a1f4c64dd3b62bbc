"""Runs OPTIMIZE or REORG PURGE with the Spark engine on several tables in one session.

``python optimize_on_spark.py optimize|purge [[TABLE, OPTIONS], …]`` prints one report a line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress


def main(operation: str, tables: list[tuple[str, dict[str, Any]]]) -> None:
    site = JobSite(spark_master="local[2]", can_use_spark=True)
    for table, options in tables:
        spec = JobSpec(operation, table, "on-spark", options, engine="spark")
        sys.stdout.write(run_job(spec, site, SilentProgress()).to_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
