"""The record that a task leaves of a run or of a reading of health, and how it is read again.

A record is the value of an entry in the state store of its task instance; the key of the entry is a :class:`RecordHeader`.

A record holds at most :data:`MAX_RECORD_BYTES` as JSON. A report or document that is larger loses its longest members, and
``left_out`` names them; the facts of a reading lose their lists first. DAG files import this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import Struct

from delta_log.storage.table_uri import one_spelling
from delta_maintenance.contract import JobReport
from delta_maintenance.contract_json import storable

RECORD_VERSION = 1
#: The JSON of one record may have so many bytes. A reading of a table with findings takes about 5 kB, a report about 2 kB.
MAX_RECORD_BYTES = 16_384
#: Records are kept for so many days, unless ``[delta] monitoring_days`` says otherwise.
DEFAULT_DAYS = 90
HEALTH, RUN, SIGHT = "health", "run", "sight"
#: By kind, the member of the record that holds what the task found or did.
_BODIES = {HEALTH: "health", RUN: "report", SIGHT: "sight"}
#: Members of a reading's facts that go first.
_LISTS = ("commits", "partitionsInNeed", "fileSizes")
#: Members of a report that the page does not show.
_NOT_SHOWN = ("columns", "contract_version", "rewrite", "table", "transaction")


class ForeignRecord(ValueError):
    """A value that is no record: another program made it, or another release."""


class Source(Struct, frozen=True):
    """The task instance that left a record."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


class Record(Struct, frozen=True):
    """What a task has reported of a table.

    :param number: number of the entry in the state store.
    :param time_ms: time at which Airflow stored the entry.
    :param operation: operation of the report, or ``health``, or ``sight``: a sensor has seen the table.
    :param body: the report, or the document of a reading.
    """

    number: int
    time_ms: int
    source: Source
    kind: str
    table: str
    operation: str
    body: Mapping[str, Any]
    left_out: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return str(self.body.get("status", ""))

    @property
    def has_failed(self) -> bool:
        return self.status == "failed"


def record_of_report(report: JobReport, lines: list[str]) -> dict[str, Any]:
    """
    :param lines: the report in words, as the log of the task has it.
    """
    body = {name: value for name, value in report.to_dict().items() if name not in _NOT_SHOWN}
    return _record(RUN, report.table, {**body, "lines": lines})


def record_of_health(document: Mapping[str, Any]) -> dict[str, Any]:
    """
    :param document: document that :func:`~delta_maintenance.health.document.health_of` returns.
    """
    return _record(HEALTH, str(document["table"]), dict(document))


def record_of_sight(table: str, version: int | None) -> dict[str, Any]:
    """
    :param version: version that a sensor has waited for; ``None``: it waits for something else.
    """
    return _record(SIGHT, table, {"status": "seen", "version": version})


def _record(kind: str, table: str, body: dict[str, Any]) -> dict[str, Any]:
    # A round trip leaves plain JSON values, which every database takes.
    body = storable(json.loads(json.dumps(body)))
    left_out = _without_lists(body)
    sizes = {name: len(json.dumps(value)) for name, value in body.items()}
    excess = sum(sizes.values()) - MAX_RECORD_BYTES
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if excess <= 0:
            break
        excess -= sizes[name]
        left_out.append(name)
        del body[name]
    # One table has one address, however a DAG file spells it.
    address = one_spelling(storable(table))
    record = {"record_version": RECORD_VERSION, "kind": kind, "table": address, _BODIES[kind]: body}
    return {**record, "left_out": left_out} if left_out else record


def _without_lists(body: dict[str, Any]) -> list[str]:
    """Take the lists out of the facts of a reading, as far as it is too long: without its other figures it says little."""
    left_out = []
    for name in _LISTS:
        facts = body.get("facts")
        if len(json.dumps(body)) > MAX_RECORD_BYTES and isinstance(facts, dict) and facts.pop(name, None):
            left_out.append(f"facts.{name}")
    return left_out


def table_id(table: str) -> str:
    """A name for a table that fits into a path. Nothing that a caller sends is ever used as an address.

    :param table: address of the table, as it stands in a record or in a DAG file.
    """
    address = one_spelling(str(storable(table)))
    return sha256(address.encode()).hexdigest()[:24]


def read_record(raw: Any, source: Source, time_ms: int, number: int = 0) -> Record:
    """
    :param raw: JSON value of an entry.
    :raises ForeignRecord: it is no record that this release reads.
    """
    if not isinstance(raw, Mapping):
        raise ForeignRecord("it is not an object")
    if raw.get("record_version") != RECORD_VERSION:
        raise ForeignRecord(f"it has no record_version {RECORD_VERSION}")
    kind, table = raw.get("kind"), raw.get("table")
    body = raw.get(_BODIES[kind]) if isinstance(kind, str) and kind in _BODIES else None
    if not isinstance(table, str) or not table:
        raise ForeignRecord("it names no table")
    if not isinstance(kind, str) or not isinstance(body, Mapping):
        raise ForeignRecord("it has neither a report nor a reading of health")
    operation = body.get("operation") if kind == RUN else kind
    if not isinstance(operation, str) or not isinstance(body.get("status"), str):
        raise ForeignRecord("its report names no operation and status")
    return Record(
        number,
        time_ms,
        source,
        kind,
        one_spelling(table),
        operation,
        body,
        tuple(_texts(raw.get("left_out"))),
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (held for held in value if isinstance(held, str))


KEY_PREFIX = "delta_record."
_KEY = re.compile(r"delta_record\.(-1|\d+)\.(\d+)\.([0-9a-f]{24})\.([\w-]+)(!?)\.(\d*)\.(\d*)")


class RecordHeader(NamedTuple):
    """
    :param map_index: index of the mapped task instance; -1: the task is not mapped. Airflow's own column has another name and meaning from
        3.4 on.
    :param table: digest of the table's address, see :func:`~airflow_delta.monitoring.record.table_id`; empty: the key is not of this
        release, so the value has to say what it is.
    :param num_files: figure of a reading of health; ``None``: the record is no reading, or lacks the figure.
    :param small_files: number of files that OPTIMIZE would merge; ``None`` as for `num_files`.
    """

    map_index: int
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
    prefix = prefix_of_task(record.source.map_index)
    return f"{prefix}{try_number}.{table_id(record.table)}.{operation}.{'.'.join(figures)}"


def prefix_of_task(map_index: int) -> str:
    """The prefix of all keys that one task instance leaves."""
    return f"{KEY_PREFIX}{map_index}."


def read_key(key: str) -> RecordHeader:
    found = _KEY.fullmatch(key)
    if found is None:
        return RecordHeader(-1, 0, "", key, False, None, None)
    index, number, table, operation, failed, *figures = found.groups()
    files, small = (int(one) if one else None for one in figures)
    return RecordHeader(int(index), int(number), table, operation, bool(failed), files, small)


#: Part of the metrics' contract: alerts compare with these numbers.
STATUS_NUMBERS: Mapping[str, int] = {"healthy": 0, "unsupported": 1, "attention": 2, "critical": 3}
