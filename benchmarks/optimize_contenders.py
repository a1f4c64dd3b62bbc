"""What the optimize benchmark measures, each on a copy of the table of its own that stays for the comparison of rows."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import optimize_tables
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from delta_spark_session import delta_session
from process_tree import ProcessTree

from delta_log import Table
from delta_log.snapshot.snapshot import Snapshot  # noqa: F401 - so that lazy imports are done before the clock starts
from delta_log.storage.opening import open_storage
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.optimize import run as optimize  # noqa: F401 - the same
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.progress import SilentProgress

# The first conversion of a Python list imports pandas where it is installed; that is an import as well.
pa.array([1])

#: Where the copies are made, beside the table, by contender.
COPIES = "copies"


def copy_for(uri: str, contender: str) -> Path:
    return Path(uri).parent / COPIES / f"{Path(uri).name}-{contender}"


def spark_written(source: Path, table: Path, files: int) -> Path:
    """The rows of a table, in so many files that Delta Lake on Spark writes."""
    if not table.exists():
        draft = table.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch, delta_session(Path(scratch), 1 << 30) as spark:
            # It does not know the property that names the codec, which ours and its own OPTIMIZE obey.
            spark.conf.set("spark.databricks.delta.allowArbitraryProperties.enabled", "true")
            rows = spark.read.format("delta").load(str(source)).repartition(files)
            rows.write.format("delta").option("delta.parquet.compression.codec", "snappy").save(str(draft))
        draft.rename(table)
    return table


def our_local(uri: str, target_bytes: int) -> dict[str, Any]:
    return _on_a_copy(uri, "ours", lambda copy: _run(copy, "optimize", target_bytes, "local"))


def our_purge(uri: str, target_bytes: int) -> dict[str, Any]:
    return _on_a_copy(uri, "ours", lambda copy: _run(copy, "purge", target_bytes, "local"))


def our_spark(uri: str, target_bytes: int) -> dict[str, Any]:
    """The session's start and end are measured with it."""
    return _on_a_copy(uri, "ours-on-spark", lambda copy: _run(copy, "optimize", target_bytes, "spark"))


def our_far(uri: str, options: dict[str, Any], target_bytes: int) -> dict[str, Any]:
    open_storage(uri, options)  # imports the client before the clock starts
    spec = JobSpec("optimize", uri, "benchmark", {"target_size_bytes": target_bytes}, engine="local")
    site = JobSite(storage_options=options)
    return _timed(lambda: run_job(spec, site, SilentProgress()).status == "committed")


def delta_rs_far(uri: str, options: dict[str, str], target_bytes: int) -> dict[str, Any]:
    def compact() -> bool:
        table = deltalake.DeltaTable(uri, storage_options=options)
        properties = deltalake.WriterProperties(compression="SNAPPY")
        table.optimize.compact(target_size=target_bytes, writer_properties=properties)
        return True

    return _timed(compact)


def _timed(work: Callable[[], bool]) -> dict[str, Any]:
    # What the benchmark has imported for itself, Python's garbage collector need not look at again and again.
    gc.freeze()
    with ProcessTree() as tree:
        started = time.perf_counter()
        assert work()
        wall = time.perf_counter() - started
    return {"measured_seconds": wall, "measured": tree.measured()}


def delta_spark(uri: str, target_bytes: int) -> dict[str, Any]:
    return _on_a_copy(uri, "delta-spark", lambda copy: _delta_spark(copy, "OPTIMIZE {}", target_bytes))


def delta_spark_purge(uri: str, target_bytes: int) -> dict[str, Any]:
    statement = "REORG TABLE {} APPLY (PURGE)"
    return _on_a_copy(uri, "delta-spark", lambda copy: _delta_spark(copy, statement, target_bytes))


def delta_spark_warm(uri: str, target_bytes: int) -> dict[str, Any]:
    """In a session that has done the same to other copies before; only the statement counts."""
    copy = copy_for(uri, "delta-spark")
    with tempfile.TemporaryDirectory() as scratch, delta_session(Path(scratch), target_bytes) as spark:
        for _ in range(4):
            optimize_tables.linked(Path(uri), copy)
            spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            with ProcessTree() as tree:
                started = time.perf_counter()
                spark.sql(f"OPTIMIZE delta.`{copy}`").collect()
                wall = time.perf_counter() - started
        return {"measured_seconds": wall, "measured": tree.measured()}


def load(uri: str) -> dict[str, Any]:
    """A snapshot's own load: every live file, without its statistics."""
    return {"files": Table(uri).snapshot().files().num_rows}


def load_and_plan(uri: str) -> dict[str, Any]:
    snapshot = Table(uri).snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(target_size_bytes=1 << 30), 1)
    return {"files": plan.considered_files, "bins": len(plan.bins)}


def plan_only(uri: str) -> dict[str, Any]:
    """The plan without the load."""
    snapshot = Table(uri).snapshot()
    snapshot.files()
    with ProcessTree() as tree:
        started = time.perf_counter()
        plan = plan_optimize(snapshot, OptimizeOptions(target_size_bytes=1 << 30), 1)
        wall = time.perf_counter() - started
    facts = {"files": plan.considered_files, "bins": len(plan.bins)}
    return {"measured_seconds": wall, "measured": tree.measured(), **facts}


def _on_a_copy(uri: str, contender: str, work: Callable[[Path], object]) -> dict[str, Any]:
    copy = optimize_tables.linked(Path(uri), copy_for(uri, contender))
    with ProcessTree() as tree:
        started = time.perf_counter()
        facts = work(copy)
        wall = time.perf_counter() - started
    rest = facts if isinstance(facts, dict) else {}
    files = Table(str(copy)).snapshot().files(["size"])
    sizes = files.column("size").to_pylist()
    return {
        "measured_seconds": wall,
        "measured": tree.measured(),
        "num_files": len(sizes),
        "megabytes": round(sum(sizes) / 1e6),
        **rest,
    }


def _run(copy: Path, operation: str, target_bytes: int, engine: str) -> None:
    options = {"target_size_bytes": target_bytes}
    spec = JobSpec(operation, str(copy), "benchmark", options, engine=engine)
    report = run_job(spec, JobSite(spark_master="local[2]", can_use_spark=True), SilentProgress())
    assert report.status == "committed", report
    if engine == "spark":
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def _delta_spark(copy: Path, statement: str, target_bytes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch, delta_session(Path(scratch), target_bytes) as spark:
        started = time.perf_counter()
        spark.sql(statement.format(f"delta.`{copy}`")).collect()
        return {"seconds_without_session": round(time.perf_counter() - started, 1)}
