"""The facts, the history and the changes of a table as short, aligned text for people.

Every line goes through :mod:`delta_log.printable`, so that text of a table can neither steer a terminal nor begin a line. What a
job did is told by :mod:`delta_maintenance.text.report`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from delta_log.errors import InvalidMetadata, brief
from delta_log.printable import printable, printable_lines
from delta_log.snapshot.commit_info import moment_text
from delta_maintenance.units import format_bytes


def render_facts(facts: Mapping[str, Any]) -> str:
    """The facts of a version."""
    protocol, metadata = facts["protocol"], facts["metadata"]
    features = sorted({*(protocol["readerFeatures"] or ()), *(protocol["writerFeatures"] or ())})
    lines = [
        ("table", facts["table"]),
        *([("location", facts["location"])] if "location" in facts else []),
        ("name", metadata["name"]),
        ("version", f"{facts['version']}, committed {facts['timestamp']}"),
        ("protocol", f"reader {protocol['minReaderVersion']}, writer {protocol['minWriterVersion']}"),
        ("features", ", ".join(features)),
        ("files", f"{facts['numFiles']:,}, {format_bytes(facts['sizeInBytes'])}"),
        (
            "deletions",
            f"{facts['numDeletedRows']:,} rows in {facts['numDeletionVectors']:,} deletion vectors",
        ),
        ("tombstones", f"{facts['numTombstones']:,}"),
        ("partitioned by", ", ".join(metadata["partitionColumns"])),
        ("columns", ", ".join(_columns(metadata["schemaString"]))),
        *(("property", f"{name} = {value}") for name, value in sorted(metadata["configuration"].items())),
        *(
            ("transaction", f"{app_id}: {version}")
            for app_id, version in sorted(facts["transactions"].items())
        ),
        *(("domain", f"{name}: {text}") for name, text in sorted(facts["domainMetadata"].items())),
    ]
    return printable_lines(f"{name:<14}  {value}" for name, value in lines if value)


def _columns(schema: str) -> Iterator[str]:
    """Names and types of columns, including types that this release does not read.

    :raises InvalidMetadata: the text is not a schema.
    """
    try:
        for raw in json.loads(schema)["fields"]:
            kind = raw["type"]
            yield f"{raw['name']} {kind if isinstance(kind, str) else kind['type']}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidMetadata(
            "metaData.schemaString", f"it is not a schema ({brief(repr(error))})"
        ) from error


def render_discovery(document: Mapping[str, Any]) -> str:
    """Tables, one a line; what was not found follows as comments, so that the text is a file of addresses."""
    return printable_lines(
        [
            *(one["table"] for one in document["tables"]),
            *(
                f"# {one['table']} could not be listed: {one['error']['message']}"
                for one in document["unlisted"]
            ),
            *(f"# {pattern}: no table was found" for pattern in document["withoutTables"]),
        ]
    )


def render_history(commits: Sequence[Mapping[str, Any]]) -> str:
    """Commits as a table, one a line."""
    rows = [("version", "time", "operation", "by", "added", "removed")]
    for commit in commits:
        metrics = commit.get("operationMetrics") or {}
        rows.append(
            (
                str(commit["version"]),
                moment_text(commit["timestamp"]),
                str(commit.get("operation", "?")),
                str(commit.get("engineInfo", "")),
                _first(metrics, "numAddedFiles", "num_added_files", "numFiles"),
                _first(metrics, "numRemovedFiles", "num_removed_files"),
            )
        )
    return _aligned(rows)


def render_changes(result: Mapping[str, Any]) -> str:
    """The commits of a range that have changed rows, one a line."""
    range_text = f"versions {result['fromVersion']} to {result['toVersion']}"
    if not result["commits"]:
        return f"{range_text} changed no rows"
    counters = ("numInsertedRows", "numDeletedRows", "numUpdatedRows")
    rows: list[tuple[str, ...]] = [("version", "time", "inserted", "deleted", "updated")]
    for commit in result["commits"]:
        counts = [f"{commit[name]:,}" for name in counters]
        rows.append((str(commit["version"]), moment_text(commit["timestamp"]), *counts))
    output = result["output"]
    written = [] if output is None else [f"the rows of {range_text} are in {printable(output)}"]
    return "\n".join([_aligned(rows), *written])


def _first(metrics: Mapping[str, Any], *names: str) -> str:
    return next((str(metrics[name]) for name in names if metrics.get(name) is not None), "")


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return printable_lines(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
