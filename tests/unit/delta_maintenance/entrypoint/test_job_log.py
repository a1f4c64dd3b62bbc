from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from delta_log.errors import StorageError
from delta_log.printable import printable_logger
from delta_maintenance.entrypoint.job_log import log_to
from delta_maintenance.errors import log_failure
from delta_maintenance.job_interface import LOG_PREFIX


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What a job's process logs, with the loggers as they were afterwards."""
    loggers = [logging.getLogger(name) for name in ("delta_log", "delta_maintenance")]
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    stream = io.StringIO()
    log_to(stream, "a-nonce")
    yield stream
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers, logger.propagate = handlers, propagate


def lines(stream: io.StringIO) -> list[tuple[str, str]]:
    found = []
    for line in stream.getvalue().splitlines():
        assert line.startswith(f"{LOG_PREFIX}a-nonce ")
        raw = json.loads(line.removeprefix(f"{LOG_PREFIX}a-nonce "))
        found.append((raw["level"], raw["message"]))
    return found


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_a_warning_is_one_line_with_its_level(stream: io.StringIO) -> None:
    printable_logger("delta_log.some.module").warning("%s failed", "a\nb\x1b[2J")
    assert lines(stream) == [("warning", r"a\nb\x1b[2J failed")]


def test_an_unforeseen_error_leaves_its_traceback(stream: io.StringIO) -> None:
    log_failure(raised(KeyError("a\nforged line")))
    found = lines(stream)
    assert {level for level, _ in found} == {"error"}
    assert found[1][1] == "Traceback (most recent call last):"
    assert "KeyError" in found[-1][1]
    assert not any(message.startswith("forged") for _, message in found)


def test_an_error_of_ours_leaves_its_cause_at_debug_level(stream: io.StringIO) -> None:
    cause = raised(RuntimeError("java.lang.IllegalStateException: stopped\n\tat a.b(C.java:1)"))
    log_failure(raised(StorageError("down", "p"), cause))
    found = lines(stream)
    assert {level for level, _ in found} == {"debug"}
    assert any("C.java:1" in message for _, message in found)


def test_an_error_of_ours_without_a_cause_says_all_in_its_message(stream: io.StringIO) -> None:
    log_failure(raised(StorageError("down", "p")))
    assert lines(stream) == []
