"""A tail on a real S3 server: what it asks, what it shares, and what it says when it may not list."""

from __future__ import annotations

import json

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.runs.tail_runs import TailedTable
from tests.support.servers.proxy import Answer, Request, only, proxied, s3_error
from tests.support.servers.s3 import S3Server

from airflow_delta.sensors import DeltaTableVersionSensor
from delta_log import Table
from delta_log.errors import AccessDenied, ListingDenied
from delta_log.storage.opening import StoragePool
from delta_log.tail.commit_follower import CommitFollower


@pytest.fixture
def table(s3_server: S3Server, s3_bucket: str) -> TailedTable:
    created = TailedTable.on_s3("events", s3_bucket, s3_server, "lake")
    created.create()
    created.append_by_delta_rs()
    return created


def test_a_quiet_poll_is_one_get(table: TailedTable, s3_server: S3Server) -> None:
    with proxied(s3_server.endpoint) as proxy:
        tail = CommitFollower.at_latest(
            Table(table.uri, {**table.storage_options, "endpoint_url": proxy.endpoint}).storage
        )
        proxy.requests.clear()
        for _ in range(5):
            assert tail.poll() == []
        assert [(request.method, request.path[-7:]) for request in proxy.requests] == [("GET", "02.json")] * 5
        table.append_by_delta_rs()
        assert [commit.version for commit in tail.poll()] == [2]


def test_a_server_that_stumbles_is_asked_again(table: TailedTable, s3_server: S3Server) -> None:
    with proxied(s3_server.endpoint) as proxy:
        options = {**table.storage_options, "endpoint_url": proxy.endpoint}
        tail = CommitFollower.at_latest(Table(table.uri, options).storage)
        proxy.rule = only(2, lambda request: True, s3_error(503, "SlowDown"))
        table.append_by_delta_rs()
        assert [commit.version for commit in tail.poll()] == [2]


def test_without_the_right_to_list_a_quiet_table_is_reported_as_the_missing_permission(
    table: TailedTable, s3_server: S3Server
) -> None:
    def as_amazon_does(request: Request) -> Answer | None:
        """Answers 403 as Amazon does; MinIO answers 404 for a missing object to a client that may read."""
        if "list-type" in request.query or request.path.endswith("02.json"):
            return s3_error(403, "AccessDenied")
        return None

    with proxied(s3_server.endpoint) as proxy:
        storage = Table(table.uri, {**table.storage_options, "endpoint_url": proxy.endpoint}).storage
        proxy.rule = as_amazon_does
        with pytest.raises(ListingDenied, match="s3:ListBucket"):
            CommitFollower(storage, 1).poll()
        proxy.rule = lambda _: None
        tail = CommitFollower(storage, 1)
        assert tail.poll() == []
        proxy.rule = as_amazon_does
        with pytest.raises(ListingDenied, match="s3:ListBucket"):
            tail.poll()


def test_the_tail_and_a_sensor_report_a_missing_right_to_list(
    table: TailedTable, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AccessDenied) as nothing:
        CommitFollower(Table(table.uri, s3_server.anonymous_options).storage, 1).poll()
    assert not isinstance(nothing.value, ListingDenied)
    s3_server.allow_anonymous(s3_bucket, "GetObject")
    with pytest.raises(ListingDenied, match="s3:ListBucket"):
        CommitFollower(Table(table.uri, s3_server.anonymous_options).storage, 1).poll()
    connection = {"conn_type": "delta", "extra": s3_server.anonymous_options}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_IN_PART", json.dumps(connection))
    sensor = DeltaTableVersionSensor(
        task_id="wait", table=table.uri, delta_conn_id="lake_in_part", baseline=1
    )
    with pytest.raises(AirflowFailException, match=r"s3:ListBucket.*\[ListingDenied\]"):
        sensor.execute({})
    s3_server.allow_anonymous(s3_bucket, "GetObject", "ListBucket")
    assert CommitFollower(Table(table.uri, s3_server.anonymous_options).storage, 1).poll() == []


def test_tables_of_one_bucket_share_a_client(table: TailedTable, s3_server: S3Server, s3_bucket: str) -> None:
    other = TailedTable.on_s3("below/other", s3_bucket, s3_server, "lake")
    other.create()
    pool = StoragePool(table.storage_options)
    first, second = pool.open(table.uri), pool.open(other.uri + "/")
    assert first._clients is second._clients  # type: ignore[attr-defined]
    assert [commit.version for commit in CommitFollower(first, -1).poll()] == [0, 1]
    assert [commit.version for commit in CommitFollower(second, -1).poll()] == [0]
    assert second.uri == other.uri
