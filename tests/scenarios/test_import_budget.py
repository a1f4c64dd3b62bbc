"""What each program of ours loads before it needs it, told by the list of its modules.

A module that is slow to import takes its time in every command, job and worker. ``benchmarks/startup.py`` measures the time;
these tests find who loads what. A program that needs another module says so here.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_maintenance.contract import JobSpec
from delta_maintenance.engine import local
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.plan.tasks import tasks_of
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.manifest_file import RunKey

#: Libraries, of which most are installed beside this package in Airflow.
LIBRARIES = {
    "adlfs",
    "aiobotocore",
    "aiohttp",
    "airflow",
    "asyncio",
    "azure",
    "boto3",
    "botocore",
    "fsspec",
    "gcsfs",
    "http",
    "hypothesis",
    "importlib.resources",
    "multiprocessing",
    "numpy.ma",
    "pandas",
    "pyarrow.acero",
    "pyarrow.dataset",
    "pyarrow._gcsfs",
    "pyarrow._s3fs",
    "pyarrow.json",
    "pyspark",
    "s3fs",
    "secrets",
    "sqlglot",
    "ssl",
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
    "delta_maintenance.bundle",
    "delta_maintenance.engine.local",
    "delta_maintenance.engine.spark",
    "delta_maintenance.engine.spark_session",
    "delta_maintenance.health.options",
    "delta_maintenance.job",
    "delta_maintenance.listing",
    "delta_maintenance.log_upkeep.options",
    "delta_maintenance.log_upkeep.plan",
    "delta_maintenance.optimize.plan",
    "delta_maintenance.partitions.predicate",
    "delta_maintenance.rewrite.bin",
    "delta_maintenance.rewrite.laid_out_rows",
    "delta_maintenance.vacuum.options",
    "delta_maintenance.vacuum.plan",
}
WATCHED = LIBRARIES | PARQUET | OURS
PREDICATES = {"delta_maintenance.partitions.predicate", "sqlglot", "pyarrow.dataset"}

#: Python runs a module of this name when it starts. It has every process write down what it has loaded at its end.
_RECORDER = """
import atexit, os, pathlib, sys
@atexit.register
def record():
    path = pathlib.Path(os.environ["LOADED_MODULES"], str(os.getpid()))
    path.write_text(chr(10).join(sorted(sys.modules)))
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
    absent = [name for name in ("pandas", "sqlglot", "pyspark", "fsspec", "s3fs") if not find_spec(name)]
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
    assert found == OPTIMIZE


def test_a_worker_loads_what_rewrites_and_no_more(
    loaded: Loaded, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Table(small)
    snapshot = opened.snapshot()
    tasks = tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, "run", opened.uri)
    monkeypatch.setattr(local, "_NOT_WORTH_A_PROCESS", -1)
    engine = LocalEngine(parallelism=8, memory_limit_bytes=1 << 32)
    assert len(list(engine.run(tasks, SilentProgress(), RunKey("0" * 64)))) == 3
    found = loaded()
    assert len(found) == 2
    for worker in found:
        assert worker <= {"delta_log.data.scan", "delta_maintenance.rewrite.bin", *PARQUET}


def succeed(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_others_load_after_us_finds_pandas_and_help_texts() -> None:
    succeed("""
import os, sys
from delta_maintenance.lean_arrow import load_lean_arrow
before = dict(os.environ)
load_lean_arrow()
import pyarrow as pa
assert pa.array([1, None]).to_pylist() == [1, None]
assert "pandas" not in sys.modules and os.environ == before
frame = pa.table({"a": [1, 2]}).to_pandas()
import pandas
assert isinstance(frame, pandas.DataFrame)
assert pa.array(pandas.Series([1.0, float("nan")])).null_count == 1
from pyarrow.vendored.docscrape import NumpyDocString
assert NumpyDocString("Sum.\\n\\nParameters\\n----------\\nx : int\\n    A number.")["Parameters"][0].name == "x"
""")


def test_numpy_works_without_its_help_texts() -> None:
    succeed("""
import sys
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import numpy as np
assert np.array([1, 2]).sum() == 3 and np.ma.masked_array([1, 2], [True, False]).sum() == 2
assert not np.array.__doc__ and "numpy._core._add_newdocs" not in sys.modules
import numpy._core._add_newdocs
assert "Create an array" in np.array.__doc__
""")


def test_a_numpy_that_calls_its_help_texts_otherwise_is_loaded() -> None:
    succeed("""
from delta_maintenance.lean_arrow import _help_of_numpy, _in_place
with _in_place(*_help_of_numpy()):
    from numpy._core._add_newdocs import anything
    assert anything("array", doc="Creates one.") is None
""")


def test_a_program_that_has_numpy_keeps_its_help_texts() -> None:
    succeed("""
import sys, numpy as np
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
assert "Create an array" in np.array.__doc__ and "numpy._core._add_newdocs" in sys.modules
""")


def test_the_functions_of_arrow_are_made_when_they_are_asked_for() -> None:
    succeed("""
import sys
from concurrent.futures import ThreadPoolExecutor
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import pyarrow as pa, pyarrow.compute as pc
assert "equal" not in vars(pc)
with ThreadPoolExecutor(16) as threads:
    asked = [name for name in ("equal", "and_", "or", "is_null", "utf8_lower", "list_value_length") for _ in range(40)]
    found = list(threads.map(lambda name: getattr(pc, name), asked))
assert len(set(map(id, found))) == 6 and pc.equal is found[0] and "equal" in vars(pc)
assert pc.and_(pa.array([True]), pa.array([False])).to_pylist() == [False]
assert pc.utf8_zfill(pa.array(["7"]), 3).to_pylist() == ["007"] and pc.sum(pa.array([1, 2])).as_py() == 3
assert pc.equal.__signature__ is not None and len(pc.list_functions()) > 200
for name in ("no_such_function", "hash_sum", "count_all", "__path__"):
    assert not hasattr(pc, name), name
lean = {name for name in pc.list_functions() if hasattr(pc, name)} | set(vars(pc))
del sys.modules["pyarrow.compute"]
import pyarrow.compute as whole
assert {name for name in vars(whole) if not name.startswith("__")} <= lean
for name in pc.list_functions():
    if hasattr(whole, name):
        assert str(getattr(pc, name).__signature__ if hasattr(getattr(pc, name), "__signature__") else "") == str(
            getattr(whole, name).__signature__ if hasattr(getattr(whole, name), "__signature__") else ""
        ), name
""")


def test_the_functions_of_an_arrow_that_makes_them_otherwise_are_loaded() -> None:
    succeed("""
import pyarrow._compute
class Registry:
    def list_functions(self):
        raise RuntimeError
from delta_maintenance import lean_arrow
lean_arrow._Registry = lambda *_: Registry()
lean_arrow.load_lean_arrow()
import pyarrow as pa, pyarrow.compute as pc
assert "equal" in vars(pc) and "__getattr__" not in vars(pc)
assert pc.equal(pa.array([1]), 1).to_pylist() == [True]
""")


def test_the_platform_is_known_to_those_who_ask_later() -> None:
    succeed("""
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import sys
assert "platform" not in sys.modules
import platform, pyarrow, uuid
assert platform.python_version() and uuid.uuid1() and uuid.getnode()
pyarrow.show_info()
assert pyarrow._platform.machine() == platform.machine() and pyarrow._platform.system() == platform.system()
""")


def test_the_platform_is_known_to_a_release_that_asks_while_it_is_loaded() -> None:
    succeed("""
import sys
from delta_maintenance.lean_arrow import _in_place, _system
with _in_place(*_system()):
    import platform
    assert platform.machine() and platform.python_version()
    import platform as again
assert sys.modules["platform"] is again and again.machine() == platform.machine()
""")


def test_pandas_and_dateutil_work_as_ever_where_they_are_loaded_later() -> None:
    succeed("""
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import pandas, pyarrow as pa
from dateutil.relativedelta import relativedelta
assert pandas.Timestamp("2024-01-31") + relativedelta(months=1) == pandas.Timestamp("2024-02-29")
assert pa.table({"t": pandas.to_datetime(["2024-01-31"])}).to_pandas()["t"][0] == pandas.Timestamp("2024-01-31")
""")


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the allocator of another C library stays as it is"
)
@pytest.mark.parametrize(("by_user", "allocator"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_takes_memory_from_the_c_library_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, by_user: str | None, allocator: str
) -> None:
    if by_user is not None:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", by_user)
    succeed(f"""
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import pyarrow as pa
assert pa.default_memory_pool().backend_name == "{allocator}"
""")


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the allocator of another C library stays as it is"
)
def test_the_c_library_keeps_free_memory() -> None:
    succeed("""
import os
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
block = bytearray(24 << 20)
used = resident_bytes()
del block
assert resident_bytes() > used - (8 << 20)
""")


def test_functions_take_their_options_as_ever() -> None:
    succeed("""
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import pyarrow as pa, pyarrow.compute as pc
assert pc.is_in(pa.array([1, 2]), value_set=pa.array([2])).to_pylist() == [False, True]
assert pc.sum(pa.array([1, None]), skip_nulls=False).as_py() is None
assert pc.match_substring(pa.array(["Ab"]), "a", ignore_case=True).to_pylist() == [True]
assert pc.match_substring(pa.array(["Ab"]), options=pc.MatchSubstringOptions("a")).to_pylist() == [False]
""")


def test_an_arrow_that_reads_its_help_texts_otherwise_is_loaded_in_full() -> None:
    succeed("""
import sys, types
import delta_maintenance.lean_arrow as lean
sys.modules["pyarrow._compute_docstrings"] = types.ModuleType("of another release")
lean.load_lean_arrow()
assert "pyarrow.compute" not in sys.modules
del sys.modules["pyarrow._compute_docstrings"]
import pyarrow as pa, pyarrow.compute as pc
assert pc.sum(pa.array([1, 2])).as_py() == 3
assert "skip_nulls" in pc.sum.__doc__
""")


@pytest.mark.parametrize(
    ("before", "least", "most"), [(700, 100_000, 1_000_000), (2_000_000,) * 3, (0, 0, 0)]
)
def test_a_program_of_ours_seldom_looks_for_cycles_and_never_where_that_is_off(
    before: int, least: int, most: int
) -> None:
    succeed(f"""
import gc
gc.set_threshold({before})
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
assert {least} <= gc.get_threshold()[0] <= {most}
""")


def test_a_program_that_has_pandas_keeps_it() -> None:
    succeed("""
import pandas
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
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
from delta_maintenance.lean_arrow import OWN_WORKERS_VARIABLE, prepare_spark_worker
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


def test_what_is_left_out_of_pyarrow_is_not_missed() -> None:
    """Certificates are asked for by other libraries, and files go through pyarrow's file systems."""
    code = """
from delta_maintenance.lean_arrow import load_lean_arrow
load_lean_arrow()
import io, ssl
import pyarrow as pa, pyarrow.fs, pyarrow.parquet as pq
assert ssl.create_default_context().check_hostname and ssl.get_default_verify_paths().openssl_cafile
sink = io.BytesIO()
pq.write_table(pa.table({"x": [1.5]}), sink)
assert pq.read_table(sink).num_rows == 1
assert pyarrow.fs.LocalFileSystem().get_file_info("/").is_file is False
assert pyarrow.fs.HadoopFileSystem
import socket
assert socket.socket
import numpy as np
assert "numpy._typing" not in __import__("sys").modules
assert np.linalg.eigh(np.eye(2)).eigenvalues.tolist() == [1, 1]
import numpy.typing
assert numpy.typing.NDArray[np.int64] is not list[np.int64] and numpy.typing.ArrayLike
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
