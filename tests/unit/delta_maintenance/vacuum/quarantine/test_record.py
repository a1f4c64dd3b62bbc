"""A record that the log does not vouch for is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.runs import mutated_quarantines
from tests.support.runs.quarantine_runs import (
    BROKEN_MANIFESTS,
    as_an_earlier_build_wrote_it,
    data_contents,
    restore_quarantine,
)


def add_a_line(place: Path) -> None:
    line = json.dumps({"path": "../../victim", "size": 1, "reason": "orphan"})
    with (place / "files.jsonl").open("a") as file:
        file.write(line + "\n")


def rewrite_both(place: Path) -> None:
    add_a_line(place)
    manifest = json.loads((place / "manifest.json").read_bytes())
    manifest["filesDigest"] = hashlib.sha256((place / "files.jsonl").read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))


def rename(place: Path) -> None:
    place.rename(place.with_name("another"))


def without_commits(place: Path) -> None:
    table = place.parent.parent
    DeltaTable(str(table)).create_checkpoint()
    for commit in (table / "_delta_log").glob("*.json"):
        if b"VACUUM" in commit.read_bytes():
            commit.unlink()


UNTRUE: list[tuple[Callable[[Path], None], str]] = [
    (add_a_line, "files.jsonl is not what it was"),
    (rewrite_both, "has the digest of its manifest.json"),
    (rename, "has the digest of its manifest.json"),
    (without_commits, "has the digest of its manifest.json"),
    (as_an_earlier_build_wrote_it, "an earlier build made it"),
    (lambda place: (place / "files.jsonl").unlink(), "its files.jsonl is missing"),
    (lambda place: (place / "manifest.json").unlink(), "it has no manifest.json"),
    *((broken, "its manifest.json cannot be read") for broken in BROKEN_MANIFESTS),
]


@pytest.mark.parametrize(("spoil", "why"), UNTRUE)
def test_a_record_that_the_log_does_not_vouch_for_is_refused_by_name(
    table: Path, place: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(place)
    before, name = data_contents(table), next(place.parent.iterdir()).name
    for options in ({}, {"name": name}):
        for dry_run in (True, False):
            report = restore_quarantine(table, dry_run=dry_run, **options)
            assert report.error is not None
            assert (report.error.type, report.error.kind) == ("QuarantineRefused", "refused")
            assert f"The quarantine {name} is not restored" in report.error.message
            assert why in report.error.message
            assert "copy by hand" in report.error.message
    assert data_contents(table) == before


def test_a_record_that_was_tampered_with_is_refused_and_harmless() -> None:
    outcomes = mutated_quarantines.run(examples=400, seed=1)
    assert min(outcomes["refused"], outcomes["restored"]) > 50
