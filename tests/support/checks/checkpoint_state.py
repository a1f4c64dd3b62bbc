"""What a checkpoint has to bring back of a snapshot, as values that a test compares."""

from __future__ import annotations

from typing import Any

from delta_log.snapshot.snapshot import Snapshot

#: The protocol's default for tombstones.
RETENTION_MS = 7 * 86_400_000


def rows_by(key: tuple[str, ...], rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {repr([row[name] for name in key]): row for row in rows}
    assert len(found) == len(rows)
    return found


def state_of(snapshot: Snapshot, now_ms: int, *, stats: str = "json") -> dict[str, Any]:
    """Everything that a checkpoint of a snapshot has to bring back, less what has expired.

    :param stats: the form in which statistics are compared: ``json`` by their text, ``struct`` by their typed values,
        ``none`` not at all.
    """
    files = snapshot.files()
    live = files.to_pylist()
    typed = snapshot.parsed_stats(files.column("stats")).to_pylist()
    for row, parsed in zip(live, typed, strict=True):
        row["partition_values"] = row["partition_values"] or []
        row["modification_time"] = row["modification_time"] or 0
        if stats == "struct":
            row["stats"] = row["stats"] and parsed
        elif stats == "none":
            row["stats"] = None
    gone = snapshot.tombstones().to_pylist()
    kept = [row for row in gone if (row["deletion_timestamp"] or 0) > now_ms - RETENTION_MS]
    for row in kept:
        del row["tags"]
        row["data_change"] = bool(row["data_change"])
    form = snapshot.metadata.format or {}
    return {
        "version": snapshot.version,
        "live": rows_by(("key", "deletion_vector"), live),
        "tombstones": rows_by(("key", "deletion_vector"), kept),
        "protocol": snapshot.protocol,
        "metadata": {
            name: getattr(snapshot.metadata, name) for name in ("id", "name", "description", "createdTime")
        },
        "schema": snapshot.metadata.schemaString,
        "partition columns": snapshot.metadata.partition_columns,
        "properties": snapshot.properties,
        "format": (form.get("provider", "parquet"), form.get("options") or {}),
        "transactions": {t.appId: t for t in snapshot.set_transactions},
        "domains": {d.domain: d for d in snapshot.domains},
        "files": (
            snapshot.num_files,
            snapshot.size_bytes,
            snapshot.num_deletion_vectors,
            snapshot.num_deleted_rows,
        ),
    }
