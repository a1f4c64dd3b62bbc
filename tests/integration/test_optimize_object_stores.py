"""`delta-maintenance optimize` on object stores, of tables that delta-rs wrote, read back by delta-rs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import RUN_KEY
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.proxy import proxied
from tests.support.servers.s3 import S3Server
from tests.support.tables.planted_manifests import forged

from delta_log import Table
from delta_log.storage.opening import open_storage
from delta_maintenance.cli import main as cli
from delta_maintenance.contract import JobSpec
from delta_maintenance.job_interface import RUN_KEY_VARIABLE, STORAGE_OPTIONS_VARIABLE
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.bin import manifest_key, rewrite_bin


@dataclass(frozen=True)
class Store:
    """A table's address, and what it takes to reach it; delta-rs reaches it too, but for a copy on disk."""

    uri: str
    options: dict[str, Any]
    delta_rs_options: dict[str, str]

    def write(self, rows: pa.Table, **options: Any) -> None:
        deltalake.write_deltalake(self.uri, rows, storage_options=self.delta_rs_options, **options)

    def opened_by_delta_rs(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.uri, storage_options=self.delta_rs_options)

    def rows_by_delta_rs(self) -> pa.Table:
        return sorted_rows(self.opened_by_delta_rs().to_pyarrow_table())

    def rows_by_us(self) -> pa.Table:
        return sorted_rows(Table(self.uri, self.options).snapshot().to_arrow())


@dataclass(frozen=True)
class CopiedStore(Store):
    """delta-rs speaks the XML API of Google Cloud Storage, and the emulator does not."""

    server: GcsServer
    copy: Path

    def write(self, rows: pa.Table, **options: Any) -> None:
        deltalake.write_deltalake(str(self.copy), rows, **options)
        storage = open_storage(self.uri, self.options)
        for path in sorted(self.copy.rglob("*")):
            if path.is_file():
                storage.put(path.relative_to(self.copy).as_posix(), path.read_bytes())

    def opened_by_delta_rs(self) -> deltalake.DeltaTable:
        bucket, _, root = self.uri.removeprefix("gs://").partition("/")
        storage = open_storage(self.uri, self.options)
        for name in self.server.keys(bucket):
            key = name.removeprefix(f"{root}/")
            path = self.copy / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(storage.read(key))
        return deltalake.DeltaTable(str(self.copy))


@pytest.fixture
def s3(s3_server: S3Server, s3_bucket: str) -> Store:
    return Store(f"s3://{s3_bucket}/lake/events", s3_server.storage_options, s3_server.delta_rs_options)


@pytest.fixture
def gcs(gcs_server: GcsServer, gcs_bucket: str, tmp_path: Path) -> Store:
    copy = tmp_path / "copy"
    return CopiedStore(f"gs://{gcs_bucket}/lake/events", gcs_server.storage_options, {}, gcs_server, copy)


@pytest.fixture
def azure(azure_server: AzureServer, azure_container: str) -> Store:
    uri = f"abfss://{azure_container}/lake/events"
    return Store(uri, azure_server.storage_options, azure_server.delta_rs_options)


@pytest.fixture(params=["s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


FILES = 6


def sorted_rows(table: Any) -> pa.Table:
    return pa.table(table).select(["id", "text", "place"]).sort_by("id")


def write_events(store: Store) -> pa.Table:
    """Small files in two partitions, one of whose names needs escaping; gives the rows."""
    for number in range(FILES):
        rows = {
            "id": list(range(number * 100, number * 100 + 100)),
            "text": [f"row {n} ü" for n in range(100)],
            "place": [("a b/ü%" if n % 2 else "plain") for n in range(100)],
        }
        store.write(pa.table(rows), mode="append", partition_by=["place"])
    return store.rows_by_delta_rs()


@pytest.fixture
def optimize(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Store], dict[str, Any]]:
    """Run the command; the options reach it by the environment, and not by arguments."""

    def command(store: Store, *arguments: str) -> dict[str, Any]:
        monkeypatch.setenv(STORAGE_OPTIONS_VARIABLE, json.dumps(store.options))
        code = cli.main(("optimize", store.uri, "--engine", "local", "--json", *arguments))
        captured = capsys.readouterr()
        assert code == 0, captured.err
        report: dict[str, Any] = json.loads(captured.out)
        return report

    return command


def test_a_table_is_compacted_and_its_rows_stay(
    store: Store, optimize: Callable[[Store], dict[str, Any]]
) -> None:
    rows = write_events(store)
    assert rows.num_rows == FILES * 100
    report = optimize(store)
    assert report["status"] == "committed"
    assert report["version"] == FILES
    assert (report["metrics"]["numRemovedFiles"], report["metrics"]["numAddedFiles"]) == (FILES * 2, 2)
    assert store.rows_by_delta_rs().equals(rows)
    assert store.rows_by_us().equals(rows)
    assert optimize(store)["status"] == "nothing_to_do"


def test_what_an_earlier_try_has_finished_is_taken_over_and_what_was_planted_is_not(
    store: Store, optimize: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_events(store)
    table = Table(store.uri, store.options)
    snapshot = table.snapshot()
    done, open_ = tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, "run", table.uri)
    finished = rewrite_bin(done, table.storage, RUN_KEY)
    table.storage.put(manifest_key("run", open_.bin_id), json.dumps(forged(open_)).encode())
    table.storage.put(manifest_key("run", "0" * 32), b"")
    monkeypatch.setenv(RUN_KEY_VARIABLE, RUN_KEY.text)
    report = optimize(store, "--run-id", "run")
    assert (report["metrics"]["numRemovedFiles"], report["metrics"]["numAddedFiles"]) == (FILES * 2, 2)
    keys = table.snapshot().files(["key"]).column("key").to_pylist()
    assert finished.outputs[0].key in keys
    assert not any("forged" in key for key in keys)
    assert store.rows_by_us().equals(rows)


def test_a_job_of_airflow_gets_its_credentials_from_the_connection(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta.hooks.delta_table import DeltaTableHook
    from airflow_delta.runners.local import LocalJobRunner

    rows = write_events(store)
    extra = {**store.options, "test_table": store.uri, "anon": False}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": extra}))
    hook = DeltaTableHook("lake")
    assert hook.test_connection() == (
        True,
        f"{store.uri}: table ok: version {FILES - 1}, {FILES * 2} files",
    )
    spec = JobSpec("optimize", store.uri, "run", engine="local")
    runner = LocalJobRunner(hook.storage_options, logging.getLogger("job"))
    assert runner.run(spec, lambda _: None).status == "committed"
    assert store.rows_by_us().equals(rows)


def test_a_cold_open_reads_the_hint_lists_once_from_there_and_reads_what_is_needed(
    s3: Store, s3_server: S3Server
) -> None:
    write_events(s3)
    s3.opened_by_delta_rs().create_checkpoint()
    s3.write(pa.table({"id": [1], "text": ["x"], "place": ["plain"]}), mode="append")
    with proxied(s3_server.endpoint) as proxy:
        snapshot = Table(s3.uri, {**s3.options, "endpoint_url": proxy.endpoint}).snapshot()
        assert snapshot.num_files == FILES * 2 + 1
    checkpoint, commit = f"{FILES - 1:020d}.checkpoint.parquet", f"{FILES:020d}.json"
    lists = [request for request in proxy.requests if request.query.get("list-type") == "2"]
    (listing,) = lists
    start = listing.query["start-after"].rpartition("/")[2]
    assert f"{FILES - 1:020d}" <= start < checkpoint
    read = [r.path.rpartition("/")[2] for r in proxy.requests if r is not listing]
    assert sorted(read) == sorted(["_last_checkpoint", checkpoint, commit])
    assert {request.method for request in proxy.requests} == {"GET"}


def test_a_small_data_file_is_read_by_one_request(s3: Store, s3_server: S3Server) -> None:
    write_events(s3)
    with proxied(s3_server.endpoint) as proxy:
        snapshot = Table(s3.uri, {**s3.options, "endpoint_url": proxy.endpoint}).snapshot()
        proxy.requests.clear()
        assert snapshot.to_arrow().num_rows == FILES * 100
    assert sorted(r.method for r in proxy.requests) == ["GET"] * FILES * 2


def test_a_commit_in_the_quiet_case_puts_one_object(
    s3: Store, s3_server: S3Server, optimize: Callable[..., dict[str, Any]]
) -> None:
    write_events(s3)
    with proxied(s3_server.endpoint) as proxy:
        wired = Store(s3.uri, {**s3.options, "endpoint_url": proxy.endpoint}, s3.delta_rs_options)
        assert optimize(wired)["status"] == "committed"
    written = [
        r.path.rpartition("/")[2] for r in proxy.requests if r.method == "PUT" and "_delta_log" in r.path
    ]
    assert [name for name in written if name.endswith(".json")] == [f"{FILES:020d}.json"]


def test_large_row_groups_are_copied_as_bytes(s3: Store, optimize: Callable[..., dict[str, Any]]) -> None:
    random, num_rows, num_files = Random(1), 60_000, 3
    for number in range(num_files):
        rows = {
            "id": range(number * num_rows, (number + 1) * num_rows),
            "text": [random.randbytes(64).hex() for _ in range(num_rows)],
            "place": ["here"] * num_rows,
        }
        s3.write(pa.table(rows), mode="append")
    before = s3.rows_by_delta_rs()
    report = optimize(s3, "--rewrite", "copy")
    assert report["metrics"]["numCopiedBytes"] > num_files * (7 << 20)
    assert s3.rows_by_delta_rs().equals(before)
    assert s3.rows_by_us().equals(before)
