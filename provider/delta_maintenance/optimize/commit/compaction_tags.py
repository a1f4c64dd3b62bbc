"""The tags by which a compaction's removes say where the rows went, for a writer that loses to it.

A DELETE that read a source and then lost to the compaction can find its rows in the new file by the log alone. The tags are in
``remove.tags``, as JSON texts, in the form that Databricks' engine writes; readers that do not know them ignore them:

* ``compactedInto``: ``["<path>"]``, the ``path`` of the ``add`` of the same commit that holds the rows;
* ``compactionInfo``: ``[{"rowOffsetInTarget": o, "sourceNumPhysicalRecords": n}]``. The live rows of the source are the rows of the
  new file from `o` on, without a gap. Physical row ``i`` of the source is row ``o + i - |{d in D: d < i}|`` there, ``D`` being the rows that
  the remove's deletion vector hides.

So they are written only where all of that is true of all sources: the rows kept their order, and one file took all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from delta_maintenance.rewrite.task import BinManifest, SourceFile

_NAMES = COMPACTED_INTO, COMPACTION_INFO = "compactedInto", "compactionInfo"


def compaction_tags(manifest: BinManifest) -> Sequence[dict[str, str]]:
    """Return the tags of each source of a bin, in the order of the sources.

    :return: empty dictionaries if the tags would not be true: a layout moved rows, several files took them, or none did.
    """
    is_contiguous = (
        len(manifest.outputs) == 1
        and manifest.clustering_provider is None
        and len(manifest.source_rows) == len(manifest.sources)
    )
    return list(_tags(manifest)) if is_contiguous else [{} for _ in manifest.sources]


def without_compaction_tags(tags: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the other tags of a file; ``None`` if there are none."""
    others = {name: value for name, value in (tags or {}).items() if name not in _NAMES}
    return others or None


def _tags(manifest: BinManifest) -> Iterator[dict[str, str]]:
    (output,) = manifest.outputs
    offset = 0
    for source, rows in zip(manifest.sources, manifest.source_rows, strict=True):
        info = {"rowOffsetInTarget": offset, "sourceNumPhysicalRecords": rows}
        yield {COMPACTED_INTO: _json([output.path]), COMPACTION_INFO: _json([info])}
        offset += rows - _num_deleted(source)


def _num_deleted(source: SourceFile) -> int:
    return 0 if source.deletion_vector is None else int(source.deletion_vector["cardinality"])


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
