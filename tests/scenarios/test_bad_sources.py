"""Missing and broken sources, a full disk, and a file that does not come back as it was written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import RUN_KEY, keys, run
from tests.support.tables.encrypted_files import with_encrypted_column
from tests.support.tables.small_tables import write_parts

from delta_log import Table
from delta_log.errors import InvalidRequest, StorageError
from delta_log.runtime import Runtime
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import Transaction
from delta_maintenance.errors import RewriteMismatch, TaskFailed
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.task import RewriteTask
from delta_maintenance.text.report import render_report

PARTS = "abc"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two small files in each of three partitions."""
    return write_parts(tmp_path, PARTS)


def break_file(table: Path, how: str) -> str:
    """A file of partition b; gives its key."""
    key = next(key for key in keys(table) if key.startswith("part=b/"))
    content = (table / key).read_bytes()
    if how == "missing":
        (table / key).unlink()
    else:
        (table / key).write_bytes({"cut": content[:-9], "empty": b"", "text": b"no parquet at all"}[how])
    return key


@pytest.mark.parametrize("how", ["missing", "cut", "empty", "text"])
def test_a_broken_source_is_named_and_nothing_committed(table: Path, how: str) -> None:
    key = break_file(table, how)
    with pytest.raises(TaskFailed) as caught:
        run(table)
    assert key in str(caught.value)
    assert caught.value.report.kind == "refused"
    assert 'on_broken_source="skip"' in str(caught.value)
    assert caught.value.report.message == str(caught.value)
    assert Table(str(table)).snapshot().version == 1


@pytest.mark.parametrize("rewrite", ["auto", "copy", "encode"])
def test_a_source_with_an_encrypted_column_is_named(table: Path, rewrite: str) -> None:
    key = next(key for key in keys(table) if key.startswith("part=b/"))
    content = with_encrypted_column(pq.ParquetFile(table / key).read(), "id")
    (table / key).write_bytes(content)
    with pytest.raises(TaskFailed, match="Parquet encryption") as caught:
        run(table, rewrite=rewrite)
    assert key in str(caught.value)
    assert Table(str(table)).snapshot().version == 1


def test_a_run_that_fails_has_ended_its_threads_while_its_error_is_still_held(table: Path) -> None:
    break_file(table, "text")
    before = threading.active_count()
    for _ in range(20):
        with pytest.raises(TaskFailed) as caught:
            run(table)
        assert threading.active_count() == before
    del caught


@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("how", ["missing", "cut"])
def test_where_asked_the_other_bins_are_committed(table: Path, how: str, batch_size: int | None) -> None:
    key = break_file(table, how)
    report = run(table, on_broken_source="skip", batch_size_bytes=batch_size)
    assert (report.status, report.metrics["numRemovedFiles"], report.broken_bins) == ("committed", 4, 1)
    assert report.broken is not None
    assert (report.broken[0]["type"], report.broken[0]["path"]) == ("CorruptLog", key)
    assert key in render_report(report.to_dict())
    assert key in keys(table), "the table names it still; nothing was hidden"
    assert len(keys(table)) == 4


def test_where_every_bin_is_broken_the_run_has_failed(table: Path) -> None:
    for key in keys(table):
        (table / key).unlink()
    with pytest.raises(TaskFailed, match="is not there") as caught:
        run(table, on_broken_source="skip")
    assert "on_broken_source" not in str(caught.value)


#: The store takes no file of more than a few bytes after the first bin: a real error of the operating system.
DISK_FULL = """
import resource, sys
from tests.support.runs.maintenance_runs import WatchedEngine, run
def full(number):
    if number == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    report = run(sys.argv[1], engine=WatchedEngine(full), batch_size_bytes=1)
    print(report.status, report.error and report.error.type, report.num_batches)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_disk_that_is_full_half_way_loses_nothing(table: Path) -> None:
    before = sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())
    # What is left is enough for a commit's few lines, and not for a data file.
    wide = pa.table(
        {"id": list(range(100, 400)), "part": ["b"] * 300, "text": [f"{n:0500}" for n in range(300)]}
    )
    for _ in range(2):
        deltalake.write_deltalake(str(table), wide, mode="append", schema_mode="merge", partition_by=["part"])
    before = sorted([*before, *2 * list(range(100, 400))])
    files = set(keys(table))
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(table), "100"], capture_output=True, text=True, check=False
    )
    assert StorageError.__name__ in done.stdout, done.stdout + done.stderr
    assert "RuntimeError" not in done.stderr
    assert sorted(Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()) == before
    assert files <= {str(path.relative_to(table)) for path in table.rglob("*.parquet")}
    assert not [path for path in table.rglob("*") if path.suffix in (".tmp", ".part")]
    # With room again, the next try ends the work.
    assert run(table).status == "committed"
    assert sorted(Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()) == before


#: Writes a file of three row groups where there is room for less, and forgets it: whichever part of it fails.
NO_ROOM = """
import gc, json, os, random, resource, sys
import pyarrow as pa
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table_config.schema import PrimitiveType, StructField, StructType, arrow_schema
from parquet_parts.assembled_file import AssembledFile
from delta_log.stats.file_stats import stats_columns
from delta_maintenance.rewrite.encode.encoded_part import PartEncoder
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
root, what = sys.argv[1:]
schema = StructType((StructField("text", PrimitiveType("string")),))
text = random.Random(7)
rows = [text.randbytes(1_000).hex() for _ in range(100)]
batch = pa.record_batch([pa.array(rows)], schema=arrow_schema(schema))
settings = WriterSettings("none", stats_columns(schema), row_group_bytes=1)
def leave(room):
    if what == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    else:
        disk = os.statvfs(root)
        with open(f"{root}/other", "wb") as other:
            other.write(bytes(disk.f_blocks * disk.f_frsize - room))
def write():
    part = PartEncoder(batch.schema, settings).encode([batch] * 3)
    with LocalStorage(root).open_write("new") as file:
        assembled = AssembledFile(file)
        part.append_to(assembled)
        assembled.finish({})
found = []
for room in range(1 << 13, 560_000, 1 << 15):
    leave(room)
    try:
        write()
    except Exception as error:
        found.append([type(error).__name__, str(error)])
    gc.collect()
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("what", "why"), [("disk", "No space left on device"), ("limit", "File too large")], ids=["disk", "limit"]
)
def test_where_there_is_no_room_left_that_is_what_is_told(what: str, why: str, tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    if what == "disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(directory)]
        if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip(
                "no file system may be mounted here; the other case has the limit of a process for its disk"
            )
    try:
        done = subprocess.run(
            [sys.executable, "-c", NO_ROOM, str(directory), what], capture_output=True, text=True, check=False
        )
        left = [path.name for path in directory.iterdir() if path.name != "other"]
    finally:
        if what == "disk":
            subprocess.run(["umount", str(directory)], check=True)
    found = json.loads(done.stdout)
    assert len(found) == 17
    assert all(kind == "StorageError" and why in message for kind, message in found), found
    assert left == []
    # Nor does a second failure of the same file follow it, as if that were what had happened.
    assert done.stderr == ""


def tasks(table: Path) -> tuple[Sequence[RewriteTask], set[str]]:
    """The bins of a fully verified run, and their sources."""
    snapshot = Table(str(table)).snapshot()
    planned = plan_optimize(snapshot, OptimizeOptions(verify="full"), 0)
    return tasks_of(planned, snapshot, "run", str(table)), set(keys(table))


class WatchedStorage(LocalStorage):
    """Notes what is opened; and, as a broken disk would, gives another content of new files than was written."""

    def __init__(self, table: Path, known: set[str], *, broken: bool) -> None:
        super().__init__(str(table))
        self._known, self._broken = known, broken
        self.opened: list[str] = []

    def open_read(self, key: str) -> Any:
        self.opened.append(key)
        if key in self._known or not self._broken:
            return super().open_read(key)
        rows = pq.read_table(super().open_read(key))
        other = rows.set_column(0, rows.schema.field(0), pa.array([7] * len(rows), rows.schema.field(0).type))
        buffer = pa.BufferOutputStream()
        pq.write_table(other, buffer)
        return pa.BufferReader(buffer.getvalue())


def test_full_verification_reads_new_files_back(table: Path) -> None:
    (task, *_), known = tasks(table)
    storage = WatchedStorage(table, known, broken=False)
    manifest = rewrite_bin(task, storage, RUN_KEY)
    new = [output.key for output in manifest.outputs]
    # Small sources are read without being opened.
    assert storage.opened == new


def test_a_file_that_does_not_hold_what_was_written_is_removed(table: Path) -> None:
    (task, *_), known = tasks(table)
    with pytest.raises(RewriteMismatch, match="does not hold what was written") as caught:
        rewrite_bin(task, WatchedStorage(table, known, broken=True), RUN_KEY)
    assert caught.value.retryable
    assert {str(path.relative_to(table)) for path in table.rglob("*.parquet")} == known
    assert not (table / "_maintenance").exists(), "there is no manifest of it"


def test_a_codec_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [2]}), mode="append")
    opened = Table(str(tmp_path))
    snapshot = opened.snapshot()
    configuration = {**snapshot.properties, "delta.parquet.compression.codec": "lzo"}
    change = Change(
        "SET TBLPROPERTIES",
        metadata=msgspec.structs.replace(snapshot.metadata, configuration=configuration),
    )
    Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(InvalidRequest, match=r"delta\.parquet\.compression\.codec is 'lzo'"):
        run(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
