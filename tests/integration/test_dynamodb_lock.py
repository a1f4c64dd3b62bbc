"""The lock table in DynamoDB Local, and commits through it on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.support.servers.dynamodb import DynamoDBServer, running_dynamodb
from tests.support.servers.s3 import S3Server

from delta_log.errors import AccessDenied, InvalidRequest, StorageError
from delta_log.storage.lock.dynamodb_lock import DynamoDBLock, LockEntry, LockOptions, LockTable
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.testing import StorageContract
from delta_log.testing.lock_table import LockTableContract

FIRST, SECOND = f"{0:020d}.json", f"{1:020d}.json"


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDBServer]:
    with running_dynamodb(tmp_path_factory.mktemp("dynamodb")) as server:
        yield server


@pytest.fixture
def lock_table(dynamodb: DynamoDBServer) -> str:
    return dynamodb.create_lock_table()


def lock_of(server: DynamoDBServer, table: str, uri: str = "s3://lake/events", **more: Any) -> DynamoDBLock:
    return DynamoDBLock(uri, LockOptions.from_mapping({**server.lock_options(table), **more}, {}))


class TestDynamoDBLock(LockTableContract):
    @pytest.fixture
    def lock(self, dynamodb: DynamoDBServer, lock_table: str) -> LockTable:
        return lock_of(dynamodb, lock_table)

    def test_tables_do_not_see_each_others_entries(
        self,
        dynamodb: DynamoDBServer,
        lock_table: str,
    ) -> None:
        events, users = (lock_of(dynamodb, lock_table, f"s3://lake/{name}/") for name in ("events", "users"))
        assert events.put_if_absent(LockEntry(SECOND, "x"))
        assert users.latest() is None
        assert [item["tablePath"] for item in dynamodb.entries(lock_table)] == ["s3://lake/events"]

    def test_an_address_that_others_spell_differently_is_refused(
        self,
        dynamodb: DynamoDBServer,
        lock_table: str,
    ) -> None:
        theirs = lock_of(dynamodb, lock_table, "s3a://lake/my table")
        ours = partial(lock_of, dynamodb, lock_table)
        theirs.put_if_absent(LockEntry(SECOND, "x"))
        for uri in ("s3://lake/my table", "s3a://lake/my%20table", "s3://lake/my%20table"):
            with pytest.raises(InvalidRequest, match="s3a://lake/my table"):
                ours(uri).require_usable()
        ours("s3a://lake/my table").require_usable()
        ours("s3://lake/other").require_usable()
        # Who says it has decided; and a spelling that the fleet has left behind does no harm.
        ours("s3://lake/my table", table_path="s3://lake/my table").require_usable()
        ours("s3://lake/my table").put_if_absent(LockEntry(f"{2:020d}.json", "x"))
        ours("s3://lake/my table").require_usable()

    def test_a_stated_address_is_the_key(
        self,
        dynamodb: DynamoDBServer,
        lock_table: str,
    ) -> None:
        lock = lock_of(dynamodb, lock_table, "s3://lake/t", table_path="s3a://lake/t/")
        lock.put_if_absent(LockEntry(FIRST, "x"))
        assert dynamodb.entries(lock_table) == [
            {"tablePath": "s3a://lake/t", "fileName": FIRST, "tempPath": "x", "complete": "false"}
        ]

    def test_a_missing_or_foreign_table_is_named(self, dynamodb: DynamoDBServer) -> None:
        with pytest.raises(InvalidRequest, match="no_such_table does not exist in us-east-1"):
            lock_of(dynamodb, "no_such_table").require_usable()
        dynamodb.client().create_table(
            TableName="foreign",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        with pytest.raises(InvalidRequest, match="hash key has to be tablePath"):
            lock_of(dynamodb, "foreign").require_usable()

    def test_a_server_that_is_gone_is_a_failing_store(self, dynamodb: DynamoDBServer) -> None:
        lock = lock_of(dynamodb, "delta_log", endpoint_url="http://127.0.0.1:1")
        with pytest.raises(StorageError, match="delta_log: query failed"):
            lock.latest()


class TestLockedS3(StorageContract):
    """The whole contract, and its race of 32 writers, through the lock on S3."""

    #: With the four keys of the race below.
    race_rounds = 3

    @pytest.fixture(params=[True, False], ids=["conditional put", "no conditional put"])
    def conditional_put(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture
    def storage(
        self,
        s3_server: S3Server,
        s3_bucket: str,
        dynamodb: DynamoDBServer,
        lock_table: str,
        conditional_put: bool,
    ) -> Storage:
        lock = {**dynamodb.lock_options(lock_table), "conditional_put": conditional_put}
        storage = open_storage(f"s3://{s3_bucket}/table", {**s3_server.storage_options, "lock": lock})
        storage.require_writable()
        return storage

    def test_of_32_racing_writers_exactly_one_commits_each_version(
        self,
        storage: Storage,
        dynamodb: DynamoDBServer,
        lock_table: str,
    ) -> None:
        keys = [f"_delta_log/{version:020d}.json" for version in range(4)]
        for key in keys:
            bodies = [bytes([65 + n]) * 50_000 for n in range(32)]
            with ThreadPoolExecutor(32) as pool:
                outcomes = list(pool.map(partial(storage.put_if_absent, key), bodies))
            assert sum(outcomes) == 1
            assert storage.read(key) == bodies[outcomes.index(True)]
        assert [info.key for info in storage.list_from("_delta_log")] == keys
        assert list(storage.list_from("_delta_log/.tmp")) == []
        entries = dynamodb.entries(lock_table)
        assert [entry["fileName"] for entry in entries] == [key.rpartition("/")[2] for key in keys]
        assert {entry["complete"] for entry in entries} == {"true"}
        assert all(int(entry["expireTime"]) > 0 for entry in entries)


def test_a_lock_is_reached_with_the_role_of_the_store(
    dynamodb: DynamoDBServer,
    lock_table: str,
    s3_server: S3Server,
    s3_bucket: str,
) -> None:
    s3_server.wait_for_roles()
    role = {
        "role_arn": "arn:aws:iam::123456789012:role/lake",
        "duration_seconds": 900,
        "sts_endpoint_url": s3_server.endpoint,
    }
    lock = {
        name: value
        for name, value in dynamodb.lock_options(lock_table).items()
        if name not in ("key", "secret")
    }
    options = {**s3_server.storage_options, "assume_role": role, "lock": lock}
    uri = f"s3://{s3_bucket}/t"
    storage = open_storage(uri, options)
    assert storage.put_if_absent(f"_delta_log/{FIRST}", b"{}")
    assert [item["tablePath"] for item in dynamodb.entries(lock_table)] == [uri]
    refused = {**options, "secret": "not the secret"}
    with pytest.raises(AccessDenied, match="cannot be assumed"):
        open_storage(uri, refused).put_if_absent(f"_delta_log/{SECOND}", b"{}")
    with pytest.raises(AccessDenied, match="cannot be assumed"):
        DynamoDBLock(uri, LockOptions.from_mapping(lock, refused)).latest()
