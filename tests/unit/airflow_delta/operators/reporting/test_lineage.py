"""What the real OpenLineage provider gets from an operator."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client.serde import Serde

from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.operators.reporting.lineage import dataset_name
from delta_maintenance.contract import JobReport

TABLE = "s3a://lake/sales/events/"
DATASET = ("s3://lake", "sales/events")
COMMITTED = JobReport(
    "optimize",
    TABLE,
    "committed",
    version=8,
    read_version=7,
    metrics={"numAddedFiles": 2, "numAddedBytes": 900, "numOutputRows": 50},
    columns=["day", "id"],
)


def extracted(report: JobReport | None, moment: str = "complete") -> dict[str, list[dict[str, Any]]]:
    """The datasets of an event, as they go over the wire."""
    operator = DeltaOptimizeOperator(task_id="optimize", table=TABLE)
    operator.report = report
    extractor = DefaultExtractor(operator)
    if moment == "start":
        found = extractor.extract()
    else:
        found = getattr(extractor, f"extract_on_{moment}")(SimpleNamespace())
    assert found is not None
    return {
        "inputs": [json.loads(Serde.to_json(dataset)) for dataset in found.inputs],
        "outputs": [json.loads(Serde.to_json(dataset)) for dataset in found.outputs],
    }


def named(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("s3://lake/sales/events", DATASET),
        ("/data/events/", ("file", "/data/events")),
        ("file:///data/events", ("file", "/data/events")),
        ("gs://lake/events", ("gs://lake", "events")),
        ("s3://lake", ("s3://lake", "/")),
    ],
)
def test_a_table_is_named_by_the_rules_of_openlineage(table: str, expected: tuple[str, str]) -> None:
    assert dataset_name(table) == expected


def test_a_table_is_input_and_output_of_its_maintenance() -> None:
    found = extracted(None, "start")
    assert named(found["inputs"]) == named(found["outputs"]) == [DATASET]


def test_a_commit_tells_versions_figures_and_that_each_column_is_itself() -> None:
    found = extracted(COMMITTED)
    (read,), (written,) = found["inputs"], found["outputs"]
    assert read["facets"]["version"]["datasetVersion"] == "7"
    assert written["facets"]["version"]["datasetVersion"] == "8"
    statistics = written["outputFacets"]["outputStatistics"]
    assert {name: statistics[name] for name in ("rowCount", "size", "fileCount")} == {
        "rowCount": 50,
        "size": 900,
        "fileCount": 2,
    }
    columns = written["facets"]["columnLineage"]["fields"]
    assert set(columns) == {"day", "id"}
    (source,) = columns["id"]["inputFields"]
    assert (source["namespace"], source["name"], source["field"]) == (*DATASET, "id")
    assert [(one["type"], one["subtype"]) for one in source["transformations"]] == [("DIRECT", "IDENTITY")]


@pytest.mark.parametrize("status", ["nothing_to_do", "planned"])
def test_what_writes_nothing_has_no_output(status: str) -> None:
    found = extracted(JobReport("optimize", TABLE, status, read_version=7))
    assert (named(found["inputs"]), found["outputs"]) == ([DATASET], [])


def test_a_failure_without_a_report_still_names_the_table() -> None:
    assert named(extracted(None, "failure")["outputs"]) == [DATASET]
