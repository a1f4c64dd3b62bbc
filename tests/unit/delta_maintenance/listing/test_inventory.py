"""VACUUM by an inventory."""

from __future__ import annotations

import csv
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.vacuum_runs import done, files_below, run_vacuum
from tests.support.tables.vacuum_histories import PROTOCOL, metadata

from delta_log.errors import InvalidRequest
from delta_log.storage.opening import open_storage
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.inventory import read_inventory

OLD_MS = int((time.time() - 30 * 86_400) * 1000)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with one live file, one orphan with an odd name, and one young orphan."""
    path = tmp_path / "a table"
    for name in ("live.parquet", "p=1/or phan%.parquet", "young.parquet"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"data")
        if name != "young.parquet":
            os.utime(path / name, (OLD_MS / 1000, OLD_MS / 1000))
    add = {
        "path": "live.parquet",
        "size": 4,
        "partitionValues": {},
        "modificationTime": 1,
        "dataChange": True,
    }
    actions: list[dict[str, Any]] = [{"protocol": PROTOCOL}, {"metaData": metadata()}, {"add": add}]
    (path / "_delta_log").mkdir()
    body = "".join(json.dumps(action) + "\n" for action in actions)
    (path / "_delta_log" / f"{0:020d}.json").write_text(body)
    return path


def rows(table: Path) -> list[tuple[str, int, bool, int]]:
    """The rows of an inventory that is an hour old. It has an older file under the name of the young one."""
    names = ["live.parquet", "p=1/or phan%.parquet", "young.parquet", "_delta_log/x.json", "gone.parquet"]
    files = [(f"file://{quote(str(table / name))}", 4, False, OLD_MS) for name in names]
    newer = (files[2][0], 4, False, int(time.time() * 1000))
    return [
        *files,
        newer,
        (f"file://{quote(str(table))}/p=1", 0, True, OLD_MS),
        ("file:///elsewhere/x", 1, False, OLD_MS),
    ]


def write_parquet(path: Path, found: list[tuple[str, int, bool, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = dict(
        zip(("path", "length", "isDir", "modificationTime"), zip(*found, strict=True), strict=True)
    )
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)


def write_csv(path: Path, found: list[tuple[str, int, bool, int]]) -> None:
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "length", "isDir", "modificationTime"])
        writer.writerows((p, n, str(d).lower(), t) for p, n, d, t in found)


@pytest.mark.parametrize("kind", ["list.parquet", "list.csv", "list.csv.gz", "directory"])
def test_files_that_an_inventory_names_are_deleted_if_no_version_needs_them(
    table: Path, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / kind
    if kind == "directory":
        write_parquet(place / "part-0.parquet", rows(table)[:3])
        write_parquet(place / "part-1.parquet", rows(table)[3:])
        (place / "_SUCCESS").touch()
    else:
        (write_parquet if kind.endswith("parquet") else write_csv)(place, rows(table))
    planned = done(run_vacuum(table, inventory=str(place), dry_run=True))
    assert planned.plan is not None
    assert planned.plan["mode"] == "inventory"
    done(run_vacuum(table, inventory=str(place)))
    assert files_below(table) == {"live.parquet", "young.parquet"}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([("file:///elsewhere/x", 1, False, OLD_MS)], "is it one of another table"),
        ([("relative/x", 1, False, OLD_MS)], "not absolute"),
    ],
)
def test_an_inventory_of_something_else_is_refused(
    table: Path, tmp_path: Path, found: list[tuple[str, int, bool, int]], why: str
) -> None:
    write_parquet(tmp_path / "list.parquet", found)
    report = run_vacuum(table, inventory=str(tmp_path / "list.parquet"))
    assert report.error is not None
    assert why in report.error.message


def test_a_file_that_is_no_inventory_is_refused(table: Path, tmp_path: Path) -> None:
    (tmp_path / "list.parquet").write_bytes(b"no parquet")
    pq.write_table(pa.table({"name": ["x"]}), tmp_path / "other.parquet")
    (tmp_path / "date").mkdir()
    (tmp_path / "date" / "manifest.json").write_text("{}")
    for name in ("list.parquet", "other.parquet", "date/manifest.json"):
        report = run_vacuum(table, inventory=str(tmp_path / name))
        assert report.error is not None
        assert (report.error.kind, report.error.type) == ("refused", "InvalidRequest")


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_an_inventory_written_by_s3_can_be_read(tmp_path: Path, form: str) -> None:
    names = ["Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate"]
    keys = ["lake/events/p=1/a b+%.parquet", "lake/events/old", "lake/events2/x", "lake/events/deleted"]
    moment = "2024-01-31T12:00:00.000Z"
    found = [
        (keys[0], True, False), (keys[1], False, False), (keys[1], True, False), (keys[2], True, False),
        (keys[3], True, True),
    ]  # fmt: skip
    (tmp_path / "config" / "data").mkdir(parents=True)
    (tmp_path / "config" / "2024-02-01T00-00Z").mkdir()
    data = tmp_path / "config" / "data" / ("x.csv.gz" if form == "CSV" else "x.parquet")
    if form == "CSV":
        with gzip.open(data, "wt") as file:
            for key, latest, marker in found:
                written = (
                    quote(key, safe="/").replace("%20", "+"),
                    "v",
                    str(latest).lower(),
                    str(marker).lower(),
                )
                csv.writer(file, quoting=csv.QUOTE_ALL).writerow(
                    ["bucket", *written, "" if marker else 7, moment]
                )
    else:
        pq.write_table(
            pa.table(
                {
                    "bucket": ["bucket"] * len(found),
                    "key": [key for key, _, _ in found],
                    "is_latest": [latest for _, latest, _ in found],
                    "is_delete_marker": [marker for _, _, marker in found],
                    "size": [7] * len(found),
                    "last_modified_date": pa.array(
                        [1_706_702_400_000] * len(found), pa.timestamp("ms", "UTC")
                    ),
                }
            ),
            data,
        )
    manifest = {
        "sourceBucket": "bucket",
        "destinationBucket": "arn:aws:s3:::lists",
        "fileFormat": form,
        "fileSchema": ", ".join(names),
        "files": [{"key": f"lists/config/data/{data.name}"}],
    }
    place = tmp_path / "config" / "2024-02-01T00-00Z" / "manifest.json"
    place.write_text(json.dumps(manifest))
    listing = read_inventory(str(place), open_storage, "s3://bucket/lake/events", HiddenNames())
    assert listing.files.to_pylist() == [
        {"key": "old", "size": 7, "modification_time_ms": 1_706_702_400_000},
        {"key": "p=1/a b+%.parquet", "size": 7, "modification_time_ms": 1_706_702_400_000},
    ]
    for other in ("s3://bucket/other", "s3://other/lake/events"):
        with pytest.raises(InvalidRequest, match="another table"):
            read_inventory(str(place), open_storage, other, HiddenNames())
