"""Plans a DROP FEATURE: the steps that are left, from the table as it is.

Each step is one commit, or one PURGE or OPTIMIZE, and leaves a table that every reader of the feature can read. A plan follows from the
snapshot alone, so a run that died goes on where it stopped.

======================  =================================================================================================
feature                 what is done before the protocol changes
======================  =================================================================================================
``deletionVectors``     the property goes; PURGE; vector files that history needs are named as removed files
``v2Checkpoint``        the policy becomes ``classic``
``rowTracking``         the property goes, and row tracking is suspended; files lose their row ids
``columnMapping``       PURGE, so that no file holds dropped columns; only where no column was renamed
``typeWidening``        the property goes; files that may hold older types are written anew
``vacuumProtocolCheck`` nothing
``timestampNtz``        nothing; only where no column has the type
``checkpointProtection``  nothing; only where the protected versions have left the log
======================  =================================================================================================

A reader that does not know a feature must not read versions that need it, and must not clean up behind them. So a reader feature leaves
with a classic checkpoint of a version that needs it no more, and in its place comes ``checkpointProtection`` with
``delta.requireCheckpointProtectionBeforeVersion``, as delta-spark does it. A feature of writers alone just goes.

Any other feature is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from delta_log.data.deletion_vector import vector_location
from delta_log.errors import InvalidProperty
from delta_log.log.actions import DeletionVector, DomainMetadata, Metadata, Protocol
from delta_log.log.data_path import are_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.features import PROTECTED_BEFORE, reader_features, supports, without_feature
from delta_log.table_config.properties import whole_number
from delta_log.table_config.row_tracking import DOMAIN, ENABLED, SUSPENDED
from delta_log.table_config.schema import MODE, TYPE_CHANGES, leaf_types
from delta_maintenance.drop_feature.plan.lower_schema import (
    MAPPING_NOTES,
    has_notes,
    renamed_columns,
    unusual_names,
    without_notes,
)
from delta_maintenance.errors import FeatureKept
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.rewrite_tag import rewrite_tag, written_with

PROTECTION = "checkpointProtection"
PROPERTIES, PURGE, REWRITE, ROW_IDS, VECTOR_FILES, CHECKPOINT, DROP = (
    "set properties",
    "purge",
    "rewrite",
    "remove row ids",
    "name vector files as removed",
    "checkpoint",
    "drop",
)
_MATERIALIZED = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_WIDENING = ("typeWidening", "typeWidening-preview")
#: Features that are dropped by writing files anew.
_REWRITING = ("deletionVectors", "columnMapping", *_WIDENING)
_NTZ = "timestamp_ntz"


class Facts(Struct, frozen=True):
    """What a snapshot does not tell.

    :param earliest_version: the first version of which the log holds a file.
    :param is_purged: a PURGE of this run has found nothing left to do.
    """

    earliest_version: int
    is_purged: bool = False


class Step(Struct, frozen=True):
    """One step of a plan; ``text`` says what it does."""

    kind: str
    text: str


class DropPlan(Struct, frozen=True):
    """The steps that are left, in their order; none: the protocol does not have the feature.

    :param properties: properties to set before anything else; ``None``: to unset.
    :param protocol: the protocol afterwards.
    """

    feature: str
    steps: tuple[Step, ...]
    properties: Mapping[str, str | None]
    protocol: Protocol

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "feature": self.feature,
            "steps": [{"step": step.kind, "does": step.text} for step in self.steps],
            "protocol": {
                "minReaderVersion": self.protocol.minReaderVersion,
                "minWriterVersion": self.protocol.minWriterVersion,
                "readerFeatures": self.protocol.readerFeatures or [],
                "writerFeatures": self.protocol.writerFeatures or [],
            },
        }


def plan_drop(snapshot: Snapshot, feature: str, facts: Facts) -> DropPlan:
    """Plan what is left to do until a table has a feature no more.

    :raises FeatureKept: the feature cannot be dropped, or not while the table is as it is.
    """
    if not supports(snapshot.protocol, feature):
        return DropPlan(feature, (), {}, snapshot.protocol)
    _require_droppable(snapshot, feature, facts)
    properties = _properties_before(snapshot, feature)
    steps = [Step(PROPERTIES, _told(properties))] if properties else []
    # Whether a file holds dropped columns, its footer tells. A PURGE that found none has read all of them.
    sought = () if facts.is_purged and feature == "columnMapping" else _STEPS.get(feature, ())
    steps += [step for find in sought if (step := find(snapshot)) is not None]
    if is_protected(snapshot.protocol, feature):
        steps.append(Step(CHECKPOINT, "a classic checkpoint that needs the feature no more"))
    after = protocol_after(snapshot.protocol, feature)
    steps.append(Step(DROP, f"protocol {after.minReaderVersion}/{after.minWriterVersion} without {feature}"))
    return DropPlan(feature, tuple(steps), properties, after)


def _told(properties: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"unset {name}" if value is None else f"{name}={value}" for name, value in properties.items()
    )


# -- what stands in the way ----------------------------------------------------------------------------------------------

#: Features that cannot do without another one.
_NEEDED_BY = {
    "columnMapping": (
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "icebergWriterCompatV1",
        "columnMappingUsageTracking",
    ),
    "rowTracking": ("icebergCompatV3",),
}


def _require_droppable(snapshot: Snapshot, feature: str, facts: Facts) -> None:
    if feature not in DROPPABLE:
        raise FeatureKept(
            feature,
            f"this release cannot drop it, only {', '.join(DROPPABLE)}",
            "See whether another engine can",
        )
    needing = [name for name in _NEEDED_BY.get(feature, ()) if supports(snapshot.protocol, name)]
    if needing:
        raise FeatureKept(feature, f"{', '.join(needing)} cannot do without it", "Drop what needs it first")
    find_obstacle = _OBSTACLES.get(feature)
    why = None if find_obstacle is None else find_obstacle(snapshot)
    if why is None:
        why = _files_elsewhere(snapshot, feature)
    if feature == PROTECTION:
        why = _protected_history(snapshot, facts.earliest_version)
    if why is not None:
        raise FeatureKept(feature, *why)


def _files_elsewhere(snapshot: Snapshot, feature: str) -> tuple[str, str] | None:
    """Files that no rewrite touches, such as files of the source of a shallow clone, would keep what the feature is needed for."""
    if feature not in _REWRITING:
        return None
    files = snapshot.files(["key", "deletion_vector"])
    if feature == "deletionVectors":
        files = files.filter(pc.is_valid(files.column("deletion_vector")))
    count = pc.sum(are_external(files.column("key"))).as_py()
    if not count:
        return None
    return (
        f"{count:,} files of the table lie outside of its directory, and are not rewritten",
        "Copy the table with its files, such as by a deep clone, and drop the feature of the copy",
    )


def _mapping_in_use(snapshot: Snapshot) -> tuple[str, str] | None:
    schema = snapshot.metadata.schemaString
    by_spark = (
        "Let delta-spark drop it, which writes all files anew (ALTER TABLE … DROP FEATURE columnMapping)"
    )
    if snapshot.mapping_mode == "id":
        return f"{MODE} is id, so files may name their columns in any way", by_spark
    renamed = renamed_columns(schema)
    if snapshot.mapping_mode == "name" and renamed:
        return f"files have other names for {', '.join(renamed[:5])}", by_spark
    unusual = unusual_names(schema)
    if unusual:
        return f"names such as {unusual[0]!r} need it", "Rename these columns first, by delta-spark"
    return None


def _type_in_use(snapshot: Snapshot) -> tuple[str, str] | None:
    names = [
        column.name
        for column in snapshot.schema
        if any(leaf.name == _NTZ for leaf in leaf_types(column.type))
    ]
    if not names:
        return None
    return f"{', '.join(names)} have the type timestamp_ntz", "Write these columns as another type first"


def _protected_history(snapshot: Snapshot, earliest_version: int) -> tuple[str, str] | None:
    stated = snapshot.properties.get(PROTECTED_BEFORE, "0")
    until = whole_number(stated)
    if until is None:
        raise InvalidProperty(PROTECTED_BEFORE, stated, "a version", "0")
    if earliest_version >= until:
        return None
    return (
        f"the log still holds versions before {until}, which need features that the protocol has no more",
        "Run it again when log cleanup has deleted them, after delta.logRetentionDuration",
    )


_OBSTACLES: Mapping[str, Callable[[Snapshot], tuple[str, str] | None]] = {
    "columnMapping": _mapping_in_use,
    "timestampNtz": _type_in_use,
}


# -- steps ----------------------------------------------------------------------------------------------------------------


def _properties_before(snapshot: Snapshot, feature: str) -> dict[str, str | None]:
    """Return the properties to change so that no writer uses the feature again."""
    have = snapshot.properties
    if feature == "rowTracking":
        wanted: dict[str, str | None] = {ENABLED: "false", SUSPENDED: "true"}
    elif feature == "v2Checkpoint":
        wanted = {"delta.checkpointPolicy": "classic"} if "delta.checkpointPolicy" in have else {}
    else:
        enabled = {"deletionVectors": "delta.enableDeletionVectors"} | dict.fromkeys(
            _WIDENING, "delta.enableTypeWidening"
        )
        wanted = {enabled[feature]: None} if feature in enabled else {}
    return {name: value for name, value in wanted.items() if have.get(name) != value}


def _purge_vectors(snapshot: Snapshot) -> Step | None:
    count = snapshot.num_deletion_vectors
    return Step(PURGE, f"{count:,} files with deletion vectors are written anew") if count else None


def _purge_columns(snapshot: Snapshot) -> Step | None:
    return Step(PURGE, "files that hold dropped columns are written anew") if snapshot.num_files else None


def _rewrite_widened(snapshot: Snapshot) -> Step | None:
    if not has_notes(snapshot.metadata.schemaString, TYPE_CHANGES):
        return None
    tag = rewrite_tag(snapshot, OptimizeOptions(full=True))
    files = snapshot.files(["tags"])
    count = files.num_rows - int(pc.sum(written_with(files, tag)).as_py() or 0)
    return Step(REWRITE, f"{count:,} files that may hold older types are written anew") if count else None


def _without_row_ids(snapshot: Snapshot) -> Step | None:
    ids = snapshot.files(["base_row_id"]).column(0)
    count = len(ids) - ids.null_count
    return Step(ROW_IDS, f"{count:,} files lose their row ids") if count else None


def _name_vectors(snapshot: Snapshot) -> Step | None:
    count = len(unnamed_vector_files(snapshot))
    what = "files of deletion vectors, which history needs, are named as removed files"
    if count:
        return Step(VECTOR_FILES, f"{count:,} {what}")
    return Step(VECTOR_FILES, what) if snapshot.num_deletion_vectors else None


_STEPS: Mapping[str, tuple[Callable[[Snapshot], Step | None], ...]] = {
    "deletionVectors": (_purge_vectors, _name_vectors),
    "columnMapping": (_purge_columns,),
    **dict.fromkeys(_WIDENING, (_rewrite_widened,)),
    "rowTracking": (_without_row_ids,),
}
#: The features that can be dropped, where the table allows it.
DROPPABLE = (
    "deletionVectors",
    "v2Checkpoint",
    "rowTracking",
    "columnMapping",
    *_WIDENING,
    "vacuumProtocolCheck",
    "timestampNtz",
    PROTECTION,
)


def unnamed_vector_files(snapshot: Snapshot) -> list[str]:
    """Return the keys of files of deletion vectors that only removed files have, and that no removed file names.

    A VACUUM that does not know deletion vectors would delete such files before the versions that need them have expired.
    """
    removed = snapshot.tombstones(["key", "deletion_vector"])
    vectors = removed.column("deletion_vector").drop_null().to_pylist()
    locations = {vector_location(DeletionVector.from_row(vector), snapshot.table_uri) for vector in vectors}
    named = set(removed.column("key").to_pylist())
    return sorted(key for key in locations if isinstance(key, str) and key not in named)


# -- the table without the feature ---------------------------------------------------------------------------------------


def is_protected(protocol: Protocol, feature: str) -> bool:
    """Tell whether versions before the drop have to be protected: only readers that know the feature can read them."""
    return feature in reader_features(protocol)


def protocol_after(protocol: Protocol, feature: str) -> Protocol:
    """Return the protocol without the feature."""
    return without_feature(protocol, feature, (PROTECTION,) if is_protected(protocol, feature) else ())


def metadata_after(snapshot: Snapshot, feature: str, version: int) -> Metadata:
    """Return the metadata without notes of the feature.

    :param version: the version of the commit that drops it.
    """
    metadata, gone = snapshot.metadata, set(_PROPERTIES_AFTER.get(feature, ()))
    properties = {name: value for name, value in metadata.properties.items() if name not in gone}
    if is_protected(snapshot.protocol, feature):
        properties[PROTECTED_BEFORE] = str(version)
    notes = _NOTES.get(feature)
    schema = metadata.schemaString if notes is None else without_notes(metadata.schemaString, notes)
    return replace(metadata, configuration=properties, schemaString=schema)


def domains_after(snapshot: Snapshot, feature: str) -> tuple[DomainMetadata, ...]:
    """Return the removals of metadata domains of the feature."""
    configuration = snapshot.domain_metadata.get(DOMAIN)
    if feature != "rowTracking" or configuration is None:
        return ()
    return (DomainMetadata(DOMAIN, configuration, removed=True),)


_PROPERTIES_AFTER: Mapping[str, tuple[str, ...]] = {
    "rowTracking": (ENABLED, SUSPENDED, *_MATERIALIZED),
    "columnMapping": (MODE, "delta.columnMapping.maxColumnId"),
    PROTECTION: (PROTECTED_BEFORE,),
}
_NOTES: Mapping[str, tuple[str, ...]] = {
    "columnMapping": MAPPING_NOTES,
    **dict.fromkeys(_WIDENING, (TYPE_CHANGES,)),
}
