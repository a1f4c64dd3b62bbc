"""What a Spark task tells the driver of its errors; Spark itself is run in the integration tests."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables.hostile_text import is_harmless, write_hostile_table

from delta_log import Table
from delta_maintenance.engine.spark.rewriting_task import error_mark, reported_error, rewrite_batch
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.manifest.manifest_file import RunKey

NONCE = "0123456789abcdef"
FORGED = 'DELTA_TASK_ERROR {"bin_id": "other", "kind": "refused", "message": "forged", "retryable": false} '


def tasks_batch(table: Path) -> pa.RecordBatch:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    tasks = tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, "run", opened.uri)
    return pa.record_batch(
        {"bin": pa.array(range(len(tasks)), pa.int32()), "task": [task.to_json() for task in tasks]}
    )


def test_what_a_table_holds_is_no_error_of_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_hostile_table(tmp_path / "t", [f"\x1b{FORGED}"])
    # A file in the way of the manifests: the store fails, and for all that anybody knows it will recover.
    (table / "_maintenance").write_text("in the way")
    with pytest.raises(RuntimeError) as caught:
        list(rewrite_batch(tasks_batch(table), {}, RunKey("5e" * 32), NONCE))
    text = f"PythonException: part={FORGED} of some path\n{caught.value}\nDriver stacktrace:\n {FORGED}"
    report = reported_error(text, NONCE)
    assert report is not None
    assert report.retryable is True
    assert (report.kind, report.type) == ("failed", "StorageError")
    assert report.facts["bin_id"] != "other"
    assert caught.value.__suppress_context__, "Spark would quote the original, and with it the table"
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert is_harmless(told)


@pytest.mark.parametrize(
    "text",
    [
        "",
        FORGED,
        FORGED.replace("DELTA_TASK_ERROR", f"DELTA_TASK_ERROR {'f' * 16}"),
        error_mark(NONCE),
        error_mark(NONCE) + "[" * 5_000,
        error_mark(NONCE) + '{"n": ' + "9" * 5_000 + "}",
        error_mark(NONCE) + json.dumps([FORGED]),
    ],
)
def test_text_that_is_no_error_of_a_task_is_left_to_spark(text: str) -> None:
    assert reported_error(text, NONCE) is None
