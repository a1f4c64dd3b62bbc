"""The commands ``policy`` and ``fleet``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from delta_log.errors import InvalidRequest
from delta_log.runtime import Runtime
from delta_maintenance.cli.arguments import storage_options
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.policy.reading import WrittenPolicy, read_policy
from delta_maintenance.job_interface import EXIT_DONE, EXIT_FAILED
from delta_maintenance.units import DAY_MS, counted

if TYPE_CHECKING:
    from delta_maintenance.fleet.account.report import FleetReport

_Result = tuple[dict[str, Any], str]


def check_policy(options: argparse.Namespace) -> _Result:
    """Whether a policy can be read, and what it holds."""
    policy = _policy(options.policy).policy
    counts = {
        "rules": len(policy.rules),
        "include": list(policy.tables.include),
        "exclude": list(policy.tables.exclude),
        "knownBroken": len(policy.known_broken),
    }
    text = f"{options.policy} is a policy with {counted(len(policy.rules), 'rule')} for {', '.join(policy.tables.include) or 'no table'}"
    return {"policy": str(options.policy), **counts}, text


def explain_policy(options: argparse.Namespace) -> _Result:
    """What a policy makes of one table."""
    from delta_maintenance.fleet.account.store import history_at
    from delta_maintenance.fleet.decision.decide import FleetState
    from delta_maintenance.fleet.decision.explanation import explain
    from delta_maintenance.fleet.run import survey_one
    from delta_maintenance.fleet.text import render_explanation

    written, access = _policy(options.policy), storage_options(options.storage_options, os.environ)
    runtime = Runtime()
    table = survey_one(written, options.table, access, runtime)
    state = FleetState([table], history_at(options.state, access), runtime.now_ms())
    found = explain(written, table, state)
    return dict(to_builtins(found)), render_explanation(found)


def compare_policies(options: argparse.Namespace) -> _Result:
    """What a new policy would have done otherwise in past nights."""
    from delta_maintenance.fleet.account.comparison import compare
    from delta_maintenance.fleet.text import render_differences

    old, new = _policy(options.old), _policy(options.new)
    store = FleetStore.open(options.state, storage_options(options.storage_options, os.environ))
    since_ms = Runtime().now_ms() - options.replay_days * DAY_MS
    nights = list(compare(old, new, store.nights(since_ms)))
    return {"nights": to_builtins(nights)}, render_differences(nights)


def run_fleet(options: argparse.Namespace) -> tuple[dict[str, Any], str, int]:
    """One night: survey, decide, maintain, account. The exit code is 1 if something failed that did not before."""
    from delta_maintenance.fleet.run import FleetJob, FleetNight
    from delta_maintenance.job import JobSite
    from delta_maintenance.progress import HumanProgress

    access = storage_options(options.storage_options, os.environ)
    site = JobSite(access, runtime=Runtime())
    night = FleetNight(_policy(options.policy), options.state, site, HumanProgress(sys.stderr))
    if options.dry_run:
        return _told(night.plan(options.approve))
    job = FleetJob(
        memory_limit_bytes=options.memory_limit_bytes,
        parallelism=options.parallelism,
        spark_above_bytes=options.spark_above_bytes,
    )
    seconds = None if options.max_minutes is None else options.max_minutes * 60
    return _told(night.run(options.approve, job, seconds))


def report_fleet(options: argparse.Namespace) -> tuple[dict[str, Any], str, int]:
    """The report of the newest night."""
    from delta_maintenance.fleet.account.report import report_of

    store = FleetStore.open(options.state, storage_options(options.storage_options, os.environ))
    night = store.newest_night()
    if night is None:
        raise InvalidRequest(
            f"{options.state} holds no night of a fleet. Run one: delta-maintenance fleet run FILE --state {options.state}."
        )
    result, text, _ = _told(report_of(night))
    return result, text, EXIT_DONE


def _told(report: FleetReport) -> tuple[dict[str, Any], str, int]:
    from delta_maintenance.fleet.text import render_report

    return dict(to_builtins(report)), render_report(report), EXIT_FAILED if report.has_news else EXIT_DONE


def _policy(path: Path) -> WrittenPolicy:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequest(f"{path} cannot be read as a policy: {reason}. Name a YAML file.") from None
    return read_policy(text, str(path))


FLEET_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Any]] = {
    "policy check": check_policy,
    "policy explain": explain_policy,
    "policy diff": compare_policies,
    "fleet run": run_fleet,
    "fleet report": report_fleet,
}
