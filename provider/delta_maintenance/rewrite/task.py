"""One bin as a task for a worker, and the manifest that the worker leaves of the result.

Both are plain values with a JSON form: they cross process and machine boundaries, and the manifest is kept in storage
(``_maintenance/<run id>/<bin id>.json``), where a later release may read it. Therefore

1. their members are JSON values, and the id of a deletion vector follows from our own formula;
2. names and numbers are taken from the log: ``path`` is the log's spelling, ``key`` the decoded storage key, partition values are
   the raw map with physical names, a deletion vector is its descriptor in log JSON;
3. a reader ignores unknown members and fills in defaults for absent ones. A change that an older reader must not ignore, say
   another order of the rows, needs a new :data:`MANIFEST_VERSION`, which an older release refuses
   (:class:`~delta_maintenance.errors.NewerManifest`);
4. neither holds a secret. A worker gets storage options and the run's key separately.

:mod:`delta_maintenance.rewrite.manifest.manifest_file` stores a manifest and checks it when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.log.actions import deletion_vector_id
from delta_maintenance.layout.layout import Layout

#: Manifests lie in a directory of their run within this one, which readers and VACUUM pass over.
MANIFEST_DIRECTORY = "_maintenance"
#: Row maps lie beside the manifests.
ROW_MAP_SUFFIX = ".rows"
#: In ``add.tags`` of every file that we write: the digest of the settings under which it was written.
REWRITE_TAG = "delta-maintenance.rewrite"
#: In ``add.tags``, too: the bytes that the plan expected.
PLANNED_BYTES_TAG = "delta-maintenance.planned-bytes"
#: In ``add.tags`` of files that follow a layout: which one.
LAYOUT_TAG = "delta-maintenance.layout"
#: The version of the manifests that this release writes, and the last that it reads. Version 1 had no proof of its writer.
MANIFEST_VERSION = 2

_T = TypeVar("_T", bound=Struct)


class SourceFile(Struct, frozen=True):
    """A live file that a task replaces, with all facts for its ``remove`` action.

    :param num_records: physical rows by the file's statistics, where the plan needed to know them.
    :param partition_values: the file's own raw map; its spelling may differ from the spelling in the bin's map.
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
        """The protocol's unique id of the deletion vector; ``None``: the file has none."""
        vector = self.deletion_vector
        if vector is None:
            return None
        return deletion_vector_id(vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


class OutputFile(Struct, frozen=True):
    """A file that a task wrote, with all facts for its ``add`` action.

    :param stats: the statistics as the JSON text that goes into the log.
    """

    path: str
    key: str
    size_bytes: int
    modification_time_ms: int
    num_records: int
    stats: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


class RowMap(Struct, frozen=True):
    """What a manifest says of the bin's row map (:mod:`delta_maintenance.rewrite.manifest.row_map`).

    :param token: random part of the file's name.
    :param sha256: SHA-256 digest of the file's content.
    :param source_rows: physical rows of each source, in the order of the sources.
    """

    token: str
    sha256: str
    source_rows: tuple[int, ...]


class RewriteTask(Struct, frozen=True):
    """One bin to rewrite. Together with the storage it is all that ``rewrite_bin`` needs.

    1. A worker reads the sources in this order.
    2. All sources have the same typed partition value; ``partition_values`` is the map for the outputs.
    3. ``bin_id`` depends only on sources and settings, so that a repeated run finds the bin's manifest.

    :param reader_features: reader features of the table's protocol.
    :param verify: ``full``: read the new file back and compare a checksum of all columns.
    :param num_outputs: the number of files of about equal size that get the rows.
    :param rewrite: which row groups are copied as bytes (:mod:`delta_maintenance.rewrite.copy.copy_rules`).
    :param begin_before_ms: milliseconds since the epoch after which no worker begins the task.
    :param planned_bytes: the live bytes of the sources, as the plan estimated them.
    :param layout: how the rows are divided between the files and sorted; ``None``: they keep their order.
    :param clustering_columns: clustering columns of the table, which get statistics in any case: physical names from the top down.
    :param clustering_provider: clustering provider of the new files; ``clustering_tags``: the tags of their cube.
    :param materializes_partitions: ``True``: new files hold the partition columns, too.
    :param keeps_row_map: ``True``: where a layout moves rows, leave a file that tells where they went.
    """

    bin_id: str
    table_uri: str
    run_id: str
    schema_json: str
    partition_columns: tuple[str, ...]
    mapping_mode: str
    configuration: Mapping[str, str]
    reader_features: tuple[str, ...]
    partition_values: Mapping[str, str | None]
    sources: tuple[SourceFile, ...]
    target_size_bytes: int
    rewrite_tag: str
    verify: str = "counts"
    num_outputs: int = 1
    rewrite: str = "auto"
    begin_before_ms: int | None = None
    planned_bytes: int | None = None
    layout: Layout | None = None
    clustering_columns: tuple[tuple[str, ...], ...] = ()
    clustering_provider: str | None = None
    clustering_tags: Mapping[str, str] = field(default_factory=dict)
    keeps_row_map: bool = False
    materializes_partitions: bool = False

    @property
    def bytes_in(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    @property
    def output_tags(self) -> dict[str, str]:
        """The ``add.tags`` of each new file."""
        planned = {}
        if self.planned_bytes is not None:
            planned[PLANNED_BYTES_TAG] = str(self.planned_bytes // self.num_outputs)
        laid_out = {LAYOUT_TAG: self.layout.tag} if self.layout is not None else {}
        return {REWRITE_TAG: self.rewrite_tag, **planned, **laid_out, **self.clustering_tags}

    def to_json(self) -> str:
        return json.dumps(msgspec.to_builtins(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RewriteTask:
        raw = _known(cls, json.loads(text))
        raw["sources"] = _each(SourceFile, raw["sources"])
        raw["partition_columns"] = tuple(raw["partition_columns"])
        raw["reader_features"] = tuple(raw["reader_features"])
        raw["clustering_columns"] = tuple(map(tuple, raw["clustering_columns"]))
        raw["layout"] = None if raw["layout"] is None else Layout.from_dict(raw["layout"])
        return cls(**raw)


class BinManifest(Struct, frozen=True):
    """The result of one bin. It is written when the bin's files are complete.

    :param rows_in: physical rows of the sources; in a sound bin ``rows_in == rows_deleted + rows_out``.
    :param rows_deleted: rows that the sources' deletion vectors delete.
    :param source_rows: physical rows of each source, in the order of the sources. The outputs hold the live rows in this order,
        so the place of each row is known. Empty: the rows have another order, or the writer did not record them.
    :param num_outputs: the number of files that the task asked for.
    :param bytes_copied: size of row groups that were copied without decoding them.
    :param clustering_provider: clustering provider of the outputs, for their ``add`` actions.
    :param verify: what was compared before the manifest was written. Earlier releases did not say so.
    :param rewrite: which row groups the task let be copied. Earlier releases did not say so.
    :param row_map: row map, which tells where the rows are if a layout has moved them, and the task asked for it. Then
        ``source_rows`` is empty, so that an older release does not take the rows for ones in order.
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
    num_outputs: int = 1
    bytes_copied: int = 0
    clustering_provider: str | None = None
    row_map: RowMap | None = None
    verify: str = "counts"
    rewrite: str = "auto"
    manifest_version: int = MANIFEST_VERSION

    @property
    def bytes_in(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    @property
    def row_map_key(self) -> str | None:
        """The key of the row map; ``None``: there is none."""
        return None if self.row_map is None else row_map_key(self.run_id, self.bin_id, self.row_map.token)

    @property
    def keys_written(self) -> list[str]:
        """The keys of all files that the task has written, but for the manifest."""
        row_map = [] if self.row_map_key is None else [self.row_map_key]
        return [*(output.key for output in self.outputs), *row_map]

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def differs_from(self, task: RewriteTask) -> str | None:
        """Say how this manifest differs from the answer to a task; ``None`` if it is the answer."""
        for name in (*_WHAT_A_TASK_SAYS, "sources"):
            if getattr(self, name) != getattr(task, name):
                return f"its {name} differ from the task's"
        if any(output.tags != task.output_tags for output in self.outputs):
            return "its files have other tags"
        if len(self.outputs) > task.num_outputs:
            return f"it has {len(self.outputs)} files, and {task.num_outputs} were to be written"
        return self.miscounts([source.num_records for source in self.sources])

    def miscounts(self, num_records: Sequence[int | None]) -> str | None:
        """Say how the counts contradict the log's facts about the sources; ``None`` if they do not.

        :param num_records: physical rows of each source; ``None`` where the log does not tell.
        """
        hidden = sum(int((source.deletion_vector or {}).get("cardinality", 0)) for source in self.sources)
        if self.rows_deleted != hidden:
            return f"{self.rows_deleted} rows count as deleted, and the deletion vectors hide {hidden}"
        known = [count for count in num_records if count is not None]
        if len(known) == len(num_records) and sum(known) != self.rows_in:
            return f"{self.rows_in} rows were read, and the sources have {sum(known)}"
        if any(
            said is not None and said != count
            for said, count in zip(num_records, self.source_rows, strict=False)
        ):
            return "it counts other rows in its sources than their statistics"
        return None

    def is_same_work(self, other: BinManifest) -> bool:
        """Tell whether both are results of one task. Their files differ in any case."""
        tags = [output.tags for output in (*self.outputs, *other.outputs)]
        of_the_try: dict[str, Any] = {"outputs": (), "elapsed_ms": 0, "row_map": None}
        return replace(self, **of_the_try) == replace(other, **of_the_try) and all(
            one == tags[0] for one in tags
        )


_WHAT_A_TASK_SAYS = (
    "bin_id",
    "run_id",
    "partition_values",
    "rewrite_tag",
    "num_outputs",
    "clustering_provider",
    "verify",
    "rewrite",
)


def row_map_key(run_id: str, bin_id: str, token: str) -> str:
    """Return the key of a bin's row map, relative to the table's root. It is hidden from readers and from VACUUM."""
    return f"{MANIFEST_DIRECTORY}/{run_id}/{bin_id}.{token}{ROW_MAP_SUFFIX}"


def _known(cls: type[Struct], raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key in cls.__struct_fields__}


def _each(cls: type[_T], items: list[dict[str, Any]]) -> tuple[_T, ...]:
    return tuple(cls(**_known(cls, item)) for item in items)
