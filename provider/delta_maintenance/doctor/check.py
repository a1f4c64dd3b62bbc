"""One check, and the document of all checks of an examination.

The document is the output of ``delta-maintenance doctor --json`` and the XCom of the operator. It is a contract: a release that
removes a member or changes its meaning raises :data:`DOCTOR_VERSION`; new checks and members may come without that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from delta_log.errors import DeltaLogError
from delta_log.redaction import redact

DOCTOR_VERSION = 1

OK, WARNING, FAILURE, SKIPPED = "ok", "warning", "failure", "skipped"
_BY_GRAVITY = (FAILURE, WARNING, OK)


class Check(Struct, frozen=True):
    """The result of one check.

    :param name: what was looked at, such as ``store.list``; stable.
    :param status: :data:`OK`, :data:`WARNING` (work is possible, or only some of it), :data:`FAILURE` or :data:`SKIPPED` (a check
        before it failed).
    :param message: what was found.
    :param remedy: what to do; empty if there is nothing to do.
    :param facts: JSON values.
    """

    name: str
    status: str
    message: str
    remedy: str = ""
    facts: Mapping[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "status": self.status, "message": redact(self.message)}
        if self.remedy:
            found["remedy"] = redact(self.remedy)
        if self.facts:
            found["facts"] = dict(self.facts)
        return found


def failed(name: str, error: Exception, remedy: str = "") -> Check:
    """The failure that an exception is.

    :param remedy: remedy for an error that does not name the missing right itself.
    """
    if getattr(error, "right", None) is not None:
        remedy = ""
    text = str(error) if isinstance(error, DeltaLogError) else f"{type(error).__name__}: {error}"
    return Check(name, FAILURE, text, remedy, {"error": type(error).__name__})


class Examination:
    """Runs checks one after the other, and keeps their results."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def add(self, *checks: Check) -> None:
        self.checks += checks

    def run(self, name: str, look: Callable[[], str | Check], remedy: str = "") -> bool:
        """Run one check.

        :param look: function that returns the message of a check that is all right, or another result.
        :param remedy: remedy if it raises.
        :return: whether nothing failed.
        """
        try:
            found = look()
        except Exception as error:  # noqa: BLE001 - any error is what the check has found
            found = failed(name, error, remedy)
        check = Check(name, OK, found) if isinstance(found, str) else found
        self.checks.append(check)
        return check.status != FAILURE

    def skip(self, names: Sequence[str], why: str) -> None:
        self.checks += [Check(name, SKIPPED, f"not tried: {why}") for name in names]

    @property
    def status(self) -> str:
        """The gravest status."""
        found = {check.status for check in self.checks}
        return next((status for status in _BY_GRAVITY if status in found), OK)

    def document(self, table: str | None, spark: str | None) -> dict[str, Any]:
        """
        :param table: the address that was examined.
        :param spark: the master or server that was examined, without secrets.
        """
        return {
            "doctor_version": DOCTOR_VERSION,
            "table": None if table is None else redact(table),
            "spark": None if spark is None else redact(spark),
            "status": self.status,
            "checks": [check.to_dict() for check in self.checks],
        }
