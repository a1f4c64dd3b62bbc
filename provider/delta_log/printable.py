"""Text for a terminal or a log: what a table, a path or an error says is shown, never obeyed.

Partition values, paths, ``commitInfo`` and the errors that quote them come from whoever can write to the table. Raw, they
could set a terminal's title, hide or reverse what stands beside them, or begin a line that looks like one of the log's own.

1. A value is one line: :func:`printable` writes every character that does not show as Python's ``repr`` would. These are the
   controls C0 and C1 with tab, carriage return and newline, controls of writing direction, characters without width, line and
   paragraph separators, odd spaces, lone surrogates, and what Unicode has not assigned.
2. The credentials of an address are hidden (:mod:`delta_log.redaction`).
3. All other text stays as it is, a backslash too, and nothing is left out, however long it is.
4. Text of several lines (a plan, a traceback) is made of such lines; only the newlines between them are ours.

Applied where text leaves the program, once for each way out; facts, such as the attributes of an error and all JSON, keep
the text as it is. Standard library only.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from typing import TextIO

from delta_log.redaction import redact


def printable(text: str) -> str:
    """One line that says what `text` says, and does nothing."""
    text = redact(text)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_lines(lines: Iterable[str]) -> str:
    """Lines as one text; each stays one line."""
    return "\n".join(map(printable, lines))


def printable_traceback(error: BaseException) -> str:
    """The traceback of an error.

    The lines below the first are indented, so that none of them, whatever the error quotes, can be taken for a line of a log.
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    first, *rest = text.rstrip("\n").split("\n")
    return printable_lines([first, *(f"  {line}" for line in rest)])


def print_traceback(error: BaseException, stream: TextIO | None = None) -> None:
    """To standard error, where no stream is given."""
    print(printable_traceback(error), file=stream or sys.stderr, flush=True)


def printable_logger(name: str) -> logging.Logger:
    """The logger of a module, each message of which is one line."""
    logger = logging.getLogger(name)
    if _one_line not in logger.filters:
        logger.addFilter(_one_line)
    return logger


def _one_line(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True
