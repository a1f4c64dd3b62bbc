"""Version checksums are statements: read, checked against themselves, and compared with the replayed log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.repetition import examples
from tests.support.tables.random_log import logs, write_commits
from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_log import Snapshot, Table
from delta_log.errors import CorruptLog, UnsupportedFeature
from delta_log.log.file_names import checksum_key
from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.version_checksum import (
    checksum_of,
    disagreements,
    read_version_checksum,
    write_version_checksum,
)
from delta_log.testing import MemoryStorage


@pytest.mark.parametrize(
    "entry", corpus_cases(lambda e: bool("version_checksum" in e["features"] and e["readable"]))
)
def test_the_checksums_of_the_corpus_agree_with_the_replay_but_one(entry: Entry, corpus: Corpus) -> None:
    table = Table(str(corpus.table(entry["name"])))
    found = {
        version: disagreements(checksum, table.snapshot(version=version))
        for version in range(entry["latest_version"] + 1)
        if (checksum := read_version_checksum(table.storage, version)) is not None
    }
    assert found
    wrong = {version: names for version, names in found.items() if names}
    # That table's only commit adds no file at all: what a checksum says need not be so.
    assert bool(wrong) == ("checksum_mismatch" in entry["features"])
    if wrong:
        assert {"numFiles", "tableSizeBytes"} <= set(wrong[0])


STATED: dict[str, Any] = {
    "tableSizeBytes": 30,
    "numFiles": 3,
    "numMetadata": 1,
    "numProtocol": 1,
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    "metadata": {"id": "t", "schemaString": "{}"},
    "fileSizeHistogram": {"sortedBinBoundaries": [0, 8192], "fileCounts": [3, 0], "totalBytes": [30, 0]},
}


@pytest.mark.parametrize(
    "change",
    [{"numFiles": 4}, {"tableSizeBytes": 31}, {"numFiles": -1}, {"protocol": 5}, {"numFiles": "many"}],
    ids=["files", "bytes", "negative", "a number for the protocol", "text"],
)
def test_a_statement_that_contradicts_itself_is_named(change: dict[str, Any]) -> None:
    storage = MemoryStorage()
    storage.put(checksum_key(0), json.dumps(STATED).encode())
    assert read_version_checksum(storage, 0) is not None
    storage.put(checksum_key(1), json.dumps({**STATED, **change}).encode())
    with pytest.raises(CorruptLog, match=r"00001\.crc"):
        read_version_checksum(storage, 1)
    assert read_version_checksum(storage, 2) is None


# -- written ------------------------------------------------------------------------------------------------------

#: What other writers state and we do not.
NOT_OURS = {"allFiles", "numTransactions"}


@pytest.mark.parametrize(
    "entry",
    corpus_cases(
        lambda e: bool(
            "version_checksum" in e["features"] and e["readable"] and "checksum_mismatch" not in e["features"]
        )
    ),
)
def test_what_others_stated_is_what_we_would_have_stated(entry: Entry, corpus: Corpus) -> None:
    table = Table(str(corpus.table(entry["name"])))
    compared = 0
    for version in range(entry["latest_version"] + 1):
        path = corpus.table(entry["name"]) / checksum_key(version)
        if not path.exists():
            continue
        stated = {
            name: value for name, value in json.loads(path.read_bytes()).items() if name not in NOT_OURS
        }
        if "histogramOpt" in stated:
            stated["fileSizeHistogram"] = stated.pop("histogramOpt")
        ours = as_json(table.snapshot(version=version), stated.get("txnId"))
        assert {name: ours.get(name) for name in stated} == stated
        compared += 1
    assert compared


def as_json(snapshot: Snapshot, txn_id: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(checksum_of(snapshot, txn_id)))
    return found


@examples(60)
@given(log=logs({}, max_versions=6), data=st.data())
def test_totals_carried_on_from_commit_to_commit_are_those_of_a_full_count(
    log: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    storage = MemoryStorage()
    snapshot: Snapshot | None = None
    for version in range(len(log)):
        write_commits(storage, log[: version + 1])
        snapshot = Snapshot(storage, find_log_segment(storage)) if snapshot is None else snapshot.refreshed()
        if data.draw(st.booleans()):  # what the totals rest on is held from here on
            snapshot.files()
        if data.draw(st.booleans()):
            assert as_json(snapshot) == as_json(Snapshot(storage, find_log_segment(storage)))
    assert snapshot is not None
    assert as_json(snapshot) == as_json(Snapshot(storage, find_log_segment(storage)))


def test_totals_of_a_held_snapshot_are_carried_on_without_reading(tmp_path: Path) -> None:
    write_log(tmp_path, [add(f"f{n}", n * 5000, deletionVector=deletion_vector(n + 1)) for n in range(9)])
    snapshot = Table(str(tmp_path)).snapshot()
    snapshot.files()
    remove = {"path": "f3", "deletionTimestamp": 1, "dataChange": True, "deletionVector": deletion_vector(4)}
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(
        json.dumps({"remove": remove}) + "\n" + json.dumps({"add": add("g", 1 << 40)})
    )
    refreshed = snapshot.refreshed()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()  # nothing of the past is looked at again
    stated = as_json(refreshed)
    assert stated["numFiles"] == 9
    assert stated["tableSizeBytes"] == sum(n * 5000 for n in range(9) if n != 3) + (1 << 40)
    assert stated["numDeletionVectorsOpt"] == 8
    assert stated["numDeletedRecordsOpt"] == 45 - 4
    assert stated["deletedRecordCountsHistogramOpt"]["deletedRecordCounts"][:3] == [1, 8, 0]
    histogram = stated["fileSizeHistogram"]
    assert sum(histogram["fileCounts"]) == 9
    assert sum(histogram["totalBytes"]) == stated["tableSizeBytes"]
    assert histogram["fileCounts"][:2] == [2, 1]
    assert histogram["sortedBinBoundaries"][histogram["fileCounts"].index(1, 60)] == 1 << 38


def test_what_is_written_is_read_back_and_never_overwritten(tmp_path: Path) -> None:
    snapshot = write_log(tmp_path, [add("f", 7)])
    storage = Table(str(tmp_path)).storage
    assert write_version_checksum(storage, snapshot, "the-transaction") is True
    found = read_version_checksum(storage, 0)
    assert found is not None
    assert disagreements(found, snapshot) == ()
    assert (found.txnId, found.numFiles, found.tableSizeBytes) == ("the-transaction", 1, 7)
    before = storage.read(checksum_key(0))
    assert write_version_checksum(storage, snapshot, "another") is False
    assert storage.read(checksum_key(0)) == before
    raw = json.loads(before)
    required = {"tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "metadata", "protocol"}
    assert required <= set(raw)
    assert raw["numMetadata"] == raw["numProtocol"] == 1
    assert raw["setTransactions"] == raw["domainMetadata"] == []
    assert {"id", "format", "schemaString", "partitionColumns", "configuration"} <= set(raw["metadata"])
    assert "inCommitTimestampOpt" not in raw


def table_with(properties: dict[str, str], *actions: dict[str, Any]) -> Snapshot:
    storage = MemoryStorage()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    metadata = {"id": "t", "schemaString": '{"type":"struct","fields":[]}', "configuration": properties}
    write_commits(storage, [[*actions, {"protocol": protocol}, {"metaData": metadata}]])
    return Snapshot(storage, find_log_segment(storage))


def test_optional_members_are_there_exactly_where_they_are_certain() -> None:
    timed = table_with(
        {"delta.enableInCommitTimestamps": "true"}, {"commitInfo": {"inCommitTimestamp": 1234}}
    )
    assert as_json(timed)["inCommitTimestampOpt"] == 1234
    assert {"numDeletedRecordsOpt", "numDeletionVectorsOpt", "txnId"}.isdisjoint(as_json(timed))
    transaction = {"txn": {"appId": "a", "version": 3, "lastUpdated": 5}}
    assert as_json(table_with({}, transaction))["setTransactions"] == [transaction["txn"]]
    expiring = table_with({"delta.setTransactionRetentionDuration": "interval 1 hour"}, transaction)
    assert "setTransactions" not in as_json(expiring)
    gone = {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}
    kept = {"domainMetadata": {"domain": "e", "configuration": "{}", "removed": False}}
    assert as_json(table_with({}, gone, kept))["domainMetadata"] == [kept["domainMetadata"]]


def test_the_gate_stands_before_the_statement() -> None:
    storage = MemoryStorage()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["brandNew"]}
    metadata = {"id": "t", "schemaString": '{"type":"struct","fields":[]}'}
    write_commits(storage, [[{"protocol": protocol}, {"metaData": metadata}]])
    with pytest.raises(UnsupportedFeature, match="brandNew"):
        write_version_checksum(storage, Snapshot(storage, find_log_segment(storage)), None)
    assert storage.head(checksum_key(0)) is None
