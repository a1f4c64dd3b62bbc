"""The commits of managed tables, asked of a server: the contract, and what the catalog may say of a table besides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.tables.managed_tables import NAME

from delta_log.errors import CommitRefused, InvalidRequest, StorageError, UnsupportedFeature
from delta_log.storage.managed.commit_catalog import CommitCatalog
from delta_log.storage.managed.maintenance import ALL_MAINTENANCE, DATA_CLEANUP
from delta_log.storage.vending.unity_commits import UnityCommits, unity_commits
from delta_log.testing.commit_contract import CommitContract, staged
from delta_log.testing.fake_catalogs import FakeUnityCatalog

AT = "s3://lake/events"


@pytest.fixture
def fake() -> Iterator[FakeUnityCatalog]:
    with FakeUnityCatalog.running() as fake:
        assert isinstance(fake, FakeUnityCatalog)
        fake.manage(NAME, AT)
        yield fake


def opened(fake: FakeUnityCatalog, at: str = AT, **more: object) -> UnityCommits:
    return unity_commits(at, {"scheme": "uc", "name": NAME.split("."), "catalog": {**fake.option, **more}})


class TestUnityCommits(CommitContract):
    @pytest.fixture
    def commits(self, fake: FakeUnityCatalog) -> CommitCatalog:
        return opened(fake)


def test_what_is_not_said_to_be_permitted_is_not_unless_the_owner_says_so(fake: FakeUnityCatalog) -> None:
    for said, known in ((None, frozenset()), ((DATA_CLEANUP, "NEW"), frozenset({DATA_CLEANUP, "NEW"}))):
        fake.managed(NAME).permitted = said
        state = opened(fake).load()
        assert state is not None
        assert state.permitted == known
        owned = opened(fake, owner_permits_maintenance=True).load()
        assert owned is not None
        assert owned.permitted == ALL_MAINTENANCE


def test_external_tables_need_no_interface_for_commits(fake: FakeUnityCatalog) -> None:
    fake.register(NAME, AT)
    assert opened(fake).load() is None
    assert [request.segments[3] for request in fake.requests] == ["tables"]


def test_a_managed_table_without_the_feature_is_not_managed_by_commits(fake: FakeUnityCatalog) -> None:
    fake.register(NAME, AT, kind="MANAGED")
    assert opened(fake).load() is None


def test_a_server_without_the_interface_is_told(fake: FakeUnityCatalog) -> None:
    commits = opened(fake)
    fake.faults = [0.0, 404]
    with pytest.raises(UnsupportedFeature, match="no delta/v1 interface"):
        commits.load()


def test_a_table_that_was_moved_or_made_anew_is_not_written_to(fake: FakeUnityCatalog) -> None:
    commits, elsewhere = opened(fake), opened(fake, "s3://lake/other")
    with pytest.raises(StorageError, match="was the table .* at s3://lake/other"):
        elsewhere.load()
    assert commits.load() is not None
    fake.manage(NAME, AT)  # with another id
    with pytest.raises(CommitRefused, match="another id"):
        commits.ratify(staged(1), {})
    with pytest.raises(StorageError, match="Run again"):
        commits.load()
    assert fake.managed(NAME).latest_version == 0


def test_an_external_table_that_takes_the_name_is_not_written_to(fake: FakeUnityCatalog) -> None:
    commits = opened(fake)
    assert commits.load() is not None
    fake.register(NAME, AT)
    with pytest.raises(StorageError, match="is none any more"):
        commits.load()


def test_a_catalog_that_has_forgotten_a_commit_is_told(fake: FakeUnityCatalog) -> None:
    commits = opened(fake)
    for version in (1, 2, 3):
        assert commits.load() is not None
        commits.ratify(staged(version), {})
    del fake.managed(NAME).commits[2]
    with pytest.raises(StorageError, match="has forgotten a commit") as raised:
        commits.load()
    assert not raised.value.retryable


def test_the_domains_that_the_catalog_keeps_go_with_the_commit(fake: FakeUnityCatalog) -> None:
    commits = opened(fake)
    assert commits.load() is not None
    commits.ratify(staged(1), {"delta.rowTracking": '{"rowIdHighWaterMark": 9}', "of.somebody": "no JSON"})
    assert fake.managed(NAME).domains == {"delta.rowTracking": {"rowIdHighWaterMark": 9}}


def test_an_option_of_another_origin_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="made by this package"):
        unity_commits(AT, {"scheme": "uc"})
