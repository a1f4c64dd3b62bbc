"""Makes text from a table safe to show in a terminal or a log.

Any writer of the table chooses its partition values, paths and ``commitInfo``, and errors quote them. Unchanged, such a text
could set a terminal's title, hide or reverse its neighbours, or begin a line that looks like a line of the log.

1. A value is one line. :func:`printable` replaces every character that does not show by the escape that Python's ``repr``
   gives: the controls C0 and C1 with tab, carriage return and newline, controls of writing direction, characters without
   width, line and paragraph separators, unusual spaces, lone surrogates, and code points that Unicode has not assigned.
2. The credentials of an address are hidden (:mod:`delta_log.redaction`).
3. All other text stays as it is, backslashes included, at any length.
4. A text of several lines (a plan, a traceback) is joined from such lines.

Callers apply this where text leaves the program. Facts (the attributes of an error, all JSON) keep the text unchanged.
Standard library only.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from typing import TextIO

from delta_log.redaction import redact


def printable(text: str) -> str:
    """Return `text` as one line that a terminal shows and does not obey."""
    text = redact(text)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_lines(lines: Iterable[str]) -> str:
    """Join lines to one text; each stays one line."""
    return "\n".join(map(printable, lines))


def printable_traceback(error: BaseException) -> str:
    """Return the traceback of an error.

    All lines but the first are indented, so that a text that the error quotes cannot look like a line of the log.
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    first, *rest = text.rstrip("\n").split("\n")
    return printable_lines([first, *(f"  {line}" for line in rest)])


def print_traceback(error: BaseException, stream: TextIO | None = None) -> None:
    """Print the traceback of an error; by default to standard error."""
    print(printable_traceback(error), file=stream or sys.stderr, flush=True)


def printable_logger(name: str) -> logging.Logger:
    """Return the logger of a module; it writes each message as one line, and tracebacks by :func:`printable_traceback`."""
    logger = logging.getLogger(name)
    if _one_line not in logger.filters:
        logger.addFilter(_one_line)
    return logger


def _one_line(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = printable_traceback(
            record.exc_info[1]
        )  # which formatters prefer to the traceback itself
    return True
