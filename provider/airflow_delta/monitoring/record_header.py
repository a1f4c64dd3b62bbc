"""The key of a record in a task's state store: what the page needs of every record of the last days.

A key is ``delta_record.<try>.<table id>.<operation>.<files>.<small files>``. The page reads all keys, and only the values of the newest record of
each table, operation and DAG. The number of the try keeps a task that is run again from changing an earlier record. The operation of a run
that failed ends with ``!``. The figures are empty but for readings of health.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from airflow_delta.monitoring.record import HEALTH, Record, table_id

KEY_PREFIX = "delta_record."
_KEY = re.compile(r"delta_record\.(\d+)\.([0-9a-f]{24})\.([\w-]+)(!?)\.(\d*)\.(\d*)")


class RecordHeader(NamedTuple):
    """
    :param table: digest of the table's address, see :func:`~airflow_delta.monitoring.record.table_id`; empty: the key is not of this
        release, so the value has to say what it is.
    :param num_files: figure of a reading of health; ``None``: the record is no reading, or lacks the figure.
    :param small_files: like `num_files`, the files that OPTIMIZE would merge.
    """

    try_number: int
    table: str
    operation: str
    has_failed: bool
    num_files: int | None
    small_files: int | None


def key_of(record: Record, try_number: int) -> str:
    figures = ["", ""]
    if record.kind == HEALTH:
        facts = record.body.get("facts") or {}
        found = (facts.get("numFiles"), (facts.get("optimize") or {}).get("numFilesToMerge"))
        figures = ["" if one is None else str(one) for one in found]
    operation = f"{record.operation}!" if record.has_failed else record.operation
    return f"{KEY_PREFIX}{try_number}.{table_id(record.table)}.{operation}.{'.'.join(figures)}"


def read_key(key: str) -> RecordHeader:
    found = _KEY.fullmatch(key)
    if found is None:
        return RecordHeader(0, "", key, False, None, None)
    number, table, operation, failed, *figures = found.groups()
    files, small = (int(one) if one else None for one in figures)
    return RecordHeader(int(number), table, operation, bool(failed), files, small)
