from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_maintenance.optimize.forecast.layout_advice import LayoutAdvice, advised_layout
from delta_maintenance.optimize.options import OptimizeOptions

MIB = 1 << 20
#: Names as in the log: one path with a dot in a name.
COLUMNS = ("at", "user", "item", "odd.name", "flag", "text")


def table(path: Path, files: int = 64) -> Path:
    """Files in which every value of each column may be, but for the time, which grows from file to file."""
    adds = []
    rng = np.random.default_rng(1)
    for number in range(files):
        low: dict[str, Any] = {"at": 1000 * number, "text": "a"}
        low |= {name: int(rng.integers(0, 50)) for name in COLUMNS[1:4]}
        high = {"at": 1000 * number + 999, "text": "z"} | {name: 10_000 - low[name] for name in COLUMNS[1:4]}
        stats = {"numRecords": 1000, "minValues": low, "maxValues": high}
        adds.append(add(f"{number}.parquet", 10 * MIB, {"p": "x"}, stats=json.dumps(stats)))
    kinds = dict.fromkeys(COLUMNS[:4], "long") | {"flag": "boolean", "text": "string", "bare": "long"}
    write_log(
        path,
        adds,
        partition_by={"p": "string"},
        columns=kinds,
        properties={"delta.dataSkippingNumIndexedCols": "6"},
    )
    return path


def advice(
    path: Path, *queries: dict[str, bool] | list[dict[str, bool]], **options: Any
) -> LayoutAdvice | None:
    snapshot = Table(str(path)).snapshot()
    asked = [query if isinstance(query, list) else [query] for query in queries]
    return advised_layout(snapshot, asked, OptimizeOptions(target_size_bytes=10 * MIB, **options), 0)


def chosen(found: LayoutAdvice | None) -> tuple[str | None, set[str]]:
    assert found is not None
    return found.options.sorts, set(found.options.by or ())


def test_the_columns_of_the_queries_are_chosen_and_no_others(tmp_path: Path) -> None:
    found = advice(table(tmp_path), {"user": False}, {"item": False})
    assert chosen(found) == ("kd", {"user", "item"})
    assert found is not None
    assert found.now < 0.1
    assert found.after > 0.8
    assert found.plan.num_outputs == 64


def test_one_column_is_sorted_by(tmp_path: Path) -> None:
    found = advice(table(tmp_path), {"`odd.name`": True})
    assert chosen(found) == ("zorder", {"`odd.name`"})
    assert found is not None
    assert found.plan.layout is not None
    assert found.plan.layout.layout.columns == (("odd.name",),)


def test_a_column_whose_values_grow_gains_little_where_it_is_asked_for_alone(tmp_path: Path) -> None:
    found = advice(table(tmp_path), {"at": False})
    assert found is None or found.gain < 0.05


def test_a_column_that_is_asked_for_with_another_one_may_be_left_out(tmp_path: Path) -> None:
    found = advice(table(tmp_path), {"user": False, "at": True})
    assert chosen(found)[1] >= {"user"}
    assert found is not None
    assert found.after > found.now


def test_a_query_reads_what_any_of_its_filters_reads(tmp_path: Path) -> None:
    path = table(tmp_path)
    both = advice(path, {"user": False, "item": False})
    one = advice(path, {"user": False})
    either = advice(path, [{"user": False}, {"item": False}])
    assert both is not None
    assert one is not None
    assert either is not None
    assert either.after < one.after <= both.after
    # A filter without columns reads everything, so no layout helps.
    assert advice(path, [{"user": False}, {}]) is None


def test_columns_that_no_layout_can_use_are_named_with_the_reason(tmp_path: Path) -> None:
    path = table(tmp_path)
    found = advice(path, {"user": False, "p": False}, {"bare": False}, {"text": True, "flag": False})
    assert found is not None
    assert set(found.unusable) == {"p", "bare"}
    assert "partitioned by p" in found.unusable["p"]
    assert "keeps no statistics of bare" in found.unusable["bare"]
    assert chosen(found)[1] == {"user", "text"}
    with pytest.raises(InvalidRequest, match="No column of the queries can be used.*no column nothing"):
        advice(path, {"nothing": False})


def test_what_the_run_does_not_take_gains_nothing(tmp_path: Path) -> None:
    path = table(tmp_path)
    whole = advice(path, {"user": False})
    part = advice(path, {"user": False}, where="p = 'y'")
    assert whole is not None
    assert part is None
