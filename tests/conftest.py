"""Fixtures for all tests, the order of the files, and what a run prints about its machine and its durations."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

# A developer's own Airflow is never touched. Set before anything imports Airflow, which reads it at import.
_AIRFLOW_HOME = tempfile.TemporaryDirectory(prefix="airflow-delta-tests-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME.name
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
from tests.support.environment.corpus import Corpus, corpus_is_there, unpack_corpus  # noqa: E402
from tests.support.environment.delta_spark import SharedDeltaSpark, stop_spark  # noqa: E402
from tests.support.environment.delta_spark import delta_spark_jars as find_delta_spark_jars  # noqa: E402
from tests.support.environment.fast_java import SPARK_CONF, fast_java_home  # noqa: E402
from tests.support.environment.prerequisites import require  # noqa: E402
from tests.support.repetition import repeated  # noqa: E402
from tests.support.runs.metrics_backend import (  # noqa: E402
    send_metrics_to,  # noqa: F401 - pytest finds it here
)
from tests.support.runs.task_context import make_context, supervisor  # noqa: E402, F401 - pytest finds them here
from tests.support.servers.fixtures import (  # noqa: E402, F401 - pytest finds them here
    azure_container,
    azure_server,
    gcs_bucket,
    gcs_server,
    glue,
    new_database,
    s3_bucket,
    s3_server,
    spark_cluster,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For the Spark of this process and for each spark-submit that a test starts.
os.environ["SPARK_CONF_DIR"] = str(SPARK_CONF)
if "JAVA_HOME" in os.environ:
    os.environ["JAVA_HOME"] = str(fast_java_home(Path(os.environ["JAVA_HOME"])))

# A property test fails by what it finds, never because a busy machine takes long for an example or for generating it.
settings.register_profile(
    "untimed", max_examples=repeated(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

#: The longest files of tests/integration, in the order in which `./dev test` starts them: its workers then end at about
#: the same time. Files that use delta-spark follow each other, since they share a JVM.
_FIRST = tuple(
    f"tests/integration/{name}"
    for name in (
        "airflow_matrix/",
        "airflow_live/",
        "test_mixed_writers.py",
        "tables_page/",
        "test_optimize_corpus.py",
        "test_checkpoint_readers.py",
        "test_filters_of_readers.py",
        "test_vacuum_like_delta_spark.py",
        "test_dynamodb_lock.py",
        "test_log_upkeep_readers.py",
        "test_rewrite_features_readers.py",
        "test_layout_readers.py",
        "test_purge_corpus.py",
        "test_remapping_readers.py",
        "test_spark_engine.py",
        "test_vacuum_on_spark.py",
        "test_spark_retry.py",
        "test_spark_cluster.py",
        "test_cluster_drivers.py",
        "test_spark_connect.py",
        "test_executor_credentials.py",
        "test_least_rights.py",
        "test_hostile_input.py",
        "test_killed_commit.py",
        "test_killed_batches.py",
        "test_object_stores.py",
    )
)
#: Distributions whose version each run prints.
_PRINTED_VERSIONS = (
    "apache-airflow",
    "pyspark",
    "pyspark-client",
    "pyarrow",
    "numpy",
    "fsspec",
    "deltalake",
    "hypothesis",
)


@pytest.fixture(scope="session", autouse=True)
def _aws_descriptions_are_read_once() -> None:
    """Parses the descriptions of AWS services once per process.

    A client takes half a second for it, and the tests make hundreds. Clients of one session share what was parsed, so clients of
    different sessions may, too.
    """
    if not find_spec("botocore"):
        return
    from botocore.loaders import JSONFileLoader  # type: ignore[import-untyped]

    JSONFileLoader.load_file = staticmethod(cache(JSONFileLoader().load_file))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The directory with the corpus's tables. All tests share it: write only to copies."""
    base = tmp_path_factory.getbasetemp()
    return unpack_corpus(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def settled_deferrals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triggers wake their tasks at once: no scheduler has to notice first that these were deferred."""
    monkeypatch.setenv("AIRFLOW__DELTA__DEFERRAL_SETTLE_SECONDS", "0")


@pytest.fixture
def corpus_copy(corpus: Corpus, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a table of the corpus by name, for a test that writes to it."""
    return lambda name: corpus.copy_of(name, tmp_path)


@pytest.fixture(scope="session")
def delta_spark_jars() -> tuple[Path, ...]:
    """The JARs of delta-spark, for a Spark session of the test's own."""
    return find_delta_spark_jars()


@pytest.fixture(scope="session")
def shared_delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDeltaSpark]:
    shared = SharedDeltaSpark(tmp_path_factory.mktemp("delta-spark"))
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def delta_spark_session(
    shared_delta_spark: SharedDeltaSpark, delta_spark_jars: tuple[Path, ...]
) -> Iterator[SparkSession]:
    """A Spark session with Delta Lake: `session.read.format("delta").load(path)`, `session.sql(…)`.

    It interprets queries, which for tables of a few rows takes a fifth less time.
    """
    yield shared_delta_spark.open_session(delta_spark_jars)
    shared_delta_spark.close_session()


@pytest.fixture(scope="module")
def compiling_delta_spark_session(
    shared_delta_spark: SharedDeltaSpark, delta_spark_jars: tuple[Path, ...]
) -> Iterator[SparkSession]:
    """A Spark session with Delta Lake that generates code for queries and passes on columns in batches, as Spark does by
    default: for tests that ask whether Spark reads what we write."""
    yield shared_delta_spark.open_session(delta_spark_jars, compiling=True)
    shared_delta_spark.close_session()


@pytest.fixture(scope="module")
def no_other_spark(shared_delta_spark: SharedDeltaSpark) -> None:
    """For a test file that starts a Spark session of its own: a process can have one at a time."""
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")
    shared_delta_spark.stop()


@pytest.fixture(scope="module")
def spark(no_other_spark: None) -> Iterator[SparkSession]:
    """An embedded Spark session with two cores, as the Spark engine starts it."""
    from delta_maintenance.engine.spark.session import spark_session

    session = spark_session("local[2]", "tests")
    yield session
    stop_spark(session)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {prefix: place for place, prefix in enumerate(_FIRST)}

    def place(item: pytest.Item) -> int:
        found = (places[prefix] for prefix in _FIRST if item.nodeid.startswith(prefix))
        return next(found, len(_FIRST))

    items.sort(key=place)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, keeps the tests of airflow_live with one worker, so that one Airflow is enough."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            directory = file.rpartition("/")[0]
            return directory if directory.endswith("airflow_live") else file

    return Scheduling(config, log)


def pytest_report_header() -> list[str]:
    found = []
    for name in _PRINTED_VERSIONS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or "none"
    return [", ".join(found), f"java: {java}; corpus: {'there' if corpus_is_there() else 'absent'}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _print_durations_of_files(terminalreporter)
    _print_skip_reasons(terminalreporter)
    totals = os.environ.get("TEST_TOTALS")
    if totals and not hasattr(terminalreporter.config, "workerinput"):
        _append_totals(Path(totals), terminalreporter)


def _print_durations_of_files(reporter: pytest.TerminalReporter) -> None:
    """Prints how long each file took, setup and teardown included, if `--durations` is given; none below `--durations-min`."""
    if not reporter.config.getoption("durations"):
        return
    seconds: Counter[str] = Counter()
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    reporter.section("durations of files")
    for file, duration in seconds.most_common():
        if duration >= (reporter.config.getoption("durations_min") or 0):
            reporter.write_line(f"{duration:8.2f}s {file}")


def _print_skip_reasons(reporter: pytest.TerminalReporter) -> None:
    """Prints each reason for skipping once, with its number of tests."""
    reasons = Counter(
        report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in reporter.getreports("skipped")
    )
    for reason, count in sorted(reasons.items()):
        reporter.write_line(f"{count} skipped, {reason.removeprefix('Skipped: ')}", yellow=True)


def _append_totals(file: Path, reporter: pytest.TerminalReporter) -> None:
    """Writes the run's totals for `./dev test`, which prints those of both its runs in one line."""
    counts = [(what, len(reporter.getreports(what))) for what in ("passed", "failed", "error", "skipped")]
    told = ", ".join(f"{count} {what}" for what, count in counts if count) or "no tests"
    with file.open("a") as output:
        output.write(f"{told}\n")
