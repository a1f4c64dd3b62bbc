"""Random logs with every action and every member that a checkpoint has to hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from delta_log.testing import MemoryStorage

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
FEATURES = [
    "appendOnly",
    "deletionVectors",
    "v2Checkpoint",
    "timestampNtz",
]
WRITER_FEATURES = [*FEATURES, "domainMetadata", "rowTracking", "clustering", "inCommitTimestamp"]


def _field(name: str, kind: Any, physical: str | None = None) -> dict[str, Any]:
    metadata = {} if physical is None else {"delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


SCHEMA = {
    "type": "struct",
    "fields": [
        _field("day", "date"),
        _field("part", "string"),
        _field("id", "long"),
        _field("price", "decimal(12,2)"),
        _field("ratio", "double"),
        _field("at", "timestamp"),
        _field("local", "timestamp_ntz"),
        _field("inner", {"type": "struct", "fields": [_field("name", "string"), _field("flag", "boolean")]}),
        _field("tags", {"type": "array", "elementType": "string", "containsNull": True}),
    ],
}
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_NUMBER = st.integers(0, 2**62)
#: What a table's files have together is counted in 64 bits: eight exbibytes.
_SIZE = st.integers(0, 2**58)
_MAP = st.dictionaries(_TEXT, _TEXT | st.none(), max_size=2)


def _bounds(rank: int) -> dict[str, Any]:
    """The same value for every kind of bound, ordered as ``rank`` is."""
    return {
        "id": rank,
        "price": rank / 4,
        "ratio": rank / 8,
        "at": f"2024-01-{rank % 28 + 1:02}T10:00:00.{rank % 1000:03}Z",
        "local": f"1924-01-{rank % 28 + 1:02}T10:00:00.{rank % 1000:03}",
        "inner": {"name": f"n{rank:04}"},
    }


@st.composite
def stats(draw: st.DrawFn) -> str | None:
    if draw(st.booleans()):
        return draw(st.sampled_from([None, "{}", '{"numRecords":7}']))
    low = draw(st.integers(0, 500))
    whole = {
        "numRecords": draw(_NUMBER),
        "minValues": _bounds(low),
        "maxValues": _bounds(low + draw(st.integers(0, 400))),
        "nullCount": {"id": 0, "inner": {"name": 1, "flag": 2}, "tags": 3},
        "tightBounds": draw(st.booleans()),
    }
    return json.dumps(whole, indent=draw(st.sampled_from([None, 1])))


@st.composite
def vectors(draw: st.DrawFn) -> dict[str, Any] | None:
    number = draw(st.integers(0, 3))
    if number == 0:
        return None
    vector = {"storageType": "i", "pathOrInlineDv": f"dv{number}", "sizeInBytes": 4, "cardinality": number}
    return vector if draw(st.booleans()) else {**vector, "offset": draw(st.integers(0, 2))}


def _sparse(
    draw: st.DrawFn, body: dict[str, Any], optional: dict[str, st.SearchStrategy[Any]]
) -> dict[str, Any]:
    """Optional members are there, null, or absent."""
    for name, values in optional.items():
        if draw(st.booleans()):
            body[name] = draw(values | st.none())
    return body


@st.composite
def adds(draw: st.DrawFn, path: str) -> dict[str, Any]:
    day = draw(st.sampled_from([None, "", "2024-02-29", "1969-12-31"]))
    body: dict[str, Any] = {
        "path": path,
        "partitionValues": draw(st.just({"day": day, "part": draw(_TEXT | st.none())}) | st.none()),
        "size": draw(_SIZE),
        "modificationTime": draw(_NUMBER | st.none()),
        "dataChange": draw(st.booleans()),
    }
    optional = {
        "stats": stats(),
        "tags": _MAP,
        "deletionVector": vectors(),
        "baseRowId": _NUMBER,
        "defaultRowCommitVersion": _NUMBER,
        "clusteringProvider": _TEXT,
    }
    return {"add": _sparse(draw, body, optional)}


@st.composite
def removes(draw: st.DrawFn, path: str, vector: dict[str, Any] | None) -> dict[str, Any]:
    body: dict[str, Any] = {"path": path, "dataChange": draw(st.booleans())}
    if vector is not None:
        body["deletionVector"] = vector
    age_ms = st.integers(-2, 2) | st.integers(0, 20 * DAY_MS)
    optional = {
        "deletionTimestamp": age_ms.map(lambda age: NOW_MS - 7 * DAY_MS + age - 2),
        "extendedFileMetadata": st.booleans(),
        "partitionValues": _MAP,
        "size": _SIZE,
        "tags": _MAP,
        "stats": stats(),
        "baseRowId": _NUMBER,
        "defaultRowCommitVersion": _NUMBER,
    }
    return {"remove": _sparse(draw, body, optional)}


@st.composite
def metadata(draw: st.DrawFn, properties: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": draw(_TEXT),
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day", "part"],
        "configuration": {**draw(st.dictionaries(_TEXT, _TEXT, max_size=2)), **properties},
    }
    form = st.just({"provider": "parquet", "options": {"a": "b"}}) | st.just({"provider": "parquet"})
    optional = {"name": _TEXT, "description": _TEXT, "createdTime": _NUMBER, "format": form}
    return {"metaData": _sparse(draw, body, optional)}


@st.composite
def logs(draw: st.DrawFn, properties: dict[str, str], max_versions: int = 5) -> list[list[dict[str, Any]]]:
    """Commits, as lists of actions in any order."""
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": FEATURES,
        "writerFeatures": draw(st.permutations(WRITER_FEATURES)),
    }
    live: dict[str, dict[str, Any] | None] = {}
    commits = []
    for version in range(draw(st.integers(1, max_versions))):
        actions: list[dict[str, Any]] = []
        if version == 0 or draw(st.integers(0, 5)) == 0:
            actions += [{"protocol": protocol}, draw(metadata(properties))]
        for path in draw(st.lists(st.sampled_from(["a", "b%20c", "p=1/d", "é", "x/y/z"]), unique=True)):
            if path in live and draw(st.booleans()):
                actions.append(draw(removes(path, live.pop(path))))
            elif path not in live:
                action = draw(adds(path))
                live[path] = action["add"].get("deletionVector")
                actions.append(action)
        for app_id in draw(st.lists(_TEXT, unique=True, max_size=2)):
            body = {"appId": app_id, "version": draw(_NUMBER)}
            age_ms = st.integers(0, 2 * DAY_MS)
            actions.append(
                {"txn": _sparse(draw, body, {"lastUpdated": age_ms.map(lambda age: NOW_MS - age)})}
            )
        for domain in draw(st.lists(st.sampled_from(["delta.rowTracking", "any.thing", ""]), unique=True)):
            removed = draw(st.booleans())
            body = {"domain": domain, "configuration": draw(_TEXT), "removed": removed}
            actions.append({"domainMetadata": body})
        actions += [{"commitInfo": {"operation": "WRITE"}}, {"brandNew": {"x": 1}}]
        commits.append(draw(st.permutations(actions)))
    return commits


def write_commits(storage: MemoryStorage, commits: list[list[dict[str, Any]]]) -> None:
    for version, actions in enumerate(commits):
        body = "".join(json.dumps(action) + "\n" for action in actions)
        storage.put(f"_delta_log/{version:020d}.json", body.encode())
