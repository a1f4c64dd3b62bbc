"""The catalog that decides which commits of a table count, as a client of it sees the table.

Protocol section "Catalog-managed tables". A catalog ratifies one commit for each version, in order, and never another one for the same
version. It remembers a ratified commit at least until a client says that it is published.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from msgspec import Struct


class RatifiedCommit(Struct, frozen=True):
    """A staged commit that a catalog holds for its version, or is asked to hold.

    :param file_name: name of the file in ``_delta_log/_staged_commits``.
    :param size_bytes: size of that file.
    :param modification_time_ms: time of that file by the store's clock, in milliseconds since the epoch.
    :param timestamp_ms: in-commit timestamp, in milliseconds since the epoch.
    """

    version: int
    file_name: str
    size_bytes: int
    modification_time_ms: int
    timestamp_ms: int


class CatalogState(Struct, frozen=True):
    """What a catalog says of a table at one moment.

    :param latest_version: the newest ratified version. Files of later versions count for nothing.
    :param commits: ratified commits that the catalog does not know to be published, ascending. Earlier versions are published.
    :param permitted: maintenance that clients may do, in the words of the catalog; see :mod:`delta_log.storage.managed.maintenance`.
    :param read_only_because: why this package must not commit to the table; ``None``: it may.
    """

    latest_version: int
    commits: tuple[RatifiedCommit, ...] = ()
    permitted: frozenset[str] = frozenset()
    read_only_because: str | None = None

    def commit(self, version: int) -> RatifiedCommit | None:
        """Return the commit that the catalog holds for a version; ``None``: the version is published, or not ratified."""
        return next((commit for commit in self.commits if commit.version == version), None)


class VersionTaken(Exception):
    """The catalog has ratified a commit for that version already, perhaps by an earlier request of the same client."""


class TooManyUnpublished(Exception):
    """The catalog ratifies nothing more before somebody publishes what it holds."""


class CommitCatalog(ABC):
    """The catalog of one table.

    :raises StorageError: by every method. If it is retryable, whether a request took effect is not known. Otherwise the catalog has
        refused, and nothing has changed.
    """

    @abstractmethod
    def load(self) -> CatalogState | None:
        """Return the state of the table now; ``None``: no catalog manages its commits."""

    @abstractmethod
    def ratify(self, commit: RatifiedCommit, domains: Mapping[str, str]) -> CatalogState:
        """Ask for a staged commit to become its version, and return the state after it.

        :param domains: metadata domains that the commit sets, with their configurations.
        :raises VersionTaken, TooManyUnpublished: it did not become the version by this request.
        """

    @abstractmethod
    def set_published(self, version: int) -> CatalogState:
        """Say that all commits up to a version stand in the log under their own names, and return the state after it.

        The catalog may forget them then.
        """
