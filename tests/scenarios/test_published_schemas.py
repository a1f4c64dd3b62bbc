from __future__ import annotations

import json
import random
import sys
from typing import Any

import jsonschema
import pytest
from tests.support import ROOT
from tests.support.runs.mutated_reports import broken_texts
from tests.support.schemas import published_schema

from delta_maintenance.contract import ErrorReport, JobReport, JobSpec, TransactionId
from delta_maintenance.contract_json import whole_object
from delta_maintenance.job_interface import ContractError

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from published_schemas import published_schemas

TEXTS = published_schemas()
REPORT, SPEC = published_schema("job-report"), published_schema("job-spec")
FULL_REPORT = JobReport(
    "optimize",
    "/t",
    "failed",
    run_id="r",
    location="/t",
    version=3,
    read_version=2,
    engine="spark",
    engine_reason="asked for",
    transaction=TransactionId("a", 1),
    metrics={"numAddedFiles": 1},
    plan={"bins": 1},
    dropped_bins=1,
    dropped=[{"bin": "b"}],
    commit_wait={"waited_ms": 1, "requests": 2, "commits_seen": 1, "moments": [{"decision": "behind"}]},
    broken=[{"type": "CorruptFile"}],
    num_batches=2,
    left={"bins": 1},
    foreign={"files": 1},
    selection={"files": 3},
    earlier_tries={"bins": 1},
    table_size={"files_before": 3},
    reading={"status": "healthy"},
    partitions=[{"partition": {"day": "1"}, "files_before": 3}],
    requests=5,
    phases={"plan_ms": 1},
    skipping=[{"column": "id", "before": 0.1}],
    rewrite={"session_id": "s"},
    columns=["id"],
    spark={"application_id": None, "ui_url": "http://h:4040", "version": "4.2"},
    started_ms=1,
    finished_ms=2,
    error=ErrorReport("CorruptLog", "m", "refused", retryable=False, facts={"path": "a"}),
)


@pytest.mark.parametrize("name", TEXTS)
def test_the_published_file_is_what_the_contract_says(name: str) -> None:
    file = ROOT / "docs" / "reference" / name
    assert file.read_text(encoding="utf-8") == TEXTS[name], (
        f"docs/reference/{name} is out of date. Run ./dev lint --fix."
    )


@pytest.mark.parametrize("schema", [REPORT, SPEC], ids=["report", "spec"])
def test_a_schema_is_valid_and_describes_every_member(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    # These say what they are by their names and by the member that they go with.
    plain = {"engine_reason", "dropped", "broken", "metrics", "finished_ms", "dry_run", "engine"}
    described = {name for name, member in schema["properties"].items() if member.get("description")}
    assert set(schema["properties"]) - described <= plain


def test_every_member_of_a_report_and_a_spec_passes() -> None:
    absent = {name for name, value in FULL_REPORT.to_dict().items() if value is None}
    assert set(FULL_REPORT.to_dict()) == set(REPORT["properties"])
    assert absent == set()
    jsonschema.validate(json.loads(FULL_REPORT.to_json()), REPORT)
    spec = JobSpec("optimize", "/t", "r", {"full": True}, allowed_roots={"a": ["/t"]}, tags={"a": "b"})
    jsonschema.validate(json.loads(spec.to_json()), SPEC)


def test_the_schema_refuses_what_the_reader_refuses_and_nothing_else() -> None:
    """But for JSON that the reader refuses as such, and for a whole number that is spelled as a fraction."""
    rng = random.Random(7)
    validator = jsonschema.Draft202012Validator(REPORT)
    outcomes = {True: 0, False: 0}
    for text in broken_texts(FULL_REPORT.to_json(), 600, rng):
        try:
            raw = whole_object("job report", text)
        except ContractError:
            continue
        reads = _reads(text)
        assert ".0" in text or validator.is_valid(raw) == reads, text
        outcomes[reads] += 1
    assert min(outcomes.values()) > 30, outcomes


def _reads(text: str) -> bool:
    try:
        JobReport.from_json(text)
    except ContractError:
        return False
    return True
