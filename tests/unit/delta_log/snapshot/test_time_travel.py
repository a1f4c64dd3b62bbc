"""Which version was the table's at a moment: by file times, by in-commit timestamps, and across the switch."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log import Table
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import CorruptLog, InvalidRequest, VersionNotFound
from delta_log.runtime import Runtime
from delta_log.snapshot.commit_info import monotone_times
from delta_maintenance.cli.text import render_history

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
PROTOCOL = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
}


def at(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def table_of(
    path: Path, commits: list[tuple[int, int | None]], properties: dict[int, dict[str, str]]
) -> Table:
    """Commits as (file time, in-commit timestamp), both in ms; ``properties`` by the version that sets them."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    for version, (file_ms, commit_ms) in enumerate(commits):
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"inCommitTimestamp": commit_ms} if commit_ms else {}}
        ]
        if version == 0:
            actions.append(PROTOCOL)
        if version == 0 or version in properties:
            schema = '{"type":"struct","fields":[]}'
            configuration = properties.get(version, {})
            actions.append({"metaData": {"id": "t", "schemaString": schema, "configuration": configuration}})
        name = log / f"{version:020d}.json"
        name.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(name, ns=(file_ms * 1_000_000, file_ms * 1_000_000))
    return Table(str(path))


def version_at(table: Table, milliseconds: int) -> int | None:
    try:
        return table.snapshot(timestamp=at(milliseconds)).version
    except VersionNotFound:
        return None


def test_file_times_are_made_ascending(tmp_path: Path) -> None:
    table = table_of(
        tmp_path / "t", [(1000, None), (5000, None), (3000, None), (5001, None), (9000, None)], {}
    )
    # Version 2 counts as 5001, version 3 as 5002.
    found = {
        moment: version_at(table, moment) for moment in (999, 1000, 4999, 5000, 5001, 5002, 8999, 9000, 9001)
    }
    assert found == {999: None, 1000: 0, 4999: 0, 5000: 1, 5001: 2, 5002: 3, 8999: 3, 9000: 4, 9001: None}


ENABLED = {"delta.enableInCommitTimestamps": "true"}


def test_in_commit_timestamps_count_and_file_times_do_not(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", [(9000, 100), (1, 200), (5, 300)], {0: ENABLED})
    found = {moment: version_at(table, moment) for moment in (99, 100, 199, 200, 299, 300, 301)}
    assert found == {99: None, 100: 0, 199: 0, 200: 1, 299: 1, 300: 2, 301: None}
    assert table.snapshot().timestamp == at(300)
    assert table.snapshot(version=1).timestamp == at(200)


def test_before_the_enablement_file_times_count_and_after_it_in_commit_timestamps(tmp_path: Path) -> None:
    enabled = {**ENABLED, "delta.inCommitTimestampEnablementVersion": "2"}
    # The files of versions 0 and 1 claim to be younger than the enablement; they are still older versions.
    table = table_of(tmp_path / "t", [(100, None), (900, None), (950, 500), (960, 600)], {2: enabled})
    found = {moment: version_at(table, moment) for moment in (99, 100, 499, 500, 599, 600, 601)}
    assert found == {99: None, 100: 0, 499: 0, 500: 2, 599: 2, 600: 3, 601: None}


def test_a_commit_that_owes_its_timestamp_is_named(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", [(1, 100), (2, None)], {0: ENABLED})
    with pytest.raises(CorruptLog, match=f"{1:020d}.json"):
        table.snapshot().timestamp  # noqa: B018


@pytest.mark.parametrize("enabled_at", [None, 0, 2])
@pytest.mark.parametrize("cleaned", [False, True])
def test_the_times_of_the_history_are_those_that_time_travel_obeys(
    tmp_path: Path, enabled_at: int | None, cleaned: bool
) -> None:
    # As in a table that was copied: its files are younger than their writer's times, and not in order.
    file_times = [50_000, 40_000, 60_000, 55_000, 70_000]
    commit_times = [None if enabled_at is None or v < enabled_at else 60_500 + v for v in range(5)]
    properties = {**ENABLED, "delta.inCommitTimestampEnablementVersion": str(enabled_at)}
    table = table_of(
        tmp_path / "t",
        list(zip(file_times, commit_times, strict=True)),
        {} if enabled_at is None else {enabled_at: properties},
    )
    log = tmp_path / "t" / "_delta_log"
    for version in range(5):
        commit = log / f"{version:020d}.json"
        text = commit.read_text().replace('"commitInfo": {', '"commitInfo": {"timestamp": 1234, ')
        commit.write_text(text.replace("1234, }", "1234}"))
        os.utime(commit, ns=(file_times[version] * 10**6, file_times[version] * 10**6))
    if cleaned:
        write_checkpoint(table.storage, table.snapshot(version=1), Runtime())
        (log / f"{0:020d}.json").unlink()
    history = table.history()
    assert len(history) == 5 - cleaned
    for entry in history:
        assert table.snapshot(timestamp=at(entry["timestamp"])).version == entry["version"]
        shown = render_history([entry]).splitlines()[1].split()[1]
        assert (
            table.snapshot(timestamp=datetime.fromisoformat(shown.replace("Z", "+00:00"))).version
            == entry["version"]
        )
    assert table.history(2) == history[:2]


def test_a_time_without_a_version_is_answered_with_the_times_that_have_one(tmp_path: Path) -> None:
    by_file = table_of(tmp_path / "file", [(5_000, None), (1_001, None)], {})
    by_commit = table_of(tmp_path / "commit", [(1, 5_000), (2, 5_001)], {0: ENABLED})
    for table in (by_file, by_commit):
        for asked_ms, asked in ((4_999, "1970-01-01T00:00:04.999Z"), (5_002, "1970-01-01T00:00:05.002Z")):
            with pytest.raises(VersionNotFound) as caught:
                table.snapshot(timestamp=at(asked_ms))
            assert f"has no version for {asked}" in str(caught.value)
            assert (
                "versions 0 to 1, committed from 1970-01-01T00:00:05.000Z to 1970-01-01T00:00:05.001Z"
                in str(caught.value)
            )


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_monotone_times_ascend_and_never_fall_behind_the_files(times: list[int]) -> None:
    ascending = monotone_times(times)
    assert all(later > earlier for earlier, later in pairwise(ascending))
    assert all(made >= given for made, given in zip(ascending, times, strict=True))


def test_a_request_must_make_sense(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", [(1, None)], {})
    for wrong in ({"version": 0, "timestamp": at(1)}, {"version": -1}, {"timestamp": datetime(2024, 1, 1)}):
        with pytest.raises(InvalidRequest):
            table.snapshot(**wrong)


def test_a_checkpoint_that_cannot_be_read_is_no_reason_not_to_know(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", [(9000, 100), (1, 200), (5, 300)], {0: ENABLED})
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"PAR1 and no more")
    assert version_at(table, 250) == 1
