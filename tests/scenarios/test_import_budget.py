"""What each program of ours loads before it needs it, told by the list of its modules.

A module that is slow to import takes its time in every command, job and worker. ``benchmarks/startup.py`` measures the time;
these tests find who loads what. A program that needs another module says so here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.tables.small_tables import write_days

from delta_maintenance.contract import JobSpec

#: Libraries, of which most are installed beside this package in Airflow.
LIBRARIES = {
    "aiohttp",
    "airflow",
    "asyncio",
    "azure",
    "boto3",
    "botocore",
    "fsspec",
    "http",
    "hypothesis",
    "importlib.resources",
    "multiprocessing",
    "numpy.ma",
    "obstore",
    "pandas",
    "pyarrow.acero",
    "pyarrow.dataset",
    "pyarrow.json",
    "pyspark",
    "secrets",
    "sqlglot",
    "unittest",
    "urllib.request",
    "xml",
}
PARQUET = {"pyarrow.parquet"}
#: Parts of this package that only some commands need.
OURS = {
    "airflow_delta",
    "delta_log.checkpoint.writer",
    "delta_log.data.scan",
    "delta_log.tail",
    "delta_log.transaction",
    "delta_log.upkeep",
    "delta_maintenance.process.bundle",
    "delta_maintenance.engine.local",
    "delta_maintenance.engine.spark.spark_engine",
    "delta_maintenance.engine.spark.session",
    "delta_maintenance.job",
    "delta_maintenance.listing",
    "delta_maintenance.log_upkeep.plan",
    "delta_maintenance.optimize.plan",
    "delta_maintenance.partitions.predicate",
    "delta_maintenance.rewrite.bin",
    "delta_maintenance.vacuum.plan",
}
WATCHED = LIBRARIES | PARQUET | OURS
PREDICATES = {"delta_maintenance.partitions.predicate", "sqlglot", "pyarrow.dataset"}

#: Python runs a module of this name when it starts. It has every process write down what it has loaded at its end.
_RECORDER = """
import atexit, os, pathlib, sys
end = os._exit
@atexit.register
def record():
    path = pathlib.Path(os.environ["LOADED_MODULES"], str(os.getpid()))
    path.write_text(chr(10).join(sorted(sys.modules)))
os._exit = lambda code: (record(), end(code))
"""

Loaded = Callable[[], list[set[str]]]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """What each process that the test has started loaded of :data:`WATCHED`."""
    recorder, records = tmp_path / "recorder", tmp_path / "records"
    recorder.mkdir()
    records.mkdir()
    (recorder / "sitecustomize.py").write_text(_RECORDER)
    monkeypatch.setenv("PYTHONPATH", str(recorder))
    monkeypatch.syspath_prepend(str(recorder))  # which the local engine hands to its workers
    monkeypatch.setenv("LOADED_MODULES", str(records))
    return lambda: [WATCHED & set(record.read_text().split()) for record in sorted(records.iterdir())]


@pytest.fixture
def small(tmp_path: Path) -> str:
    """Six small files in three partitions: work for OPTIMIZE."""
    write_days(tmp_path / "small", files=6, rows=10, days=3)
    return str(tmp_path / "small")


@pytest.fixture
def compact(tmp_path: Path) -> str:
    """One file in each partition, so that OPTIMIZE has nothing to do."""
    write_days(tmp_path / "compact", files=3, rows=10, days=3)
    return str(tmp_path / "compact")


def run(*arguments: str, module: str = "delta_maintenance") -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_libraries_that_count_are_installed_here() -> None:
    absent = [name for name in ("pandas", "sqlglot", "pyspark", "fsspec", "obstore") if not find_spec(name)]
    assert absent == []


def test_help_and_wrong_arguments_load_nothing(loaded: Loaded) -> None:
    assert "--where" in run("optimize", "--help")
    assert loaded() == [set()]


@pytest.mark.parametrize("command", ["inspect", "history"])
def test_a_command_that_reads_the_log_loads_nothing_else(loaded: Loaded, compact: str, command: str) -> None:
    run(command, compact)
    assert loaded() == [set()]


def test_a_checkpoint_needs_parquet(loaded: Loaded, compact: str) -> None:
    run("checkpoint", compact)
    run("inspect", compact)
    assert any(found == PARQUET for found in loaded())


OPTIMIZE = {
    "delta_log.data.scan",
    "delta_log.transaction",
    "delta_maintenance.job",
    "delta_maintenance.optimize.plan",
    "delta_maintenance.rewrite.bin",
    *PARQUET,
}


def test_an_optimize_with_nothing_to_do_loads_no_engine(loaded: Loaded, compact: str) -> None:
    assert "Nothing to do" in run("optimize", compact)
    assert loaded() == [OPTIMIZE]


def test_a_dry_run_loads_no_engine(loaded: Loaded, small: str) -> None:
    assert "rewrite" in run("optimize", small, "--dry-run")
    assert loaded() == [OPTIMIZE]


def test_an_optimize_loads_its_engine_and_no_other_operation(loaded: Loaded, small: str) -> None:
    run("optimize", small)
    assert loaded() == [OPTIMIZE | {"delta_maintenance.engine.local"}]


def test_a_predicate_needs_its_parser(loaded: Loaded, compact: str) -> None:
    run("optimize", compact, "--where", "day = '2024-01-01'")
    (found,) = loaded()
    assert found - {"importlib.resources"} == OPTIMIZE | PREDICATES


def test_a_vacuum_loads_no_optimize_and_no_parser(loaded: Loaded, compact: str) -> None:
    run("vacuum", compact)
    (found,) = loaded()
    # Arrow's dataset comes with its grouping of rows.
    grouping = {"pyarrow.acero", "pyarrow.dataset"}
    assert not found & {*LIBRARIES, *PREDICATES, "delta_maintenance.optimize.plan"} - grouping


def test_a_health_reading_loads_planners_and_nothing_that_works(loaded: Loaded, small: str) -> None:
    assert "recommended: optimize" in run("health", small, "--small-files", "1")
    (found,) = loaded()
    assert not found & {
        "delta_maintenance.engine.local",
        "delta_maintenance.job",
        "delta_maintenance.rewrite.bin",
    }
    assert not found & (LIBRARIES | PREDICATES)


def test_a_job_loads_what_the_command_loads(loaded: Loaded, compact: str) -> None:
    spec = JobSpec("optimize", compact, "run")
    run("--spec", spec.to_json(), module="delta_maintenance.entrypoint.run_job")
    (found,) = loaded()
    # It ends with a reading of the table's health, from what it has in memory.
    assert found >= OPTIMIZE
    assert not found & LIBRARIES - {"pyarrow.acero", "pyarrow.dataset"}


def succeed(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_others_load_after_us_finds_pandas() -> None:
    succeed("""
import os, sys
from delta_maintenance.process.fast_start import start_fast
before = dict(os.environ)
start_fast()
import pyarrow as pa
assert pa.array([1, None]).to_pylist() == [1, None]
assert "pandas" not in sys.modules and os.environ == before
frame = pa.table({"a": [1, 2]}).to_pandas()
import pandas
assert isinstance(frame, pandas.DataFrame)
assert pa.array(pandas.Series([1.0, float("nan")])).null_count == 1
""")


def test_pandas_and_dateutil_work_as_ever_where_they_are_loaded_later() -> None:
    succeed("""
from delta_maintenance.process.fast_start import start_fast
start_fast()
import pandas, pyarrow as pa
from dateutil.relativedelta import relativedelta
assert pandas.Timestamp("2024-01-31") + relativedelta(months=1) == pandas.Timestamp("2024-02-29")
assert pa.table({"t": pandas.to_datetime(["2024-01-31"])}).to_pandas()["t"][0] == pandas.Timestamp("2024-01-31")
""")


@pytest.mark.parametrize(("by_user", "allocator"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_takes_memory_from_the_c_library_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, by_user: str | None, allocator: str
) -> None:
    if by_user is not None:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", by_user)
    succeed(f"""
from delta_maintenance.process.fast_start import start_fast
start_fast()
import pyarrow as pa
assert pa.default_memory_pool().backend_name == "{allocator}"
""")


def test_a_program_that_has_pandas_keeps_it() -> None:
    succeed("""
import pandas
from delta_maintenance.process.fast_start import start_fast
start_fast()
import pyarrow as pa
assert pa.array(pandas.Series([1.0, float("nan")])).null_count == 1
""")


@pytest.mark.parametrize(("variable", "has_pandas"), [("1", False), ("0", True), ("", True)])
def test_only_a_worker_of_a_spark_application_of_ours_goes_without_pandas(
    variable: str, has_pandas: bool
) -> None:
    succeed(f"""
import os, sys
import pyarrow as pa
from delta_maintenance.process.fast_start import OWN_WORKERS_VARIABLE, prepare_spark_worker
os.environ[OWN_WORKERS_VARIABLE] = {variable!r}
prepare_spark_worker()
assert pa.array([1, None]).to_pylist() == [1, None]
assert ("pandas" in sys.modules) is {has_pandas}
frame = pa.table({{"a": [1, 2]}}).to_pandas()
import pandas
assert isinstance(frame, pandas.DataFrame)
assert pa.array(pandas.Series([1.0, float("nan")])).null_count == 1
""")


def test_a_caller_of_the_command_line_keeps_its_pandas(compact: str) -> None:
    succeed(f"""
import sys
from delta_maintenance.cli.main import main
assert main(["inspect", {compact!r}]) == 0
assert "pandas" in sys.modules
""")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("operators.DeltaTableHealthOperator", {}),
        (
            "sensors.DeltaTableHealthSensor",
            {"tombstones": 1, "timeout": 0.1, "poke_interval": 0.1, "soft_fail": True},
        ),
    ],
)
def test_a_task_that_reads_the_log_itself_loads_no_pandas(
    compact: str, kind: str, arguments: dict[str, object]
) -> None:
    succeed(f"""
import sys
from contextlib import suppress
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow_delta import operators, sensors
from airflow_delta.testing import FakeStateStore
from tests.support.runs.task_context import Supervisor

task_runner.SUPERVISOR_COMMS = Supervisor()
names = dict(dag_id="d", task_id="t", run_id="r", map_index=-1, try_number=1, max_tries=0, xcom_push=lambda key, value: None)
context = dict(ti=SimpleNamespace(**names), task_state_store=FakeStateStore(), outlet_events=OutletEventAccessors())
with suppress(AirflowSkipException):
    task = {kind}(task_id="t", table={compact!r}, **{arguments!r})
    type(task).execute.__wrapped__(task, context)
assert "delta_log.snapshot.snapshot" in sys.modules and "pandas" not in sys.modules
""")
