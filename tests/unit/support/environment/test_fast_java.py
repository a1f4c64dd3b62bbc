from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.environment.fast_java import fast_java_home

JARS = "/venv/pyspark/jars"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fast home of a Java that prints its arguments."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    (tmp_path / "java" / "release").touch()
    return fast_java_home(tmp_path / "java")


def started(home: Path, *arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [home / "bin" / "java", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout.splitlines()


def test_a_spark_maps_the_archive_which_holds_no_directory(home: Path) -> None:
    (home / "spark-classes.jsa").touch()
    given = ["-Da=b c", "-cp", f"/conf/:{JARS}/slf4j.jar:{JARS}/*:/hadoop conf", "Main", "-cp", "1:2"]
    assert started(home, *given) == [
        f"-XX:SharedArchiveFile={home}/spark-classes.jsa",
        "-Xlog:cds*=off",
        "-Da=b c",
        *("-cp", f"{JARS}/slf4j.jar:{JARS}/*:/conf/:/hadoop conf"),
        *("Main", "-cp", "1:2"),
    ]


def test_without_an_archive_and_for_other_programs_nothing_is_asked_of_java(home: Path) -> None:
    spark = ["-cp", f"{JARS}/*", "Main"]
    assert started(home, *spark) == spark
    (home / "spark-classes.jsa").touch()
    for other in (["-cp", "/conf:/other/*", "Main"], ["-version"], []):
        assert [line for line in started(home, *other) if line] == other


def test_only_the_program_that_makes_the_archive_is_asked_for_one(home: Path) -> None:
    submit = ["-cp", f"/conf:{JARS}/*", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    launcher = ["-cp", f"{JARS}/*", "org.apache.spark.launcher.Main", "pyspark-shell"]
    assert started(home, *launcher, SPARK_CLASSES_ARCHIVE="/a.jsa") == launcher
    assert started(home, *submit, SPARK_CLASSES_ARCHIVE="/a.jsa") == [
        "-XX:ArchiveClassesAtExit=/a.jsa",
        "-Xlog:cds*=off",
        *("-cp", f"{JARS}/*"),
        *submit[2:],
    ]


def test_a_fast_home_is_its_own_and_has_what_the_first_has(home: Path) -> None:
    assert fast_java_home(home) == home
    assert sorted(path.name for path in home.iterdir()) == ["bin", "release"]
