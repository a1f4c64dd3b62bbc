from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger

from airflow_delta.triggers import (
    DeltaDeletionVectorRatioTrigger,
    DeltaTableHealthTrigger,
    DeltaTableVersionTrigger,
)

#: Airflow 3.4 has queues of watchers, 3.3 has not.
HAS_QUEUES = hasattr(BaseEventTrigger, "queue")
MAKERS: tuple[Callable[..., Any], ...] = (
    lambda **more: DeltaTableVersionTrigger("s3://lake/events", **more),
    lambda **more: DeltaTableHealthTrigger("s3://lake/events", small_files=5, **more),
    lambda **more: DeltaDeletionVectorRatioTrigger("s3://lake/events", **more),
)


@pytest.mark.parametrize("make", MAKERS)
def test_a_watcher_without_a_queue_is_for_triggerers_without_one(make: Callable[..., Any]) -> None:
    assert "queue" not in make().serialize()[1]
    assert Trigger.from_object(make()).queue is None


@pytest.mark.skipif(not HAS_QUEUES, reason="Airflow 3.3 has no queues of watchers")
@pytest.mark.parametrize("make", MAKERS)
def test_a_watcher_with_a_queue_is_another_watcher_for_triggerers_of_this_queue(
    make: Callable[..., Any],
) -> None:
    from airflow.serialization.encoders import encode_asset_like

    trigger = make(queue="lake")
    path, kwargs = trigger.serialize()
    assert type(trigger)(**json.loads(json.dumps(kwargs))).serialize() == (path, kwargs)
    assert BaseEventTrigger.hash(path, kwargs) != BaseEventTrigger.hash(*make().serialize())
    asset = Asset("x-news:events", watchers=[AssetWatcher(name="news", trigger=trigger)])
    (watcher,) = encode_asset_like(asset)["watchers"]
    assert watcher["trigger"]["queue"] == "lake"
    assert Trigger.from_object(trigger).queue == "lake"


@pytest.mark.skipif(HAS_QUEUES, reason="this Airflow has queues of watchers")
@pytest.mark.parametrize("make", MAKERS)
def test_a_queue_that_airflow_would_ignore_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="queue='lake' needs Airflow 3.4"):
        make(queue="lake")
