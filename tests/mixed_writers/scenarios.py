"""The fleets: who writes where, beside whom.

==================  ==========================  ===================================================================
fleet               writers                     what keeps them apart
==================  ==========================  ===================================================================
``local``           delta-rs, ours              hard links
``s3``              delta-rs, ours              conditional PUT
``s3-lock``         delta-rs (with the lock),   the lock table
                    delta-spark, ours
``s3-lock-remap``   the same; ours takes over   the lock table
                    what others delete
``s3-half-lock``    delta-rs (without), ours    conditional PUT; ours takes the lock, delta-rs knows of none
==================  ==========================  ===================================================================
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from delta_log.log_path import commit_key
from delta_log.table import Table
from tests.delta_spark import delta_spark_jars
from tests.dynamodb_server import DynamoDBServer
from tests.mixed_writers.fleet import Writer, run_fleet
from tests.mixed_writers.parts import lock_log_store, locking_delta_rs
from tests.mixed_writers.reckoning import (
    Reckoning,
    read_by_delta_rs,
    read_by_delta_spark,
    read_by_us,
    reckon,
)
from tests.servers.s3 import S3Server

#: An append takes delta-rs a few milliseconds; without a pause nobody else comes in between.
_PAUSE_SECONDS = 0.2
_SCHEMA = pa.schema([("writer", pa.string()), ("id", pa.int64())])


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fleet runs; ``directory`` is empty, and the servers are there for those who need them."""

    directory: Path
    s3: Callable[[], S3Server]
    dynamodb: Callable[[], DynamoDBServer]


def local(site: Site, commits: int, seconds: float) -> Reckoning:
    table = str(site.directory / "table")
    write_deltalake(table, _SCHEMA.empty_table())
    writers = [Writer("rs", "delta-rs", table, {}, _PAUSE_SECONDS), Writer("ours", "ours", table, {})]
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {"ours": read_by_us(table, {}), "delta-rs": read_by_delta_rs(table, {})}
    return reckon(Table(table), journals, readers)


def s3(site: Site, commits: int, seconds: float) -> Reckoning:
    server = site.s3()
    table = f"s3://{server.make_bucket()}/table"
    write_deltalake(table, _SCHEMA.empty_table(), storage_options=server.delta_rs_options)
    writers = [
        Writer("rs", "delta-rs", table, server.delta_rs_options, _PAUSE_SECONDS),
        Writer("ours", "ours", table, server.storage_options),
    ]
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {
        "ours": read_by_us(table, server.storage_options),
        "delta-rs": read_by_delta_rs(table, server.delta_rs_options),
    }
    return reckon(Table(table, server.storage_options), journals, readers)


def s3_half_lock(site: Site, commits: int, seconds: float) -> Reckoning:
    server, locks = site.s3(), site.dynamodb()
    table = f"s3://{server.make_bucket()}/table"
    options = {**server.storage_options, "lock": locks.lock_options(locks.create_lock_table())}
    write_deltalake(table, _SCHEMA.empty_table(), storage_options=server.delta_rs_options)
    writers = [
        Writer("rs", "delta-rs", table, server.delta_rs_options, _PAUSE_SECONDS),
        Writer("ours", "ours", table, options),
    ]
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {
        "ours": read_by_us(table, options),
        "delta-rs": read_by_delta_rs(table, server.delta_rs_options),
    }
    return reckon(Table(table, options), journals, readers)


def s3_lock(site: Site, commits: int, seconds: float, arguments: Sequence[str] = ()) -> Reckoning:
    server, locks = site.s3(), site.dynamodb()
    # One spelling for all three: the address is the key of the lock.
    table = f"s3a://{server.make_bucket()}/table"
    lock_table = locks.create_lock_table()
    options = {**server.storage_options, "lock": locks.lock_options(lock_table)}
    delta_rs_options = {
        **server.delta_rs_options,
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": lock_table,
        "AWS_ENDPOINT_URL_DYNAMODB": locks.endpoint_url,
        "AWS_ACCESS_KEY_ID_DYNAMODB": locks.key,
        "AWS_SECRET_ACCESS_KEY_DYNAMODB": locks.secret,
    }
    store = lock_log_store(site.directory)
    spark = Writer(
        "spark",
        "delta-spark",
        table,
        {
            **server.spark_conf,
            "spark.delta.logStore.s3a.impl": store.class_name,
            "spark.tests.lock.table": lock_table,
            "spark.tests.lock.endpoint": locks.endpoint_url,
            "spark.tests.lock.region": locks.region,
            "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName": lock_table,
            "spark.io.delta.storage.S3DynamoDBLogStore.ddb.region": locks.region,
        },
        jars=(*map(str, delta_spark_jars()), *store.jars),
        environment={
            # delta-spark's own store takes its endpoint and its credentials from here.
            "AWS_ENDPOINT_URL": locks.endpoint_url,
            "AWS_ACCESS_KEY_ID": locks.key,
            "AWS_SECRET_ACCESS_KEY": locks.secret,
        },
    )
    old = {"PYTHONPATH": str(locking_delta_rs())}
    # Compacting a table over and over starves whoever deletes from it; and delta-spark, which takes seconds for a
    # commit, is not to be left alone with the others' versions.
    writers = [
        Writer("rs", "delta-rs", table, delta_rs_options, pause_seconds=4.0, environment=old),
        Writer("ours", "ours", table, options, pause_seconds=4.0, arguments=arguments),
        spark,
    ]
    _create_with_deletion_vectors(Table(table, options))
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {
        "ours": read_by_us(table, options),
        "delta-rs": read_by_delta_rs(table, server.delta_rs_options),
        "delta-spark": read_by_delta_spark(replace(spark, name="reader"), site.directory / "reader"),
    }
    result = reckon(Table(table, options), journals, readers)
    entries = locks.entries(lock_table)
    assert {entry["tablePath"] for entry in entries} == {table}
    assert [entry["fileName"] for entry in entries] == [f"{v:020d}.json" for v in range(result.versions)]
    assert {entry["complete"] for entry in entries} == {"true"}
    return result


def s3_lock_remap(site: Site, commits: int, seconds: float) -> Reckoning:
    return s3_lock(site, commits, seconds, ("--remap",))


def _create_with_deletion_vectors(table: Table) -> None:
    """Version 0, by hand: both others would enable more than deletion vectors."""
    types = {"writer": "string", "id": "long"}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]
    features = ["deletionVectors"]
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 0, "operation": "CREATE TABLE", "operationParameters": {}}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["writer"],
                "configuration": {"delta.enableDeletionVectors": "true"},
            }
        },
    ]
    body = "".join(json.dumps(action) + "\n" for action in actions)
    assert table.storage.put_if_absent(commit_key(0), body.encode())


SCENARIOS: dict[str, Callable[[Site, int, float], Reckoning]] = {
    "local": local,
    "s3": s3,
    "s3-half-lock": s3_half_lock,
    "s3-lock": s3_lock,
    "s3-lock-remap": s3_lock_remap,
}
