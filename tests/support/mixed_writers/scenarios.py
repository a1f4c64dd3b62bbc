"""The fleets: which writers share a table where, and which bins our compactions may lose.

==================  ==============================  =============================================  ====================
fleet               writers                         what keeps them apart                          may be lost
==================  ==============================  =============================================  ====================
``local``           delta-rs appends, ours          hard links                                     none
``local-rewrites``  besides, delta-rs deletes,      hard links                                     those of rows that
                    updates, merges by rewriting                                                   delta-rs changes
``local-vectors``   delta-rs appends, delta-spark   hard links                                     those of rows that
                    changes rows by vectors, ours                                                  delta-spark changes
``local-remap``     the same; ours takes over       hard links                                     none
                    what others delete
``s3``              delta-rs appends, ours          conditional PUT                                none
``s3-half-lock``    the same                        conditional PUT; ours takes the lock,          none
                                                    delta-rs knows of none
``s3-lock``         delta-rs (with the lock)        the lock table                                 those of rows that
                    appends, delta-spark, ours                                                     delta-spark changes
``s3-lock-remap``   the same; ours takes over       the lock table                                 none
                    what others delete
==================  ==============================  =============================================  ====================
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from delta_log.log.file_names import commit_key
from delta_log.table import Table
from tests.support.environment.delta_spark import delta_spark_jars
from tests.support.mixed_writers.fleet import Writer, run_fleet
from tests.support.mixed_writers.parts import link_log_store, lock_log_store, locking_delta_rs
from tests.support.mixed_writers.verdict import (
    Verdict,
    judge,
    read_by_delta_rs,
    read_by_delta_spark,
    read_by_us,
)
from tests.support.servers.dynamodb import DynamoDBServer
from tests.support.servers.s3 import S3Server

#: An append takes delta-rs a few milliseconds; without a pause no other writer can commit in between.
_PAUSE_SECONDS = 0.2
#: delta-spark takes seconds for a commit. Longer pauses keep the number of versions small that it has to read.
_PAUSE_BESIDE_DELTA_SPARK_SECONDS = 12.0
_SCHEMA = pa.schema([("writer", pa.string()), ("id", pa.int64())])


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fleet runs: an empty directory, and functions that start a server for the fleets that need it."""

    directory: Path
    s3: Callable[[], S3Server]
    dynamodb: Callable[[], DynamoDBServer]


def local(site: Site, commits: int, seconds: float) -> Verdict:
    table = str(site.directory / "table")
    write_deltalake(table, _SCHEMA.empty_table())
    writers = [Writer("rs", "delta-rs", table, {}, _PAUSE_SECONDS), Writer("ours", "ours", table, {})]
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {"ours": read_by_us(table, {}), "delta-rs": read_by_delta_rs(table, {})}
    return judge(Table(table), journals, readers).require()


def local_rewrites(site: Site, commits: int, seconds: float) -> Verdict:
    table = str(site.directory / "table")
    write_deltalake(table, _SCHEMA.empty_table(), partition_by=["writer"])
    writers = [
        Writer("rs", "delta-rs", table, {}, 2 * _PAUSE_SECONDS),
        Writer("changes", "delta-rs-changes", table, {}, 2 * _PAUSE_SECONDS),
        # Writers that rewrite files starve beside one that never pauses.
        Writer("ours", "ours", table, {}, 2 * _PAUSE_SECONDS),
    ]
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {"ours": read_by_us(table, {}), "delta-rs": read_by_delta_rs(table, {})}
    return judge(Table(table), journals, readers).require(may_lose=["changes"])


def local_vectors(site: Site, commits: int, seconds: float, *, remap: bool = False) -> Verdict:
    table = str(site.directory / "table")
    store = link_log_store(site.directory)
    spark = Writer(
        "spark",
        "delta-spark",
        table,
        {"spark.delta.logStore.file.impl": store.class_name},
        jars=(*map(str, delta_spark_jars()), *store.jars),
    )
    writers = [
        Writer("rs", "delta-rs", table, {}, _PAUSE_BESIDE_DELTA_SPARK_SECONDS),
        _compacting_beside_delta_spark(table, {}, remap),
        spark,
    ]
    create_with_deletion_vectors(Table(table))
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {
        "ours": read_by_us(table, {}),
        "delta-rs": read_by_delta_rs(table, {}),
        "delta-spark": read_by_delta_spark(replace(spark, name="reader"), site.directory / "reader"),
    }
    return _with_or_without(judge(Table(table), journals, readers), remap)


def local_remap(site: Site, commits: int, seconds: float) -> Verdict:
    return local_vectors(site, commits, seconds, remap=True)


def _compacting_beside_delta_spark(table: str, options: Mapping[str, Any], remap: bool) -> Writer:
    """Returns a writer that pauses, since constant compaction starves a writer that deletes."""
    return Writer(
        "ours",
        "ours",
        table,
        options,
        pause_seconds=4.0,
        compaction={"remap": remap},
        waits_for="deletion" if remap else "commits",
        # On a busy machine a deletion takes delta-spark much longer than usual; the wait ends when it comes.
        waits_seconds=60.0 if remap else 10.0,
    )


def _with_or_without(result: Verdict, remap: bool) -> Verdict:
    return result.require(may_lose=[] if remap else ["spark"], remaps=remap)


def s3(site: Site, commits: int, seconds: float) -> Verdict:
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
    return judge(Table(table, server.storage_options), journals, readers).require()


def s3_half_lock(site: Site, commits: int, seconds: float) -> Verdict:
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
    return judge(Table(table, options), journals, readers).require()


def s3_lock(site: Site, commits: int, seconds: float, *, remap: bool = False) -> Verdict:
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
            # delta-spark's own log store reads endpoint and credentials from the environment.
            "AWS_ENDPOINT_URL": locks.endpoint_url,
            "AWS_ACCESS_KEY_ID": locks.key,
            "AWS_SECRET_ACCESS_KEY": locks.secret,
        },
    )
    old = {"PYTHONPATH": str(locking_delta_rs())}
    writers = [
        Writer(
            "rs",
            "delta-rs",
            table,
            delta_rs_options,
            _PAUSE_BESIDE_DELTA_SPARK_SECONDS,
            environment=old,
        ),
        _compacting_beside_delta_spark(table, options, remap),
        spark,
    ]
    create_with_deletion_vectors(Table(table, options))
    journals = run_fleet(writers, commits, site.directory / "fleet", seconds)
    readers = {
        "ours": read_by_us(table, options),
        "delta-rs": read_by_delta_rs(table, server.delta_rs_options),
        "delta-spark": read_by_delta_spark(replace(spark, name="reader"), site.directory / "reader"),
    }
    result = judge(Table(table, options), journals, readers)
    entries = locks.entries(lock_table)
    assert {entry["tablePath"] for entry in entries} == {table}
    assert [entry["fileName"] for entry in entries] == [f"{v:020d}.json" for v in range(result.versions)]
    assert {entry["complete"] for entry in entries} == {"true"}
    return _with_or_without(result, remap)


def s3_lock_remap(site: Site, commits: int, seconds: float) -> Verdict:
    return s3_lock(site, commits, seconds, remap=True)


def create_with_deletion_vectors(
    table: Table,
    schema: pa.Schema = _SCHEMA,
    partition_by: Sequence[str] = ("writer",),
    adds: Sequence[dict[str, Any]] = (),
) -> None:
    """Writes version 0 by hand: delta-rs and delta-spark would enable more than deletion vectors.

    :param schema: of columns of texts and of 64-bit integers.
    :param adds: the files of the version.
    """
    fields = [
        {
            "name": f.name,
            "type": "long" if f.type == pa.int64() else "string",
            "nullable": True,
            "metadata": {},
        }
        for f in schema
    ]
    features = ["deletionVectors"]
    info = {"timestamp": int(1000 * time.time()), "operation": "CREATE TABLE", "operationParameters": {}}
    actions: list[dict[str, Any]] = [
        {"commitInfo": info},
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
                "partitionColumns": list(partition_by),
                "configuration": {"delta.enableDeletionVectors": "true"},
            }
        },
        *({"add": add} for add in adds),
    ]
    body = "".join(json.dumps(action) + "\n" for action in actions)
    assert table.storage.put_if_absent(commit_key(0), body.encode())


SCENARIOS: dict[str, Callable[[Site, int, float], Verdict]] = {
    "local": local,
    "local-rewrites": local_rewrites,
    "local-vectors": local_vectors,
    "local-remap": local_remap,
    "s3": s3,
    "s3-half-lock": s3_half_lock,
    "s3-lock": s3_lock,
    "s3-lock-remap": s3_lock_remap,
}
