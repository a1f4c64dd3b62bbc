"""An examination keeps what its checks find, whatever they raise, and its gravest status."""

from __future__ import annotations

from delta_log.errors import InvalidRequest
from delta_maintenance.doctor.check import FAILURE, WARNING, Check, Examination
from delta_maintenance.text.doctor import render_doctor


def broken() -> str:
    raise OSError("no space left")


def refused() -> str:
    raise InvalidRequest("The address is wrong. Correct it.")


def test_errors_are_what_was_found() -> None:
    examination = Examination()
    assert examination.run("one", lambda: "fine")
    assert not examination.run("two", broken, "Make room.")
    assert not examination.run("three", refused)
    examination.skip(["four"], "there is no room")
    found = [(check.status, check.message, check.remedy) for check in examination.checks]
    assert found == [
        ("ok", "fine", ""),
        ("failure", "OSError: no space left", "Make room."),
        ("failure", "The address is wrong. Correct it.", ""),
        ("skipped", "not tried: there is no room", ""),
    ]


def test_the_gravest_status_counts() -> None:
    examination = Examination()
    assert examination.status == "ok"
    examination.add(Check("one", WARNING, "hm"))
    assert examination.status == "warning"
    examination.add(Check("two", FAILURE, "no", "Do it."))
    assert examination.document(None, None)["status"] == "failure"


def test_a_line_for_each_check_and_its_remedy() -> None:
    examination = Examination()
    examination.add(Check("store.list", "ok", "fine"), Check("store.clock", FAILURE, "late", "Use NTP."))
    lines = render_doctor(examination.document("/t", None)).splitlines()
    assert [line.split(maxsplit=2) for line in lines[:2]] == [
        ["ok", "store.list", "fine"],
        ["failure", "store.clock", "late"],
    ]
    assert lines[2].strip() == "-> Use NTP."
    assert lines[3] == "1 failure"
