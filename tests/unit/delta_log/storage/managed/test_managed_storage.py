"""The storage of a managed table, with a catalog that answers, forgets, or gives no answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from tests.support.tables.managed_tables import FIRST, NAME, OtherWriter, commit_path, write_managed

from delta_log import Table
from delta_log.errors import (
    CommitRefused,
    CorruptLog,
    InvalidRequest,
    NeedsCatalog,
    StorageError,
    UnsupportedFeature,
)
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_log.storage.managed.commit_catalog import CatalogState, CommitCatalog, RatifiedCommit
from delta_log.storage.managed.managed_storage import ManagedStorage
from delta_log.storage.storage import Storage
from delta_log.table_config.features import Operation
from delta_log.testing import MemoryStorage, StorageContract
from delta_log.testing.fake_catalogs import FakeUnityCatalog
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import CommitResult, Transaction

STAGED = "_delta_log/_staged_commits"


class Unmanaged(CommitCatalog):
    """Says of every table that its commits go to its store."""

    def load(self) -> CatalogState | None:
        return None

    def ratify(self, commit: RatifiedCommit, domains: Mapping[str, str]) -> CatalogState:
        raise NotImplementedError

    def set_published(self, version: int) -> CatalogState:
        raise NotImplementedError


class TestAnUnmanagedTable(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return ManagedStorage(MemoryStorage(), Unmanaged())


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FakeUnityCatalog]:
    write_managed(tmp_path / "t")
    with FakeUnityCatalog.running() as fake:
        assert isinstance(fake, FakeUnityCatalog)
        fake.manage(NAME, f"file://{tmp_path}/t", FIRST)
        yield fake


@pytest.fixture
def other(catalog: FakeUnityCatalog, tmp_path: Path) -> OtherWriter:
    return OtherWriter(tmp_path / "t", catalog)


def opened(catalog: FakeUnityCatalog) -> Table:
    return Table(f"uc://{NAME}", {"unity": catalog.option})


def commit(table: Table) -> CommitResult:
    """Commit a version that changes nothing."""
    runtime = Runtime(sleep=lambda seconds: None)
    return Transaction(table.storage, table.snapshot(), Operation.VACUUM, runtime).commit(
        Change("VACUUM END")
    )


def files(table: Path) -> dict[str, bytes]:
    return {str(path.relative_to(table)): path.read_bytes() for path in table.rglob("*") if path.is_file()}


def test_a_managed_table_is_refused_by_its_address(catalog: FakeUnityCatalog, tmp_path: Path) -> None:
    table, before = Table(str(tmp_path / "t")), files(tmp_path / "t")
    for use in (table.snapshot, lambda: list(table.tail("earliest", poll_interval_seconds=None))):
        with pytest.raises(NeedsCatalog, match=r"catalogManaged.*by its name, such as uc://"):
            use()
    assert files(tmp_path / "t") == before


def test_a_writer_by_address_gives_way_when_a_catalog_takes_over(tmp_path: Path) -> None:
    write_managed(tmp_path / "t")
    taken_over = commit_path(tmp_path / "t", FIRST)
    body = taken_over.read_bytes()
    taken_over.unlink()
    table = Table(str(tmp_path / "t"))
    transaction = Transaction(table.storage, table.snapshot(), Operation.VACUUM, Runtime())
    taken_over.write_bytes(body)
    with pytest.raises(NeedsCatalog):
        transaction.commit(Change("VACUUM END"))
    assert not commit_path(tmp_path / "t", FIRST + 1).exists()


def test_what_is_ratified_counts_and_what_is_only_staged_or_lies_above_does_not(
    catalog: FakeUnityCatalog, other: OtherWriter, tmp_path: Path
) -> None:
    table = opened(catalog)
    before = table.snapshot()
    other.stage(1)
    staged = next((tmp_path / "t" / STAGED).iterdir())
    commit_path(tmp_path / "t", FIRST + 1).write_bytes(staged.read_bytes())  # nobody ratified it
    assert table.snapshot().version == FIRST
    assert [entry["version"] for entry in table.history(1)] == [FIRST]
    assert list(table.tail(FIRST + 1, poll_interval_seconds=None)) == []
    commit_path(tmp_path / "t", FIRST + 1).unlink()
    tail = table.tail(FIRST + 1, poll_interval_seconds=None)
    version = other.append(2)
    assert [commit.version for commit in tail] == [version]
    newest = table.snapshot(refresh_from=before)
    assert (newest.version, newest.num_files) == (version, before.num_files + 1)
    assert table.snapshot(timestamp=newest.timestamp).version == version
    assert not commit_path(tmp_path / "t", version).exists()


def test_the_commit_of_the_catalog_counts_where_another_one_was_published(
    catalog: FakeUnityCatalog, other: OtherWriter, tmp_path: Path
) -> None:
    version = other.append(1)
    commit_path(tmp_path / "t", version).write_text('{"commitInfo":{"inCommitTimestamp":1}}\n')
    table = opened(catalog)
    assert 1 in table.snapshot().to_arrow()["id"].to_pylist()
    latest = catalog.managed(NAME).latest_version
    assert commit(table).version == latest + 1  # it stands, and what went wrong is for people to mend
    assert version in catalog.managed(NAME).commits
    with pytest.raises(CorruptLog, match="around its catalog"):
        table.storage.put(f"_delta_log/{version:020d}.checkpoint.parquet", b"x")


def test_a_commit_publishes_what_others_left_and_tells_the_catalog(
    catalog: FakeUnityCatalog, other: OtherWriter, tmp_path: Path
) -> None:
    versions = [other.append(1), other.append(2)]
    result = commit(opened(catalog))
    assert result.version == versions[-1] + 1
    assert all(commit_path(tmp_path / "t", version).exists() for version in (*versions, result.version))
    assert catalog.managed(NAME).commits == {}


@pytest.mark.parametrize("lost", [1, 2])
def test_a_commit_whose_answer_is_lost_stands_once(catalog: FakeUnityCatalog, lost: int) -> None:
    catalog.lost_answers = lost
    result = commit(opened(catalog))
    assert (result.version, catalog.managed(NAME).latest_version) == (FIRST + 1, FIRST + 1)


def test_a_commit_that_did_not_reach_the_catalog_is_sent_again(catalog: FakeUnityCatalog) -> None:
    table = opened(catalog)
    table.snapshot()
    snapshot_of = table.snapshot()
    transaction = Transaction(
        table.storage, snapshot_of, Operation.VACUUM, Runtime(sleep=lambda seconds: None)
    )
    catalog.faults = [0.0, 0.0, None]  # listing, looking whether the version is taken, ratifying
    assert transaction.commit(Change("VACUUM END")).version == FIRST + 1
    added = [update for updates in catalog.managed(NAME).requests for update in updates]
    assert sum(update["action"] == "add-commit" for update in added) == 1


def test_a_commit_outlives_an_outage_of_the_catalog(catalog: FakeUnityCatalog) -> None:
    table = opened(catalog)
    transaction = Transaction(table.storage, table.snapshot(), Operation.VACUUM, Runtime())
    catalog.is_down = True
    Timer(0.5, setattr, (catalog, "is_down", False)).start()
    assert transaction.commit(Change("VACUUM END")).version == FIRST + 1


def test_the_row_id_mark_of_a_commit_is_told_with_it(catalog: FakeUnityCatalog) -> None:
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":41}', "removed": False}
    actions = ({"commitInfo": {"inCommitTimestamp": 1_800_000_000_000}}, {"domainMetadata": domain})
    body = "".join(json.dumps(action) + "\n" for action in actions).encode()
    assert opened(catalog).storage.put_if_absent(commit_key(FIRST + 1), body) is True
    assert catalog.managed(NAME).domains == {"delta.rowTracking": {"rowIdHighWaterMark": 41}}
    added = [updates for updates in catalog.managed(NAME).requests if updates[0]["action"] == "add-commit"]
    assert len(added) == 1


def test_a_full_catalog_is_relieved_before_the_commit(catalog: FakeUnityCatalog, other: OtherWriter) -> None:
    other.append(1)
    other.append(2)
    catalog.managed(NAME).most_unpublished = 2
    assert commit(opened(catalog)).version == FIRST + 3
    assert catalog.managed(NAME).commits == {}


def test_a_refusal_of_the_catalog_is_told_at_once(catalog: FakeUnityCatalog) -> None:
    table = opened(catalog)
    transaction = Transaction(table.storage, table.snapshot(), Operation.VACUUM, Runtime())
    catalog.faults = [0.0, 0.0, 400]
    with pytest.raises(CommitRefused, match="Nothing was committed"):
        transaction.commit(Change("VACUUM END"))
    assert catalog.managed(NAME).latest_version == FIRST


def test_a_catalog_that_has_forgotten_published_versions_gets_no_commit(
    catalog: FakeUnityCatalog, other: OtherWriter, tmp_path: Path
) -> None:
    table = opened(catalog)
    commit(table)
    catalog.managed(NAME).latest_version = FIRST
    before = files(tmp_path / "t")
    with pytest.raises(CorruptLog, match=f"newest version of the catalog is {FIRST}"):
        commit(opened(catalog))
    assert files(tmp_path / "t") == before


def test_iceberg_readers_stop_commits_and_not_reading(catalog: FakeUnityCatalog) -> None:
    catalog.managed(NAME).is_uniform = True
    table = opened(catalog)
    with pytest.raises(UnsupportedFeature, match="UniForm"):
        commit(table)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"metaData": {}}, "changes metadata or protocol"),
        ({"protocol": {}}, "changes metadata or protocol"),
        ({"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}, "changes metadata"),
        ({"commitInfo": {}}, "no in-commit timestamp"),
    ],
)
def test_a_commit_that_the_catalog_would_have_to_understand_is_not_staged(
    catalog: FakeUnityCatalog, tmp_path: Path, action: dict[str, Any], said: str
) -> None:
    before = files(tmp_path / "t")
    with pytest.raises(InvalidRequest, match=said):
        opened(catalog).storage.put_if_absent(commit_key(FIRST + 1), json.dumps(action).encode())
    assert files(tmp_path / "t") == before


def test_no_commit_is_overwritten_or_taken_back(catalog: FakeUnityCatalog, tmp_path: Path) -> None:
    storage, before = opened(catalog).storage, files(tmp_path / "t")
    key = commit_key(FIRST)
    for write in (
        lambda: storage.put(key, b""),
        lambda: storage.open_write(key),
        lambda: storage.copy("a", key),
    ):
        with pytest.raises(InvalidRequest, match="go through its catalog"):
            write()
    with pytest.raises(StorageError, match="takes nothing back"):
        storage.take_back(key, before[key])
    assert storage.put_if_absent(key, b"") is False
    with pytest.raises(InvalidRequest, match="not ratified"):
        storage.put(f"_delta_log/{FIRST + 1:020d}.checkpoint.parquet", b"x")
    assert files(tmp_path / "t") == before


def test_a_file_that_the_catalog_names_is_published_before_it_is_deleted(
    catalog: FakeUnityCatalog, other: OtherWriter, tmp_path: Path
) -> None:
    version = other.append(1)
    (staged,) = (tmp_path / "t" / STAGED).iterdir()
    table = opened(catalog)
    read = table.snapshot()
    table.storage.delete([f"{STAGED}/{staged.name}"])
    assert not staged.exists()
    assert commit_path(tmp_path / "t", version).exists()
    assert catalog.managed(NAME).commits == {}
    assert table.storage.read(commit_key(version))
    assert read.to_arrow().num_rows == table.snapshot().to_arrow().num_rows


def test_a_ratified_commit_whose_file_is_gone_is_told(
    catalog: FakeUnityCatalog, other: OtherWriter, tmp_path: Path
) -> None:
    other.append(1)
    next((tmp_path / "t" / STAGED).iterdir()).unlink()
    with pytest.raises((CorruptLog, FileNotFoundError)):
        opened(catalog).snapshot()
    with pytest.raises(CorruptLog, match="the catalog holds it as version"):
        opened(catalog).storage.put(f"_delta_log/{FIRST + 1:020d}.checkpoint.parquet", b"x")
