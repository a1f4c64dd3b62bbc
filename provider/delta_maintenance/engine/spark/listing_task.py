"""The code of a Spark task that lists: takes rows of parts, yields rows of files. Uses Arrow, not PySpark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from delta_maintenance.engine.spark.rewriting_task import error_for_spark, opened
from delta_maintenance.errors import error_report
from delta_maintenance.listing.part import FOUND_SCHEMA, ListingPart, list_part
from delta_maintenance.listing.sorted_keys import SortedKeys

_SCHEMA = pa.schema([*FOUND_SCHEMA, ("error", pa.string())])


def list_batch(
    batch: pa.RecordBatch, keys: str, storage_options: Mapping[str, Any], nonce: str
) -> Iterator[pa.RecordBatch]:
    """List each part of a batch. An error that a repetition cannot change becomes a row.

    :param keys: path of the file of protected keys.
    :param nonce: text that marks errors for the driver.
    :raises RuntimeError: an error that a repetition may change; its message describes the original.
    """
    for text in batch.column("listing").to_pylist():
        part = ListingPart.from_json(text)
        try:
            storage = opened(part.table_uri, storage_options)
            for found in list_part(storage, part, SortedKeys(keys)):
                columns = [*found.columns, pa.nulls(found.num_rows, pa.string())]
                yield pa.record_batch(columns, schema=_SCHEMA)
        except Exception as error:  # noqa: BLE001 - the driver decides by the description
            report = error_report(error).with_facts(bin_id=f"part {part.number} of the listing")
            if report.retryable:
                raise error_for_spark(report, error, nonce) from None
            row = [*[None] * len(FOUND_SCHEMA), json.dumps(report.to_dict())]
            columns = [pa.array([value], field.type) for value, field in zip(row, _SCHEMA, strict=True)]
            yield pa.record_batch(columns, schema=_SCHEMA)
