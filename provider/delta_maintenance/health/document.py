"""The result of a reading as one JSON document: facts, findings and recommendations.

The document is the output of ``delta-maintenance health --json`` and the XCom of the operator. Each of its three parts is a
contract: a release that removes or changes the meaning of a member, a code or a status raises :data:`HEALTH_VERSION`; new
members, codes and operations may come without that.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from delta_log.redaction import redact
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import noticing_a_drop
from delta_log.storage.table_uri import is_name
from delta_log.table import Table
from delta_maintenance.health.diagnosis import Advice, Diagnosis, diagnose
from delta_maintenance.health.facts import HealthFacts
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import UNMEASURED, read_health, read_snapshot
from delta_maintenance.log_upkeep.options import CHECKPOINT, CLEANUP_LOG, COMPACT_LOG
from delta_maintenance.optimize.options import OPTIMIZE, PURGE
from delta_maintenance.options import Operation, Switch
from delta_maintenance.vacuum.options import VACUUM

HEALTH_VERSION = 1


class _Doer(Struct, frozen=True):
    """How an operation is run.

    :param operator: the name of the Airflow operator, whose arguments follow from the options of ``of_operator``.
    :param switches: arguments that make the operator do this, where it can do several things.
    """

    operation: Operation
    operator: str
    of_operator: Operation
    switches: Mapping[str, Any]


def _own(operation: Operation, operator: str) -> _Doer:
    return _Doer(operation, operator, operation, {})


#: By operation. CHECKPOINT's operator looks after the rest of the log, too.
_DOERS = {
    "optimize": _own(OPTIMIZE, "DeltaOptimizeOperator"),
    "purge": _own(PURGE, "DeltaReorgPurgeOperator"),
    "checkpoint": _own(CHECKPOINT, "DeltaCheckpointOperator"),
    "compact-log": _Doer(COMPACT_LOG, "DeltaCheckpointOperator", CHECKPOINT, {"compact_log": True}),
    "vacuum": _own(VACUUM, "DeltaVacuumOperator"),
    "cleanup-log": _Doer(CLEANUP_LOG, "DeltaCheckpointOperator", CHECKPOINT, {"cleanup_log": True}),
}


def health_of(table: Table, address: str, options: HealthOptions, runtime: Runtime) -> dict[str, Any]:
    """Read a table, and say what it needs.

    :param address: address of the table, as the caller gave it.
    :raises DeltaLogError: the table cannot be read, or was dropped meanwhile.
    """
    with noticing_a_drop(table.storage, lambda: table.has_been_read):
        facts = read_health(table, options, runtime.now_ms())
    document = document_of(redact(address), facts, diagnose(facts, options))
    return {**document, "location": table.uri} if is_name(address) else document


def reading_of(snapshot: Snapshot, now_ms: int, checkpointed: int | None, address: str) -> dict[str, Any]:
    """Say what a table needs, as far as a snapshot tells without a request: the document of :func:`health_of` without what was not
    measured. ``unmeasured`` names the findings that the reading does not look for.

    :param checkpointed: the version of a checkpoint that was written since the snapshot was made.
    """
    options = HealthOptions()
    facts = read_snapshot(snapshot, options, now_ms, checkpointed)
    document = document_of(redact(address), facts, diagnose(facts, options))
    told = document["facts"]
    log = {name: told["log"][name] for name in _LOG_FACTS}
    for name in ("removedFiles", "lastRuns", "numCommitsRead", "commits", "layout", "checksum"):
        del told[name]
    del document["table"]
    return {**document, "facts": {**told, "log": log}, "unmeasured": list(UNMEASURED)}


_LOG_FACTS = (
    "checkpointVersion",
    "numCommitsSinceCheckpoint",
    "sizeOfCommitsSinceCheckpoint",
    "checkpointInterval",
)


def document_of(address: str, facts: HealthFacts, diagnosis: Diagnosis) -> dict[str, Any]:
    """Put a reading and its diagnosis into the document."""
    return {
        "health_version": HEALTH_VERSION,
        "table": address,
        "version": facts.version,
        "status": diagnosis.status,
        "facts": facts.to_dict(),
        "findings": [finding.to_dict() for finding in diagnosis.findings],
        "recommendations": [_recommendation(address, advice) for advice in diagnosis.advice],
    }


def _recommendation(address: str, advice: Advice) -> dict[str, Any]:
    doer = _DOERS[advice.operation]
    return {
        "operation": advice.operation,
        "findings": list(advice.findings),
        "why": advice.why,
        "gain": dict(advice.gain),
        "operator": doer.operator,
        "arguments": {**doer.switches, **_arguments(doer.of_operator, advice.options)},
        "command": _command(doer.operation, address, advice.options),
    }


def _arguments(operation: Operation, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as arguments of the operator, without those that it takes by default."""
    return {
        row.argument: options[row.name]
        for row in operation.options
        if row.name in options and options[row.name] != row.argument_default
    }


def _command(operation: Operation, address: str, options: Mapping[str, Any]) -> str:
    """Options as a command line for a shell."""
    words = ["delta-maintenance", operation.name, address]
    for row in operation.options:
        if row.name in options and row.flag is not None:
            words += [row.flag] if isinstance(row.kind, Switch) else [row.flag, _word(options[row.name])]
    return shlex.join(words)


def _word(value: Any) -> str:
    """A value as the command line takes it."""
    return ",".join(value) if isinstance(value, list) else str(value)
