"""Runs a job as a program: ``python -m delta_maintenance.entrypoint.run_job --spec JSON``, or this file given to
spark-submit with the bundle as ``--py-files``.

The program prints ``DELTA_PROGRESS {…}`` lines as it works and one ``DELTA_REPORT {…}`` line at the end, in any case. With a nonce
its log is ``DELTA_LOG {…}`` lines (:mod:`delta_maintenance.entrypoint.job_log`); what libraries write to either stream is none. Its
exit code is the report's. With ``--status-id ID`` it keeps both in the table's directory, for a caller that does not see its output
(:mod:`delta_maintenance.status_file`), and ends when the process that started it is gone. The environment may hold

* ``DELTA_MAINTENANCE_OUTPUT_NONCE``: a nonce to print behind these prefixes. The program removes it from the environment
  first, so no process that the job starts inherits it;
* ``DELTA_MAINTENANCE_STORAGE_OPTIONS``: the storage options, with credentials, as JSON or base64:JSON;
* ``DELTA_MAINTENANCE_RUN_KEY``: the key of the run;
* ``SPARK_REMOTE``: the address of a Spark Connect server, with its token;
* ``DELTA_MAINTENANCE_DETACHED_REWRITE``: the rewrite on that server that the job begins (``--begin``) or finishes
  (``--finish``), see :mod:`delta_maintenance.engine.connect.detached_rewrite`;
* ``DELTA_MAINTENANCE_PARENT_PID``: the process that wants the job. When that process is gone, the job ends.

At the top, only the standard library is imported. If a library is missing, the report names it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_maintenance.contract import JobSpec
    from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
    from delta_maintenance.job import JobSite

PARENT_PID_VARIABLE = "DELTA_MAINTENANCE_PARENT_PID"
#: Where ``engine="auto"`` may send heavy work.
SPARK_MASTER_VARIABLE = "DELTA_MAINTENANCE_SPARK_MASTER"
_WATCH_SECONDS = 1.0
_SECONDS_BETWEEN_STATUSES = 5.0
_SECONDS_TO_UNWIND = 15.0


class Terminated(BaseException):
    """This process received the signal to end."""


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    nonce = _take_nonce()
    parser = argparse.ArgumentParser(prog="run_job", description="Run one maintenance job on a Delta table.")
    parser.add_argument("--spec", required=True, help="the job spec as JSON, base64:JSON, or @FILE")
    parser.add_argument(
        "--status-id", help="keep progress and report in the table's directory, under this id"
    )
    detached = parser.add_mutually_exclusive_group()
    detached.add_argument(
        "--begin", action="store_true", help="begin the rewrite on a Spark Connect server, and end"
    )
    detached.add_argument(
        "--finish", action="store_true", help="commit the rewrite that another job has begun"
    )
    parsed = parser.parse_args(arguments)
    text: str = parsed.spec
    _watch_parent(parsed.status_id is not None)
    missing = _missing()
    try:
        if missing:
            report = _failed(text, _dependency_missing(missing))
        else:
            _prepare(nonce, is_ours=arguments is None)
            report = _run(text, nonce, parsed)
    except Terminated:
        report = _failed(text, _error("Terminated", "The job was told to end."))
    except Exception as error:  # noqa: BLE001 - even a broken installation must not end without a report
        report = _failed(text, _described(error))
    return _print_report(report, nonce)


def _take_nonce() -> str | None:
    from delta_maintenance.job_interface import OUTPUT_NONCE_VARIABLE

    return os.environ.pop(OUTPUT_NONCE_VARIABLE, None)


def _prepare(nonce: str | None, *, is_ours: bool) -> None:
    """Prepare the process for the job.

    :param is_ours: the process does nothing else.
    """
    from delta_maintenance.engine.spark.application import is_spark_driver
    from delta_maintenance.entrypoint.job_log import log_to
    from delta_maintenance.process.fast_start import start_fast

    signal.signal(signal.SIGTERM, _terminate)
    log_to(sys.stdout, nonce)
    if is_ours and not is_spark_driver():
        start_fast()


def _run(text: str, nonce: str | None, parsed: argparse.Namespace) -> dict[str, Any]:
    from delta_log.errors import InvalidRequest
    from delta_maintenance.contract import JobSpec
    from delta_maintenance.engine.spark.application import is_spark_driver
    from delta_maintenance.errors import refusal_report
    from delta_maintenance.job import JobSite, run_job
    from delta_maintenance.job_interface import STORAGE_OPTIONS_VARIABLE, ContractError
    from delta_maintenance.progress import ProgressLines
    from delta_maintenance.rewrite.manifest.manifest_file import RunKey

    try:
        spec = JobSpec.from_argument(_read(text))
        options = _storage_options(os.environ.get(STORAGE_OPTIONS_VARIABLE), STORAGE_OPTIONS_VARIABLE)
        run_key = RunKey.from_environment(os.environ)
        rewrite = _detached_rewrite() if parsed.begin or parsed.finish else None
    except (ContractError, InvalidRequest, OSError) as error:
        return _failed(text, refusal_report(error).to_dict())
    master = os.environ.get(SPARK_MASTER_VARIABLE)
    site = JobSite(
        options,
        master,
        can_use_spark=is_spark_driver(),
        run_key=run_key,
        begins=rewrite if parsed.begin else None,
        finishes=rewrite if parsed.finish else None,
        ends_with_reading=True,
    )
    if parsed.status_id is not None:
        return _run_with_status(spec, site, parsed.status_id)
    return run_job(spec, site, ProgressLines(sys.stdout, nonce=nonce)).to_dict()


def _run_with_status(spec: JobSpec, site: JobSite, status_id: str) -> dict[str, Any]:
    """Run a job that keeps a status file. An address outside of the allowed roots gets none."""
    from delta_log.redaction import redacted
    from delta_log.storage.opening import open_storage
    from delta_log.storage.table_uri import require_within
    from delta_maintenance.errors import refusal_report
    from delta_maintenance.job import run_job
    from delta_maintenance.job_interface import RUN_KEY_VARIABLE, ContractError
    from delta_maintenance.progress import ProgressLines
    from delta_maintenance.status_file import StatusFile, StatusLines

    key = site.run_key
    if key is None:
        raise ContractError(f"--status-id needs the key of the run in {RUN_KEY_VARIABLE}.")
    try:
        require_within(spec.table, spec.allowed_roots)
        status_file = StatusFile(open_storage(spec.table, site.storage_options), spec.run_id, status_id)
    except Exception as error:  # noqa: BLE001 - there is no place for a report but the output
        return _failed(spec.to_json(), refusal_report(error).to_dict())
    lines = StatusLines(status_file, key)
    report = run_job(spec, site, ProgressLines(lines, _SECONDS_BETWEEN_STATUSES)).to_dict()
    status_file.write(key, report=redacted(report))
    return report


def _detached_rewrite() -> DetachedRewrite:
    """
    :raises ContractError: the environment names no rewrite.
    """
    from delta_maintenance.engine.connect.detached_rewrite import DETACHED_REWRITE_VARIABLE, DetachedRewrite
    from delta_maintenance.job_interface import ContractError

    text = os.environ.get(DETACHED_REWRITE_VARIABLE)
    if text is None:
        raise ContractError(
            f"--begin and --finish need the name of a rewrite in {DETACHED_REWRITE_VARIABLE}."
        )
    return DetachedRewrite.from_json(text)


def _storage_options(text: str | None, name: str) -> dict[str, Any]:
    from delta_maintenance.job_interface import ContractError, json_of_argument

    try:
        options = json.loads(json_of_argument(text)) if text else {}
    except (ValueError, RecursionError):
        options = None  # and no word of what it was: it may be a secret
    if not isinstance(options, dict):
        raise ContractError(f"{name} must hold a JSON object with the table's storage options.")
    return options


def _read(text: str) -> str:
    return Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text


def _print_report(report: Mapping[str, Any], nonce: str | None) -> int:
    """Print the report; returns the exit code."""
    from delta_log.redaction import redacted
    from delta_maintenance.job_interface import EXIT_DONE, REPORT_PREFIX, exit_code_of, line_prefix

    line = json.dumps(redacted(report), sort_keys=True)
    print(line_prefix(REPORT_PREFIX, nonce) + line, flush=True)
    return exit_code_of(report["error"]["kind"]) if "error" in report else EXIT_DONE


def _missing() -> list[str]:
    if sys.version_info < (3, 10):  # noqa: UP036 - a cluster may have any
        return ["Python 3.10 or newer"]
    from delta_maintenance.process.requirements import missing_here

    return missing_here()


# These errors and reports are JSON objects, since the contract's classes may be what cannot be imported.


def _error(kind_of_error: str, message: str, **members: Any) -> dict[str, Any]:
    return {"type": kind_of_error, "message": message, "kind": "failed", "retryable": True, **members}


def _dependency_missing(names: list[str]) -> dict[str, Any]:
    version = ".".join(map(str, sys.version_info[:3]))
    message = (
        f"This job needs {', '.join(names)}, not installed in {sys.executable} (Python {version}). Install "
        "airflow-provider-delta there, or name another Python (spark.pyspark.driver.python)."
    )
    return _error("DependencyMissing", message, kind="refused", retryable=False, missing=names)


def _described(error: Exception) -> dict[str, Any]:
    try:
        from delta_maintenance.errors import error_report, log_failure
    except Exception:  # noqa: BLE001 - the installation is broken
        from delta_log.printable import print_traceback

        print_traceback(error)
        return _error(type(error).__name__, str(error))
    log_failure(error)
    return error_report(error).to_dict()


def _failed(text: str, error: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a job that could not begin.

    :param text: the spec, which may be unreadable; its members are told where they are texts.
    """
    from delta_maintenance.job_interface import CONTRACT_VERSION, json_of_argument

    try:
        spec = json.loads(json_of_argument(_read(text)))
    except (OSError, ValueError, RecursionError):
        spec = {}
    given = spec if isinstance(spec, dict) else {}
    names = {
        name: given[name] if isinstance(given.get(name), str) else ""
        for name in ("operation", "table", "run_id")
    }
    return {**names, "status": "failed", "error": error, "contract_version": CONTRACT_VERSION}


def _find_library() -> None:
    """Make the library importable if this file was started by its path: it is two directories up.

    This directory itself must not be a place to import from.
    """
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if path and Path(path).resolve() != here]
    if importlib.util.find_spec("delta_maintenance") is None:
        sys.path.insert(0, str(here.parents[1]))


def _terminate(_signal: int, _frame: object) -> None:
    raise Terminated


def _watch_parent(of_this_process: bool) -> None:
    """Watch the process that wants this job.

    :param of_this_process: ``True``: it is the parent of this process, unless the environment names one: a driver is a child of
        Spark's own process, and may not outlive it.
    """
    pid = os.environ.get(PARENT_PID_VARIABLE, str(os.getppid()) if of_this_process else "")
    if pid.isdigit():
        threading.Thread(target=_watch, args=(int(pid), _started(int(pid))), daemon=True).start()


def _watch(pid: int, started: str | None) -> None:
    while _is_alive(pid) and _started(pid) == started:
        time.sleep(_WATCH_SECONDS)
    with suppress(OSError):  # mostly that process was the reader, too
        print(f"Process {pid}, which wanted this job, is gone; the job ends.", file=sys.stderr, flush=True)
    # Unwinding removes unfinished files.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_SECONDS_TO_UNWIND)
    os._exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _started(pid: int) -> str | None:
    """When a process started, if the system tells. A process id may be given to another process later."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    # A zombie counts as gone: it only waits for its parent to collect it.
    return None if fields[0] == "Z" else fields[19]


if __name__ == "__main__":
    _find_library()
    from delta_maintenance.process.process_exit import run_and_exit

    run_and_exit(main)
