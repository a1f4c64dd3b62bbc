"""The log of a job's process, as lines of the contract for the runner that reads its output.

The runner shows these lines in the task's log at their level. What else the process writes, and the JVM beside it, comes from
libraries: Spark's log, Java traces, warnings of Python. The runner puts that into the log at debug level.
"""

from __future__ import annotations

import json
import logging
from typing import TextIO

from delta_maintenance.job_interface import LOG_LEVELS, LOG_PREFIX, line_prefix

_PACKAGES = ("delta_log", "delta_maintenance")


class JobLogHandler(logging.Handler):
    """Prints each line of a record as a line of the contract.

    :param nonce: nonce of the run.
    """

    def __init__(self, stream: TextIO, nonce: str) -> None:
        super().__init__()
        self._stream, self._prefix = stream, line_prefix(LOG_PREFIX, nonce)

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        level = level if level in LOG_LEVELS else "error"
        for line in self.format(record).split("\n"):
            text = json.dumps({"level": level, "message": line})
            print(f"{self._prefix}{text}\n", end="", file=self._stream, flush=True)


def log_to(stream: TextIO, nonce: str | None) -> None:
    """Write what this project's packages log to a stream, at every level. Without a nonce no program reads the stream."""
    if nonce is None:
        return
    handler = JobLogHandler(stream, nonce)
    for name in _PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
        logger.propagate = False
