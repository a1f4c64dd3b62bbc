"""What comes out of a bin's sources: batches of bearable size, whatever the width of a row."""

from __future__ import annotations

from pathlib import Path

from tests.maintenance_runs import run
from tests.rewritable_tables import File, GeneratedTable

from delta_log import Table
from delta_maintenance.plan.optimize import OptimizeOptions, plan_optimize
from delta_maintenance.plan.tasks import tasks_of
from delta_maintenance.rewrite.live_rows import LiveRows

_WIDE = 1 << 20


def test_batches_of_wide_rows_are_short_and_none_is_lost(tmp_path: Path) -> None:
    rows = [{"text": f"{number:03}" + "x" * _WIDE} for number in range(24)]
    file = File(("text",), rows, frozenset({0, 21}), None, extra=False, has_stats=True, row_group=24)
    table = GeneratedTable(("text",), "none", False, False, (file, file))
    table.write(tmp_path)
    opened = Table(str(tmp_path))
    snapshot = opened.snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(full=True), 1)
    (task,) = tasks_of(plan, snapshot, "run", opened.uri)
    live = LiveRows(task, opened.storage, table.schema)
    batches = list(live)
    assert max(batch.nbytes for batch in batches) <= 20 * _WIDE
    found = [text[:3] for batch in batches for text in batch.column("text").to_pylist()]
    assert found == 2 * [f"{number:03}" for number in range(24) if number not in (0, 21)]
    assert (live.of_sources, live.rows_deleted) == ([24, 24], 4)
    assert run(tmp_path, full=True).status == "committed"
    assert opened.snapshot().to_arrow().num_rows == 44
