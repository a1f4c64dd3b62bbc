"""Version checksums are statements: read, checked against themselves, and compared with the replayed log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.corpus import Corpus, Entry, corpus_cases

from delta_log import Table
from delta_log.errors import CorruptLog
from delta_log.log_path import checksum_key
from delta_log.testing import MemoryStorage
from delta_log.version_checksum import disagreements, read_version_checksum


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
