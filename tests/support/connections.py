"""Airflow's own connections, as the readers of them get them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_delta.connections.fields import ConnectionFields
from airflow_delta.connections.kinds import kind_of
from airflow_delta.hooks.delta_table import DeltaTableHook


def connection(conn_type: str, extra: Mapping[str, Any] | None = None, **fields: Any) -> Connection:
    return Connection(
        conn_id="lake", conn_type=conn_type, extra=None if extra is None else json.dumps(extra), **fields
    )


def options_of(conn_type: str, extra: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The storage options of a connection with these fields."""
    read = ConnectionFields.of("lake", connection(conn_type, extra, **fields))
    return kind_of(read).storage_options(read)


def hook_of(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, extra: Mapping[str, Any] | None = None, **fields: Any
) -> DeltaTableHook:
    """A hook with a connection that Airflow finds in its environment."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": conn_type, "extra": dict(extra or {}), **fields})
    )
    return DeltaTableHook("lake")
