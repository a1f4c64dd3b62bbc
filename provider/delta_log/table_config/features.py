"""The gate: which operations this package can do on a table, by the features in the table's protocol.

Protocol sections "Table Features" and "Valid Feature Names". Every operation calls :func:`require` before it acts.
Reading needs support for every *reader* feature; operations that write to the log or delete files need support for every
*writer* feature as well. A feature that is not in :data:`FEATURES` is unknown and refused.

A listed feature need not be in use: some demand nothing until a property enables them. Such a feature stops no operation, see
:func:`unused_features`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from msgspec import Struct

from delta_log.errors import NeedsCatalog, UnsupportedFeature
from delta_log.log.actions import Protocol
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import flag


class Operation(Enum):
    """An operation; the value completes "Cannot … this table"."""

    READ = "read"
    OPTIMIZE = "optimize"
    PURGE = "purge"
    CHECKPOINT = "checkpoint"
    VACUUM = "vacuum"
    RESTORE = "restore"
    EXPIRE = "expire rows of"
    DROP_FEATURE = "drop a feature of"
    REPAIR = "repair"
    ANALYZE = "analyze"


class Feature(Struct, frozen=True):
    """How this package treats one table feature.

    :param reader: the feature is listed among the reader features too.
    :param refused: operations that stop at this feature, and why; an operation that is absent is supported.
    """

    reader: bool = False
    refused: dict[Operation, str] | None = None

    def refusal(self, operation: Operation) -> str | None:
        return (self.refused or {}).get(operation)


_EVERYTHING = tuple(Operation)


def _no(why: str, *operations: Operation) -> dict[Operation, str]:
    return dict.fromkeys(operations or _EVERYTHING, why)


_CATALOG = _no("a catalog decides which commits count, and listing the log cannot tell")
_MANAGED = _no("the catalog would have to be told of the new protocol", Operation.DROP_FEATURE)
#: Features with which a catalog ratifies the commits; see :func:`require_catalog`.
MANAGED_FEATURES = ("catalogManaged", "catalogOwned-preview")
_REWRITES = (Operation.OPTIMIZE, Operation.PURGE, Operation.EXPIRE, Operation.DROP_FEATURE)
#: Operations that add or remove files in the log, and write no data file.
_TABLE_STATE = (Operation.RESTORE, Operation.REPAIR, Operation.ANALYZE)
_ICEBERG = _no(
    "Iceberg readers demand rules of data files that the rewriter does not obey, so it waits until its property is set to false",
    *_REWRITES,
)
_ADAPTIVE = _no("its files are listed in a tree of manifests, which is not implemented")
FEATURES: dict[str, Feature] = {
    "appendOnly": Feature(),
    "invariants": Feature(),
    "checkConstraints": Feature(),
    "generatedColumns": Feature(),
    "allowColumnDefaults": Feature(),
    "identityColumns": Feature(),
    "changeDataFeed": Feature(),
    "columnMapping": Feature(reader=True),
    "deletionVectors": Feature(reader=True),
    "domainMetadata": Feature(),
    "v2Checkpoint": Feature(reader=True),
    "timestampNtz": Feature(reader=True),
    "vacuumProtocolCheck": Feature(reader=True),
    "typeWidening": Feature(reader=True),
    "typeWidening-preview": Feature(reader=True),
    "inCommitTimestamp": Feature(),
    "inCommitTimestamp-preview": Feature(
        refused=_no(
            "its timestamps go by a property of the preview, which our commits do not obey",
            *_REWRITES,
            Operation.VACUUM,
            *_TABLE_STATE,
        )
    ),
    "checkpointProtection": Feature(),
    "columnMappingUsageTracking": Feature(),
    "rowTracking": Feature(),
    "clustering": Feature(),
    "materializePartitionColumns": Feature(),
    "variantType": Feature(reader=True),
    "variantType-preview": Feature(reader=True),
    "variantShredding": Feature(reader=True),
    "variantShredding-preview": Feature(reader=True),
    "icebergCompatV1": Feature(refused=_ICEBERG),
    "icebergCompatV2": Feature(refused=_ICEBERG),
    "icebergCompatV3": Feature(refused=_ICEBERG),
    "icebergWriterCompatV1": Feature(refused=_ICEBERG),
    "timestampNanos": Feature(reader=True),
    "collations": Feature(refused=_no("collated statistics are not implemented", *_REWRITES)),
    "geospatial": Feature(reader=True, refused=_no("geospatial types are not implemented")),
    "geospatial-dev": Feature(reader=True, refused=_no("geospatial types are not implemented")),
    "catalogManaged": Feature(reader=True, refused=_MANAGED),
    "catalogOwned": Feature(reader=True, refused=_CATALOG),
    "catalogOwned-preview": Feature(reader=True, refused=_MANAGED),
    "coordinatedCommits": Feature(refused=_CATALOG),
    "coordinatedCommits-preview": Feature(refused=_CATALOG),
    "redirectReaderWriter-preview": Feature(reader=True, refused=_no("the table lives elsewhere")),
    "redirectWriterOnly-preview": Feature(
        refused=_no(
            "the table lives elsewhere", *_REWRITES, Operation.CHECKPOINT, Operation.VACUUM, *_TABLE_STATE
        )
    ),
    "adaptiveMetadata": Feature(reader=True, refused=_ADAPTIVE),
    "adaptiveMetadata-preview": Feature(reader=True, refused=_ADAPTIVE),
}

#: The properties that enable features. Until then, a feature in the protocol demands nothing of a writer.
_ENABLED_BY = {
    "icebergCompatV1": "delta.enableIcebergCompatV1",
    "icebergCompatV2": "delta.enableIcebergCompatV2",
    "icebergCompatV3": "delta.enableIcebergCompatV3",
    "icebergWriterCompatV1": "delta.enableIcebergWriterCompatV1",
}

#: Properties under which a table has no deletion vectors.
_WITHOUT_VECTORS = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")

#: What the writer versions before table features imply, each on top of the ones below it.
_LEGACY_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}

MAX_READER_VERSION, MAX_WRITER_VERSION = 3, 7


def reader_features(protocol: Protocol) -> tuple[str, ...]:
    """The features that a reader must know, legacy versions spelt out."""
    if protocol.minReaderVersion == 3:
        return tuple(sorted(protocol.readerFeatures or ()))
    return ("columnMapping",) if protocol.minReaderVersion == 2 else ()


def writer_features(protocol: Protocol) -> tuple[str, ...]:
    """The features that a writer must know, legacy versions spelt out."""
    if protocol.minWriterVersion == 7:
        return tuple(sorted(protocol.writerFeatures or ()))
    return tuple(
        name
        for version, names in _LEGACY_WRITER.items()
        if version <= protocol.minWriterVersion
        for name in names
    )


#: Property with which ``checkpointProtection`` says before which version the log has to stay whole.
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"


def supports(protocol: Protocol, feature: str) -> bool:
    """Whether the table's protocol lists the feature, or implies it by a legacy version."""
    return feature in reader_features(protocol) or feature in writer_features(protocol)


def unused_features(properties: Mapping[str, str]) -> frozenset[str]:
    """Features that a table does not use, whether or not its protocol lists them.

    The result names only features that stop some operation, and that a property enables.

    :param properties: properties of the table.
    """
    return frozenset(
        name for name, enabled in _ENABLED_BY.items() if properties.get(enabled, "false").lower() == "false"
    )


def writes_deletion_vectors(protocol: Protocol, properties: Mapping[str, str]) -> bool:
    """Tell whether rows may be deleted by deletion vectors: the property allows it, and no Iceberg compatibility forbids it."""
    return (
        supports(protocol, "deletionVectors")
        and flag(properties, "delta.enableDeletionVectors")
        and not any(flag(properties, name) for name in _WITHOUT_VECTORS)
    )


def materializes_partitions(properties: Mapping[str, str], protocol: Protocol) -> bool:
    """Tell whether new data files hold the partition columns, too (RFC "Materialize Partition Columns")."""
    # A writer may ignore the property, so a text that is no boolean refuses nothing.
    wanted = properties.get("delta.writePartitionColumnsToParquet", "").lower() == "true"
    return wanted or supports(protocol, "materializePartitionColumns")


def require(protocol: Protocol, operation: Operation, unused: Collection[str] = ()) -> None:
    """Refuse the operation if a feature of the table stops it.

    :param unused: features that the table does not use, see :func:`unused_features`; they stop nothing.
    :raises UnsupportedFeature: names every feature that stops the operation.
    """
    # Known writer features that make reading unsafe stop readers as well; unknown writer features do not.
    demanded: Iterable[str] = [
        *reader_features(protocol),
        *(n for n in writer_features(protocol) if n in FEATURES and FEATURES[n].refusal(Operation.READ)),
    ]
    stops: list[str] = []
    if not 1 <= protocol.minReaderVersion <= MAX_READER_VERSION:
        stops.append(f"reader version {protocol.minReaderVersion}")
    if operation is not Operation.READ:
        demanded = [*demanded, *writer_features(protocol)]
        if not 1 <= protocol.minWriterVersion <= MAX_WRITER_VERSION:
            stops.append(f"writer version {protocol.minWriterVersion}")
    reasons: list[str] = []
    for name in sorted(set(demanded)):
        feature = FEATURES.get(name)
        why = "unknown to this release" if feature is None else feature.refusal(operation)
        if why is not None and name not in unused:
            stops.append(name)
            reasons.append(f"{name}: {why}")
    if stops:
        raise UnsupportedFeature(tuple(stops), operation.value, "; ".join(reasons))


def require_catalog(protocol: Protocol, storage: Storage) -> None:
    """Refuse a table that a catalog manages where the storage does not ask that catalog.

    :raises NeedsCatalog: the table was opened by its address.
    """
    feature = next((name for name in MANAGED_FEATURES if supports(protocol, name)), None)
    if feature is not None and storage.permissions() is None:
        raise NeedsCatalog(storage.uri, feature)


def merged_protocol(one: Protocol, other: Protocol) -> Protocol:
    """Return the lowest protocol with the versions and features of both; ``one`` itself where it has them all."""
    reader_version = max(one.minReaderVersion, other.minReaderVersion)
    writer_version = max(one.minWriterVersion, other.minWriterVersion)
    has_versions = (reader_version, writer_version) == (one.minReaderVersion, one.minWriterVersion)
    readers = {*reader_features(one), *reader_features(other)}
    writers = {*writer_features(one), *writer_features(other)}
    if has_versions and readers <= {*reader_features(one)} and writers <= {*writer_features(one)}:
        return one
    return Protocol(
        reader_version,
        writer_version,
        sorted(readers) if reader_version >= 3 else None,
        sorted(writers) if writer_version >= 7 else None,
    )


def without_feature(protocol: Protocol, feature: str, added: Collection[str] = ()) -> Protocol:
    """Return the lowest protocol with all features of a protocol but one.

    :param added: writer features that it gets.
    """
    readers = {*reader_features(protocol)} - {feature}
    writers = {*writer_features(protocol), *added} - {feature}
    for reader_version, writer_version in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)):
        legacy = Protocol(reader_version, writer_version)
        if readers == {*reader_features(legacy)} and writers == {*writer_features(legacy)}:
            return legacy
    if not readers:
        return Protocol(1, 7, None, sorted(writers))
    return Protocol(3, 7, sorted(readers), sorted(writers))
