"""What ``health`` says of layouts: for the queries that it is given, and of clustered tables."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_log.runtime import Runtime
from delta_maintenance.cli.main import main
from delta_maintenance.health.document import health_of
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.text.health import render_health

FILES = 8
LIMITS: dict[str, Any] = {"target_size_bytes": 20_000, "min_file_size_bytes": 0, "small_files": 99}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    for number in range(FILES):
        rows = {
            "day": np.full(2000, number),
            "user": rng.integers(0, 1 << 40, 2000),
            "item": rng.integers(0, 1 << 40, 2000),
        }
        write_deltalake(str(tmp_path / "t"), pa.table(rows), mode="append")
    return tmp_path / "t"


def clustered(table: Path, columns: list[str]) -> None:
    """As ``ALTER TABLE … CLUSTER BY`` does it."""
    by = json.dumps({"clusteringColumns": [[name] for name in columns]})
    domain = {"domain": "delta.clustering", "configuration": by, "removed": False}
    features = ["clustering", "domainMetadata", "appendOnly", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    version = Table(str(table)).snapshot().version + 1
    actions = [{"commitInfo": {}}, {"protocol": protocol}, {"domainMetadata": domain}]
    log = table / "_delta_log" / f"{version:020}.json"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def health(table: Path, **options: Any) -> dict[str, Any]:
    return health_of(Table(str(table)), str(table), HealthOptions(**LIMITS, **options), Runtime())


def test_the_command_that_is_recommended_for_queries_cures_what_it_was_recommended_for(table: Path) -> None:
    queries = ("user = 7 AND day >= 3; item = 5", "user = 8")
    document = health(table, queries=queries)
    assert [finding["code"] for finding in document["findings"]] == ["poor_layout"]
    (advice,) = document["recommendations"]
    assert advice["arguments"]["layout"] == "kd"
    assert set(advice["arguments"]["by"]) >= {"user", "item"}
    layout = document["facts"]["layout"]
    assert layout["skippedAfter"] > layout["skippedNow"] + 0.2
    assert f"queries skip {layout['skippedNow']:.0%} of the table" in render_health(document)
    words = shlex.split(advice["command"])
    assert main([*words[1:], "--json"]) == 0
    again = health(table, queries=queries)
    assert again["recommendations"] == []


def test_queries_for_which_the_files_are_good_already_lead_to_nothing(table: Path) -> None:
    document = health(table, queries=("day = 4",))
    assert document["status"] == "healthy"
    # The threshold is an option.
    assert health(table, queries=("user = 4",), layout_gain=0.99)["status"] == "healthy"


def test_a_clustered_table_is_judged_by_its_columns_and_without_queries(table: Path) -> None:
    assert health(table)["facts"]["layout"] is None
    clustered(table, ["user", "item"])
    document = health(table)
    assert document["facts"]["layout"]["kind"] == "clustering"
    (advice,) = document["recommendations"]
    assert (advice["operation"], advice["findings"]) == ("optimize", ["poor_layout"])
    assert "--layout" not in advice["command"]
    words = shlex.split(advice["command"])
    assert main([*words[1:], "--json"]) == 0
    assert health(table)["facts"]["layout"] is None
    # It is clustered by columns that this query does not ask for, and no layout but the clustering is recommended.
    assert health(table, queries=("day = 3",))["recommendations"] == []


@pytest.mark.parametrize(
    ("queries", "words"),
    [("gone = 1", "no column gone"), ("user =", "not SQL predicates"), ("user", "compare a column")],
)
def test_queries_that_cannot_be_used_are_refused(queries: str, words: str, table: Path) -> None:
    with pytest.raises(InvalidRequest, match=words):
        health(table, queries=(queries,))
