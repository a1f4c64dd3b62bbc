from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from delta_maintenance.contract import ErrorReport, JobReport, JobSpec, TransactionId
from delta_maintenance.job_interface import CONTRACT_VERSION, ContractError

SPEC = JobSpec(
    "optimize",
    "s3://lake/events",
    "run-1",
    options={"where": "day = '2024-01-01'", "full": True},
    transaction=TransactionId("dag:task", 7),
    tags={"who": "ops"},
    allowed_roots={"the connection 'lake'": ["s3://lake"]},
)


def test_a_spec_survives_the_wire() -> None:
    assert JobSpec.from_json(SPEC.to_json()) == SPEC


def test_a_spec_is_an_argument_that_no_shell_and_no_cluster_changes() -> None:
    spec = replace(SPEC, options={"where": "part = '$(HOME) {{a}} `b` \\ \u2026 $$'"})
    argument = spec.to_argument()
    assert re.fullmatch(r"base64:[A-Za-z0-9_=-]+", argument)
    assert JobSpec.from_argument(argument) == JobSpec.from_argument(spec.to_json()) == spec
    for broken in ("base64:e30", "base64:gA==", "base64:"):
        with pytest.raises(ContractError):
            JobSpec.from_argument(broken)


def test_a_report_survives_the_wire_and_leaves_out_what_is_absent() -> None:
    report = JobReport(
        "optimize", "t", "committed", version=3, transaction=TransactionId("a", 1), metrics={"n": 1}
    )
    assert JobReport.from_json(report.to_json()) == report
    assert "error" not in report.to_dict()


def test_the_last_colon_divides_app_id_and_version() -> None:
    assert TransactionId.parse("dag:task:s3://t:12") == TransactionId("dag:task:s3://t", 12)
    assert TransactionId.parse("a:-1") == TransactionId("a", -1)


@pytest.mark.parametrize("text", ["nightly", "nightly:", ":5", "nightly:x", ""])
def test_what_is_no_transaction_id_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ContractError, match="for example nightly-optimize:20260101"):
        TransactionId.parse(text)


@pytest.mark.parametrize("make", [JobSpec.from_json, JobReport.from_json])
@pytest.mark.parametrize(
    ("text", "problem"), [("{", "cut short"), ("[]", "not a JSON object"), ("{}", "contract version None")]
)
def test_what_is_no_spec_and_no_report_is_refused(make: type[JobSpec], text: str, problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        make(text)  # type: ignore[call-arg]


def test_a_newer_contract_is_refused_and_the_one_before_is_read() -> None:
    raw = json.loads(SPEC.to_json())
    with pytest.raises(ContractError, match="Install the same release on both sides"):
        JobSpec.from_json(json.dumps({**raw, "contract_version": CONTRACT_VERSION + 1}))
    before = JobSpec.from_json(json.dumps({**raw, "contract_version": CONTRACT_VERSION - 1}))
    assert before.options == SPEC.options


def test_members_of_a_later_release_are_ignored() -> None:
    assert JobSpec.from_json(json.dumps({**json.loads(SPEC.to_json()), "colour": "blue"})) == SPEC


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ContractError, match="is not one of"):
        JobSpec("optimize", "t", "r", engine="quantum")


@pytest.mark.parametrize(
    ("kind", "code"),
    [(None, 0), ("refused", 2), ("conflict", 3), ("failed", 1), ("some later kind", 1)],
)
def test_the_exit_code_says_whose_fault_it_was(kind: str | None, code: int) -> None:
    error = None if kind is None else ErrorReport(kind=kind)
    assert JobReport("optimize", "t", "failed", error=error).exit_code == code


@pytest.mark.parametrize(
    ("make", "raw", "problem"),
    [
        (JobSpec.from_json, {"operation": 1}, "Expected `str`, got `int` - at `$.operation`"),
        (
            JobSpec.from_json,
            {"transaction": {"app_id": "a"}},
            "required field `version` - at `$.transaction`",
        ),
        (JobSpec.from_json, {"allowed_roots": {"a": []}}, "of length >= 1 - at `$.allowed_roots"),
        (JobReport.from_json, {"status": "danced"}, "is not one of committed, written"),
        (JobReport.from_json, {"metrics": {"n": "1"}}, "Expected `int`, got `str` - at `$.metrics"),
        (JobReport.from_json, {"error": {"kind": 1}}, "Expected `str`, got `int` - at `$.error.kind`"),
    ],
)
def test_a_message_names_the_member_that_is_wrong_and_what_it_must_be(
    make: Callable[[str], object], raw: dict[str, object], problem: str
) -> None:
    good = {"operation": "o", "table": "t", "run_id": "r", "status": "failed", "contract_version": 1}
    make(json.dumps(good))
    with pytest.raises(ContractError, match=re.escape(problem)):
        make(json.dumps({**good, **raw}))


@pytest.mark.parametrize(
    ("module", "libraries"),
    [
        ("contract", ("pyarrow", "numpy", "fsspec", "pyspark", "sqlglot")),
        ("job_interface", ("pyarrow", "numpy", "fsspec", "pyspark", "sqlglot", "msgspec")),
    ],
)
def test_the_contract_loads_no_heavy_library_and_the_interface_none_at_all(
    module: str, libraries: tuple[str, ...]
) -> None:
    program = f"import sys, delta_maintenance.{module}; print([m for m in {libraries} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
