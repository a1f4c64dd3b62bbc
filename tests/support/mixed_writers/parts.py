"""What a fleet needs besides the environment: a delta-rs that still takes locks, and log stores for delta-spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.environment.delta_spark import delta_spark_jars
from tests.support.environment.prerequisites import absent, require
from tests.support.servers.dynamodb import maven_jars, short_lived_java

#: The last release that commits safely beside other writers. Releases 1.5.1 to 1.6.0 commit twice if another writer completes
#: their commit first, which delta-spark does without waiting; from 1.6.1 on delta-rs does not use the lock table.
LOCKING_DELTA_RS = "1.5.0"
_HADOOP, _AWS_SDK, _ANALYTICS = "3.5.0", "2.35.4", "1.3.1"
_ECJ = "3.37.0"
_STORE_CLASS = "io.delta.storage.S3DynamoDBLogStore"
#: The JARs of delta-spark's own log store (io.delta:delta-storage-s3-dynamodb) and of what it needs, as a class path.
_STORE_VARIABLE = "DELTA_STORAGE_S3_DYNAMODB_JARS"


def locking_delta_rs() -> Path:
    """Returns a directory for PYTHONPATH with a delta-rs that commits through the lock table."""
    home = Path(sys.prefix) / "share" / f"deltalake-{LOCKING_DELTA_RS}"
    if home.is_dir():
        return home
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    uv = uv or require("uv", f"to install deltalake {LOCKING_DELTA_RS}")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        # The dependencies of the installed release fit this one, too.
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
        done = subprocess.run(
            [*command, "--target", f"{scratch}/site", f"deltalake=={LOCKING_DELTA_RS}"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            absent(
                "a package index",
                f"deltalake {LOCKING_DELTA_RS} could not be installed: {done.stderr[-300:]}",
            )
        try:
            (Path(scratch) / "site").rename(home)
        except OSError:  # another process was faster
            if not home.is_dir():
                raise
    return home


@dataclass(frozen=True, slots=True)
class LogStore:
    """The class through which delta-spark commits, and the JARs that it takes."""

    class_name: str
    jars: tuple[str, ...]


def s3_jars() -> list[str]:
    """Returns Hadoop's S3A and DynamoDB's client, without the half gigabyte of Amazon's complete bundle."""
    amazon = "software.amazon.awssdk"
    artifacts = [
        ("org.apache.hadoop", "hadoop-aws", _HADOOP),
        *((amazon, name, _AWS_SDK) for name in ("s3", "s3-transfer-manager", "sts", "dynamodb")),
        ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", _ANALYTICS),
    ]
    home = maven_jars(f"hadoop-aws-{_HADOOP}", artifacts, alone=("hadoop-aws",))
    # Spark brings its own logging.
    return sorted(str(jar) for jar in home.glob("*.jar") if not jar.name.startswith("slf4j-api"))


def lock_log_store(scratch: Path) -> LogStore:
    """Returns delta-spark's own S3DynamoDBLogStore if ``$DELTA_STORAGE_S3_DYNAMODB_JARS`` names it.

    Otherwise compiles LockTableLogStore.java, which takes the same steps: not every Maven repository has the artifact.
    """
    given = os.environ.get(_STORE_VARIABLE)
    if given:
        return LogStore(_STORE_CLASS, (*given.split(os.pathsep), *s3_jars()))
    jar = _packed(_compiled("LockTableLogStore.java", scratch, s3_jars()))
    return LogStore("tests.LockTableLogStore", (jar, *s3_jars()))


def link_log_store(scratch: Path) -> LogStore:
    """Compiles a log store for a local disk on which other processes commit, too."""
    return LogStore("tests.LinkLogStore", (_packed(_compiled("LinkLogStore.java", scratch)),))


def writers_extensions(scratch: Path, *, with_s3: bool) -> tuple[tuple[str, ...], dict[str, str]]:
    """Compiles what delta-spark needs to commit as others do, and to make statements long; returns JARs and settings."""
    sources, jars = ["LinkLogStore.java", "Nap.java"], []
    settings = {"spark.delta.logStore.file.impl": "tests.LinkLogStore"}
    if with_s3:
        sources.append("ConditionalLogStore.java")
        jars = s3_jars()
        settings["spark.delta.logStore.s3a.impl"] = "tests.ConditionalLogStore"
    return (_packed(_compiled(sources, scratch, jars)), *jars), settings


def single_driver_commit(uri: str, spark_conf: Mapping[str, str], scratch: Path) -> subprocess.Popen[str]:
    """Commits through delta-spark's store for S3 without a lock: prints "looked", waits for a line, prints "committed"."""
    classes = _compiled("SingleDriverCommit.java", scratch, s3_jars())
    settings = [f"{name.removeprefix('spark.hadoop.')}={value}" for name, value in spark_conf.items()]
    class_path = f"{classes}{os.pathsep}{_class_path(s3_jars())}"
    command = [*short_lived_java("to run delta-spark's log store"), "-cp", class_path]
    return subprocess.Popen(
        [*command, "SingleDriverCommit", uri, *settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _compiled(source: str | Sequence[str], scratch: Path, jars: Sequence[str] = ()) -> Path:
    """Compiles one or several programs of this directory with a compiler from a JAR, so that a Java without a JDK is enough."""
    java = short_lived_java("to compile a log store")
    (compiler,) = maven_jars(f"ecj-{_ECJ}", [("org.eclipse.jdt", "ecj", _ECJ)]).glob("*.jar")
    classes = scratch / "classes"
    command = [*java, "-jar", str(compiler), "-17", "-nowarn", "-d", str(classes), "-cp", _class_path(jars)]
    here = Path(__file__).parent
    files = [str(here / name) for name in ([source] if isinstance(source, str) else source)]
    subprocess.run([*command, *files], check=True, stdin=subprocess.DEVNULL)
    return classes


def _packed(classes: Path) -> str:
    jar = shutil.make_archive(str(classes.parent / "log-store"), "zip", classes)
    os.rename(jar, jar := jar.removesuffix("zip") + "jar")
    return jar


def _class_path(jars: Sequence[str]) -> str:
    import pyspark

    of_spark = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return os.pathsep.join([*map(str, delta_spark_jars()), *map(str, sorted(of_spark)), *jars])
