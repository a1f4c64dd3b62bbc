"""The commits of a managed table in Unity Catalog (``/api/2.1/unity-catalog/delta/v1``, version 1.0 of its managed tables specification).

A table is managed if the catalog has the property ``delta.feature.catalogManaged`` for it. External tables are told by the same request
that says where a table is, so servers without this interface serve them as before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from delta_log.errors import (
    CommitRefused,
    InvalidRequest,
    NotInCatalog,
    StorageError,
    UnsupportedFeature,
)
from delta_log.storage.managed.commit_catalog import (
    CatalogState,
    CommitCatalog,
    RatifiedCommit,
    TooManyUnpublished,
    VersionTaken,
)
from delta_log.storage.managed.maintenance import ALL_MAINTENANCE
from delta_log.storage.table_uri import one_spelling
from delta_log.storage.vending.catalogs import rest_catalog
from delta_log.storage.vending.rest_catalog import RestCatalog
from delta_log.storage.vending.rest_client import Declined, NotFound, path_of

MANAGED = "MANAGED"
_BASE = "/api/2.1/unity-catalog/delta/v1"
_FEATURES = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")
_UNIFORM = "delta.universalFormat.enabledFormats"
_STAGED = re.compile(r"(\d{20})\.[^./]+\.json")
#: The domains that the catalog keeps, too.
_DOMAINS = ("delta.clustering", "delta.rowTracking")
_BAD, _CONFLICT, _TOO_MANY = 400, 409, 429
_VERSION_CONFLICT = "CommitVersionConflictException"


class _Commit(Struct, rename="kebab"):
    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int

    def ratified(self, place: str) -> RatifiedCommit:
        """
        :raises StorageError: its file is no staged commit of its version.
        """
        found = _STAGED.fullmatch(self.file_name)
        if found is None or int(found[1]) != self.version:
            raise StorageError(
                f"{place} holds a file as version {self.version} that is no staged commit of it ({self.file_name}).",
                self.file_name,
                is_final=True,
            )
        return RatifiedCommit(
            self.version, self.file_name, self.file_size, self.file_modification_timestamp, self.timestamp
        )


class _Metadata(Struct, rename="kebab"):
    table_uuid: str
    location: str
    properties: dict[str, str] = field(default_factory=dict)


class _Loaded(Struct, rename="kebab"):
    metadata: _Metadata
    commits: list[_Commit] | None = None
    latest_table_version: int | None = None
    allowed_maintenance_operations: list[str] | None = None
    uniform: dict[str, Any] | None = None

    @property
    def is_managed(self) -> bool:
        return any(self.metadata.properties.get(name) == "supported" for name in _FEATURES)

    @property
    def is_uniform(self) -> bool:
        return self.uniform is not None or "iceberg" in self.metadata.properties.get(_UNIFORM, "").lower()


class UnityCommits(CommitCatalog):
    """The commits of one table. Any thread may use it.

    :param name: parts of the table's name.
    :param table_uri: address of the table, as it was opened.
    :param patient: catalog, which is asked several times if it does not answer.
    :param hasty: the same one, which is asked once: the caller finds out what has become of the request.
    """

    def __init__(
        self, name: tuple[str, ...], table_uri: str, patient: RestCatalog, hasty: RestCatalog
    ) -> None:
        self._name, self._uri, self._patient, self._hasty = name, table_uri, patient, hasty
        catalog, schema, table = name
        self._path = f"{_BASE}{path_of('catalogs', catalog, 'schemas', schema, 'tables', table)}"
        #: The id of the table that was opened; ``None``: the catalog has not been asked for it.
        self._uuid: str | None = None

    def load(self) -> CatalogState | None:
        place = self._patient.client.place
        try:
            if self._uuid is None and self._patient.table(self._name).kind.upper() != MANAGED:
                return None
            loaded = self._patient.client.get(_Loaded, self._path)
        except NotFound as error:
            if self._uuid is not None:
                raise NotInCatalog(str(self), f"{place}: {error}") from error
            raise UnsupportedFeature(
                ("catalogManaged",),
                "open",
                f"{self} is a managed table, and {place} has no delta/v1 interface for its commits: {error}",
            ) from error
        if loaded.is_managed:
            return self._state(loaded)
        if self._uuid is None:
            return None
        # Commits that went to the store from now on would go around the catalog of the table that was opened.
        raise StorageError(
            f"{self} was a table that {place} manages when this work began, and is none any more. What was committed stands. Run again.",
            self._uri,
        )

    def __str__(self) -> str:
        return f"{self._patient.scheme}://{'.'.join(self._name)}"

    def _state(self, loaded: _Loaded) -> CatalogState:
        """
        :raises StorageError: the name stands for another table than the one that was opened, or the answer makes no sense.
        """
        self._require_same_table(loaded.metadata)
        place, latest = f"{self} in {self._patient.client.place}", loaded.latest_table_version
        commits = sorted(
            (one.ratified(place) for one in loaded.commits or ()), key=lambda commit: commit.version
        )
        versions = [commit.version for commit in commits]
        if latest is None or (versions and versions != list(range(latest + 1 - len(versions), latest + 1))):
            raise StorageError(
                f"{place} has the newest version {latest} and holds the versions {versions}, which do not lead up to it: it has forgotten a "
                "commit. Nothing was written. Ask its administrator.",
                self._uri,
                is_final=True,
            )
        permitted = frozenset(loaded.allowed_maintenance_operations or ())
        return CatalogState(
            latest,
            tuple(commits),
            ALL_MAINTENANCE if self._patient.client.settings.owner_permits_maintenance else permitted,
            "Iceberg readers read it, too (UniForm), and each commit would have to come with Iceberg's metadata"
            if loaded.is_uniform
            else None,
        )

    def _require_same_table(self, metadata: _Metadata) -> None:
        self._uuid = self._uuid or metadata.table_uuid
        if metadata.table_uuid != self._uuid or one_spelling(metadata.location) != one_spelling(self._uri):
            raise StorageError(
                f"{self} was the table {self._uuid} at {self._uri} when this work began, and the catalog has {metadata.table_uuid} at "
                f"{metadata.location} now. What was committed stands. Run again.",
                self._uri,
            )

    def ratify(self, commit: RatifiedCommit, domains: Mapping[str, str]) -> CatalogState:
        added = {
            "version": commit.version,
            "timestamp": commit.timestamp_ms,
            "file-name": commit.file_name,
            "file-size": commit.size_bytes,
            "file-modification-timestamp": commit.modification_time_ms,
        }
        updates: list[dict[str, Any]] = [{"action": "add-commit", "commit": added}]
        known = {name: json.loads(domains[name]) for name in _DOMAINS if name in domains}
        if known:
            updates.append({"action": "set-domain-metadata", "updates": known})
        try:
            return self._updated(updates, _CONFLICT, _TOO_MANY)
        except Declined as declined:
            if declined.status == _TOO_MANY:
                raise TooManyUnpublished(str(declined)) from declined
            if declined.reason in (_VERSION_CONFLICT, ""):
                raise VersionTaken(str(declined)) from declined
            raise CommitRefused(str(self), str(declined)) from declined

    def set_published(self, version: int) -> CatalogState:
        return self._updated(
            [{"action": "set-latest-backfilled-version", "latest-published-version": version}]
        )

    def _updated(self, updates: list[dict[str, Any]], *handled: int) -> CatalogState:
        """
        :param handled: statuses that the caller handles.
        :raises Declined: the answer has one of these statuses.
        """
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": self._uuid}], "updates": updates}
        try:
            loaded = self._hasty.client.post(_Loaded, self._path, body, (_BAD, *handled))
        except NotFound as error:
            raise CommitRefused(str(self), str(error)) from error
        except Declined as declined:
            if declined.status != _BAD:
                raise
            raise CommitRefused(str(self), str(declined)) from declined
        return self._state(loaded)


def unity_commits(table_uri: str, option: Any) -> UnityCommits:
    """
    :param option: value of the storage option ``managed_by``, which has the form of ``vended``.
    :raises InvalidRequest: the value is wrong.
    """
    try:
        scheme, name, given = option["scheme"], tuple(option["name"]), option["catalog"]
        patient, hasty = rest_catalog(scheme, given), rest_catalog(scheme, given, most_attempts=1)
        return UnityCommits(name, table_uri, patient, hasty)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(
            'The storage option "managed_by" is made by this package from the name of a table, and this one is not. Leave it out, and give '
            "the table's name."
        ) from error
