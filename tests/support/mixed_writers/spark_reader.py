"""Prints the rows of each version by delta-spark: ``python -m tests.support.mixed_writers.spark_reader ORDER``."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.support.mixed_writers.fleet import Order
from tests.support.mixed_writers.writer import spark_session


def main(order: Order) -> None:
    session = spark_session(order)

    def line_of(version: int) -> str:
        data = session.read.format("delta").option("versionAsOf", version).load(order.writer.table)
        row = data.selectExpr("count(*) AS n", "sum(id) AS s").first()
        assert row is not None
        return json.dumps({"version": version, "rows": row["n"], "sum": row["s"] or 0}) + "\n"

    # Planning and listing take longer than reading, and leave a core idle. ``commits`` is the number of versions.
    with ThreadPoolExecutor(4) as pool:
        sys.stdout.writelines(pool.map(line_of, range(order.commits)))
    session.stop()


if __name__ == "__main__":
    main(Order.from_json(sys.argv[1]))
