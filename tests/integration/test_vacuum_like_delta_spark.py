"""VACUUM by ours and by delta-spark, on two copies of each corpus table that has something to delete: the same files go.

The copies are a month old. First the table's own retention is kept to, then none. Where the two differ, the reason stands
here and in docs/concepts/vacuum.md. What delta-spark reads afterwards are the rows of the corpus's manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.runs.vacuum_runs import files_below, run_vacuum
from tests.support.tables.vacuumable_tables import age

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: By table: what is different, in the words of the documentation.
EXPLAINED: Mapping[str, str] = {
    "krs-compacted-log-files-table": "compactions of the log that name a file several times",
    "krs-cdf-column-mapping-name-mode-3-7": "a table that is not read",
}
#: Left alone, it lists in 10,000 tasks, and makes two commits that say that it has deleted files.
SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
#: Our options, and delta-spark's words.
RETENTIONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, ""),
    ({"retain_hours": 0, "retention_check": False}, "RETAIN 0 HOURS"),
)


@pytest.fixture
def session(delta_spark_session: SparkSession) -> Iterator[SparkSession]:
    for name, value in SETTINGS.items():
        delta_spark_session.conf.set(name, value)
    yield delta_spark_session
    for name in SETTINGS:
        delta_spark_session.conf.unset(name)


def has_data(entry: Entry) -> bool:
    return bool(entry["readable"] and entry["data"] == "full")


def data_files(table: Path) -> set[str]:
    """But for the checksums that Hadoop keeps beside files on a disk: it deletes them too, and to us they are hidden."""
    return {key for key in files_below(table) if not re.search(r"(^|/)\.[^/]*\.crc$", key)}


def is_vacuumed(session: SparkSession, table: Path, retention: str) -> bool:
    """``False``: delta-spark refused."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        session.sql(f"VACUUM delta.`{table}` {retention}")
    except (PySparkException, Py4JJavaError):
        return False
    return True


@pytest.mark.parametrize("entry", corpus_cases(has_data))
def test_the_same_files_go_as_with_delta_spark_or_it_is_explained(
    entry: Entry, corpus: Corpus, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = entry["name"]
    tables = []
    for who in ("ours", "theirs"):
        (tmp_path / who).mkdir()
        tables.append(corpus.copy_of(name, tmp_path / who))
        age(tables[-1])
    ours, theirs = tables
    session: SparkSession | None = None
    differs = False
    for options, retention in RETENTIONS:
        before = data_files(ours)
        report = run_vacuum(ours, **options)
        if report.error is not None or data_files(ours) == before:
            continue  # Spark takes seconds for each table
        session = request.getfixturevalue("session")
        differs |= not is_vacuumed(session, theirs, retention) or data_files(ours) != data_files(theirs)
    if session is not None:
        assert differs == (name in EXPLAINED)
        # The compactions say something else to delta-spark than the commits do, until newer commits are there.
        if name not in EXPLAINED:
            rows = session.read.format("delta").load(str(ours)).toArrow()
            assert corpus.digest(rows) == entry["content_digest"]
