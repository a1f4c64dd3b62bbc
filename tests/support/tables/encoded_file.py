"""Writes a data file as the rewriter does: rows encoded as a part, and the part's row groups in a new file."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable

import pyarrow as pa

from delta_maintenance.rewrite.encode.encoded_part import PartEncoder
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from parquet_parts.assembled_file import AssembledFile


def encoded_file(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    settings: WriterSettings,
    bloom_filters: Collection[str] = (),
) -> tuple[bytes, str]:
    """Return the content of a file with these rows, and the statistics for the log."""
    part = PartEncoder(schema, settings, bloom_filters).encode(batches)
    file = io.BytesIO()
    assembled = AssembledFile(file)
    part.append_to(assembled)
    assembled.finish({})
    return file.getvalue(), part.stats.finish()
