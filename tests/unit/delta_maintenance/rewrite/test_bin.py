"""A bin whose store fails: a repetition leaves one file, and no file is deleted that a manifest might promise."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.runs.maintenance_runs import RUN_KEY, keys, manifests, run

from delta_log import Table
from delta_log.errors import AccessDenied, StorageError
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage
from delta_maintenance.errors import NewerManifest
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.bin import manifest_key, publish, read_manifest, rewrite_bin
from delta_maintenance.rewrite.manifest.manifest_file import parsed, sealed
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

ROWS = list(range(40))
Hook = Callable[[str, str], None]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small files, to become one that is verified, or two."""
    table = tmp_path_factory.mktemp("publish") / "table"
    for ids in (ROWS[:20], ROWS[20:]):
        deltalake.write_deltalake(str(table), pa.table({"id": ids}), mode="append")
    return table


#: How the bins of a test are rewritten.
REWRITE = ["copy"]


@pytest.fixture(params=["copy", "encode"], autouse=True)
def _rewrite(request: pytest.FixtureRequest) -> None:
    REWRITE[:] = [request.param]


@pytest.fixture
def table(written: Path, tmp_path: Path) -> Path:
    return copy_of(written, tmp_path / "table")


def copy_of(written: Path, table: Path) -> Path:
    shutil.copytree(written, table)
    return table


def task_of(table: Path, num_outputs: int = 1) -> RewriteTask:
    snapshot = Table(str(table)).snapshot()
    (task,) = tasks_of(
        plan_optimize(snapshot, OptimizeOptions(verify="full", rewrite=REWRITE[0]), 0),
        snapshot,
        "run",
        str(table),
    )
    return RewriteTask.from_json(json.dumps(json.loads(task.to_json()) | {"num_outputs": num_outputs}))


def new_files(table: Path) -> set[str]:
    """That are not the table's."""
    return {str(path.relative_to(table)) for path in table.rglob("*.parquet")} - set(keys(table))


def promised(manifest: BinManifest | None) -> set[str]:
    return {output.key for output in manifest.outputs} if manifest is not None else set()


class Store(FaultyStorage):
    """A disk, or what behaves like an object store; to end a file that is written is a call, too."""

    def __init__(
        self, table: Path, *, remote: bool = False, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        super().__init__(LocalStorage(str(table)), before, after)
        if remote:
            self.uri = f"s3://bucket{table}"

    @contextmanager
    def open_write(self, key: str) -> Iterator[Any]:
        with super().open_write(key) as file:
            yield file
            if self._before is not None:
                self._before("close", key)
        if self._after is not None:
            self._after("close", key)


class Failing:
    """A hook that notes each call, and fails those of these numbers."""

    def __init__(self, *, first: int, times: int = 1) -> None:
        self.calls: list[str] = []
        self._failing = range(first, first + times)

    def __call__(self, name: str, key: str) -> None:
        self.calls.append(name)
        if len(self.calls) - 1 in self._failing:
            raise failure(key)


def failing(*names: str, times: int = 10**9, error: Callable[[str], Exception] | None = None) -> Hook:
    """A hook that fails the first calls of these names."""
    left = [times]

    def hook(name: str, key: str) -> None:
        if name in names and left[0]:
            left[0] -= 1
            raise (error or failure)(key)

    return hook


def failure(key: str) -> StorageError:
    return StorageError(f"{key}: the store failed.", key)


def attempt(task: RewriteTask, storage: Storage) -> None:
    with suppress(StorageError):
        rewrite_bin(task, storage, RUN_KEY)


def rows_of(table: Path, manifest: BinManifest) -> list[int]:
    parts = [pq.read_table(table / output.key)["id"].to_pylist() for output in manifest.outputs]
    return [row for part in parts for row in part]


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("remote", [False, True], ids=["disk", "object-store"])
@pytest.mark.parametrize("hook_name", ["before", "after"], ids=["refused", "answer-lost"])
def test_a_bin_that_is_repeated_after_a_fault_leaves_no_other_file(
    written: Path, tmp_path: Path, hook_name: str, remote: bool, num_outputs: int
) -> None:
    number, seen = 0, set()
    while True:
        table = copy_of(written, tmp_path / str(number))
        hook, task = Failing(first=number), task_of(table, num_outputs)
        attempt(task, Store(table, remote=remote, **{hook_name: hook}))
        if len(hook.calls) <= number:
            break
        manifest = rewrite_bin(task, LocalStorage(str(table)), RUN_KEY)
        assert rows_of(table, manifest) == ROWS
        assert len(manifest.outputs) == num_outputs
        assert read_manifest(LocalStorage(str(table)), RUN_KEY, "run", task.bin_id) == manifest
        assert new_files(table) == promised(manifest), hook.calls[number]
        seen.add(hook.calls[number])
        number += 1
    if REWRITE == ["copy"]:
        # Threads compute checksums of what is copied, so the calls come in another order in each try.
        assert {"close", "put_if_absent", "read"} <= seen
        return
    # No manifest is read with success, but the end of each new file is: the task is verified in full.
    assert seen == {"open_read", "open_write", "close", "head", "put_if_absent", "read"}


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "object-store"])
@pytest.mark.parametrize("hook_name", ["before", "after"], ids=["refused", "answer-lost"])
def test_whatever_a_store_leaves_that_stays_away_a_manifest_promises_only_what_is_there(
    written: Path, tmp_path: Path, hook_name: str, remote: bool
) -> None:
    number = 0
    while True:
        table = copy_of(written, tmp_path / str(number))
        hook, task = Failing(first=number, times=10**9), task_of(table)
        attempt(task, Store(table, remote=remote, **{hook_name: hook}))
        if len(hook.calls) <= number:
            break
        on_disk = LocalStorage(str(table))
        left, early = new_files(table), manifests(table)
        assert all(promised(manifest) <= left for manifest in early)
        manifest = rewrite_bin(task, on_disk, RUN_KEY)
        assert [manifest] == (early or [manifest]), "it is taken over"
        assert rows_of(table, manifest) == ROWS
        assert new_files(table) == left | promised(manifest)
        number += 1


def test_where_a_disk_takes_no_manifest_the_new_file_goes(table: Path) -> None:
    with pytest.raises(StorageError, match="the store failed"):
        rewrite_bin(task_of(table), Store(table, before=failing("put_if_absent")), RUN_KEY)
    assert not new_files(table)
    assert not manifests(table)


def test_where_a_store_refuses_the_manifest_the_new_file_goes(table: Path) -> None:
    def denied(key: str) -> AccessDenied:
        return AccessDenied(f"{key}: access was denied.", key)

    with pytest.raises(AccessDenied):
        rewrite_bin(
            task_of(table), Store(table, remote=True, before=failing("put_if_absent", error=denied)), RUN_KEY
        )
    assert not new_files(table)


def test_a_manifest_may_arrive_late_so_its_file_stays(table: Path) -> None:
    task, on_disk = task_of(table), LocalStorage(str(table))
    with pytest.raises(StorageError, match="the store failed"):
        rewrite_bin(task, Store(table, remote=True, before=failing("put_if_absent")), RUN_KEY)
    (file,) = new_files(table)
    assert manifests(table) == []
    # It was on its way.
    other = rewrite_bin(task, on_disk, RUN_KEY)
    (output,) = other.outputs
    assert output.key != file
    late = replace(other, outputs=(replace(output, path=file, key=file),))
    on_disk.put(manifest_key("run", task.bin_id), sealed(late, RUN_KEY))
    taken_over = rewrite_bin(task, on_disk, RUN_KEY)
    assert promised(taken_over) == {file}
    assert rows_of(table, taken_over) == ROWS


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "object-store"])
def test_a_manifest_whose_every_answer_was_lost_is_found(table: Path, remote: bool) -> None:
    manifest = rewrite_bin(
        task_of(table), Store(table, remote=remote, after=failing("put_if_absent")), RUN_KEY
    )
    assert new_files(table) == promised(manifest)
    assert manifests(table) == [manifest]


def overtaken(table: Path, task: RewriteTask, then: Hook) -> tuple[Hook, list[BinManifest]]:
    """A hook: another try leaves its manifest right before ours is sent."""
    others: list[BinManifest] = []

    def hook(name: str, key: str) -> None:
        if name == "put_if_absent" and not others:
            others.append(rewrite_bin(task, LocalStorage(str(table)), RUN_KEY))
        then(name, key)

    return hook, others


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "object-store"])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_where_another_try_was_faster_its_file_counts_and_ours_goes(
    table: Path, times: int, remote: bool
) -> None:
    task = task_of(table)
    hook, others = overtaken(table, task, failing("put_if_absent", times=times))
    manifest = rewrite_bin(task, Store(table, remote=remote, before=hook), RUN_KEY)
    assert [manifest] == others
    assert new_files(table) == promised(manifest)


def test_a_bin_that_another_try_has_done_is_done_though_our_file_cannot_be_removed(table: Path) -> None:
    task = task_of(table)
    hook, others = overtaken(table, task, failing("delete"))
    assert [rewrite_bin(task, Store(table, before=hook), RUN_KEY)] == others
    assert len(new_files(table)) == 2


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "object-store"])
@pytest.mark.parametrize("hook_name", ["before", "after"], ids=["refused", "answer-lost"])
def test_a_manifest_whose_files_are_gone_makes_room(
    written: Path, tmp_path: Path, hook_name: str, remote: bool
) -> None:
    number, seen = 0, []
    while True:
        table = copy_of(written, tmp_path / str(number))
        task, on_disk = task_of(table), LocalStorage(str(table))
        stale = rewrite_bin(task, on_disk, RUN_KEY)
        made = replace(stale, outputs=tuple(replace(o, path="new", key="new") for o in stale.outputs))
        for output in stale.outputs:
            (table / output.key).rename(table / "new")
        hook = Failing(first=number)
        with suppress(StorageError):
            assert publish(made, Store(table, remote=remote, **{hook_name: hook}), RUN_KEY) == made
        if len(hook.calls) <= number:
            break
        seen.append(hook.calls[number])
        found = read_manifest(on_disk, RUN_KEY, "run", task.bin_id)
        assert found in (None, made)
        done = rewrite_bin(task, on_disk, RUN_KEY)
        assert done == found or found is None
        assert rows_of(table, done) == ROWS
        number += 1
    assert seen == ["put_if_absent", "read", "head", "delete", "put_if_absent"]


def test_a_manifest_of_a_newer_release_is_not_read(table: Path) -> None:
    manifest = rewrite_bin(task_of(table), LocalStorage(str(table)), RUN_KEY)
    for version in (3, 10, "2"):
        with pytest.raises(NewerManifest, match="newer release .* _maintenance/run in the table's") as caught:
            parsed({**as_json(manifest), "manifest_version": version, "row_order": [3, 1, 2]})
        assert caught.value.facts() == {
            "bin_id": manifest.bin_id,
            "run_id": "run",
            "manifest_version": version,
        }
        assert caught.value.retryable
    older = {name: value for name, value in as_json(manifest).items() if name != "manifest_version"}
    assert parsed({**older, "elsewhere": 1}) == manifest


def as_json(manifest: BinManifest) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(manifest.to_json())
    return values


def newer(manifest: BinManifest) -> bytes:
    return sealed(replace(manifest, manifest_version=3), RUN_KEY)


def test_where_a_newer_release_is_at_a_run_nothing_is_taken_over_and_nothing_written(table: Path) -> None:
    task, storage = task_of(table), LocalStorage(str(table))
    manifest = rewrite_bin(task, storage, RUN_KEY)
    key = manifest_key("run", task.bin_id)
    storage.put(key, newer(manifest))
    files = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    for refused in (
        lambda: rewrite_bin(task, storage, RUN_KEY),
        lambda: read_manifest(storage, RUN_KEY, "run", task.bin_id),
        lambda: manifests(table),
        lambda: run(table),
    ):
        with pytest.raises(NewerManifest):
            refused()
    assert {path: path.read_bytes() for path in table.rglob("*") if path.is_file()} == files
    # What the message says.
    assert run(table, run_id="another").status == "committed"
    shutil.rmtree(table / "_maintenance" / "run")
    assert run(table).status == "nothing_to_do"


@pytest.mark.parametrize("times", [0, 1])
@pytest.mark.parametrize("remote", [False, True], ids=["disk", "object-store"])
def test_where_a_newer_release_was_faster_our_file_goes_and_its_manifest_stays(
    table: Path, remote: bool, times: int
) -> None:
    task, storage = task_of(table), LocalStorage(str(table))

    def make_newer(name: str, key: str) -> None:
        if name == "put_if_absent" and b'"manifest_version":3}' not in storage.read(key):
            storage.put(key, newer(others[0]))

    failed = failing("put_if_absent", times=times)

    def then(name: str, key: str) -> None:
        make_newer(name, key)
        failed(name, key)

    hook, others = overtaken(table, task, then)
    with pytest.raises(NewerManifest):
        rewrite_bin(task, Store(table, remote=remote, before=hook), RUN_KEY)
    assert new_files(table) == promised(others[0])
    assert storage.read(manifest_key("run", task.bin_id)) == newer(others[0])


@pytest.mark.parametrize("rewrite", ["encode", "copy"])
def test_a_bin_may_have_more_sources_than_the_process_may_open(table: Path, rewrite: str) -> None:
    task = task_of(table)
    task = replace(task, sources=task.sources * 100, rewrite=rewrite, verify="counts")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 50, hard))
    try:
        manifest = rewrite_bin(task, LocalStorage(str(table)), RUN_KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert manifest.rows_out == 100 * len(ROWS)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_size_than_was_written_is_removed(table: Path, change: int) -> None:
    """As of a server that copies another range than it was asked for."""

    class Server(Store):
        @contextmanager
        def open_write(self, key: str) -> Iterator[Any]:
            with super().open_write(key) as file:
                yield file
            if key.endswith(".parquet"):
                os.truncate(table / key, (table / key).stat().st_size + change)

    with pytest.raises(StorageError, match=r"bytes were written, and the store has [\d,]+ bytes"):
        rewrite_bin(task_of(table), Server(table), RUN_KEY)
    assert new_files(table) == set()
    assert not manifests(table)
