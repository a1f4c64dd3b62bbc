"""Restoring and purging quarantines in a test, and spoiling their records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from delta_log.runtime import Runtime
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY
from tests.support.runs.vacuum_runs import files_below, run_vacuum
from tests.support.tables.vacuum_histories import DAY_MS, History
from tests.support.tables.vacuumable_tables import DAY_SECONDS


def restore_quarantine(table: Path, *, dry_run: bool = False, **options: Any) -> JobReport:
    """Run the job that restores quarantines, and return its report."""
    spec = JobSpec("restore-quarantine", str(table), "test-run", options, dry_run=dry_run)
    return run_job(spec, JobSite(), SilentProgress())


def purge_after_a_week(table: Path, *, dry_run: bool = False, runtime: Runtime | None = None) -> JobReport:
    """Run a vacuum that deletes quarantines older than a week, and keeps removed files for a year."""
    options = {"retain_hours": 24 * 365, "purge_quarantine_hours": 7 * 24}
    return run_vacuum(table, runtime=runtime, dry_run=dry_run, **options)


def clock_ahead(days: float) -> Runtime:
    """A machine whose clock is ahead."""
    runtime = Runtime()
    return Runtime(now_ms=lambda: runtime.now_ms() + int(days * DAY_MS))


def age_manifests(table: Path, days: float) -> None:
    """Make every manifest older, by its own time and by the store's."""
    for path in (table / QUARANTINE_DIRECTORY).glob("*/manifest.json"):
        written = path.stat().st_mtime - days * DAY_SECONDS
        with suppress(ValueError, TypeError, RecursionError):
            manifest = json.loads(path.read_bytes())
            path.write_text(
                json.dumps({**manifest, "quarantinedMs": manifest["quarantinedMs"] - int(days * DAY_MS)})
            )
        os.utime(path, (written, written))


def data_contents(table: Path) -> dict[str, bytes]:
    """The content of every file below a table's root, without the log."""
    return {name: (table / name).read_bytes() for name in files_below(table)}


def table_files(history: History) -> dict[str, bytes]:
    """The files of a table in memory, without the log and the quarantines."""
    return {
        key: content
        for key, (content, _) in history.storage.objects.items()
        if not key.startswith(("_delta_log/", QUARANTINE_DIRECTORY))
    }


def waiting_files(history: History) -> dict[str, bytes]:
    """The files in the quarantines of a table in memory, by the keys that they had."""
    return {
        key.partition("/files/")[2]: content
        for key, (content, _) in history.storage.objects.items()
        if key.startswith(QUARANTINE_DIRECTORY) and "/files/" in key
    }


def as_an_earlier_build_wrote_it(place: Path) -> None:
    """Take the members out of a manifest that earlier builds did not write."""
    manifest = json.loads((place / "manifest.json").read_bytes())
    del manifest["filesDigest"], manifest["name"]
    (place / "manifest.json").write_text(json.dumps(manifest))


def with_manifest(data: bytes) -> Callable[[Path], None]:
    """Make a function that replaces the manifest of a quarantine."""

    def write(place: Path) -> None:
        (place / "manifest.json").write_bytes(data)

    write.__name__ = f"manifest {data[:20]!r}"
    return write


#: Each replaces the manifest of a quarantine by one that cannot be read.
BROKEN_MANIFESTS = [
    with_manifest(data)
    for data in (
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b"[]",
        b"null",
        b'{"version": "1", "quarantinedMs": 1}',
        b'{"version": 1, "quarantinedMs": null}',
        b'{"version": 1, "quarantinedMs": 1e400}',
        b'{"version": 1, "quarantinedMs": %d}' % 10**40,
        b'{"version": %d, "quarantinedMs": 1}' % -1,
        b'{"version": 1, "quarantinedMs": 1, "filesDigest": 7}',
        b'{"version": NaN, "quarantinedMs": 1}',
        b" " * (1 << 20),
    )
]
