"""A Java home whose `java` maps Spark's classes into memory instead of loading them one by one from Spark's JARs.

The tests start more than a hundred Sparks that live for seconds, and a fourth of what such a JVM costs is loading classes. An archive
of them (application class-data sharing) is made once per environment by ``python -m tests.support.environment.fast_java``; ``./dev
test`` does so beside the first tests. A JVM with another class path, with other JARs or of another Java ignores it. It holds no
directory, so `java` moves the directories of a class path, such as Spark's configuration, behind its JARs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.support import ROOT

#: The configuration of every Spark that a test starts.
SPARK_CONF = Path(__file__).parent / "spark_conf"
#: Names the file that the JVM of the program below writes the archive to when it ends.
_MAKES = "SPARK_CLASSES_ARCHIVE"
_JAVA = """#!/usr/bin/env bash
# {java}, which maps the classes of Spark from an archive: see tests/support/environment/fast_java.py.
arguments=() options=()
while (($#)); do
  if [[ $1 == -cp && $2 == */pyspark/jars/* ]]; then
    jars='' directories=''
    IFS=: read -ra entries <<<"$2"
    for entry in "${{entries[@]}}"; do
      if [[ $entry == *.jar || $entry == *'/*' ]]; then jars+=:$entry; else directories+=:$entry; fi
    done
    if [[ ${{{makes}-}} && $* == *org.apache.spark.deploy.SparkSubmit* ]]; then
      options+=("-XX:ArchiveClassesAtExit=${makes}" '-Xlog:cds*=off')
      directories=''
    elif [[ -r {archive} ]]; then
      options+=('-XX:SharedArchiveFile={archive}' '-Xlog:cds*=off')
    fi
    set -- "$1" "${{jars#:}}$directories" "${{@:3}}"
    arguments+=("$1")
    shift
  fi
  arguments+=("$1")
  shift
done
exec '{java}' "${{options[@]}}" "${{arguments[@]}}"
"""


def fast_java_home(home: Path) -> Path:
    """Return a home that does what `home` does, and starts Spark faster once there is an archive."""
    if home.name.startswith("fast-java-"):
        return home
    java = home / "bin" / "java"
    if not java.exists():
        return home
    found = java.resolve().stat()
    made_from = f"{java.resolve()} {found.st_mtime_ns} {found.st_size} {version('pyspark')} {_JAVA}"
    fast = Path(sys.prefix) / "share" / f"fast-java-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
    if fast.is_dir():
        return fast
    fast.parent.mkdir(parents=True, exist_ok=True)
    # The directory is renamed only when it is complete.
    with tempfile.TemporaryDirectory(dir=fast.parent) as scratch:
        draft = Path(scratch) / "home"
        (draft / "bin").mkdir(parents=True)
        for original in (*home.iterdir(), *(home / "bin").iterdir()):
            link = draft / original.relative_to(home)
            if not link.exists():
                link.symlink_to(original)
        (draft / "bin" / "java").unlink()
        (draft / "bin" / "java").write_text(_JAVA.format(java=java, archive=_archive_of(fast), makes=_MAKES))
        (draft / "bin" / "java").chmod(0o755)
        try:
            draft.rename(fast)
        except OSError:  # another process was faster
            if not fast.is_dir():
                raise
    return fast


def _archive_of(fast: Path) -> Path:
    return fast / "spark-classes.jsa"


def make_archive(home: Path) -> None:
    """Make the archive unless it is there. A Java that cannot make one leaves things as they are."""
    fast = fast_java_home(home)
    archive = _archive_of(fast)
    if archive.exists():
        return
    draft = archive.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [sys.executable, "-m", __spec__.name, "use-spark"],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": str(fast), "SPARK_CONF_DIR": str(SPARK_CONF), _MAKES: str(draft)},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if draft.exists():
        draft.replace(archive)


def _use_spark() -> None:
    """Use what the tests use of Spark, so that its classes are loaded."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    )
    with tempfile.TemporaryDirectory() as scratch:
        rows = session.range(20).selectExpr("id", "CAST(id % 2 AS STRING) AS part")
        rows.write.partitionBy("part").parquet(f"{scratch}/rows")
        read = session.read.parquet(f"{scratch}/rows").where("part = '1'")
        read.groupBy("part").count().collect()
        read.mapInArrow(lambda batches: batches, read.schema).collect()
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    # The JVM ends when its standard input ends; then it writes the archive.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["use-spark"]:
        _use_spark()
    elif "JAVA_HOME" in os.environ:
        make_archive(Path(os.environ["JAVA_HOME"]))
