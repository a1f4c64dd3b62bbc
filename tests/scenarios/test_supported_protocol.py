"""What the documentation says of each table feature is what the gate does."""

from __future__ import annotations

import re

import pytest
from tests.support import ROOT

from delta_log.errors import UnsupportedFeature
from delta_log.log.actions import Protocol
from delta_log.table_config.features import FEATURES, Operation, require, writer_features

PAGE = ROOT / "docs" / "reference" / "supported-protocol.md"
ROWS = re.findall(
    r"^\| `(\w[\w-]*)` \| (reader, writer|writer) \| (\w+) \| (\w+) \| (\w+) \| (\w+) \| (.*) \|$",
    PAGE.read_text(),
    re.MULTILINE,
)


def test_every_feature_has_its_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(FEATURES)


@pytest.mark.parametrize(
    ("name", "kind", "read", "optimize", "checkpoint", "vacuum", "why"), ROWS, ids=[row[0] for row in ROWS]
)
def test_a_row_says_what_the_gate_does(
    name: str, kind: str, read: str, optimize: str, checkpoint: str, vacuum: str, why: str
) -> None:
    protocol = Protocol(3, 7, [name] if kind == "reader, writer" else [], [name])
    said = {
        Operation.READ: read,
        Operation.OPTIMIZE: optimize,
        Operation.CHECKPOINT: checkpoint,
        Operation.VACUUM: vacuum,
    }
    for operation, word in said.items():
        if word == "yes":
            require(protocol, operation)
            continue
        with pytest.raises(UnsupportedFeature) as caught:
            require(protocol, operation)
        assert caught.value.features == (name,)
        assert why in str(caught.value)


def test_an_unknown_reader_feature_stops_everything_and_an_unknown_writer_feature_stops_writing() -> None:
    both = Protocol(3, 7, ["brandNew"], ["brandNew"])
    writer_only = Protocol(1, 7, None, ["brandNew"])
    require(writer_only, Operation.READ)
    for protocol, operation in (
        (both, Operation.READ),
        (both, Operation.OPTIMIZE),
        (writer_only, Operation.OPTIMIZE),
        (writer_only, Operation.CHECKPOINT),
        (writer_only, Operation.VACUUM),
    ):
        with pytest.raises(UnsupportedFeature, match="brandNew: unknown"):
            require(protocol, operation)


@pytest.mark.parametrize("versions", [(0, 2), (4, 7), (3, 8), (1, 0)])
def test_protocol_versions_that_do_not_exist_are_refused(versions: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedFeature, match="version"):
        require(Protocol(*versions, [], []), Operation.OPTIMIZE)


def test_legacy_versions_imply_their_features() -> None:
    assert writer_features(Protocol(1, 1)) == ()
    assert writer_features(Protocol(1, 4)) == (
        "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    )  # fmt: skip
    assert "columnMapping" in writer_features(Protocol(2, 5))
    assert "identityColumns" in writer_features(Protocol(2, 6))
