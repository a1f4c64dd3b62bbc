from __future__ import annotations

from typing import Any

import pytest
from tests.support.connections import hook_of

from airflow_delta.connections.fields import UnusableConnection
from airflow_delta.connections.kinds import KINDS


@pytest.mark.parametrize(
    ("conn_type", "fields", "address", "says"),
    [
        ("aws", {}, "abfss://c@a.dfs.core.windows.net/t", "is for s3:// addresses"),
        ("aws", {}, "gs://lake/t", "is for s3:// addresses"),
        ("google_cloud_platform", {}, "s3://lake/t", "is for gs:// addresses"),
        ("wasb", {"login": "a"}, "s3://lake/t", "is for abfs:// addresses"),
        ("wasb", {"login": "a"}, "abfss://c@b.dfs.core.windows.net/t", "is for the storage account a"),
        ("azure", {}, "abfss://c/t", "names a storage account"),
        ("aws", {}, "hdfs://host/t", "is in another store"),
    ],
)
def test_a_connection_for_another_store_is_refused(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, fields: dict[str, Any], address: str, says: str
) -> None:
    hook = hook_of(monkeypatch, conn_type, **fields)
    with pytest.raises(UnusableConnection, match=says) as raised:
        hook.require_allowed(address)
    assert "Nothing was started." in str(raised.value)


@pytest.mark.parametrize(
    ("conn_type", "fields", "address"),
    [
        ("aws", {}, "s3://lake/t"),
        ("aws", {}, "s3a://lake/t"),
        ("aws", {}, "/data/t"),
        ("google_cloud_platform", {}, "gcs://lake/t"),
        ("wasb", {"login": "a"}, "abfss://c@a.dfs.core.windows.net/t"),
        ("wasb", {"login": "a"}, "az://c/t"),
        ("azure", {}, "abfss://c@a.dfs.core.windows.net/t"),
        ("delta", {}, "s3://lake/t"),
    ],
)
def test_a_connection_opens_the_addresses_of_its_store(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, fields: dict[str, Any], address: str
) -> None:
    hook_of(monkeypatch, conn_type, **fields).require_allowed(address)


def test_a_type_that_is_no_store_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableConnection, match="has type 'postgres'") as raised:
        _ = hook_of(monkeypatch, "postgres").storage_options
    assert all(conn_type in str(raised.value) for conn_type in KINDS)
