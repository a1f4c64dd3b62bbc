"""The document of an examination as aligned text for people: a line for each check, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from delta_log.printable import printable_lines

_NAME_WIDTH, _STATUS_WIDTH = 17, 8


def render_doctor(document: Mapping[str, Any]) -> str:
    return printable_lines(_lines(document))


def remark(check: Mapping[str, Any]) -> str:
    """One check in one line, with its remedy."""
    return " ".join(
        filter(None, (f"{check['name']} {check['status']}: {check['message']}", check.get("remedy")))
    )


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    for check in document["checks"]:
        yield f"{check['status']:<{_STATUS_WIDTH}} {check['name']:<{_NAME_WIDTH}} {check['message']}"
        if "remedy" in check:
            yield f"{'':<{_STATUS_WIDTH}} {'':<{_NAME_WIDTH}} -> {check['remedy']}"
    counts = {
        status: sum(check["status"] == status for check in document["checks"])
        for status in ("failure", "warning")
    }
    if not any(counts.values()):
        yield "all is well"
    else:
        yield ", ".join(
            f"{number} {status}{'s' * (number != 1)}" for status, number in counts.items() if number
        )
