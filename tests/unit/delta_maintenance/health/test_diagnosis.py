from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from delta_log.snapshot.deletion_ratio import DeletedRows
from delta_maintenance.health.diagnosis import CRITICAL_TIMES, FINDINGS, RECOMMENDED, Diagnosis, diagnose
from delta_maintenance.health.document import document_of
from delta_maintenance.health.facts import (
    FileFacts,
    FileTotal,
    HealthFacts,
    LogFacts,
    PlannedLayout,
    PlannedRewrite,
    Refusal,
    RemovedFiles,
)
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.log_upkeep.plan.checkpoint import ReplayCost, plan_checkpoint
from delta_maintenance.log_upkeep.plan.log_compaction import LogPiece, plan_log_compaction

GIB = 1 << 30


def rewrite(files_to_merge: int, **more: Any) -> PlannedRewrite:
    plan = PlannedRewrite(1, files_to_merge, files_to_merge, 1000, 1, 900, GIB, GIB // 2, 1)
    return replace(plan, **more)


def deleted(num_deleted_rows: int) -> FileFacts:
    rows = DeletedRows(100, num_deleted_rows, 5, 0, 0, {})
    purge = rewrite(0, num_files=2, options={"max_deleted_rows_ratio": 0.1})
    return FileFacts(5, 1000, deleted=rows, worst=rows, partitions_over=1, optimize=rewrite(0), purge=purge)


def laid_out(after: float) -> FileFacts:
    options = {"layout": "kd", "by": ["a", "`b.c`"]}
    layout = PlannedLayout("kd", ("a", "b.c"), 0.1, after, rewrite(9, options=options))
    return FileFacts(9, 1000, optimize=rewrite(0), layout=layout)


def facts(
    files: FileFacts | None = None,
    *,
    commits: int = 1,
    reclaimable_bytes: int = 0,
    expired: int = 0,
    pieces: int = 0,
    refused: tuple[str, ...] = (),
) -> HealthFacts:
    removed = FileTotal(3, reclaimable_bytes)
    compaction = plan_log_compaction([LogPiece(n, n, 10) for n in range(pieces)]) if pieces else None
    return HealthFacts(
        version=7,
        measured_ms=0,
        files=files or FileFacts(5, 1000, optimize=rewrite(0)),
        checkpoint=plan_checkpoint(ReplayCost(7, 1, commits, 100), 10),
        compaction=compaction,
        log=LogFacts(0, 200, FileTotal(expired, 10), 5 if expired else None),
        removed=RemovedFiles(removed, removed, FileTotal(), 2, 0),
        features=(),
        refusals={name: Refusal(("odd",), "it is odd") for name in refused},
        last_runs={},
        num_commits_read=1,
    )


def outcome(found: Diagnosis) -> tuple[str, list[tuple[str, str]], list[str]]:
    return (
        found.status,
        [(finding.code, finding.severity) for finding in found.findings],
        [advice.operation for advice in found.advice],
    )


def test_a_table_within_its_limits_is_healthy() -> None:
    assert outcome(diagnose(facts(), HealthOptions())) == ("healthy", [], [])


@pytest.mark.parametrize(
    ("given", "code", "operation"),
    [
        ({"files": FileFacts(99, 1, optimize=rewrite(11))}, "small_files", "optimize"),
        ({"files": deleted(11)}, "deleted_rows", "purge"),
        ({"files": laid_out(0.35)}, "poor_layout", "optimize"),
        ({"commits": 10}, "checkpoint_due", "checkpoint"),
        ({"reclaimable_bytes": GIB + 1}, "reclaimable_files", "vacuum"),
        ({"expired": 101}, "expired_log_files", "cleanup-log"),
    ],
)
def test_what_exceeds_a_limit_is_a_finding_and_leads_to_an_operation(
    given: dict[str, Any], code: str, operation: str
) -> None:
    found = diagnose(facts(**given), HealthOptions())
    assert outcome(found) == ("attention", [(code, "attention")], [operation])
    (advice,) = found.advice
    assert advice.findings == (code,)
    assert operation in RECOMMENDED
    refused = {"cleanup-log": "checkpoint"}.get(operation, operation)
    if operation not in ("optimize", "purge"):
        assert diagnose(facts(**given, refused=(refused,)), HealthOptions()).advice == ()


@pytest.mark.parametrize(
    "given",
    [
        {"files": FileFacts(99, 1, optimize=rewrite(10))},
        {"files": deleted(10)},
        {"files": laid_out(0.3)},
        {"commits": 9},
        {"reclaimable_bytes": GIB},
        {"expired": 100},
    ],
)
def test_a_limit_itself_is_not_exceeded(given: dict[str, Any]) -> None:
    assert diagnose(facts(**given), HealthOptions()).status == "healthy"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"files": FileFacts(9999, 1, optimize=rewrite(1001))}, "small_files"),
        ({"files": deleted(51)}, "deleted_rows"),
        ({"commits": 101}, "checkpoint_due"),
        ({"reclaimable_bytes": 100 * GIB + 1}, "reclaimable_files"),
        ({"expired": 10_001}, "expired_log_files"),
    ],
)
def test_many_times_the_limit_is_critical(given: dict[str, Any], code: str) -> None:
    assert code in CRITICAL_TIMES
    status, findings, _ = outcome(diagnose(facts(**given), HealthOptions()))
    assert (status, findings) == ("critical", [(code, "critical")])


def test_optimize_does_what_a_purge_would_do() -> None:
    files = replace(deleted(20), optimize=rewrite(50))
    found = diagnose(facts(files), HealthOptions())
    assert outcome(found)[2] == ["optimize"]
    assert found.advice[0].findings == ("small_files", "deleted_rows")
    # OPTIMIZE rewrites files with more than 5% of deleted rows. A lower limit is its argument.
    assert HealthOptions().optimize_request == {}
    assert HealthOptions(deleted_rows_ratio=0.01).optimize_request == {"max_deleted_rows_ratio": 0.01}


def test_one_run_gives_the_layout_and_does_what_others_would_do() -> None:
    files = replace(deleted(20), optimize=rewrite(50), layout=laid_out(0.9).layout)
    given = facts(files)
    diagnosis = diagnose(given, HealthOptions())
    assert outcome(diagnosis)[2] == ["optimize"]
    (advice,) = document_of("/t", given, diagnosis)["recommendations"]
    assert advice["findings"] == ["small_files", "deleted_rows", "poor_layout"]
    assert advice["command"] == "delta-maintenance optimize /t --layout kd --by 'a,`b.c`'"
    assert advice["arguments"] == {"layout": "kd", "by": ["a", "`b.c`"]}
    assert (advice["gain"]["skippedBefore"], advice["gain"]["skippedAfter"]) == (0.1, 0.9)


def test_a_table_that_optimize_refuses_is_unsupported_and_may_need_other_operations() -> None:
    files = FileFacts(5, 1000, optimize=None)
    found = diagnose(facts(files, commits=500, refused=("optimize", "purge")), HealthOptions())
    assert outcome(found) == (
        "unsupported",
        [("unsupported", "attention"), ("checkpoint_due", "critical")],
        ["checkpoint"],
    )
    assert found.findings[0].evidence == {"features": ["odd"]}


def test_a_log_compaction_is_asked_for_and_changes_no_status() -> None:
    found = diagnose(facts(pieces=4, commits=4), HealthOptions())
    assert outcome(found) == ("healthy", [("log_compaction_due", "info")], ["compact-log"])
    assert outcome(diagnose(facts(pieces=12, commits=12), HealthOptions()))[2] == ["checkpoint"]


@pytest.mark.parametrize("state", ["wrong", "broken"])
def test_a_wrong_checksum_is_told(state: str) -> None:
    files = FileFacts(5, 1000, optimize=rewrite(0), checksum=state)
    assert outcome(diagnose(facts(files), HealthOptions())) == (
        "attention",
        [("wrong_checksum", "attention")],
        [],
    )


def test_a_recommendation_names_the_operator_and_the_command() -> None:
    plan = rewrite(50, options={"target_size_bytes": 5}, where="(`day` = 'x')")
    given = facts(FileFacts(99, 1, optimize=plan), commits=50, expired=500)
    found = document_of("s3://lake/a b", given, diagnose(given, HealthOptions()))["recommendations"]
    assert [(one["operator"], one["arguments"], one["command"]) for one in found] == [
        (
            "DeltaOptimizeOperator",
            {"where": "(`day` = 'x')", "target_size": 5},
            """delta-maintenance optimize 's3://lake/a b' --where '(`day` = '"'"'x'"'"')' --target-size 5""",
        ),
        ("DeltaCheckpointOperator", {}, "delta-maintenance checkpoint 's3://lake/a b' --if-due"),
        ("DeltaCheckpointOperator", {"cleanup_log": True}, "delta-maintenance cleanup-log 's3://lake/a b'"),
    ]


def test_every_finding_has_a_function_of_its_code() -> None:
    assert set(CRITICAL_TIMES) <= set(FINDINGS)
