"""The file of a manifest: by whom it is believed, and what has to hold for it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import (
    RUN_KEY,
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    manifests,
    mark_deleted,
    run,
)
from tests.support.tables.planted_manifests import forged, planned
from tests.support.tables.rewritable_tables import GeneratedTable, generated_tables
from tests.support.tables.small_tables import write_days, write_parts
from tests.support.tables.tracked_rows import turn_row_tracking_on

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_log.runtime import Runtime
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.testing import FaultyStorage
from delta_maintenance.contract import JobSpec
from delta_maintenance.errors import BadManifest, ManifestReplaced
from delta_maintenance.job_interface import RUN_KEY_VARIABLE, ContractError
from delta_maintenance.optimize.commit.orphans import forget_old_manifests
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_id import bin_id_of
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.bin import manifest_key, manifests_of, read_manifest, rewrite_bin
from delta_maintenance.rewrite.manifest.manifest_file import RunKey, parsed, sealed, unsealed
from delta_maintenance.rewrite.task import BinManifest

OTHER_KEY = RunKey("0f" * 32)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One bin of two files."""
    return write_parts(tmp_path / "t", "a")


@pytest.fixture
def manifest(table: Path) -> BinManifest:
    return rewrite_bin(planned(table)[0], LocalStorage(str(table)), RUN_KEY)


def changed(manifest: BinManifest, **members: Any) -> dict[str, Any]:
    return {**json.loads(manifest.to_json()), **members}


def with_output(manifest: BinManifest, **members: Any) -> dict[str, Any]:
    values = changed(manifest)
    values["outputs"][0].update(members)
    return values


def read(content: bytes, manifest: BinManifest, key: RunKey = RUN_KEY) -> BinManifest | None:
    return unsealed(content, key, manifest.run_id, manifest.bin_id)


def test_only_who_has_the_key_is_believed_and_only_under_the_same_names(manifest: BinManifest) -> None:
    content = sealed(manifest, RUN_KEY)
    assert read(content, manifest) == manifest
    assert read(content, manifest, OTHER_KEY) is None
    assert read(sealed(manifest, OTHER_KEY), manifest) is None
    assert unsealed(content, RUN_KEY, "another-run", manifest.bin_id) is None
    assert unsealed(content, RUN_KEY, "run", "0" * 32) is None
    renamed = replace(manifest, bin_id="0" * 32)
    assert unsealed(content.replace(manifest.bin_id.encode(), b"0" * 32), RUN_KEY, "run", "0" * 32) is None
    assert read(sealed(renamed, RUN_KEY), manifest) is None
    assert read(content.replace(b'"rows_out":2', b'"rows_out":1'), manifest) is None
    assert read(content + b"\n", manifest) is None


def test_a_release_without_keys_refuses_the_file_by_its_version(manifest: BinManifest) -> None:
    assert json.loads(sealed(manifest, RUN_KEY))["manifest_version"] == 2


def test_the_key_is_shown_by_nothing(manifest: BinManifest) -> None:
    assert RUN_KEY.text not in repr(RUN_KEY)
    assert RUN_KEY.text.encode() not in sealed(manifest, RUN_KEY)


@pytest.mark.parametrize("text", ["", "5e" * 15, "5e" * 15 + "xy", "5e" * 513, "5e" * 32 + "\n"])
def test_a_key_that_could_be_guessed_or_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{RUN_KEY_VARIABLE}.*32 to 1,024 hexadecimal digits"):
        RunKey.from_environment({RUN_KEY_VARIABLE: text})
    assert RunKey.from_environment({}) is None


@pytest.mark.parametrize(
    "key",
    [
        "../victim/x",
        "part=a/../../x",
        "/etc/hostname",
        "part=a//x.parquet",
        "./x.parquet",
        "",
        "_delta_log/00000000000000000001.json",
        "part=a/_x.parquet",
        ".x.parquet",
        "_part=a/x.parquet",
        "a\x00b",
        "a\x1bb",
        "\ud800",
    ],
)
def test_a_file_elsewhere_than_a_rewrite_puts_its_files_is_refused(manifest: BinManifest, key: str) -> None:
    assert parsed(changed(manifest)) == manifest
    with pytest.raises(BadManifest):
        parsed(with_output(manifest, key=key, path=key))


@pytest.mark.parametrize("path", ["file:///x.parquet", "x%2Eparquet", "y.parquet", "./x.parquet"])
def test_a_path_that_is_not_the_spelling_of_its_key_is_refused(manifest: BinManifest, path: str) -> None:
    parsed(with_output(manifest, key="x.parquet", path="x.parquet"))
    with pytest.raises(BadManifest, match="does not name the file"):
        parsed(with_output(manifest, key="x.parquet", path=path))


def test_the_directory_of_a_partition_may_start_with_an_underscore(manifest: BinManifest) -> None:
    values = with_output(manifest, key="_p=a/x.parquet", path="_p=a/x.parquet")
    assert parsed({**values, "partition_values": {"_p": "a"}}).outputs[0].key == "_p=a/x.parquet"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"rows_out": 3}, "rows went in"),
        ({"rows_in": 3, "rows_out": 3, "source_rows": []}, "its files hold 2"),
        ({"source_rows": [2]}, "do not add up"),
        ({"source_rows": [1, 2]}, "do not add up"),
        ({"sources": []}, "no sources"),
        ({"sources": {}}, "its sources are no list"),
        ({"rows_in": -1}, "rows_in"),
        ({"rows_in": 2.0}, "rows_in"),
        ({"rows_in": True}, "rows_in"),
        ({"elapsed_ms": 1 << 63}, "elapsed_ms"),
        ({"bin_id": "../../../victim/a"}, "bin_id"),
        ({"run_id": None}, "run_id"),
        ({"partition_values": {"part": 1}}, "partition_values"),
        ({"partition_values": []}, "partition_values"),
        ({"outputs": [None]}, "an output is no JSON object"),
        ({"source_rows": 1}, "no list of counts"),
    ],
)
def test_members_that_are_not_what_they_have_to_be_are_named(
    manifest: BinManifest, members: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadManifest, match=why):
        parsed(changed(manifest, **members))


def test_what_is_in_the_way_of_a_manifest_makes_room(table: Path) -> None:
    task, storage = planned(table)[0], LocalStorage(str(table))
    path = table / manifest_key("run", task.bin_id)
    path.parent.mkdir(parents=True)
    for content in (b"", b"null", b"\xff", b"[" * 5_000, json.dumps(forged(task)).encode()):
        path.write_bytes(content)
        assert read_manifest(storage, RUN_KEY, "run", task.bin_id) is None
        assert manifests_of(storage, RUN_KEY, "run") == ([], 1)
        made = rewrite_bin(task, storage, RUN_KEY)
        assert manifests(table) == [made]
    # What an earlier try had written with the key is taken over, and not written again.
    assert rewrite_bin(task, storage, RUN_KEY) == made


def test_a_file_that_is_too_large_for_a_manifest_is_none_and_is_not_read_whole(
    table: Path, manifest: BinManifest
) -> None:
    path = table / manifest_key("run", manifest.bin_id)
    os.truncate(path, 1 << 40)  # sparse; it would not fit into memory
    assert manifests_of(LocalStorage(str(table)), RUN_KEY, "run") == ([], 1)
    assert run(table).status == "committed"


def test_a_file_that_comes_back_again_and_again_ends_the_bin_with_a_clear_error(table: Path) -> None:
    task, before = planned(table)[0], set(table.rglob("*.parquet"))

    def plant_again(name: str, key: str) -> None:
        if name == "put_if_absent":
            (table / key).parent.mkdir(parents=True, exist_ok=True)
            (table / key).write_text("mine")

    with pytest.raises(ManifestReplaced, match="came back, 10 times.*_maintenance") as caught:
        rewrite_bin(task, FaultyStorage(LocalStorage(str(table)), plant_again), RUN_KEY)
    assert caught.value.retryable
    assert set(table.rglob("*.parquet")) == before


def test_a_manifest_of_this_run_that_answers_another_task_is_replaced(table: Path) -> None:
    task, storage = planned(table)[0], LocalStorage(str(table))
    first = rewrite_bin(task, storage, RUN_KEY)
    task = replace(task, sources=tuple(replace(source, tags={"new": "tag"}) for source in task.sources))
    assert first.differs_from(task) == "its sources differ from the task's"
    second = rewrite_bin(task, storage, RUN_KEY)
    assert second.sources == task.sources
    assert manifests(table) == [second]


def test_a_file_with_other_rows_than_the_manifest_says_is_written_anew(table: Path) -> None:
    task, storage = planned(table)[0], LocalStorage(str(table))
    first = rewrite_bin(task, storage, RUN_KEY)
    (output,) = first.outputs
    spoilt = table / output.key
    pq.write_table(pa.table({"id": [7]}), spoilt, store_schema=False, write_statistics=False)
    # As long as the first file was, and a Parquet file of one row.
    padding = bytes(output.size_bytes - spoilt.stat().st_size)
    one_row = b"PAR1" + padding + spoilt.read_bytes()[4:]
    for content in (one_row, output.size_bytes * b"x"):
        spoilt.write_bytes(content)
        storage.put(manifest_key("run", task.bin_id), sealed(first, RUN_KEY))
        again = rewrite_bin(task, storage, RUN_KEY)
        assert [new.key for new in again.outputs] != [output.key]
        assert manifests(table) == [again]
        storage.put(manifest_key("run", task.bin_id), sealed(first, RUN_KEY))
    assert run(table).status == "committed"
    assert output.key not in keys(table)
    assert Table(str(table)).snapshot().to_arrow().num_rows == 2


def test_the_id_of_a_bin_follows_from_its_sources_and_settings(tmp_path: Path) -> None:
    table = tmp_path
    write_days(table)
    enable_deletion_vectors(table)
    mark_deleted(table, {key: range(50) for key in keys(table)[::2]})
    turn_row_tracking_on(table)
    snapshot = Table(str(table)).snapshot()
    for options in (
        OptimizeOptions(full=True),
        OptimizeOptions(target_size_bytes=700, max_file_size_bytes=700, min_file_size_bytes=0),
    ):
        plan = plan_optimize(snapshot, options, 0)
        given = list(tasks_of(plan, snapshot, "run", str(table)))
        assert given
        for task in given:
            assert task.bin_id == bin_id_of(task.rewrite_tag, task.sources, task.num_outputs)
    assert any(task.num_outputs > 1 for task in given)


@pytest.mark.parametrize(
    "run_id", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "a\nb", "x" * 129, "ä", None]
)
def test_a_run_id_that_is_no_plain_name_is_refused(run_id: Any) -> None:
    with pytest.raises(ContractError, match="is not the name of a run"):
        JobSpec("optimize", "/t", run_id)
    JobSpec("optimize", "/t", "airflow-1767225600000000-0a1b2c3d")


class Killed(BaseException):
    """What ends a process in the middle of its work."""


@examples(10)
@given(table=generated_tables(), tracked=st.booleans())
def test_whatever_a_table_holds_what_an_earlier_try_finished_is_taken_over(
    table: GeneratedTable, tracked: bool
) -> None:
    def kill(number: int) -> None:
        if number == len(first.given):
            raise Killed

    first, second = WatchedEngine(kill), WatchedEngine()
    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        dataclasses.replace(table, row_tracking=tracked).write(path)
        options: dict[str, Any] = {
            "full": True,
            "target_size_bytes": 2000,
            "min_file_size_bytes": 0,
            "max_file_size_bytes": 2000,
        }
        try:
            run(path, engine=first, **options)
        except Killed:
            report = run(path, engine=second, **options)
            assert (report.status, second.given) == ("committed", [])


def test_old_manifests_are_deleted_by_the_names_of_manifests_alone(table: Path) -> None:
    names = [
        f"run/{'0' * 32}.json",
        f"run/deeper/{'0' * 32}.json",
        f".hidden/{'0' * 32}.json",
        f"run/{'0' * 31}g.json",
        f"{'0' * 32}.json",
    ]
    for name in names:
        path = table / "_maintenance" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (1, 1))
    (table / "_maintenance" / "run" / f"{'1' * 32}.json").mkdir()
    assert forget_old_manifests(Table(str(table)), Runtime().now_ms()) == 1
    left = {p.relative_to(table / "_maintenance").as_posix() for p in (table / "_maintenance").rglob("*")}
    assert left >= set(names[1:])
    assert names[0] not in left
