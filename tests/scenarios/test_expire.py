"""EXPIRE: the rows that are old enough go, and no others; the dry run says the same."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.runs.vacuum_runs import contents, done, refusal
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.errors import StorageError
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage
from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.job import JobSite, run_job, run_on
from delta_maintenance.progress import SilentProgress

_UTC = timezone.utc
_NOON = datetime(2025, 3, 1, 12, tzinfo=_UTC)
_BEFORE = "2025-03-01T12:00:00Z"
_SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])


def expire(table: Path, *, run_id: str = "expiring", dry_run: bool = False, **options: Any) -> JobReport:
    spec = JobSpec("expire", str(table), run_id, {"column": "at", **options}, dry_run=dry_run)
    return run_job(spec, JobSite(), SilentProgress())


def _write(table: Path, *times: datetime | None, **more: Any) -> None:
    number = 100 * len(keys(table)) if (table / "_delta_log").exists() else 0
    rows = pa.table(
        {"id": range(number, number + len(times)), "at": list(times), "text": ["x"] * len(times)},
        schema=_SCHEMA,
    )
    write_deltalake(str(table), rows, mode="append", **more)


def _hours(*hours: float | None) -> list[datetime | None]:
    return [None if hour is None else _NOON + timedelta(hours=hour) for hour in hours]


def _rows(table: Path) -> Counter[str]:
    return Counter(map(str, Table(str(table)).snapshot().to_arrow().to_pylist()))


def _kept(table: Path, cutoff: datetime = _NOON) -> Counter[str]:
    rows = Table(str(table)).snapshot().to_arrow().to_pylist()
    return Counter(str(row) for row in rows if row["at"] is None or row["at"] >= cutoff)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Four files: all rows expired, some expired, none expired, expired rows beside nulls."""
    path = tmp_path / "events"
    _write(path, *_hours(-3, -2, -1))
    _write(path, *_hours(-1, 0, 1, None))
    _write(path, *_hours(0, 1, 2))
    _write(path, *_hours(-5, None))
    return path


@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])
def test_old_rows_go_and_the_dry_run_says_so(events: Path, vectors: bool) -> None:
    if vectors:
        enable_deletion_vectors(events)
    expected, before = _kept(events), contents(events)
    planned = done(expire(events, dry_run=True, before=_BEFORE))
    assert contents(events) == before
    report = done(expire(events, before=_BEFORE))
    assert (report.status, report.plan) == ("committed", planned.plan)
    assert _rows(events) == expected
    assert report.plan is not None
    assert (report.plan["numExpiredRows"], report.plan["numRowsOfExpiredFiles"]) == (5, 3)
    assert (report.plan["numExpiredFiles"], report.plan["numPartlyExpiredFiles"]) == (1, 2)
    assert report.metrics["numDeletedRows"] == 5
    assert report.metrics["numDeletionVectorsAdded"] == (2 if vectors else 0)
    assert report.metrics["numAddedFiles"] == (0 if vectors else 2)
    actions = decode_commit((events / commit_key(report.version or 0)).read_bytes(), "")
    assert {f.dataChange for a in actions for f in (a.add, a.remove) if f is not None} == {True}
    assert not (events / "_maintenance").exists()
    assert DeltaTable(str(events)).history(1)[0]["operation"] == "DELETE"
    assert expire(events, before=_BEFORE).status == "nothing_to_do"


def test_an_age_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    now = datetime.now(_UTC)
    _write(tmp_path / "t", now - timedelta(days=401), now - timedelta(days=399))
    done(expire(tmp_path / "t", older_than="400d"))
    assert Table(str(tmp_path / "t")).snapshot().to_arrow().num_rows == 1


def test_partitions_go_without_a_look_at_their_files(tmp_path: Path) -> None:
    rows = write_days(tmp_path / "t", files=6, rows=5, days=3)
    for file in (tmp_path / "t").rglob("*.parquet"):
        file.write_bytes(b"")
    report = done(expire(tmp_path / "t", column="day", before="2024-01-02T23:00:00Z"))
    assert report.plan is not None
    # The second of January is not over.
    assert (report.plan["numExpiredFiles"], report.plan["numExpiredRows"]) == (2, 10)
    assert Table(str(tmp_path / "t")).snapshot().num_files == 4
    assert rows["day"].to_pylist().count(date(2024, 1, 1)) == 10


def test_a_partition_of_a_timestamp_without_zone_waits_for_the_last_zone(tmp_path: Path) -> None:
    table = tmp_path / "t"
    _write(table, *_hours(-13, -11), partition_by=["at"])
    for commit in (table / "_delta_log").glob("*.json"):
        # As Spark wrote it in the zone of its session.
        commit.write_text(
            commit.read_text()
            .replace("T23:00:00.000000Z", " 23:00:00")
            .replace("T01:00:00.000000Z", " 01:00:00")
        )
    report = done(expire(table, before=_BEFORE))
    assert report.metrics["numDeletedRows"] == 1
    assert [row["at"] for row in Table(str(table)).snapshot().to_arrow().to_pylist()] == _hours(-11)


def test_only_whole_files_on_request(events: Path) -> None:
    report = done(expire(events, before=_BEFORE, whole_files=True))
    assert report.plan is not None
    assert (report.plan["numExpiredFiles"], report.plan["numFilesNotRead"]) == (1, 2)
    assert Table(str(events)).snapshot().num_files == 3


def test_rows_that_a_vector_hides_already_are_not_counted(events: Path) -> None:
    enable_deletion_vectors(events)
    second = next(
        row["key"]
        for row in Table(str(events)).snapshot().files().to_pylist()
        if json.loads(row["stats"])["numRecords"] == 4
    )
    mark_deleted(events, {second: [0, 1]})
    expected = _kept(events)
    report = done(expire(events, before=_BEFORE))
    assert report.metrics["numDeletedRows"] == 4
    assert _rows(events) == expected


def test_the_change_feed_names_the_expired_rows_alone(events: Path) -> None:
    enable_deletion_vectors(events)
    before = _rows(events)
    report = done(expire(events, before=_BEFORE))
    changes = Table(str(events)).changes(report.version or 0).read_all()
    assert set(changes["_change_type"].to_pylist()) == {"delete"}
    gone = Counter(map(str, changes.select(_SCHEMA.names).to_pylist()))
    assert gone == before - _rows(events)


TIMES = st.lists(
    st.one_of(
        st.none(),
        st.integers(-5, 5).map(lambda hours: _NOON + timedelta(hours=hours)),
        st.integers(-1500, 1500).map(lambda us: _NOON + timedelta(microseconds=us)),
    ),
    min_size=1,
    max_size=6,
)


@examples(40, deadline=None)
@given(
    st.lists(st.tuples(TIMES, st.sampled_from(["all", "none", "milliseconds"])), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_rows_of_any_table_are_those_of_a_filter(
    files: list[tuple[list[datetime | None], str]], vectors: bool, whole_files: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "t"
        for number, (times, stats) in enumerate(files):
            _write(table, *times)
            _change_stats(table / commit_key(number), stats)
        if vectors:
            enable_deletion_vectors(table)
        before, expected = _rows(table), _kept(table)
        planned = done(expire(table, dry_run=True, before=_BEFORE, whole_files=whole_files))
        report = done(expire(table, before=_BEFORE, whole_files=whole_files))
        assert report.plan == planned.plan
        found = _rows(table)
        assert planned.plan is not None
        assert sum((before - found).values()) == planned.plan["numExpiredRows"]
        assert expected <= found
        if not whole_files:
            assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"] and entry["data"] == "full"))
def test_rows_of_a_corpus_table_are_those_of_a_filter(entry: Entry, corpus: Corpus, tmp_path: Path) -> None:
    original = Table(str(corpus.copy_of(entry["name"], tmp_path / "original"))).snapshot()
    kinds = ("date", "timestamp", "timestamp_ntz")
    for column in (c.name for c in original.schema if getattr(c.type, "name", "") in kinds):
        rows = original.to_arrow().to_pylist()
        times = sorted(moment for row in rows if (moment := _moment(row[column])) is not None)
        if not times or times[len(times) // 2] > datetime.now(_UTC):
            continue
        cutoff = times[len(times) // 2]
        cutoff = cutoff.replace(microsecond=cutoff.microsecond // 1000 * 1000)
        table = corpus.copy_of(entry["name"], tmp_path / column)
        report = expire(table, column=column, before=cutoff.isoformat())
        if report.error is not None:
            assert report.error.type == "UnsupportedFeature", report.error
            continue
        kept = [row for row in rows if (moment := _moment(row[column])) is None or moment >= cutoff]
        assert _rows(table) == Counter(map(str, kept))


def _moment(value: date | datetime | None) -> datetime | None:
    """The time of a value; the cutoffs of these tests are full days where the values are."""
    if value is None:
        return None
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=_UTC)


def _change_stats(commit: Path, stats: str) -> None:
    """Take a file's statistics away, or cut its bounds to milliseconds, as Spark does."""
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for add in (line["add"] for line in lines if "add" in line):
        found = json.loads(add["stats"])
        if stats == "none":
            add["stats"] = None
        elif stats == "milliseconds":
            for side in ("minValues", "maxValues"):
                if "at" in found[side]:
                    cut = datetime.fromisoformat(found[side]["at"].replace("Z", "+00:00"))
                    found[side]["at"] = cut.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            add["stats"] = json.dumps(found)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of older_than and before"),
        ({"older_than": "1d", "before": _BEFORE}, "exactly one of older_than and before"),
        ({"column": None, "older_than": "1d"}, "EXPIRE needs column"),
        ({"older_than": "soon"}, "an age such as 36h, 400d or 52w"),
        ({"before": "2999-01-01T00:00:00Z"}, "in the future"),
        ({"older_than": "1d", "column": "nothing"}, "There is no column 'nothing' of this table. Columns that can say how old a row is: at."),
        ({"older_than": "1d", "column": "text"}, "No date or timestamp is in 'text'"),
        ({"older_than": "1d", "max_rows": 4}, "5 rows have expired, and max_rows allows 4"),
    ],
)  # fmt: skip
def test_a_request_is_refused_without_a_trace(events: Path, options: dict[str, Any], words: str) -> None:
    if options.get("max_rows"):
        options = {"before": _BEFORE, "max_rows": 4}
    before = contents(events)
    assert words in refusal(expire(events, **options))
    assert contents(events) == before


def test_a_table_that_only_allows_appends_is_refused(events: Path) -> None:
    DeltaTable(str(events)).alter.set_table_properties({"delta.appendOnly": "true"})
    assert "Set delta.appendOnly to false first" in refusal(expire(events, before=_BEFORE))


def test_a_change_feed_is_told_nothing_false(events: Path) -> None:
    DeltaTable(str(events)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert "give whole_files" in refusal(expire(events, before=_BEFORE))
    report = done(expire(events, before=_BEFORE, whole_files=True))
    changes = Table(str(events)).changes(report.version or 0).read_all()
    assert changes["_change_type"].to_pylist() == ["delete"] * 3


@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])
def test_a_file_that_another_writer_changes_is_left_to_it(events: Path, vectors: bool) -> None:
    if vectors:
        enable_deletion_vectors(events)
    opened = Table(str(events))
    (second,) = [
        row["key"]
        for row in opened.snapshot().files().to_pylist()
        if json.loads(row["stats"])["numRecords"] == 4
    ]

    def change() -> None:
        if vectors:
            mark_deleted(events, {second: [1]})
        else:
            DeltaTable(str(events)).delete("id = 100")
            _write(events, *_hours(-9))

    pending = [change]

    def before(name: str, key: str) -> None:
        if name == "put_if_absent" and key.startswith("_delta_log") and pending:
            pending.pop()()

    opened.storage = FaultyStorage(opened.storage, before)
    spec = JobSpec("expire", str(events), "expiring", {"column": "at", "before": _BEFORE})
    report = done(
        run_on(opened, spec, JobSite(runtime=Runtime(sleep=lambda seconds: None)), SilentProgress())
    )
    assert report.metrics["numDeletedRows"] == 4
    expected = _kept(events)
    assert _rows(events) != expected
    done(expire(events, before=_BEFORE))
    assert _rows(events) == expected
    assert not (events / "_maintenance").exists()


@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])
def test_a_run_that_dies_anywhere_is_finished_by_the_next(tmp_path: Path, vectors: bool) -> None:
    for number in range(20):
        table = tmp_path / str(number)
        _write(table, *_hours(-3, -2))
        _write(table, *_hours(-1, 0, None))
        if vectors:
            enable_deletion_vectors(table)
        before, expected, writes = _rows(table), _kept(table), iter(range(1000))

        def fail(name: str, key: str, *, writes: Any = writes, last: int = number) -> None:
            if name in ("put", "put_if_absent", "open_write") and next(writes) >= last:
                raise StorageError(f"{key}: the process is dead", key)

        opened = Table(str(table))
        opened.storage = FaultyStorage(opened.storage, fail)
        spec = JobSpec("expire", str(table), "expiring", {"column": "at", "before": _BEFORE})
        died = run_on(opened, spec, JobSite(runtime=Runtime(sleep=lambda _: None)), SilentProgress())
        assert _rows(table) in (before, expected)
        done(expire(table, before=_BEFORE))
        assert _rows(table) == expected
        if died.error is None:
            return
    raise AssertionError("the run never came to its end")


def test_a_piece_of_work_is_done_once(events: Path) -> None:
    spec = JobSpec(
        "expire",
        str(events),
        "expiring",
        {"column": "at", "before": _BEFORE},
        transaction=TransactionId("expiry", 1),
    )
    assert done(run_job(spec, JobSite(), SilentProgress())).status == "committed"
    assert done(run_job(spec, JobSite(), SilentProgress())).status == "already_done"


def test_the_command_says_what_goes(events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["expire", str(events), "--column", "at", "--before", _BEFORE]
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Would remove 5 rows with at before 2025-03-01T12:00:00.000Z" in said
    assert "1 file as a whole" in said
    assert "rows of 2 other files, by rewriting: 2 rows" in said
    assert main(command) == 0
    assert "Committed version 4, without 5 rows" in capsys.readouterr().out
    assert main([*command, "--whole-files"]) == 0
    assert "Nothing to do" in capsys.readouterr().out
