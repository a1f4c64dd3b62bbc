"""What the tests of OPTIMIZE and REORG PURGE on corpus tables share: which tables, runs on Spark, and other readers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from tests.support import ROOT
from tests.support.checks.kept_by_rewrites import Facts, facts_of
from tests.support.environment.corpus import Corpus, Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tables with live files that OPTIMIZE refuses, and the features that its error names.
REFUSED = {
    "golden-table-with-icebegCompatV2Enabled": {"icebergCompatV2"},
    "rs-table_with_liquid_clustering": {"liquid"},
}
#: Tables of variants that pyspark gives no table of Arrow of, or the manifest no digest of; tests of variants rewrite such tables.
CHECKED_ELSEWHERE = {
    "kernel-spark-shredded-variant-preview-delta": "tests/integration/test_new_types_readers.py",
    "spark-variant-stats-with-struct-no-checkpoint": "tests/scenarios/test_variant_columns.py",
}
#: Tables that delta-spark misreads or cannot read even as the corpus has them.
NOT_BY_DELTA_SPARK = {
    "krs-compacted-log-files-table": "its log compactions hold several actions for one file, and Spark takes the last",
}


def has_rows(entry: Entry) -> bool:
    return bool(entry["readable"] and entry["data"] == "full" and entry["num_active_files"])


def optimised(entry: Entry) -> bool:
    return has_rows(entry) and entry["name"] not in {**REFUSED, **CHECKED_ELSEWHERE}


def check_with_delta_rs(table: Path, entry: Entry, corpus: Corpus) -> None:
    """Checks that delta-rs reads the same rows, if the manifest says that it could read the original."""
    if entry["oracles"].get("deltalake") not in ("agree", "rows_agree"):
        return
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table)))
    rows = pa.table(builder.execute("SELECT * FROM t").read_all())
    assert rows.num_rows == entry["logical_row_count"]
    if entry["oracles"]["deltalake"] == "agree":
        assert corpus.digest(rows) == entry["content_digest"]


@dataclass(frozen=True)
class OnSpark:
    """A copy of a table that the Spark engine has rewritten, and what was noted before."""

    table: Path
    before: Facts
    report: dict[str, Any]


#: What :func:`run_on_spark` asks for, unless the test says otherwise.
_OPTIONS: dict[str, dict[str, Any]] = {"optimize": {"full": True}, "purge": {"verify": "full"}}


def run_on_spark(
    operation: str, tables: list[Path], options: Mapping[Path, Mapping[str, Any]] | None = None
) -> list[OnSpark]:
    """Rewrites the tables with one Spark session in a process of its own, since this process may run another Spark.

    :param options: by table.
    """
    before = [facts_of(table) for table in tables]
    asked = [(str(table), (options or {}).get(table, _OPTIONS[operation])) for table in tables]
    program = ROOT / "tests" / "support" / "runs" / "optimize_on_spark.py"
    process = subprocess.run(
        [sys.executable, str(program), operation, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    reports = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    return [OnSpark(*found) for found in zip(tables, before, reports, strict=True)]


def rows_by_delta_spark(session: SparkSession, table: Path, *also: str) -> pa.Table:
    """Returns all rows.

    :param also: expressions to select besides the columns.
    """
    for checksum in table.rglob(".*.crc"):
        checksum.unlink()  # written by Hadoop; some in the corpus do not fit their files
    return session.read.format("delta").load(str(table)).select("*", *also).toArrow()
