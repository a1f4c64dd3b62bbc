"""Delta Lake's own implementation on the JVM, as a reader of what we write.

The product never needs it. Its JARs come from Maven Central by `mvn dependency:copy`, once per environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.environment.prerequisites import absent, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_VERSION = "4.4.0"


def delta_spark_jars() -> tuple[Path, ...]:
    """For the installed PySpark: its minor release is part of the artifact's name."""
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
    # In a directory of its own: Maven must meet no pom.xml, and a JAR appears whole or not at all.
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
                lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["it said nothing"]
                absent("a Maven repository", f"{artifact} could not be had: {lines[0][:300]}")
        for jar in Path(scratch).glob("*.jar"):
            jar.replace(home / jar.name)


def stop_spark(session: SparkSession) -> None:
    """Ends the session and its JVM: a JVM keeps the JARs it was started with, and the next session wants others."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    # It ends when its input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)


def start_delta_spark(jars: tuple[Path, ...], scratch: Path) -> SparkSession:
    """A session in this process; there can be only one. `stop_spark` ends it."""
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")
    from pyspark.sql import SparkSession

    # `spark-submit` and the Python workers are looked up on PATH.
    bin_directory = str(Path(sys.executable).parent)
    if shutil.which("spark-submit") != f"{bin_directory}/spark-submit":
        os.environ["PATH"] = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The tables are tiny, and a task costs more than its work.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("airflow-provider-delta tests")
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
