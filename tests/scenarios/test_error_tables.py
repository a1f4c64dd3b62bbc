from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest
from tests.support import ROOT

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from error_tables import PAGE, errors, messages_of, page

KNOWN = sorted(errors(), key=lambda error: error.__name__)
#: A promise that the same request may succeed.
AGAIN = re.compile(r"\brun again\b|another try may|next try", re.IGNORECASE)


def test_the_page_says_of_each_error_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"{PAGE.name} is out of date. Run ./dev lint --fix."


@pytest.mark.parametrize("error", KNOWN, ids=lambda error: error.__name__)
def test_an_error_that_is_never_retried_does_not_tell_a_person_to_run_again(error: type[Exception]) -> None:
    if not getattr(error, "retryable", False) and not vars(error).get("when_retryable"):
        assert [message for message in messages_of(error) if AGAIN.search(message)] == []


@pytest.mark.parametrize("error", KNOWN, ids=lambda error: error.__name__)
def test_a_refused_request_is_never_retried(error: type[Exception]) -> None:
    if getattr(error, "kind", "") == "refused":
        assert not getattr(error, "retryable", False)


def _names_without_a_class() -> Iterator[str]:
    """Types of errors that a report gets without an exception."""
    for path in (ROOT / "provider").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="ErrorReport"), args=[ast.Constant(value=str(name)), *_]):
                    yield name


def test_the_page_names_the_errors_that_have_no_class() -> None:
    named = PAGE.read_text(encoding="utf-8").partition("<!--")[0]
    assert sorted(name for name in _names_without_a_class() if f"`{name}`" not in named) == []
