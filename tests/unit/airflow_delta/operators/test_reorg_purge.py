from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_delta.operators import DeltaOptimizeOperator, DeltaReorgPurgeOperator

DIGEST = "0123456789abcdef0123456789abcdef"
EVERY: dict[str, Any] = {
    "where": "day = '2026-01-01'",
    "target_size": "256MiB",
    "max_deleted_rows_ratio": "0.1",
    "max_bytes": "10GiB",
    "max_files": "500",
    "max_duration": "3600",
    "batch_size": "1GiB",
    "quiet_minutes": "30",
    "hot_partitions": "wait",
    "verify": "full",
    "on_broken_source": "skip",
    "remap": "true",
    "output": "s3://lake/plans/1.jsonl",
    "approved_plan": DIGEST,
}


def purge(**arguments: Any) -> DeltaReorgPurgeOperator:
    return DeltaReorgPurgeOperator(task_id="purge", table="/t", **arguments)


def test_every_option_reaches_the_job_under_the_name_of_the_contract() -> None:
    assert purge(**EVERY).options() == {
        "where": "day = '2026-01-01'",
        "target_size_bytes": 256 << 20,
        "max_deleted_rows_ratio": 0.1,
        "max_bytes": 10 << 30,
        "max_files": 500,
        "max_duration_seconds": 3600,
        "batch_size_bytes": 1 << 30,
        "quiet_minutes": 30,
        "hot_partitions": "wait",
        "verify": "full",
        "on_broken_source": "skip",
        "remap": True,
        "output": "s3://lake/plans/1.jsonl",
        "approved_digest": DIGEST,
    }
    assert purge().options() == {}
    assert DeltaReorgPurgeOperator.operation.name == "purge"


def test_the_job_knows_every_option_that_an_operator_can_send() -> None:
    from delta_maintenance.optimize.options import OptimizeOptions

    OptimizeOptions.from_mapping(purge(**EVERY).options(), purge=True)
    optimize = DeltaOptimizeOperator(
        task_id="o", table="/t", full=True, min_file_size="1MiB", max_file_size="9GiB", **EVERY
    )
    OptimizeOptions.from_mapping(optimize.options())


@pytest.mark.parametrize("operator", [DeltaOptimizeOperator, DeltaReorgPurgeOperator])
def test_every_argument_but_a_program_is_templated(operator: type[DeltaReorgPurgeOperator]) -> None:
    made = operator(task_id="t", table="/t")
    fields = type(made).template_fields
    assert set(fields) == set(made.arguments) - {"spark_binary", "cluster_application"}
    assert all(hasattr(made, name) for name in fields)


@pytest.mark.parametrize(
    "given",
    [
        DIGEST,
        DIGEST[:12],
        {"digest": DIGEST, "numBins": 3},
        {"status": "planned", "plan": {"digest": DIGEST}},
        json.dumps({"plan": {"digest": DIGEST}}),
        str({"plan": {"digest": DIGEST}}),
    ],
)
def test_an_approved_plan_is_named_by_its_digest_in_whatever_form_it_comes(given: Any) -> None:
    assert DIGEST.startswith(purge(approved_plan=given).options()["approved_digest"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_files": 0},
        {"max_duration": "an hour"},
        {"batch_size": "big"},
        {"quiet_minutes": -5},
        {"hot_partitions": "first"},
        {"verify": "yes"},
        {"on_broken_source": "ignore"},
        {"approved_plan": "yes"},
        {"approved_plan": {"plan": {}}},
        {"output": 5},
    ],
)
def test_a_senseless_argument_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        purge(**arguments)


def test_what_a_purge_does_not_choose_by_is_no_argument_of_it() -> None:
    with pytest.raises(TypeError):
        purge(min_file_size="1MiB")
