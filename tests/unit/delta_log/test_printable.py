from __future__ import annotations

import io
import logging
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tables.hostile_text import CONTROLS, FORGED_LINE, is_harmless

from delta_log.errors import CorruptLog, DeltaLogError
from delta_log.printable import (
    print_traceback,
    printable,
    printable_lines,
    printable_logger,
    printable_traceback,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("day=2026-01-01", "day=2026-01-01"),
        ("Größe → 5 GiB … 日本語 🎉", "Größe → 5 GiB … 日本語 🎉"),
        (r"C:\new\table", r"C:\new\table"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b31m\x85\x7f", r"\x9b31m\x85\x7f"),
        ("\u202agpj\u202e\u2066\u2069\u200e\u200f\u061c", r"\u202agpj\u202e\u2066\u2069\u200e\u200f\u061c"),
        ("\u2028\u2029\ufeff\u200b\u2060\xad", r"\u2028\u2029\ufeff\u200b\u2060\xad"),
        ("\udcff\ud800", r"\udcff\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_does_not_show_is_written_out_and_all_else_stays(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_character_of_unicode_shows_or_is_written_out() -> None:
    for code in range(sys.maxunicode + 1):
        shown = printable(chr(code))
        assert shown == chr(code) or (shown.startswith("\\") and shown.isascii())
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert shown != chr(code)


@given(st.text(alphabet=st.characters()))
def test_the_result_shows_and_is_its_own_result(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    shown.encode("utf-8")


def test_lines_stay_as_many_as_they_were() -> None:
    assert printable_lines(["one", "two\nthree"]) == "one\ntwo\\nthree"


@pytest.mark.parametrize("text", [CONTROLS, FORGED_LINE, "\ud800"])
def test_an_error_of_ours_is_one_printable_line_and_keeps_its_facts(text: str) -> None:
    error = CorruptLog(text, f"it says {text}")
    assert str(error).isprintable()
    assert error.facts() == {"path": text, "why": f"it says {text}"}


def test_no_line_of_a_traceback_begins_with_what_an_error_says() -> None:
    try:
        try:
            raise ValueError(FORGED_LINE + CONTROLS)
        except ValueError as error:
            raise DeltaLogError(FORGED_LINE + CONTROLS) from error
    except DeltaLogError as error:
        text, stream = printable_traceback(error), io.StringIO()
        print_traceback(error, stream)
    assert stream.getvalue() == text + "\n"
    assert is_harmless(text)
    first, *rest = text.split("\n")
    assert first == "Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in rest)
    assert text.count("forged line") == 2, "and all of it is there"


def test_a_message_of_a_module_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    logger = printable_logger("delta_log.of_a_test")
    assert printable_logger("delta_log.of_a_test") is logger
    with caplog.at_level("INFO"):
        logger.info("%s at %d: %s", FORGED_LINE, 5, OSError(CONTROLS))
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage().isprintable()
    assert "at 5" in record.getMessage()


def test_it_needs_the_standard_library_alone() -> None:
    program = "import sys, delta_log.printable; print([m for m in ('pyarrow', 'numpy') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
