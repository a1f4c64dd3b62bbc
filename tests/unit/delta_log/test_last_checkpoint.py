"""The pointer to the newest checkpoint is advice, and its checksum says whether to take it."""

from __future__ import annotations

import json

import pytest

from delta_log.last_checkpoint import checksum_of, read_last_checkpoint
from delta_log.log_path import LAST_CHECKPOINT
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
