"""The status file of a job: how far it is, and its report, for a caller that does not see the job's output.

A driver in cluster mode runs on another machine than its caller. It leaves its progress and its report in the table's directory,
``_maintenance/<run id>.job/<submission id>.json``, where every reader of the table finds them. A submission is one start of the job:
the tries of a run that start it again use another file.

1. The file carries an HMAC under the run's key (:class:`~delta_maintenance.rewrite.manifest.manifest_file.RunKey`). A report counts only if
   it is genuine. Progress is for people, and may be read without the key.
2. The file is replaced as a whole, at most every few seconds.
3. A status file that a run left is deleted as its manifests are (:mod:`~delta_maintenance.optimize.commit.orphans`).
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delta_log.errors import StorageError
from delta_maintenance.contract import JobReport
from delta_maintenance.job_interface import PROGRESS_PREFIX, ContractError
from delta_maintenance.progress import JobProgress
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY

if TYPE_CHECKING:
    from delta_log.storage.storage import Storage
    from delta_maintenance.rewrite.manifest.manifest_file import RunKey

_VERSION = 1
_HEAD = re.compile(rb'\{"status_version":[0-9]{1,9},"mac":"([0-9a-f]{64})","body":')
_SUBMISSION = re.compile(r"[0-9a-f]{32}")
_MAX_BYTES = 16 << 20


class StatusFile:
    """The status file of one submission.

    :param submission_id: 32 hexadecimal digits.
    """

    def __init__(self, storage: Storage, run_id: str, submission_id: str) -> None:
        if not _SUBMISSION.fullmatch(submission_id):
            raise ContractError(f"submission id {submission_id[:64]!r} is not of 32 hexadecimal digits.")
        self._storage, self._run_id, self._submission_id = storage, run_id, submission_id
        self.key = f"{MANIFEST_DIRECTORY}/{run_id}.job/{submission_id}.json"

    def write(
        self,
        run_key: RunKey,
        progress: Mapping[str, Any] | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the file.

        :raises StorageError: the store failed.
        """
        body = json.dumps({"progress": progress, "report": report}).encode()
        mac = self._mac(run_key, body)
        self._storage.put(
            self.key, b'{"status_version":%d,"mac":"%s","body":%s}' % (_VERSION, mac.encode(), body)
        )

    def progress(self) -> Mapping[str, Any] | None:
        """Read the progress, which anybody may have written; ``None``: there is none yet, or the job is over.

        :raises StorageError: the store failed.
        """
        found = self._body(None)
        progress = found.get("progress") if found is not None else None
        return progress if isinstance(progress, dict) else None

    def report(self, run_key: RunKey) -> JobReport | None:
        """Read the report; ``None``: the job has left none.

        :raises ContractError: the job wrote it, and this release cannot read it.
        :raises StorageError: the store failed.
        """
        found = self._body(run_key)
        report = found.get("report") if found is not None else None
        return JobReport.from_dict(report) if isinstance(report, dict) else None

    def _body(self, run_key: RunKey | None) -> dict[str, Any] | None:
        try:
            content = self._storage.read(self.key, 0, _MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        head = _HEAD.match(content)
        if head is None or not content.endswith(b"}") or len(content) > _MAX_BYTES:
            return None
        body = content[head.end() : -1]
        if run_key is not None and not hmac.compare_digest(head[1].decode(), self._mac(run_key, body)):
            return None
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _mac(self, run_key: RunKey, body: bytes) -> str:
        # No bin has this name: names of bins have 32 digits.
        return run_key.mac(self._run_id, f"status {self._submission_id}", body)


class StatusLines:
    """A stream for :class:`~delta_maintenance.progress.ProgressLines` that keeps the last line in a status file, and the last stages
    of the job with it: a caller looks at the file now and then, and would miss them.

    A store that fails for a while costs progress, not the job.
    """

    def __init__(self, status_file: StatusFile, run_key: RunKey) -> None:
        self._status_file, self._run_key = status_file, run_key
        self._progress = JobProgress()

    def write(self, text: str) -> int:
        _, prefix, line = text.partition(PROGRESS_PREFIX)
        if prefix:
            self._progress = JobProgress.from_dict(json.loads(line)).after(self._progress)
            with suppress(StorageError):
                self._status_file.write(self._run_key, progress=self._progress.to_dict())
        return len(text)

    def flush(self) -> None: ...
