"""The example DAG that drops a table feature: the protocol is lower afterwards, and the rows are the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted

from delta_log import Table
from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

DAG_ID = "drop_feature"


def test_the_feature_is_gone(airflow: LiveAirflow, tmp_path: Path) -> None:
    table = tmp_path / "events"
    write_deltalake(str(table), pa.table({"id": range(10)}))
    enable_deletion_vectors(table)
    mark_deleted(table, {keys(table)[0]: [0]})
    airflow.wait_for_dag(DAG_ID)
    run_id = airflow.trigger(DAG_ID, conf={"table": str(table)})
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    snapshot = Table(str(table)).snapshot()
    assert (snapshot.protocol.minReaderVersion, snapshot.num_deletion_vectors) == (1, 0)
    assert sorted(snapshot.to_arrow()["id"].to_pylist()) == list(range(1, 10))
