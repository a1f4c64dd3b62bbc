"""What travels to a worker and what comes back: one bin as a task, and the manifest of what became of it.

Both are plain values with a JSON form, because they cross process and machine boundaries, and because the
manifest is also kept in storage (``_maintenance/<run id>/<bin id>.json``), where a later release may read it.
Hence:

1. Standard library only, and our own errors.
2. Names and numbers as the log has them: ``path`` is the spelling of the log, ``key`` the decoded storage
   key, partition values are the raw map with physical names, a deletion vector is its descriptor in log JSON.
3. A reader ignores members that it does not know and fills in defaults for those that are absent. What an older reader must
   not ignore, say another order of the rows, is a new :data:`MANIFEST_VERSION`, and it refuses (:class:`NewerManifest`).
4. No secret: how to reach the storage is told to a worker on another way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from delta_log.errors import DeltaLogError

#: In ``add.tags`` of every file we write: the digest of the settings that it was written under.
REWRITE_TAG = "delta-maintenance.rewrite"
#: Likewise: of how many bytes it was planned.
PLANNED_BYTES_TAG = "delta-maintenance.planned-bytes"
#: Of the manifests that this release writes, and the last that it reads.
MANIFEST_VERSION = 1

_T = TypeVar("_T")


class NewerManifest(DeltaLogError):
    """A newer release has finished a bin of this run, in a way that this release does not know.

    To take the bin over might be to commit other rows than were in it, and to do it again to overwrite what the newer one is
    about to commit. So the run is refused. Where it is tried again, it may meet the newer release.

    :ivar bin_id: of the bin, and ``run_id`` of the run.
    :ivar manifest_version: what the manifest says.
    """

    retryable = True

    def __init__(self, bin_id: str, run_id: str, manifest_version: object) -> None:
        super().__init__(
            f"A newer release of airflow-provider-delta is at this run, or was: the manifest of bin {bin_id} has version "
            f"{manifest_version!r}, and this release reads up to {MANIFEST_VERSION}. Nothing was taken over, and nothing of "
            "the bin was committed. Let the newer release end the run; or begin a new run, once no job of this one is left: "
            f"_maintenance/{run_id} in the table's directory may be deleted then."
        )
        self.bin_id, self.run_id, self.manifest_version = bin_id, run_id, manifest_version


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A live file that a task replaces, with all that its ``remove`` action will have to say.

    :param num_records: physical rows by the file's statistics, where the plan needed to know them.
    :param partition_values: the file's own raw map; its spelling may differ from that of the bin.
    """

    path: str
    key: str
    size_bytes: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    deletion_vector: Mapping[str, Any] | None = None
    num_records: int | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    tags: Mapping[str, str] | None = None

    @property
    def deletion_vector_id(self) -> str | None:
        """The protocol's unique id of the deletion vector; an absent offset and offset 0 are different
        ids."""
        if self.deletion_vector is None:
            return None
        vector = self.deletion_vector
        stem = f"{vector['storageType']}{vector['pathOrInlineDv']}"
        return stem if vector.get("offset") is None else f"{stem}@{vector['offset']}"


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that a task wrote, with all that its ``add`` action will have to say.

    :param stats: the statistics as the JSON text that goes into the log.
    """

    path: str
    key: str
    size_bytes: int
    modification_time_ms: int
    num_records: int
    stats: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One bin to rewrite. Self-contained: with the storage it is all that ``rewrite_bin`` needs.

    1. The sources are to be read in the order given.
    2. All sources hold the same typed partition value; ``partition_values`` is the map to copy to the
       outputs.
    3. ``bin_id`` depends on nothing but sources and settings, so that a repeated run finds its manifest
       again.

    :param verify: ``full``: read the new file back and compare a checksum of all columns.
    :param num_outputs: into how many files of about equal size the rows go.
    :param begin_before_ms: milliseconds since the epoch; once they have passed, the task is not begun any more.
    :param planned_bytes: what the sources hold alive, by the plan's estimate.
    """

    bin_id: str
    table_uri: str
    run_id: str
    schema_json: str
    partition_columns: tuple[str, ...]
    mapping_mode: str
    configuration: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None
    writer_features: tuple[str, ...] | None
    partition_values: Mapping[str, str | None]
    sources: tuple[SourceFile, ...]
    target_size_bytes: int
    rewrite_tag: str
    verify: str = "counts"
    num_outputs: int = 1
    begin_before_ms: int | None = None
    planned_bytes: int | None = None

    @property
    def bytes_in(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RewriteTask:
        raw = _known(cls, json.loads(text))
        raw["sources"] = _each(SourceFile, raw["sources"])
        raw["partition_columns"] = tuple(raw["partition_columns"])
        for name in ("reader_features", "writer_features"):
            raw[name] = None if raw[name] is None else tuple(raw[name])
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class BinManifest:
    """What became of one bin: durable from the moment at which its files are complete.

    :param rows_in: physical rows of the sources; ``rows_in == rows_deleted + rows_out`` or the bin is broken.
    :param rows_deleted: rows that the sources' deletion vectors hide.
    :param source_rows: physical rows of each source, in the order of the sources. The live ones follow each other in
        the outputs in just this order, so that the place of each is known; empty: somebody wrote this who did not say.
    """

    bin_id: str
    run_id: str
    partition_values: Mapping[str, str | None]
    sources: tuple[SourceFile, ...]
    outputs: tuple[OutputFile, ...]
    rows_in: int
    rows_deleted: int
    rows_out: int
    elapsed_ms: int
    rewrite_tag: str = ""
    source_rows: tuple[int, ...] = ()
    manifest_version: int = MANIFEST_VERSION

    @property
    def bytes_in(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, text: str) -> BinManifest:
        """
        :raises NewerManifest: it means what this release does not know.
        """
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BinManifest:
        """
        :raises NewerManifest: as above.
        """
        version = values.get("manifest_version", 1)
        if version not in range(1, MANIFEST_VERSION + 1):
            raise NewerManifest(str(values.get("bin_id")), str(values.get("run_id")), version)
        raw = _known(cls, values)
        raw["sources"] = _each(SourceFile, raw["sources"])
        raw["outputs"] = _each(OutputFile, raw["outputs"])
        raw["source_rows"] = tuple(raw.get("source_rows", ()))
        return cls(**raw)


def _known(cls: type, raw: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {key: value for key, value in raw.items() if key in names}


def _each(cls: type[_T], items: list[dict[str, Any]]) -> tuple[_T, ...]:
    return tuple(cls(**_known(cls, item)) for item in items)
