"""The guide's ways to bring Python to a cluster: its commands are run, and what they make is shipped to machines without libraries."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tomllib
from tests.support import ROOT
from tests.support.checks.documented_blocks import Block, blocks, commands
from tests.support.environment.prerequisites import absent
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.servers.spark_standalone import SparkCluster
from tests.support.tables.small_tables import write_days

from airflow_delta.operators import DeltaReorgPurgeOperator

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs" / "guides" / "cluster-python.md"
DOCKERFILE = ROOT / "docs" / "guides" / "cluster.Dockerfile"


def shown(language: str, word: str) -> Block:
    """The guide's first block of a language with a word in it."""
    found = (block for block in blocks(GUIDE.read_text()) if block.language == language)
    return next(block for block in found if word in block.text)


def run(*command: str | Path, **more: Any) -> str:
    # Environments of the tests must not shine through.
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=inherited, **more)
    if done.returncode and re.search(
        r"NewConnectionError|error sending request|Failed to fetch", done.stderr
    ):
        absent("a package index", "to install what a cluster needs")
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    said: str = done.stdout
    return said


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the guide's commands make, from this checkout and for tables on a disk."""
    directory = tmp_path_factory.mktemp("packed")
    here = {"python3": sys.executable, '"airflow-provider-delta[s3]"': f"--quiet {ROOT}"}
    for command in commands(shown("console", "venv-pack").text):
        words = command.words
        for documented, ours in here.items():
            words = words.replace(documented, ours)
        run("bash", "-euc", words, cwd=directory)
    return directory / "delta-env.tar.gz"


def documented_conf() -> dict[str, str]:
    """The Spark properties of the guide's DAG."""
    (call,) = ast.parse(shown("python", "spark.archives").text).body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    given = {keyword.arg: keyword.value for keyword in call.value.keywords}
    conf: dict[str, str] = ast.literal_eval(given["spark_conf"])
    return conf


@pytest.mark.spark
def test_the_packed_environment_purges_on_executors_that_have_no_library(
    archive: Path,
    spark_cluster: SparkCluster,
    tmp_path: Path,
    make_context: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = tmp_path / "t"
    rows = write_days(table, files=4, rows=10, days=2)
    enable_deletion_vectors(table)
    mark_deleted(table, {key: [0] for key in keys(table)})
    conf = documented_conf()
    conf["spark.archives"] = conf["spark.archives"].replace("/opt/delta/delta-env.tar.gz", str(archive))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_LAKE", json.dumps({"conn_type": "spark", "host": spark_cluster.master})
    )
    purge = DeltaReorgPurgeOperator(
        task_id="purge",
        table=str(table),
        engine="spark",
        spark_conn_id="spark_lake",
        spark_conf={**SparkCluster.conf, **conf},
    )
    report = DeltaReorgPurgeOperator.execute.__wrapped__(purge, make_context(try_number=1))  # type: ignore[attr-defined]
    assert (report["status"], report["engine"]) == ("committed", "spark")
    # No file has a deletion vector any more, so that the files hold the table's rows.
    assert report["metrics"]["numDeletionVectorsRemoved"] == 4
    left = [id_ for key in keys(table) for id_ in pq.ParquetFile(table / key).read(["id"])["id"].to_pylist()]
    assert sorted(left) == [id_ for id_ in rows["id"].to_pylist() if id_ % 10]


def documented_requirements() -> list[str]:
    """What the image installs."""
    (line,) = re.findall(r"^RUN .*pip install .*$", DOCKERFILE.read_text().replace("\\\n", ""), re.MULTILINE)
    return re.findall(r'"([^"]+)"', line)


def test_the_image_has_the_libraries_of_this_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert documented_requirements() == [*project["dependencies"], *project["optional-dependencies"]["s3"]]


def test_the_libraries_of_the_image_are_there_for_its_python(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("\n".join(documented_requirements()))
    resolve = ["pip", "compile", "--quiet", "--python-version", "3.10", "requirements.in"]
    found = run(sys.executable, "-m", "uv", *resolve, cwd=tmp_path)
    assert {"pyarrow", "pyroaring", "obstore"} <= set(re.findall(r"^([\w-]+)==", found, re.MULTILINE))


def test_the_program_in_the_image_finds_its_package(tmp_path: Path) -> None:
    image = tmp_path / "image"
    for source, target in re.findall(r"^COPY (\S+) (\S+)$", DOCKERFILE.read_text(), re.MULTILINE):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, image / target.lstrip("/"), ignore=ignored)
    (named,) = re.findall(r'cluster_application="local://([^"]+)"', DOCKERFILE.read_text())
    # Without the packages of this environment, this one among them.
    assert "--spec" in run(sys.executable, "-IS", image / named.lstrip("/"), "--help", cwd="/")
