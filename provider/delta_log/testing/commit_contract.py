"""The tests that every client of a catalog that ratifies commits has to pass, with a fake catalog and a real one alike."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from delta_log.errors import CommitRefused, StorageError
from delta_log.storage.managed.commit_catalog import (
    CatalogState,
    CommitCatalog,
    RatifiedCommit,
    TooManyUnpublished,
    VersionTaken,
)

#: No catalog holds so many commits that are not published.
_MANY = 200


def staged(version: int, name: str = "a") -> RatifiedCommit:
    """Return a commit of a version; a fake catalog does not look for its file."""
    return RatifiedCommit(
        version, f"{version:020d}.{name}.json", 100, 1_700_000_000_000, 1_700_000_000_000 + version
    )


class CommitContract:
    """Tests :class:`~delta_log.storage.managed.commit_catalog.CommitCatalog`.

    A subclass gives a ``commits`` fixture: the client of a managed table that has version 0 alone, which is published.
    """

    def test_a_new_table_has_version_0_and_holds_nothing(self, commits: CommitCatalog) -> None:
        state = _loaded(commits)
        assert (state.latest_version, state.commits) == (0, ())

    def test_ratified_commits_are_held_in_order(self, commits: CommitCatalog) -> None:
        _loaded(commits)
        assert commits.ratify(staged(1), {}).latest_version == 1
        commits.ratify(staged(2), {})
        state = _loaded(commits)
        assert (state.latest_version, state.commits) == (2, (staged(1), staged(2)))

    def test_a_version_is_ratified_once(self, commits: CommitCatalog) -> None:
        _loaded(commits)
        commits.ratify(staged(1), {})
        try:
            commits.ratify(staged(1, "b"), {})
        except VersionTaken:
            assert _loaded(commits).commits == (staged(1),)
        else:
            raise AssertionError("a second commit became version 1")

    def test_the_same_request_again_changes_nothing(self, commits: CommitCatalog) -> None:
        _loaded(commits)
        commits.ratify(staged(1), {})
        with suppress(VersionTaken):  # a catalog may say so, or that all is well
            commits.ratify(staged(1), {})
        assert _loaded(commits).commits == (staged(1),)

    def test_no_version_is_left_out_and_none_is_0(self, commits: CommitCatalog) -> None:
        _loaded(commits)
        for commit in (staged(2), staged(0)):
            try:
                commits.ratify(commit, {})
            except (CommitRefused, VersionTaken):
                assert _loaded(commits).latest_version == 0
            else:
                raise AssertionError(f"{commit} was ratified")

    def test_what_is_published_may_be_forgotten_and_is_not_ratified_again(
        self, commits: CommitCatalog
    ) -> None:
        _loaded(commits)
        for version in (1, 2, 3):
            commits.ratify(staged(version), {})
        for _ in range(2):  # it may be told again
            state = commits.set_published(2)
            assert state.latest_version == 3
            assert state.commits[-1] == staged(3)
        try:
            commits.ratify(staged(2, "b"), {})
        except VersionTaken:
            return
        raise AssertionError("version 2 was ratified twice")

    def test_only_ratified_versions_are_published(self, commits: CommitCatalog) -> None:
        _loaded(commits)
        try:
            commits.set_published(1)
        except CommitRefused:
            assert _loaded(commits).latest_version == 0
        else:
            raise AssertionError("version 1 was published before it was ratified")

    def test_so_many_commits_are_held_until_some_are_published(self, commits: CommitCatalog) -> None:
        _loaded(commits)
        version = 0
        try:
            for version in range(1, _MANY):
                commits.ratify(staged(version), {})
        except TooManyUnpublished:
            commits.set_published(version - 1)
            assert commits.ratify(staged(version), {}).latest_version == version
        else:
            raise AssertionError(f"{_MANY} commits were held")

    def test_a_name_that_leads_out_of_the_staged_commits_is_not_believed(
        self, commits: CommitCatalog
    ) -> None:
        _loaded(commits)
        try:
            commits.ratify(replace(staged(1), file_name="../../x.json"), {})
        except StorageError:
            return  # the catalog refuses, or its client does not believe it
        raise AssertionError("the name was believed")


def _loaded(commits: CommitCatalog) -> CatalogState:
    state = commits.load()
    assert state is not None
    return state
