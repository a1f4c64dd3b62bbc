"""What has to hold in every state that writers can reach, told from the raw objects of the store.

The model reads the log as text, one commit after the other, and keeps dictionaries; it shares no code with what it
checks. Data files hold their rows as a JSON list, and an inline deletion vector's text is the list of rows that it hides,
so that what a table *says* is known exactly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LOG = "_delta_log/"
#: The rows that an operation leaves, from those before it and those of every version so far.
Effect = Callable[[frozenset[str], list[frozenset[str]]], frozenset[str]]


class Violation(AssertionError):
    """Something that must never be was seen."""


@dataclass
class State:
    """The table after some commits."""

    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    row_id_mark: int = -1
    row_ids: list[tuple[int, int, str]] = field(default_factory=list)
    in_commit_timestamp: int = 0
    transactions: dict[str, int] = field(default_factory=dict)
    #: Every path that was ever live.
    known: set[str] = field(default_factory=set)
    domains: dict[str, str] = field(default_factory=dict)

    @property
    def configuration(self) -> dict[str, str]:
        return self.metadata.get("configuration") or {}


def commits_of(objects: Mapping[str, bytes]) -> list[list[dict[str, Any]]]:
    """The commits from version 0 on, without a gap."""
    found: list[list[dict[str, Any]]] = []
    while (body := objects.get(f"{LOG}{len(found):020d}.json")) is not None:
        found.append([json.loads(line) for line in body.splitlines()])
    known = sum(1 for key in objects if key.startswith(LOG) and key.endswith(".json") and key.count(".") == 1)
    if known != len(found):
        raise Violation(f"{known} commits, of which {len(found)} are contiguous")
    return found


def as_published(objects: Mapping[str, bytes]) -> dict[str, bytes]:
    """The objects of a managed table as they would be if all that its catalog has ratified were published, and nothing staged.

    :raises Violation: what is published is not what was ratified, or not in order, or something ratified is lost.
    """
    state = json.loads(objects["_catalog"])
    latest, held = state["latest_version"], {one["version"]: one for one in state["commits"]}
    view = {
        key: body for key, body in objects.items() if key != "_catalog" and "/_staged_commits/" not in key
    }
    published = [version for version in range(latest + 10) if _commit(version) in view]
    if published[-1] > latest:
        raise Violation(f"version {published[-1]} was published, and the catalog has ratified up to {latest}")
    if published != list(range(len(published))):
        raise Violation(f"the versions {published} were published, out of order")
    for version, commit in held.items():
        body = objects.get(f"{LOG}_staged_commits/{commit['file_name']}", view.get(_commit(version)))
        if body is None:
            raise Violation(f"version {version} was ratified, and its file is gone")
        if view.setdefault(_commit(version), body) != body:
            raise Violation(f"version {version} was published with other content than was ratified")
    if any(_commit(version) not in view for version in range(latest + 1)):
        raise Violation(
            f"a version up to {latest} was ratified and is lost: the catalog was told that it is published"
        )
    for key in view:
        version = key.removeprefix(LOG)[:20]
        if ".checkpoint" in key and version.isdecimal() and int(version) > published[-1]:
            raise Violation(f"{key} is of a version that is not published")
    return view


def _commit(version: int) -> str:
    return f"{LOG}{version:020d}.json"


def operation_of(commit: list[dict[str, Any]]) -> str | None:
    """The actor that made a commit, by the tag that it left."""
    info: dict[str, Any] = next((action["commitInfo"] for action in commit if "commitInfo" in action), {})
    name: str | None = (info.get("tags") or {}).get("actor")
    return name


def check(
    objects: Mapping[str, bytes], contents: Mapping[str, bytes], effects: Mapping[str, Effect]
) -> State:
    """Replay everything and compare each version with the serial history of what was committed.

    :param contents: every data file that was ever written: an old version may need one that is gone.
    :raises Violation: with what is wrong.
    """
    state = State()
    versions: list[frozenset[str]] = []
    ids: dict[str, int] = {}
    for version, commit in enumerate(commits_of(objects)):
        _apply(state, commit, version)
        rows = _rows(state, contents, version)
        actor = operation_of(commit)
        ids = _checked_ids(state, contents, ids, actor, version)
        _check_checksum(objects, state, commit, version)
        if actor is not None and version > 0:
            expected = effects[actor](versions[-1], versions)
            if rows != expected:
                raise Violation(
                    f"version {version} by {actor}: lost {sorted(expected - rows)}, extra {sorted(rows - expected)}"
                )
        versions.append(rows)
    missing = [path for path in state.live if path not in objects]
    if missing:
        raise Violation(f"live files are gone: {missing}")
    return state


def _apply(state: State, commit: list[dict[str, Any]], version: int) -> None:
    added = [action["add"] for action in commit if "add" in action]
    removed = [action["remove"] for action in commit if "remove" in action]
    for kind, files in (("added", added), ("removed", removed)):
        twice = [path for path, n in Counter(file["path"] for file in files).items() if n > 1]
        if twice:
            raise Violation(f"version {version}: {twice} {kind} twice")
    both = {_identity(file) for file in added} & {_identity(file) for file in removed}
    if both:
        raise Violation(f"version {version} adds and removes {both}")
    for action in commit:
        _apply_other(state, action, version)
    for file in removed:
        live = state.live.get(file["path"])
        if live is not None and _identity(live) == _identity(file):
            del state.live[file["path"]]
            _check_ids_of(state, file, live, version)
    for file in added:
        if file["path"] in state.live and _identity(state.live[file["path"]]) != _identity(file):
            raise Violation(f"version {version}: {file['path']} is live under two deletion vectors")
        written_under = (file.get("tags") or {}).get("schema")
        if written_under not in (None, state.metadata["schemaString"]) and file["path"] not in state.known:
            raise Violation(f"version {version} adds {file['path']}, which was written under another schema")
        clustered_by = (file.get("tags") or {}).get("clustered")
        if clustered_by not in (None, state.domains.get("clustering")) and file["path"] not in state.known:
            raise Violation(f"version {version} adds {file['path']}, which was clustered by {clustered_by}")
        state.live[file["path"]] = file
        state.known.add(file["path"])
    _check_new_ids(state, added, version)


def _apply_other(state: State, action: dict[str, Any], version: int) -> None:
    if "metaData" in action:
        state.metadata = action["metaData"]
    elif "protocol" in action:
        state.protocol = action["protocol"]
    elif "txn" in action:
        app_id, app_version = action["txn"]["appId"], action["txn"]["version"]
        if app_version <= state.transactions.get(app_id, -1):
            raise Violation(f"version {version} commits transaction {app_id}:{app_version} again")
        state.transactions[app_id] = app_version
    elif "domainMetadata" in action:
        state.domains[action["domainMetadata"]["domain"]] = action["domainMetadata"]["configuration"]
    elif "commitInfo" in action:
        info = action["commitInfo"]
        unknown = {"unheardOf"} & set(state.protocol.get("writerFeatures") or ())
        if unknown and (info.get("tags") or {}).get("actor") is not None:
            raise Violation(f"version {version} writes to a table with {unknown}")
        stamp = info.get("inCommitTimestamp")
        enabled = state.configuration.get("delta.enableInCommitTimestamps") == "true"
        if enabled and (stamp is None or stamp <= state.in_commit_timestamp):
            raise Violation(
                f"version {version}: in-commit timestamp {stamp} after {state.in_commit_timestamp}"
            )
        state.in_commit_timestamp = stamp or state.in_commit_timestamp


def _check_new_ids(state: State, added: list[dict[str, Any]], version: int) -> None:
    """Every file owns a range of row ids that no other ever owned."""
    if "rowTracking" not in (state.protocol.get("writerFeatures") or ()):
        return
    for file in added:
        base = file.get("baseRowId")
        if base is None:
            raise Violation(f"version {version} adds {file['path']} without row ids")
        if not any(base == first and file["path"] == path for first, _, path in state.row_ids):
            last = base + json.loads(file["stats"])["numRecords"] - 1
            if any(base <= end and first <= last for first, end, _ in state.row_ids):
                raise Violation(f"version {version}: row ids {base}-{last} of {file['path']} are taken")
            state.row_ids.append((base, last, file["path"]))


def _checked_ids(
    state: State, contents: Mapping[str, bytes], before: dict[str, int], actor: str | None, version: int
) -> dict[str, int]:
    """Returns the stable id of each row. If row tracking is enabled, only a backfill and a restore may change one."""
    if state.configuration.get("delta.enableRowTracking") != "true":
        return {}
    ids = {}
    for path, file in state.live.items():
        given = json.loads((file.get("tags") or {}).get("ids", "{}"))
        for position, row in enumerate(json.loads(contents[path])):
            ids[row] = given.get(row, file["baseRowId"] + position)
    if actor is not None and actor.partition(".")[0] not in ("backfill", "restore"):
        changed = [row for row, row_id in ids.items() if before.get(row, row_id) != row_id]
        if changed:
            raise Violation(f"version {version} by {actor} changes the ids of {changed}")
    return ids


def _check_checksum(
    objects: Mapping[str, bytes], state: State, commit: list[dict[str, Any]], version: int
) -> None:
    body = objects.get(f"{LOG}{version:020d}.crc")
    if body is None:
        return
    said = json.loads(body)
    vectors = [file["deletionVector"] for file in state.live.values() if file.get("deletionVector")]
    info: dict[str, Any] = next((action["commitInfo"] for action in commit if "commitInfo" in action), {})
    facts = {
        "numFiles": len(state.live),
        "tableSizeBytes": sum(file["size"] for file in state.live.values()),
        "numDeletionVectorsOpt": len(vectors),
        "numDeletedRecordsOpt": sum(vector["cardinality"] for vector in vectors),
        "txnId": info.get("txnId"),
        "inCommitTimestampOpt": info.get("inCommitTimestamp"),
        "setTransactions": [{"appId": a, "version": v} for a, v in sorted(state.transactions.items())],
    }
    said["setTransactions"] = sorted(
        ({"appId": t["appId"], "version": t["version"]} for t in said["setTransactions"]),
        key=lambda t: str(t["appId"]),
    )
    wrong = {name: (said.get(name), fact) for name, fact in facts.items() if said.get(name) != fact}
    if wrong:
        raise Violation(f"the checksum file of version {version} says otherwise: {wrong}")


def _check_ids_of(state: State, file: dict[str, Any], live: dict[str, Any], version: int) -> None:
    if file.get("baseRowId") != live.get("baseRowId"):
        raise Violation(f"version {version} removes {file['path']} with the row ids of another time")


def _identity(file: Mapping[str, Any]) -> tuple[str, str]:
    vector = file.get("deletionVector")
    return file["path"], "" if vector is None else vector["pathOrInlineDv"]


def _rows(state: State, contents: Mapping[str, bytes], version: int) -> frozenset[str]:
    rows: list[str] = []
    for path, file in state.live.items():
        if path not in contents:
            raise Violation(f"version {version} needs {path}, which no writer wrote")
        rows += [row for row in json.loads(contents[path]) if row not in hidden_rows(file)]
    twice = sorted(row for row, n in Counter(rows).items() if n > 1)
    if twice:
        raise Violation(f"version {version} holds {twice} twice")
    return frozenset(rows)


def hidden_rows(file: Mapping[str, Any]) -> frozenset[str]:
    """The rows that a file's deletion vector hides, in the model's spelling."""
    vector = file.get("deletionVector")
    return frozenset(vector["pathOrInlineDv"].split("+")) if vector is not None else frozenset()
