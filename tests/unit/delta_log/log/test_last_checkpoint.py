"""The pointer to the newest checkpoint is advice, and its checksum says whether to take it."""

from __future__ import annotations

import json

import pytest
from tests.support.environment.corpus import Corpus

from delta_log.log.actions import Action, Protocol, Sidecar
from delta_log.log.file_names import LAST_CHECKPOINT
from delta_log.log.last_checkpoint import (
    LastCheckpoint,
    V2Checkpoint,
    checksum_of,
    encode_last_checkpoint,
    read_last_checkpoint,
)
from delta_log.testing import MemoryStorage

#: The worked example of the protocol.
SAMPLE = {
    "k0": "'v 0'",
    "checksum": "adsaskfljadfkjadfkj",
    "k1": {"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]},
}


def test_the_protocols_own_example_has_its_checksum() -> None:
    assert checksum_of(SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (b'{"version": 7, "size": 3}', 7),
        (
            json.dumps(
                {"version": 7, "size": 3, "checksum": checksum_of({"version": 7, "size": 3})}
            ).encode(),
            7,
        ),
        (b'{"version": 7, "size": 3, "checksum": "00"}', None),
        (b'{"version": 7.5}', None),
        (b'{"version": -1}', None),
        (b'{"version": 99999999999999999999999}', None),
        (b'{"version": null}', None),
        (b"[7]", None),
        (b"", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
    ],
)
def test_the_pointer_counts_only_if_it_is_sound(content: bytes, version: int | None) -> None:
    storage = MemoryStorage()
    storage.put(LAST_CHECKPOINT, content)
    assert read_last_checkpoint(storage) == version


def test_a_checksum_over_numbers_takes_them_verbatim() -> None:
    storage = MemoryStorage()
    body = b'{"version":7,"x":1.50,"checksum":"%s"}'
    import hashlib

    right = hashlib.md5(b'"version"=7,"x"=1.50').hexdigest().encode()
    storage.put(LAST_CHECKPOINT, body % right)
    assert read_last_checkpoint(storage) == 7


def test_no_pointer_is_no_error() -> None:
    assert read_last_checkpoint(MemoryStorage()) is None


def test_what_is_written_has_the_members_of_the_protocol_and_a_sound_checksum() -> None:
    storage = MemoryStorage()
    storage.put(LAST_CHECKPOINT, encode_last_checkpoint(LastCheckpoint(7, 12, 345, 10)))
    assert read_last_checkpoint(storage) == 7
    raw = json.loads(storage.read(LAST_CHECKPOINT))
    assert raw.pop("checksum") == checksum_of(raw)
    assert raw == {"version": 7, "size": 12, "sizeInBytes": 345, "numOfAddFiles": 10}


def test_the_pointer_to_a_v2_checkpoint_says_what_is_in_its_top_file() -> None:
    top = V2Checkpoint("é.json", 3, 4, [Action(protocol=Protocol(1, 2))], [Sidecar("s.parquet", 5, 6)])
    storage = MemoryStorage()
    storage.put(LAST_CHECKPOINT, encode_last_checkpoint(LastCheckpoint(7, 12, 345, 10, None, top)))
    assert read_last_checkpoint(storage) == 7
    assert json.loads(storage.read(LAST_CHECKPOINT))["v2Checkpoint"] == {
        "path": "é.json",
        "sizeInBytes": 3,
        "modificationTime": 4,
        "nonFileActions": [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}],
        "sidecarFiles": [{"path": "s.parquet", "sizeInBytes": 5, "modificationTime": 6}],
    }


def test_another_writers_pointer_has_the_checksum_that_we_compute(corpus: Corpus) -> None:
    pointer = corpus.table("kernel-pagination-v2-checkpoint-json") / LAST_CHECKPOINT
    raw = json.loads(pointer.read_bytes())
    assert raw["checksum"] == checksum_of(raw)
