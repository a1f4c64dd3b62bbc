"""The policies of the documentation: each operation works with exactly its policy on a real S3 server, and with no action less."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT
from tests.support.runs.maintenance_runs import enable_deletion_vectors, mark_deleted
from tests.support.servers.azure import AzureServer
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.errors import AccessDenied
from delta_log.runtime import Runtime
from delta_log.storage.opening import open_storage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.health.document import health_of
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "operations" / "least-rights.md"
DAY_MS = 86_400_000
_POLICY = re.compile(r"^### (.*)\n(?:(?!^#).*\n)*?```json\n((?:.*\n)*?)```", re.MULTILINE)
Statements = list[dict[str, Any]]


def documented() -> dict[str, Statements]:
    """The statements of each operation's policy on S3, as the page shows them."""
    of_s3 = PAGE.read_text(encoding="utf-8").partition("\n## S3\n")[2].partition("\n## ")[0]
    found = {}
    for heading, policy in _POLICY.findall(of_s3):
        for operation in re.findall(r"`([a-z-]+)`", heading):
            found[operation] = json.loads(policy)["Statement"]
    return found


POLICIES = documented()


def one_action_less(statements: Statements) -> Iterator[tuple[str, Statements]]:
    for number, statement in enumerate(statements):
        for action in statement["Action"]:
            left = deepcopy(statements)
            left[number]["Action"].remove(action)
            yield action, [statement for statement in left if statement["Action"]]


CASES = [
    pytest.param(operation, action, statements, id=f"{operation} without {action}")
    for operation, policy in POLICIES.items()
    for action, statements in one_action_less(policy)
]
#: Further options, so that there is something to do.
OPTIONS: dict[str, dict[str, Any]] = {"vacuum": {"retain_hours": 0, "retention_check": False}}


#: What a refused operation leaves, by the action that it lacked: the commits with which a vacuum begins and ends, the probe of the store's
#: clock, and files that are back in their places and also still in the quarantine. None of it changes what a reader sees.
LEFT = {
    ("vacuum", "s3:DeleteObject"): r"_delta_log/\d{20}\.(json|crc)$",
    ("cleanup-log", "s3:DeleteObject"): r"_delta_log/\.clock\.",
    ("restore-quarantine", "s3:DeleteObject"): r"day=.*\.parquet$",
}


def test_every_operation_has_a_policy() -> None:
    assert set(POLICIES) == {
        *("inspect", "history", "health", "optimize", "purge"),
        *("checkpoint", "compact-log", "vacuum", "restore-quarantine", "cleanup-log"),
    }


def documented_letters() -> list[tuple[str, str]]:
    """Operations and the letters of the SAS tokens that the page gives them."""
    of_azure = PAGE.read_text(encoding="utf-8").partition("\n## Azure\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|.*\| `([a-z]+)` \|$", of_azure, re.MULTILINE)
    return [
        (operation, letters) for names, letters in rows for operation in re.findall(r"`([a-z-]+)`", names)
    ]


def write_timed(path: Path) -> None:
    """Write a log whose first commits are older than its retention, by their own times."""
    log, now_ms = path / "_delta_log", int(time.time() * 1000)
    log.mkdir(parents=True)
    features = ["inCommitTimestamp"]
    properties = {"delta.enableInCommitTimestamps": "true", "delta.logRetentionDuration": "interval 2 days"}
    schema = {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": "least-rights",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": properties,
            }
        },
    ]
    for version in range(6):
        when = now_ms - (60 - 10 * version) * DAY_MS
        info = {"commitInfo": {"timestamp": when, "inCommitTimestamp": when, "operation": "WRITE"}}
        transaction = {"txn": {"appId": "tests", "version": version}}
        actions = [info, *(first if not version else []), transaction]
        lines = "".join(f"{json.dumps(action)}\n" for action in actions)
        (log / f"{version:020d}.json").write_text(lines)


def work(operation: str, table: str, options: dict[str, Any]) -> JobReport | None:
    """Carry out an operation. A reading one returns ``None``, or raises."""
    if operation not in ("inspect", "history", "health"):
        more = OPTIONS.get(operation, {})
        spec = JobSpec(operation, table, "run", more, engine="local")
        return run_job(spec, JobSite(storage_options=options), SilentProgress())
    opened = Table(table, options)
    if operation == "history":
        opened.history()
    elif operation == "inspect":
        assert opened.snapshot().num_files
    else:
        health_of(opened, table, HealthOptions(), Runtime())
    return None


@pytest.fixture
def table(request: pytest.FixtureRequest, s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> str:
    """The address of a table on which the test's operation has something to do."""
    operation: str = request.node.callspec.params["operation"]
    if operation == "cleanup-log":
        write_timed(tmp_path / "t")
    else:
        write_days(tmp_path / "t", files=12)
    if operation == "purge":
        enable_deletion_vectors(tmp_path / "t")
        files = Table(str(tmp_path / "t")).snapshot().files(["key"]).column("key").to_pylist()
        mark_deleted(tmp_path / "t", {files[0]: [1, 2]})
    s3_server.put_tree(tmp_path / "t", f"{s3_bucket}/events")
    address = f"s3://{s3_bucket}/events"
    site = JobSite(storage_options=s3_server.storage_options)
    before: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "vacuum": [("optimize", {})],
        "restore-quarantine": [("optimize", {}), ("vacuum", {**OPTIONS["vacuum"], "quarantine": True})],
        "cleanup-log": [("checkpoint", {})],
    }
    for name, options in before.get(operation, []):
        report = run_job(
            JobSpec(name, address, f"before-{name}", options, engine="local"), site, SilentProgress()
        )
        assert report.error is None, report.error
    return address


def keys(server: S3Server, table: str) -> set[str]:
    return {key.partition("/events/")[2] for key in server.keys(table.removeprefix("s3://") + "/")}


def live_files(server: S3Server, table: str) -> set[str]:
    snapshot = Table(table, server.storage_options).snapshot()
    return set(snapshot.files(["key"]).column("key").to_pylist())


def visible(found: set[str]) -> set[str]:
    """The keys without those that readers and VACUUM do not see."""
    return {key for key in found if not key.startswith("_maintenance/")}


def allowed(server: S3Server, table: str, statements: Statements) -> dict[str, Any]:
    """Storage options of a session that may do exactly this on the table."""
    bucket = table.split("/")[2]
    text = json.dumps(statements).replace("arn:aws:s3:::lake", f"arn:aws:s3:::{bucket}")
    return server.options_of(server.session(*json.loads(text)))


@pytest.mark.parametrize("operation", sorted(POLICIES))
def test_an_operation_works_with_exactly_its_policy(s3_server: S3Server, table: str, operation: str) -> None:
    before = keys(s3_server, table)
    report = work(operation, table, allowed(s3_server, table, POLICIES[operation]))
    if report is not None:
        assert report.error is None, report.error
        assert report.status in ("committed", "written", "cleaned", "restored")
        assert keys(s3_server, table) != before


@pytest.mark.parametrize(("operation", "action", "statements"), CASES)
def test_an_operation_with_one_action_less_is_refused_and_leaves_the_table_as_it_was(
    s3_server: S3Server, table: str, operation: str, action: str, statements: Statements
) -> None:
    options = allowed(s3_server, table, statements)
    before, live = keys(s3_server, table), live_files(s3_server, table)
    try:
        report = work(operation, table, options)
    except AccessDenied as error:
        message, retryable = str(error), error.retryable
    else:
        assert report is not None, "it may read all the same"
        assert report.error is not None, "it works all the same"
        message, retryable = report.error.message, report.error.retryable
    assert f"{action} on arn:aws:s3:::" in message
    assert "a session token" in message
    assert not retryable
    found = keys(s3_server, table)
    assert visible(found) >= visible(before), "nothing is gone"
    left = re.compile(LEFT.get((operation, action), "nothing"))
    assert [key for key in visible(found) - visible(before) if not left.match(key)] == []
    assert live_files(s3_server, table) == live


def on_azure(server: AzureServer, container: str, letters: str) -> dict[str, Any]:
    token = server.sas_token(container, letters)
    string = f"BlobEndpoint={server.endpoint}/{server.account};SharedAccessSignature={token};"
    return {"account_name": server.account, "connection_string": string}


@pytest.mark.parametrize(
    ("operation", "letters"),
    [
        case
        for case in documented_letters()
        if case[0] in ("inspect", "health", "optimize", "checkpoint", "vacuum")
    ],
)
def test_an_operation_on_azure_works_with_the_letters_of_its_token(
    azure_server: AzureServer, azure_container: str, tmp_path: Path, operation: str, letters: str
) -> None:
    write_days(tmp_path / "t", files=4)
    address = f"abfs://{azure_container}/events"
    storage = open_storage(address, azure_server.storage_options)
    for file in (tmp_path / "t").rglob("*"):
        if file.is_file():
            storage.put(file.relative_to(tmp_path / "t").as_posix(), file.read_bytes())
    if operation == "vacuum":
        work("optimize", address, azure_server.storage_options)
    report = work(operation, address, on_azure(azure_server, azure_container, letters))
    assert report is None or (report.error is None and report.status in ("committed", "written")), report
