"""Run when data has arrived in a table: within a poll interval of the commit, and not for commits of maintenance."""

from __future__ import annotations

# [START consume_new_versions]
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_delta.triggers import DeltaTableVersionTrigger

TABLE = "s3://lake/events"

events = Asset(
    name="lake events",
    uri=TABLE,
    watchers=[
        AssetWatcher(name="versions", trigger=DeltaTableVersionTrigger(TABLE, poll_interval=30)),
    ],
)

with DAG("consume_new_versions", schedule=[events], catchup=False):

    @task
    def consume(triggering_asset_events: Any = None) -> list[list[int]]:
        """Go through all events and all ranges in each: they follow each other without a gap."""
        ranges = []
        for event in triggering_asset_events[events]:
            for found in event.extra["payload"]["found"]:
                print("new versions", found["firstVersion"], "to", found["lastVersion"])  # noqa: T201
                ranges.append([found["firstVersion"], found["lastVersion"]])
        return ranges

    consume()
# [END consume_new_versions]
