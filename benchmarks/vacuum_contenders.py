"""What the vacuum benchmark measures: opening a table and vacuuming it, by ours and by delta-rs."""

from __future__ import annotations

from typing import Any

import deltalake

import delta_log.storage.local.local_storage  # noqa: F401 - the same
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress


def ours(table: dict[str, Any], mode: str, dry_run: bool = True) -> dict[str, Any]:
    """
    :param table: ``uri``, ``options`` (ours), ``peer_options`` and ``retain_hours``.
    :param mode: ``full`` or ``lite``.
    """
    wanted = {"lite": True} if mode == "lite" else {}
    spec = JobSpec(
        "vacuum",
        table["uri"],
        "benchmark",
        {"retain_hours": table["retain_hours"], "retention_check": False, **wanted},
        dry_run=dry_run,
    )
    report = run_job(spec, JobSite(table["options"]), SilentProgress())
    if report.error is not None or report.plan is None:
        raise SystemExit(f"{report.error}")
    return {"files": report.plan["numFilesToDelete"]}


def delta_rs(table: dict[str, Any], mode: str, dry_run: bool = True) -> dict[str, Any]:
    found = deltalake.DeltaTable(table["uri"], storage_options=table["peer_options"]).vacuum(
        retention_hours=table["retain_hours"],
        dry_run=dry_run,
        enforce_retention_duration=False,
        full=mode == "full",
    )
    return {"files": len(found)}
