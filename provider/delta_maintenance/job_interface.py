"""The interface of a job's process: environment variables, the encoding of arguments, lines of output and exit codes.

Standard library only: a job names the libraries that are missing on its machine, msgspec among them, by this interface. The
documents that go through it, specs and reports, are in :mod:`delta_maintenance.contract`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal, get_args

#: The version of specs and reports. Both sides state it; a reader accepts its own version and the one before.
CONTRACT_VERSION = 1

#: Environment variable with the storage options (a JSON object) of the table.
STORAGE_OPTIONS_VARIABLE = "DELTA_MAINTENANCE_STORAGE_OPTIONS"

#: Environment variable with the secret key that all tries of a run share: at least 32 hexadecimal digits.
RUN_KEY_VARIABLE = "DELTA_MAINTENANCE_RUN_KEY"

#: Environment variable with the nonce of the lines below. The process that starts the job draws one per run.
OUTPUT_NONCE_VARIABLE = "DELTA_MAINTENANCE_OUTPUT_NONCE"

#: How a job's lines for a program begin. A nonce may follow, then one JSON object.
PROGRESS_PREFIX = "DELTA_PROGRESS "
REPORT_PREFIX = "DELTA_REPORT "
#: The object has ``level``, one of :data:`LOG_LEVELS`, and ``message``. All else that a job's process writes comes from libraries.
LOG_PREFIX = "DELTA_LOG "
LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS = get_args(LogLevel)

EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_CONFLICT = 0, 1, 2, 3

#: Before a spec whose JSON is encoded in base64.
ENCODED_PREFIX = "base64:"


class ContractError(ValueError):
    """This release cannot read a spec or a report; the message says which side is wrong."""

    at_fault = "the program that wrote it, mostly of another release"
    kind, retryable = "refused", False


def exit_code_of(kind: str) -> int:
    """The exit code of a program that could not do what it was asked for.

    :param kind: kind of the error, as in an error report.
    """
    return {"refused": EXIT_REFUSED, "conflict": EXIT_CONFLICT}.get(kind, EXIT_FAILED)


def line_prefix(prefix: str, nonce: str | None) -> str:
    """The beginning of a line for a program.

    :param nonce: nonce of the run; ``None``: a person started the job, and no program parses its output.
    """
    return f"{prefix}{nonce} " if nonce else prefix


def encoded(text: str) -> str:
    """JSON as a word of letters, digits and ``-_=:``, for command lines and environments that others put together.

    YARN replaces double braces and its shell dollars and backticks, and Kubernetes replaces ``$(NAME)``.
    """
    return ENCODED_PREFIX + urlsafe_b64encode(text.encode()).decode()


def json_of_argument(text: str) -> str:
    """The JSON of a spec, or of storage options, that may be encoded in base64."""
    if not text.startswith(ENCODED_PREFIX):
        return text
    try:
        return urlsafe_b64decode(text.removeprefix(ENCODED_PREFIX)).decode()
    except ValueError as error:
        raise ContractError(f"This is not JSON in base64: {error}. Was it cut short?") from None
