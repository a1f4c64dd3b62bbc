"""Plans a RESTORE: the files, the metadata and the protocol of the commit that makes a table what it was at an earlier version.

As delta-spark does it:

* Files that only the earlier version has are added again, with their row ids; files that only the latest version has are removed. All of
  that changes rows (``dataChange``), and a file is identified by its path and its deletion vector together.
* Schema, partition columns, properties and clustering are the earlier version's. The high-water marks of identity columns, the greatest
  column id and in-commit timestamps stay as they are now, since values that were given once are never given again.
* The protocol keeps every feature that it has now, since commits between the two versions may need it.

Refused: a table that only allows appends, another mode of column mapping, row tracking whose ids the table has dropped since, and files
outside of the table's directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from delta_log.data.deletion_vector import vector_location
from delta_log.errors import InvalidRequest, UnsupportedFeature
from delta_log.log.action_columns import deletion_vector_ids
from delta_log.log.actions import Add, DomainMetadata, Metadata, Protocol, Remove
from delta_log.log.data_path import ExternalFile, address_of, is_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.clustering import CLUSTERING_DOMAIN
from delta_log.table_config.features import PROTECTED_BEFORE, merged_protocol
from delta_log.table_config.kept_versions import KEEP_LAST, KEEP_VERSIONS
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import DOMAIN, ENABLED, high_water_mark
from delta_log.table_config.schema import MODE, PHYSICAL_NAME
from delta_log.transaction.conflict import IDENTITY_HIGH_WATER_MARK
from delta_log.transaction.file_actions import add_of_row, remove_of_row

#: Properties that say how the log itself goes on, and which versions VACUUM keeps. They stay as they are now.
_KEPT_PROPERTIES = (
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    KEEP_VERSIONS,
    KEEP_LAST,
)
#: Properties with a number that only grows: the greater one of both versions stays.
_GROWING_PROPERTIES = ("delta.columnMapping.maxColumnId", PROTECTED_BEFORE)
_IDENTITY_STEP = "delta.identity.step"


class RestorePlan(Struct, frozen=True):
    """The commit of a RESTORE.

    :param version: the version to restore, and ``read_version`` the version that the commit follows.
    :param protocol: protocol to set; ``None``: it stays. Likewise ``metadata``.
    :param num_files: number of live files afterwards, and ``size_bytes`` their size.
    """

    version: int
    read_version: int
    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]
    protocol: Protocol | None
    metadata: Metadata | None
    domains: tuple[DomainMetadata, ...]
    num_files: int
    size_bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether the table is what it was already."""
        return (
            not (self.adds or self.removes or self.domains)
            and self.protocol is None
            and self.metadata is None
        )

    @property
    def metrics(self) -> dict[str, int]:
        return {
            "tableSizeAfterRestore": self.size_bytes,
            "numOfFilesAfterRestore": self.num_files,
            "numRemovedFiles": len(self.removes),
            "numRestoredFiles": len(self.adds),
            "removedFilesSize": sum(file.size or 0 for file in self.removes),
            "restoredFilesSize": sum(file.size for file in self.adds),
        }

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "version": self.version,
            **self.metrics,
            "changesMetadata": self.metadata is not None,
            "changesProtocol": self.protocol is not None,
            "changesClustering": bool(self.domains),
        }


def plan_restore(latest: Snapshot, target: Snapshot, now_ms: int) -> RestorePlan:
    """Plan the commit that makes the table what it was at an earlier version.

    :raises InvalidRequest: the table only allows appends, or its column mapping had another mode.
    :raises UnsupportedFeature: a file to restore lies outside of the table's directory.
    """
    _require_restorable(latest, target)
    now, then = latest.files(), target.files()
    _require_row_ids(latest, target, now)
    adds = tuple(add_of_row(row, data_change=True) for row in _difference(then, now).to_pylist())
    removes = tuple(remove_of_row(row, now_ms) for row in _difference(now, then).to_pylist())
    if removes and flag(latest.properties, "delta.appendOnly"):
        raise InvalidRequest(
            f"RESTORE to version {target.version} would remove {len(removes)} files, and delta.appendOnly allows no commit to remove rows. "
            "Set delta.appendOnly to false first."
        )
    for add in adds:
        keys_of(add, latest.table_uri)  # refuses external files
    protocol = merged_protocol(latest.protocol, target.protocol)
    metadata = restored_metadata(latest.metadata, target.metadata)
    return RestorePlan(
        target.version,
        latest.version,
        adds,
        removes,
        None if protocol == latest.protocol else protocol,
        None if metadata == latest.metadata else metadata,
        _clustering(latest, target),
        target.num_files,
        target.size_bytes,
    )


def _require_restorable(latest: Snapshot, target: Snapshot) -> None:
    if target.mapping_mode != latest.mapping_mode:
        raise InvalidRequest(
            f"Version {target.version} has {MODE} {target.mapping_mode}, and the table has {latest.mapping_mode} now. The mode of a table that "
            "holds data cannot go back. Restore a version since the mode was set, or copy the rows of that version to a new table."
        )


def _require_row_ids(latest: Snapshot, target: Snapshot, files: pa.Table) -> None:
    """A table that tracked rows, and has dropped their ids since, cannot track them again: ids would be missing, or be given twice.

    :param files: the files of the latest version, some of which may be live in the target, too.
    """
    if not flag(target.properties, ENABLED):
        return
    now, then = (high_water_mark(version.domain_metadata.get(DOMAIN)) for version in (latest, target))
    if now < then or files.column("base_row_id").null_count:
        raise InvalidRequest(
            f"Version {target.version} tracks rows, and the table has dropped row ids since, so they would be missing or be given twice. Nothing "
            "was written. Restore a version after row tracking was dropped, or copy the rows of that version to a new table."
        )


def _difference(files: pa.Table, others: pa.Table) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(_identities(files), value_set=_identities(others))))


def _identities(files: pa.Table) -> pa.ChunkedArray:
    vectors = deletion_vector_ids(files.column("deletion_vector"))
    return pc.binary_join_element_wise(files.column("key"), vectors, "\x00")


def keys_of(file: Add | Remove, table_uri: str) -> tuple[str, ...]:
    """Return the keys of a data file and of its deletion vector, where the vector has a file.

    :raises UnsupportedFeature: one of them lies outside of the table's directory.
    """
    key = address_of(file.path, table_uri)
    vector = None if file.deletionVector is None else vector_location(file.deletionVector, table_uri)
    if is_external(key) or isinstance(vector, ExternalFile):
        raise UnsupportedFeature(("data files outside of the table's directory",), "restore", key)
    return (key,) if vector is None else (key, vector)


def restored_metadata(latest: Metadata, target: Metadata) -> Metadata:
    """Return the earlier metadata, with what the log has given out since."""
    configuration = {name: value for name, value in target.properties.items() if name not in _KEPT_PROPERTIES}
    configuration |= {name: latest.properties[name] for name in _KEPT_PROPERTIES if name in latest.properties}
    for name in _GROWING_PROPERTIES:
        numbers = [m.properties[name] for m in (latest, target) if name in m.properties]
        # Ids of columns mean nothing in a version without column mapping; protected versions of the log are protected in any.
        if len(numbers) == 2 or (numbers and name == PROTECTED_BEFORE):
            configuration[name] = max(numbers, key=int)
    schema = _with_identity_marks(target.schemaString, latest.schemaString)
    restored = replace(target, schemaString=schema, configuration=configuration)
    # A null value and an absent one are the same property.
    return latest if _facts(restored) == _facts(latest) else restored


def _facts(metadata: Metadata) -> Any:
    return replace(metadata, configuration=metadata.properties, schemaString=""), json.loads(
        metadata.schemaString
    )


def _with_identity_marks(schema_text: str, latest_text: str) -> str:
    """Move the high-water marks of identity columns to the marks that the table has reached."""
    schema, latest = json.loads(schema_text), json.loads(latest_text)
    reached = {_physical_name(field): (field.get("metadata") or {}) for field in latest["fields"]}
    is_changed = False
    for field in schema["fields"]:
        metadata, now = field.get("metadata") or {}, reached.get(_physical_name(field), {})
        if _IDENTITY_STEP not in metadata or IDENTITY_HIGH_WATER_MARK not in now:
            continue
        marks = [
            int(facts[IDENTITY_HIGH_WATER_MARK])
            for facts in (metadata, now)
            if IDENTITY_HIGH_WATER_MARK in facts
        ]
        furthest = max if int(metadata[_IDENTITY_STEP]) > 0 else min
        metadata[IDENTITY_HIGH_WATER_MARK] = furthest(marks)
        is_changed = True
    return json.dumps(schema, separators=(",", ":")) if is_changed else schema_text


def _physical_name(field: Mapping[str, Any]) -> str:
    """The name that a column keeps when it is renamed."""
    return str((field.get("metadata") or {}).get(PHYSICAL_NAME) or field["name"])


def _clustering(latest: Snapshot, target: Snapshot) -> tuple[DomainMetadata, ...]:
    now, then = (snapshot.domain_metadata.get(CLUSTERING_DOMAIN) for snapshot in (latest, target))
    if now == then:
        return ()
    if then is None:
        return (DomainMetadata(CLUSTERING_DOMAIN, now or "", removed=True),)
    return (DomainMetadata(CLUSTERING_DOMAIN, then),)
