"""The Grafana dashboard and the alerts of the documentation: each metric that they ask for is one that tasks send."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.support import ROOT
from tests.support.fleet.nights import trusted
from tests.support.fleet.views import view_after
from tests.support.records import health_document
from tests.support.runs.metrics_backend import Recorder

from airflow_delta.monitoring.record import STATUS_NUMBERS, table_id
from airflow_delta.operators.reporting.fleet_stats import gauge_fleet
from airflow_delta.operators.reporting.stats import FIGURES, count
from airflow_delta.operators.reporting.table_stats import gauge_failure, gauge_health, gauge_report
from delta_maintenance.contract import STATUSES, JobReport

DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "delta-tables.json").read_text())
ALERTS = yaml.safe_load((ROOT / "docs" / "grafana" / "alerts.yml").read_text())
MAPPING = yaml.safe_load((ROOT / "docs" / "grafana" / "statsd-exporter.yml").read_text())
GUIDE = (ROOT / "docs" / "guides" / "metrics-and-alerts.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "results.md").read_text()
TABLE = "s3://lake/events"
#: Each resource has a budget.
PRICES = {"gib_read": 1, "gib_month": 1, "vcpu_hour": 1, "requests_1000": 1}
BUDGET = {"read": "1TiB", "worker_hours": 1, "requests": 1_000_000, "cost": 1_000}
NIGHT = view_after(1, trusted(prices=PRICES, budget=BUDGET), 5)
OPERATIONS = ("optimize", "purge", "vacuum", "checkpoint")


def panels() -> list[dict[str, Any]]:
    return list(DASHBOARD["panels"])


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]


def names_in(text: str) -> Iterator[str]:
    """The metrics that a text names; a choice in parentheses, as in a regular expression, is each of them."""
    for found in re.finditer(r"airflow_delta_(?:\w|\((?:\w+\|)*\w+\))+", text):
        parts = [part.strip("()").split("|") for part in re.split(r"(\([^)]*\))", found[0])]
        yield from map("".join, product(*parts))


@pytest.fixture
def sent(
    make_context: Callable[..., Any], send_metrics_to: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> Recorder:
    """All that tasks send, of each operation and status."""
    recorder = Recorder()
    send_metrics_to(recorder)
    context = make_context()
    gauge_health(context, health_document(TABLE, "attention"))
    gauge_failure(context, "health", TABLE)
    gauge_fleet(NIGHT, "fleet")
    metrics = {metric: 1 for names in FIGURES.values() for metric in names}
    size = {"files_after": 1, "bytes_after": 1}
    for operation, status in product(OPERATIONS, STATUSES):
        report = JobReport(
            operation,
            TABLE,
            status,
            metrics=metrics,
            table_size=size,
            dropped_bins=1,
            started_ms=1,
            finished_ms=2,
        )
        count(context, report)
        gauge_report(context, report)
    return recorder


def as_exporter_names(recorder: Recorder) -> set[str]:
    """The names that the statsd exporter makes of metrics: a timer is a summary with a sum and a count."""
    names = set()
    for kind, stat, *_ in recorder.sent:
        name = f"airflow_{stat.replace('.', '_')}"
        names |= {f"{name}_sum", f"{name}_count"} if kind == "timer" else {name}
    return names


def test_each_metric_that_the_dashboard_and_the_alerts_ask_for_is_sent(sent: Recorder) -> None:
    asked = [name for expression in expressions() for name in names_in(expression)]
    asked += names_in(json.dumps(DASHBOARD["templating"]))
    assert len(asked) > 40
    assert sorted(set(asked) - as_exporter_names(sent)) == []
    assert sorted(set(names_in(GUIDE)) - as_exporter_names(sent)) == []


def test_each_gauge_stands_in_the_dashboard_and_in_the_reference(sent: Recorder) -> None:
    gauges = {stat for kind, stat, *_ in sent.sent if kind == "gauge"}
    assert len(gauges) > 15
    shown = {name for expression in expressions() for name in names_in(expression)}
    assert {f"airflow_{name.replace('.', '_')}" for name in gauges} <= shown
    documented = {
        name.replace("<operation>", operation)
        for name in re.findall(r"`(delta\.table\.[\w<>]+)`", REFERENCE)
        for operation in ("health", *OPERATIONS)
    }
    rows = re.findall(r"^\| (`delta\.fleet\.\w+`[^|]*)", REFERENCE, re.MULTILINE)
    fleets = {
        f"delta.fleet.{name}" for row in rows for name in re.findall(r"`(?:delta\.fleet\.)?(\w+)`", row)
    }
    assert documented | fleets == gauges


def test_queries_name_each_table_once_and_keep_what_tells_tables_apart() -> None:
    for expression in expressions():
        assert expression.count("(") == expression.count(")"), expression
        if "airflow_delta_table_" in expression:
            assert "by (table, table_id)" in expression, expression
    assert set(re.findall(r"\$(\w+|\{\w+)", json.dumps(DASHBOARD))) <= {
        "table",
        "{datasource",
        "{airflow",
        "{__data",
        "__all",
    }


def test_the_dashboard_has_the_form_that_grafana_imports() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= set(DASHBOARD)
    # Grafana gives it an id of its own.
    assert "id" not in DASHBOARD
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "table", "airflow"}
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        assert panel["type"] in {"stat", "table", "timeseries"}
        assert panel["title"]
        assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)) > 0
        for holder in (panel, *panel["targets"]):
            assert holder["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_stand_beside_and_not_upon_each_other() -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in panels()]
    for title, place in places:
        assert place["w"] > 0 < place["h"], title
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24, title
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{one} / {other}"


def test_the_numbers_of_the_status_are_those_that_are_sent() -> None:
    (table,) = [panel for panel in panels() if panel["type"] == "table"]
    (status,) = [one for one in table["fieldConfig"]["overrides"] if one["matcher"]["options"] == "Status"]
    (mapping,) = [one["value"] for one in status["properties"] if one["id"] == "mappings"]
    shown = {text["text"]: int(number) for number, text in mapping[0]["options"].items()}
    assert shown == {
        "Healthy": STATUS_NUMBERS["healthy"],
        "Unsupported": STATUS_NUMBERS["unsupported"],
        "Needs attention": STATUS_NUMBERS["attention"],
        "Critical": STATUS_NUMBERS["critical"],
    }
    first_rows = {
        panel["title"]: panel["targets"][0]["expr"] for panel in panels() if panel["type"] == "stat"
    }
    for title, number in shown.items():
        assert f"== {number})" in first_rows[title]


def test_the_mapping_makes_labels_of_the_names_that_plain_statsd_gets(
    make_context: Callable[..., Any], send_metrics_to: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    recorder = Recorder()
    send_metrics_to(recorder)
    gauge_health(make_context(), health_document("s3://lake/sales.old/events"))
    rule, of_fleets = MAPPING["mappings"]
    glob = re.compile(re.escape(rule["match"]).replace(r"\*", "([^.]*)"))
    for stat in recorder.gauges():
        found = glob.fullmatch(f"airflow.{stat}")
        assert found is not None, stat
        labels = {name: found[int(place[1:])] for name, place in rule["labels"].items()}
        assert labels == {
            "table": "s3_lake_sales_old_events",
            "table_id": table_id("s3://lake/sales.old/events"),
        }
        assert rule["name"].replace("$1", found[1]) in {
            name for expression in expressions() for name in names_in(expression)
        }
    recorder.sent.clear()
    gauge_fleet(NIGHT, "fleet")
    glob = re.compile(re.escape(of_fleets["match"]).replace(r"\*", "([^.]*)"))
    for stat in recorder.gauges():
        found = glob.fullmatch(f"airflow.{stat}")
        assert found is not None, stat
        assert {name: found[int(place[1:])] for name, place in of_fleets["labels"].items()} == {
            "fleet": "fleet"
        }
