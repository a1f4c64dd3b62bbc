"""Changes by ours and by delta-spark: ranges of versions of corpus tables, and of tables that delta-spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.repetition import version_ranges
from tests.support.tables.change_feed import enable_change_feed

from delta_log import Table
from delta_log.errors import DeltaLogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: Ranges of long histories are taken from their first versions.
_VERSIONS = 12
#: Tables of which the two show different rows, and why.
_DIFFERENT = {
    "krs-cdf-table-with-dv": "an inline deletion vector is no Z85; delta-spark takes what its number overflows to",
    "spark-delta-0.1.0": "delta-spark reads versions without partitions by the later partitioning, and shows null for its column",
    "kernel-spark-shredded-variant-preview-delta": "shredded variants are refused",
    "spark-variant-stats-with-struct-no-checkpoint": "shredded variants are refused",
}


def _by_spark(session: SparkSession, table: Path, first: int, last: int) -> pa.Table | None:
    """Changes by delta-spark; ``None``: it refuses the range."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    reader = session.read.format("delta").option("readChangeFeed", "true")
    try:
        return (
            reader.option("startingVersion", first).option("endingVersion", last).load(str(table)).toArrow()
        )
    except (PySparkException, Py4JJavaError):
        return None


def _compare(session: SparkSession, corpus: Corpus, table: Path, versions: int) -> int:
    """Compare ranges of the first versions; return how many delta-spark reads."""
    compared = 0
    for first, last in version_ranges(versions):
        theirs = _by_spark(session, table, first, last)
        if theirs is None:
            continue
        try:
            ours = Table(str(table)).changes(first, last).read_all()
        except DeltaLogError as error:
            raise AssertionError(
                f"versions {first} to {last}: delta-spark reads them, and we say: {error}"
            ) from error
        # delta-spark shows columns that came after the range, too.
        assert corpus.digest(ours) == corpus.digest(theirs.select(ours.column_names)), (first, last)
        compared += 1
    return compared


@pytest.mark.parametrize(
    "entry",
    corpus_cases(
        lambda entry: entry["readable"] and entry["data"] == "full" and entry["name"] not in _DIFFERENT
    ),
)
def test_changes_of_ranges_of_a_corpus_table_are_delta_sparks(
    entry: Entry, corpus: Corpus, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    if enable_change_feed(table):
        versions = len(list((table / "_delta_log").glob("*.json")))
        _compare(delta_spark_session, corpus, table, min(versions, _VERSIONS))


_COLUMNS = "id BIGINT, day STRING, amount INT"
_HISTORY = (
    "INSERT INTO {t} VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3), (4, NULL, 4)",
    "UPDATE {t} SET amount = amount + 10 WHERE id = 2",
    "DELETE FROM {t} WHERE id = 3",
    "MERGE INTO {t} USING (SELECT * FROM VALUES (1L, 'a', 7), (9L, 'c', 9) AS v (id, day, amount)) AS s ON {t}.id = s.id "  # noqa: ISC004
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "OPTIMIZE {t}",
    "DELETE FROM {t} WHERE id IN (1, 9)",
    "RESTORE TABLE {t} TO VERSION AS OF 3",
    "REORG TABLE {t} APPLY (PURGE)",
    "MERGE INTO {t} USING (SELECT 99L AS id) AS s ON {t}.id = s.id WHEN MATCHED THEN DELETE",
)
_NAME_MAPPING = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
_WIDENING = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
_CASES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "plain": ({}, ()),
    "vectors": ({"delta.enableDeletionVectors": "true"}, ()),
    "new column": (
        {},
        ("ALTER TABLE {t} ADD COLUMN more STRING", "INSERT INTO {t} VALUES (20, 'd', 1, 'x')"),
    ),
    "wider type": (
        {"delta.enableDeletionVectors": "true"},
        (_WIDENING, "ALTER TABLE {t} ALTER COLUMN amount TYPE BIGINT", "DELETE FROM {t} WHERE id = 4"),
    ),
    "renamed column": (
        {},
        (
            _NAME_MAPPING,
            "UPDATE {t} SET amount = 0 WHERE id = 4",
            "ALTER TABLE {t} RENAME COLUMN amount TO total",
            "DELETE FROM {t} WHERE id = 2",
        ),
    ),
}


@pytest.mark.parametrize("feed", [True, False], ids=["with change data files", "without change data files"])
@pytest.mark.parametrize("name", _CASES)
def test_changes_of_ranges_of_a_table_of_delta_spark_are_delta_sparks(
    name: str, feed: bool, corpus: Corpus, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    properties, more = _CASES[name]
    table = tmp_path / "written"
    given = {
        "delta.enableDeletionVectors": "false",
        **properties,
        "delta.enableChangeDataFeed": str(feed).lower(),
    }
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    delta_spark_session.sql(
        f"CREATE TABLE delta.`{table}` ({_COLUMNS}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({text})"
    )
    for statement in (*_HISTORY, *more):
        delta_spark_session.sql(statement.replace("{t}", f"delta.`{table}`"))
    assert enable_change_feed(table)
    versions = Table(str(table)).snapshot().version + 1
    compared = _compare(delta_spark_session, corpus, table, versions)
    # delta-spark refuses most ranges before a wider type or a new name.
    assert compared == len(version_ranges(versions)) or (
        compared and name in ("wider type", "renamed column")
    )
