"""The commits of one managed table, as Unity Catalog keeps them (version 1.0 of its managed tables specification)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

_BAD, _CONFLICT, _TOO_MANY = 400, 409, 429
_MAINTENANCE = ("DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP")


def declined(status: int, reason: str, message: str) -> tuple[int, Any]:
    """Return an error in the form of this interface."""
    return status, {"error": {"message": message, "type": reason, "code": status}}


class FakeManagedTable(Struct):
    """What the catalog keeps of a table. A test may change any of it.

    :param commits: ratified commits that the catalog does not know to be published, by version, as they were added.
    :param permitted: allowed maintenance; ``None``: the server does not say, as older ones.
    :param most_unpublished: number of commits that it holds at most.
    :param domains: metadata domains that commits have set.
    :param is_uniform: ``True``: Iceberg readers read the table, too.
    :param requests: changes that were asked for: the ``updates`` of each request.
    """

    latest_version: int = 0
    commits: dict[int, dict[str, Any]] = field(default_factory=dict)
    permitted: tuple[str, ...] | None = _MAINTENANCE
    most_unpublished: int = 10
    domains: dict[str, Any] = field(default_factory=dict)
    is_uniform: bool = False
    requests: list[list[dict[str, Any]]] = field(default_factory=list)

    def loaded(self, key: str, location: str, *, is_managed: bool) -> dict[str, Any]:
        """Return the answer to a GET.

        :param key: id of the table.
        """
        properties = {"delta.feature.catalogManaged": "supported"} if is_managed else {}
        if self.is_uniform:
            properties["delta.universalFormat.enabledFormats"] = "iceberg"
        answer: dict[str, Any] = {
            "metadata": {
                "etag": f"etag-{len(self.domains)}",
                "table-type": "MANAGED" if is_managed else "EXTERNAL",
                "table-uuid": key,
                "location": location,
                "properties": properties,
            }
        }
        if is_managed:
            answer["commits"] = [self.commits[version] for version in sorted(self.commits, reverse=True)]
            answer["latest-table-version"] = self.latest_version
        if is_managed and self.permitted is not None:
            answer["allowed-maintenance-operations"] = list(self.permitted)
        return answer

    def update(self, key: str, body: Mapping[str, Any]) -> tuple[int, Any] | None:
        """Apply the changes of a POST, all or none; return the answer if they are declined.

        :param key: id of the table.
        """
        if {"type": "assert-table-uuid", "uuid": key} not in body["requirements"]:
            return declined(_CONFLICT, "UpdateRequirementConflictException", "the table has another id")
        updates = {update["action"]: update for update in body["updates"]}
        self.requests.append(list(body["updates"]))
        added, published = updates.get("add-commit"), updates.get("set-latest-backfilled-version")
        refusal = self._refused_commit(added["commit"]) if added is not None else None
        if (
            refusal is None
            and published is not None
            and published["latest-published-version"] > self.latest_version
        ):
            refusal = declined(_BAD, "InvalidParameterValueException", "that version is not ratified")
        if refusal is not None:
            return refusal
        if added is not None and added["commit"]["version"] > self.latest_version:
            self.latest_version = added["commit"]["version"]
            self.commits[self.latest_version] = added["commit"]
            self.domains.update(updates.get("set-domain-metadata", {}).get("updates", {}))
        if published is not None:
            last = published["latest-published-version"]
            self.commits = {version: commit for version, commit in self.commits.items() if version > last}
        return None

    def _refused_commit(self, commit: Mapping[str, Any]) -> tuple[int, Any] | None:
        version, held = commit["version"], self.commits.get(commit["version"])
        if held is not None and held["file-name"] == commit["file-name"]:
            return None
        if 0 < version <= self.latest_version:
            return declined(_CONFLICT, "CommitVersionConflictException", f"version {version} is taken")
        if version != self.latest_version + 1:
            return declined(_BAD, "InvalidParameterValueException", f"version {version} leaves a gap")
        if len(self.commits) >= self.most_unpublished:
            return declined(_TOO_MANY, "ResourceExhaustedException", "too many commits are not published")
        return None
