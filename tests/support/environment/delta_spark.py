"""delta-spark, Delta Lake's own implementation on the JVM: it reads what we write, and writes what we read.

The product never needs it. Maven fetches its JARs once per environment (`mvn dependency:copy`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.environment.prerequisites import absent, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_VERSION = "4.4.0"
#: For a JVM of a few minutes, as in spark_conf/spark-defaults.conf; a benchmark needs the optimizing compiler.
#: With one compiler alone a JVM reserves 48 MiB for compiled code. delta-spark fills them, and then nothing is compiled any more.
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
LONG_RUNNING_JVM = ("-XX:+UseParallelGC", "-XX:ParallelGCThreads=2")
#: For tables of a few rows: generating and compiling code for a query, and planning it again while it runs, take longer than
#: interpreting it.
_TINY_QUERIES: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def delta_spark_jars() -> tuple[Path, ...]:
    """Finds or fetches the JARs for the installed PySpark, whose minor release is part of the artifact's name."""
    spark = ".".join(version("pyspark").split(".")[:2])
    artifacts = (f"delta-spark_{spark}_2.13", "delta-storage")
    home = Path(sys.prefix) / "share" / f"delta-spark-{DELTA_VERSION}"
    jars = tuple(home / f"{artifact}-{DELTA_VERSION}.jar" for artifact in artifacts)
    if not all(jar.exists() for jar in jars):
        _fetch([f"io.delta:{artifact}:{DELTA_VERSION}" for artifact in artifacts], home)
    return jars


def _fetch(artifacts: list[str], home: Path) -> None:
    maven = require("mvn", f"to fetch Delta Lake {DELTA_VERSION} for Spark")
    home.mkdir(parents=True, exist_ok=True)
    # Maven runs in an empty directory, where it finds no pom.xml. A JAR is moved only when it is complete.
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        for artifact in artifacts:
            command = [
                maven,
                "-B",
                "-q",
                "dependency:copy",
                f"-Dartifact={artifact}",
                f"-DoutputDirectory={scratch}",
            ]
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            if done.returncode:
                lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["no output"]
                absent("a Maven repository", f"{artifact} could not be fetched: {lines[0][:300]}")
        for jar in Path(scratch).glob("*.jar"):
            jar.replace(home / jar.name)


def start_delta_spark(
    jars: tuple[Path, ...],
    scratch: Path,
    *,
    short_lived: bool = False,
    runs_long: bool = False,
    threads: int = 2,
    memory: str = "1g",
) -> SparkSession:
    """Starts a session in this process, which can have only one. `stop_spark` ends it.

    :param short_lived: the session runs small queries for a few minutes: little is compiled.
    :param runs_long: it runs small queries for an hour: queries are not compiled, but what runs them is.
    :param threads: so many tasks run at a time.
    """
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")
    from pyspark.sql import SparkSession

    # `spark-submit` and the Python workers are looked up on PATH.
    bin_directory = str(Path(sys.executable).parent)
    if shutil.which("spark-submit") != f"{bin_directory}/spark-submit":
        os.environ["PATH"] = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    jvm = LONG_RUNNING_JVM if runs_long else SHORT_LIVED_JVM if short_lived else ()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join([*jvm, f"-Dderby.system.home={scratch}"]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The tables are tiny: a task costs more than its work.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        **(_TINY_QUERIES if short_lived or runs_long else {}),
    }
    builder = SparkSession.builder.master(f"local[{threads}]").appName("airflow-provider-delta tests")
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def stop_spark(session: SparkSession) -> None:
    """Ends the session and its JVM. A JVM keeps the JARs that it started with, and the next session needs others."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    # The JVM ends when its standard input ends.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)


class SharedDeltaSpark:
    """One delta-spark JVM for all test files of a process: starting one takes longer than most files' queries.

    Each file gets a session of its own, so that settings and views of one file do not reach the next.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._first: SparkSession | None = None

    def open_session(self, jars: tuple[Path, ...], *, compiling: bool = False) -> SparkSession:
        """
        :param compiling: the session generates code for queries, as Spark does by default.
        """
        if self._first is None:
            self._first = start_delta_spark(jars, self._scratch, short_lived=True)
        session = self._first.newSession()
        if compiling:
            for name in _TINY_QUERIES:
                session.conf.unset(name)
        return session

    def close_session(self) -> None:
        """Forgets the active session: code under test in other files must not find one and use it."""
        if self._first is not None:
            jvm = self._first.sparkContext._jvm
            assert jvm is not None
            jvm.org.apache.spark.sql.SparkSession.clearActiveSession()

    def stop(self) -> None:
        """Ends the JVM. A test file that starts a Spark of its own calls this first."""
        if self._first is not None:
            stop_spark(self._first)
            self._first = None
