"""The entries of the lock table, its options, and its double in memory; DynamoDB itself is in tests/integration."""

from __future__ import annotations

import pytest

from delta_log.errors import InvalidRequest
from delta_log.storage.lock.dynamodb_lock import (
    DynamoDBLock,
    LockEntry,
    LockOptions,
    LockTable,
    entry_of,
    item_of,
    other_spellings,
)
from delta_log.storage.opening import open_storage
from delta_log.testing.lock_table import LockTableContract, MemoryLockTable

FIRST, SECOND = f"{0:020d}.json", f"{1:020d}.json"


class TestMemoryLockTable(LockTableContract):
    @pytest.fixture
    def lock(self) -> LockTable:
        return MemoryLockTable()


class TestOptions:
    def test_what_the_lock_does_not_say_comes_from_the_store(self) -> None:
        store = {"key": "k", "secret": "s", "token": "t", "client_kwargs": {"region_name": "eu-central-1"}}
        assert LockOptions.from_mapping({"provider": "dynamodb"}, store) == LockOptions(
            region="eu-central-1", key="k", secret="s", token="t"
        )
        own = {"provider": "dynamodb", "table": "locks", "region": "us-west-2", "key": "a", "secret": "b"}
        assert LockOptions.from_mapping(own, store) == LockOptions(
            table="locks", region="us-west-2", key="a", secret="b"
        )
        assert LockOptions.from_mapping({"provider": "dynamodb", "profile": "p"}, store).key is None

    @pytest.mark.parametrize(
        ("lock", "message"),
        [
            ("dynamodb", "is no object"),
            ({}, "provider None is unknown"),
            ({"provider": "zookeeper"}, "provider 'zookeeper' is unknown"),
            ({"provider": "dynamodb", "tabel": "x"}, "unknown keys: 'tabel'"),
            ({"provider": "dynamodb", "table": ""}, '"table" of the lock'),
            ({"provider": "dynamodb", "region": 5}, '"region" of the lock'),
            ({"provider": "dynamodb", "conditional_put": "no"}, "neither true nor false"),
            ({"provider": "dynamodb", "key": "only"}, '"key" and "secret" together'),
        ],
    )
    def test_a_wrong_option_is_named(self, lock: object, message: str) -> None:
        with pytest.raises(InvalidRequest, match=message):
            LockOptions.from_mapping(lock, {})

    def test_no_secret_is_told(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            LockOptions.from_mapping({"provider": "dynamodb", "key": "k", "secret": ["hush"]}, {})
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize("uri", ["/data/events", "file:///data/events", "gs://lake/events"])
    def test_a_lock_is_for_s3_alone(self, uri: str) -> None:
        with pytest.raises(InvalidRequest, match="not on S3"):
            open_storage(uri, {"lock": {"provider": "dynamodb"}})

    def test_a_lock_without_a_region_says_so_when_it_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        with pytest.raises(InvalidRequest, match="no AWS region"):
            DynamoDBLock("s3://lake/t", LockOptions(key="k", secret="s")).latest()


class TestItems:
    @pytest.mark.parametrize(
        "entry", [LockEntry(FIRST, ".tmp/x"), LockEntry(SECOND, "y.tmp", True, 1795328748)]
    )
    def test_an_entry_comes_back_from_its_item(self, entry: LockEntry) -> None:
        assert entry_of(item_of("s3://lake/t", entry)) == entry

    def test_items_of_delta_rs_and_of_delta_spark_are_read(self) -> None:
        item = {"tablePath": {"S": "s3a://b/t"}, "fileName": {"S": FIRST}, "complete": {"S": "false"}}
        assert entry_of({**item, "tempPath": {"S": "_commit_1.json.tmp"}}) == LockEntry(
            FIRST, "_commit_1.json.tmp"
        )
        done = {
            **item,
            "tempPath": {"S": f".tmp/{FIRST}.1"},
            "complete": {"S": "true"},
            "expireTime": {"N": "9"},
        }
        assert entry_of(done) == LockEntry(FIRST, f".tmp/{FIRST}.1", True, 9)

    @pytest.mark.parametrize("spoiled", ["fileName", "tempPath", "complete"])
    def test_an_item_that_is_no_entry_is_refused(self, spoiled: str) -> None:
        item = item_of("s3://lake/t", LockEntry(FIRST, "x"))
        for bad in ({k: v for k, v in item.items() if k != spoiled}, {**item, spoiled: {"N": "1"}}):
            with pytest.raises(InvalidRequest, match="no entry of a Delta commit"):
                entry_of(bad)


def test_other_spellings_differ_in_scheme_and_in_encoding() -> None:
    assert other_spellings("s3://lake/t") == ["s3a://lake/t"]
    assert set(other_spellings("s3a://lake/a b")) == {"s3a://lake/a%20b", "s3://lake/a b", "s3://lake/a%20b"}
    assert set(other_spellings("s3://lake/a%20b")) == {"s3://lake/a b", "s3a://lake/a%20b", "s3a://lake/a b"}
