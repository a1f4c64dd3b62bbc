"""``health``, ``inspect`` and ``history`` refuse no table that can be read, whatever stops other operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.environment.corpus import Corpus, corpus_cases
from tests.support.tables.written_log import add, write_log

from delta_maintenance.cli.main import main

COMMANDS = ("health", "inspect", "history")
PROPERTIES = (
    "delta.appendOnly",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableIcebergCompatV2",
    "delta.enableInCommitTimestamps",
    "delta.enableRowTracking",
    "delta.logRetentionDuration",
    "delta.parquet.compression.codec",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
    "delta.writePartitionColumnsToParquet",
)
TABLES: dict[str, dict[str, Any]] = {
    "unknown writer feature": {"writer_features": ["brandNew"]},
    "row tracking without its columns": {
        "writer_features": ["rowTracking"],
        "properties": {"delta.enableRowTracking": "true"},
    },
    "Iceberg": {
        "writer_features": ["icebergCompatV3"],
        "properties": {"delta.enableIcebergCompatV3": "true"},
    },
    "collations": {"writer_features": ["collations"]},
    "void": {"columns": {"a": "long", "b": "void"}},
    "variant": {"columns": {"a": "long", "v": "variant"}, "features": ["variantType"]},
    "nanoseconds": {"columns": {"at": "timestamp_nanos"}, "features": ["timestampNanos"]},
    "intervals": {"columns": {"a": "interval day"}, "partition_by": {"p": "interval month"}},
    **{
        name: {
            "properties": {name: "s p,;odd ß"},
            "features": ["v2Checkpoint"],
            "writer_features": ["inCommitTimestamp", "icebergCompatV2", "rowTracking"],
        }
        for name in PROPERTIES
    },
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", TABLES)
def test_features_types_and_properties_stop_no_reading(name: str, command: str, tmp_path: Path) -> None:
    how = TABLES[name]
    partition = dict.fromkeys(how.get("partition_by", ()))
    write_log(tmp_path, [add("a.parquet", 100, partition)], **how)
    assert main([command, str(tmp_path), "--json"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", corpus_cases(lambda entry: bool(entry["readable"])))
def test_tables_of_all_writers_are_read(name: Any, corpus: Corpus) -> None:
    for command in COMMANDS:
        assert main([command, str(corpus.table(name["name"])), "--json"]) == 0
