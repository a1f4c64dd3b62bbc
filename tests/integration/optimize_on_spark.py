"""A program: OPTIMIZE --full by the Spark engine on several tables, in one session; prints one report a line."""

from __future__ import annotations

import sys

from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress


def main(tables: list[str]) -> None:
    site = JobSite(spark_master="local[2]", can_use_spark=True)
    for table in tables:
        spec = JobSpec("optimize", table, "on-spark", {"full": True}, engine="spark")
        sys.stdout.write(run_job(spec, site, SilentProgress()).to_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
