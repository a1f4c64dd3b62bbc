"""The actions of a commit, and their JSON forms.

Protocol section "Actions". Each class is one action and has the protocol's field names. Decoding is strict about the
fields that this package uses, and skips unknown actions and unknown fields. JSON numbers have no bounds, but the
protocol's integers have: a number out of range is a broken action.

There may be millions of actions, and none refers to another, so the garbage collector does not track them
(``gc=False``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypedDict

import msgspec

from delta_log.errors import CorruptLog

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int32Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
#: Half of the range of 64 bits, so that the position of a row can be added to the id of a file's first row.
MAX_ROW_ID = 1 << 62
_RowId = Annotated[int, msgspec.Meta(ge=0, le=MAX_ROW_ID)]


class Format(TypedDict, total=False):
    provider: str | None
    options: dict[str, str | bool | int | float | None] | None


class Metadata(msgspec.Struct, omit_defaults=True, gc=False):
    schemaString: str
    id: str = ""
    name: str | None = None
    description: str | None = None
    format: Format | None = None
    partitionColumns: list[str] | None = None
    configuration: dict[str, str | None] | None = None
    createdTime: Int64 | None = None

    @property
    def properties(self) -> dict[str, str]:
        """``configuration`` without null values."""
        return {name: value for name, value in (self.configuration or {}).items() if value is not None}

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.partitionColumns or ())


class Protocol(msgspec.Struct, omit_defaults=True, gc=False):
    """A protocol that lists features exactly where its versions (reader 3, writer 7) have a list.

    Some writers state empty lists below these versions, or none at them. Both are made one form here, so that whatever
    is read, compared or written agrees.
    """

    minReaderVersion: _Int32
    minWriterVersion: _Int32
    readerFeatures: list[str] | None = None
    writerFeatures: list[str] | None = None

    def __post_init__(self) -> None:
        self.readerFeatures = self.readerFeatures or [] if self.minReaderVersion >= 3 else None
        self.writerFeatures = self.writerFeatures or [] if self.minWriterVersion >= 7 else None


class DeletionVector(msgspec.Struct, omit_defaults=True, gc=False):
    """The descriptor of a deletion vector; :mod:`delta_log.data.deletion_vector` reads what it points to.

    :ivar storageType: ``u``: a file under the root named by a UUID; ``p``: an absolute path; ``i``: inline.
    :ivar sizeInBytes: the bitmap with its magic number, without size field and CRC.
    :ivar offset: position of the vector's size field in its file; absent for an inline vector.
    """

    storageType: str
    pathOrInlineDv: str
    sizeInBytes: _Int32Count
    cardinality: _Count
    offset: _Int32Count | None = None
    maxRowIndex: Int64 | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> DeletionVector:
        """The descriptor in a row of a ``deletion_vector`` column, or in an object of the log."""
        return cls(
            row["storageType"],
            row["pathOrInlineDv"],
            row["sizeInBytes"],
            row["cardinality"],
            row.get("offset"),
            row.get("maxRowIndex"),
        )

    @property
    def unique_id(self) -> str:
        return deletion_vector_id(self.storageType, self.pathOrInlineDv, self.offset)


class Add(msgspec.Struct, omit_defaults=True, gc=False):
    path: str
    size: _Count
    modificationTime: Int64 | None = 0
    dataChange: bool | None = None
    partitionValues: dict[str, str | None] | None = None
    stats: str | None = None
    tags: dict[str, Any] | None = None
    deletionVector: DeletionVector | None = None
    baseRowId: _RowId | None = None
    defaultRowCommitVersion: Int64 | None = None
    clusteringProvider: str | None = None


class Remove(msgspec.Struct, omit_defaults=True, gc=False):
    path: str
    deletionTimestamp: Int64 | None = None
    dataChange: bool | None = None
    extendedFileMetadata: bool | None = None
    partitionValues: dict[str, str | None] | None = None
    size: Int64 | None = None
    stats: str | None = None
    tags: dict[str, Any] | None = None
    deletionVector: DeletionVector | None = None
    baseRowId: Int64 | None = None
    defaultRowCommitVersion: Int64 | None = None


class Cdc(msgspec.Struct, omit_defaults=True, gc=False):
    path: str
    size: Int64 = 0
    partitionValues: dict[str, str | None] | None = None


class SetTransaction(msgspec.Struct, omit_defaults=True, gc=False):
    appId: str
    version: Int64
    lastUpdated: Int64 | None = None


class DomainMetadata(msgspec.Struct, gc=False):
    domain: str
    configuration: str
    removed: bool = False


class Sidecar(msgspec.Struct, omit_defaults=True, gc=False):
    path: str
    sizeInBytes: Int64 = 0
    modificationTime: Int64 = 0
    tags: dict[str, str | None] | None = None


class Action(msgspec.Struct, omit_defaults=True, gc=False):
    """One line of a commit. One member is present, or none where the action is unknown."""

    add: Add | None = None
    remove: Remove | None = None
    metaData: Metadata | None = None
    protocol: Protocol | None = None
    txn: SetTransaction | None = None
    domainMetadata: DomainMetadata | None = None
    commitInfo: dict[str, Any] | None = None
    cdc: Cdc | None = None
    sidecar: Sidecar | None = None
    checkpointMetadata: dict[str, Any] | None = None


_DECODER = msgspec.json.Decoder(Action, strict=False)
_ENCODER = msgspec.json.Encoder()


def decode_commit(data: bytes, path: str) -> list[Action]:
    """The actions of one commit. As other readers have it, an empty file is a version that changes nothing.

    :param path: the file, for the error.
    :raises CorruptLog: a line is not an action.
    """
    return decode_actions(data, path) if data.strip() else []


def decode_actions(data: bytes, path: str) -> list[Action]:
    """The actions of a compaction or a JSON checkpoint, which cannot be empty.

    :param path: the file, for the error.
    :raises CorruptLog: a line is not an action.
    """
    if not data.strip():
        raise CorruptLog(path, "it is empty")
    try:
        return _DECODER.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLog(path, f"it does not hold one action a line ({error})") from error


def encode_actions(actions: Iterable[Action]) -> bytes:
    """The body of a commit: one action a line."""
    return b"\n".join(_ENCODER.encode(action) for action in actions) + b"\n"


def deletion_vector_id(storage_type: str, path_or_inline_dv: str, offset: int | None) -> str:
    """``uab^-aqEH.-t@S}K{vb[*k^@4``: storage type, path or inline vector, and ``@`` with the offset where there is one.

    Protocol section "Derived Fields" of deletion vectors. The id is one half of the identity of a file action; an absent offset and
    offset 0 give different ids. :func:`delta_log.log.action_columns.deletion_vector_ids` computes the ids of a column.
    """
    at = "" if offset is None else f"@{offset}"
    return f"{storage_type}{path_or_inline_dv}{at}"
