"""Every table of the corpus reads as its manifest says, field by field and version by version."""

from __future__ import annotations

import json

import pytest
from tests.support.environment.corpus import Corpus, Entry, corpus_cases

from delta_log import DeltaLogError, Snapshot, Table


@pytest.mark.parametrize("entry", corpus_cases())
def test_a_table_reads_as_its_manifest_says(entry: Entry, corpus: Corpus) -> None:
    table = Table(str(corpus.table(entry["name"])))
    if not entry["readable"]:
        with pytest.raises(DeltaLogError):
            table.snapshot()
        return
    snapshot = table.snapshot()
    protocol = snapshot.protocol
    found = {
        "latest_version": snapshot.version,
        "num_active_files": snapshot.num_files,
        "total_size_bytes": snapshot.size_bytes,
        "num_active_files_with_dv": snapshot.num_deletion_vectors,
        "dv_cardinality_total": snapshot.num_deleted_rows,
        "num_tombstones": snapshot.tombstones(["path"]).num_rows,
        "schema": json.loads(snapshot.metadata.schemaString),
        "partition_columns": list(snapshot.partition_columns),
        "protocol": {
            "minReader": protocol.minReaderVersion,
            "minWriter": protocol.minWriterVersion,
            "readerFeatures": None if protocol.readerFeatures is None else sorted(protocol.readerFeatures),
            "writerFeatures": None if protocol.writerFeatures is None else sorted(protocol.writerFeatures),
        },
        "table_properties": snapshot.properties,
        "txns": snapshot.transactions,
        "domain_metadata": snapshot.domain_metadata,
    }
    expected = {name: entry[name] for name in found if name not in entry["ambiguous"]}
    expected["schema"] = json.loads(entry["schema"])
    assert {name: found[name] for name in expected} == expected
    _check_rows(snapshot, entry, corpus)
    for version in entry["versions"]:
        earlier = table.snapshot(version=version["version"])
        assert earlier.num_files == version["num_active_files"]
        _check_rows(earlier, version, corpus)


def _check_rows(snapshot: Snapshot, expected: Entry, corpus: Corpus) -> None:
    if expected.get("content_digest"):
        rows = snapshot.to_arrow()
        assert rows.num_rows == expected["logical_row_count"]
        assert corpus.digest(rows) == expected["content_digest"]
