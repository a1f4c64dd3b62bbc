"""The fields of a connection, as the functions that make storage options of them see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Connection

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class UnusableConnection(AirflowFailException):
    """A connection that no table can be opened with. Another try would find the same one."""

    at_fault = "the connection"
    retryable = False


@dataclass(frozen=True, slots=True)
class ConnectionFields:
    """A connection, with its extra read. A field without a value is ``None``.

    :param extra: members of the extra that have a value.
    """

    conn_id: str
    conn_type: str
    host: str | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, conn_id: str, connection: Connection) -> ConnectionFields:
        """
        :raises UnusableConnection: the extra is not a JSON object.
        """
        extra = _parsed(conn_id, connection.extra)
        return cls(
            conn_id,
            connection.conn_type or "",
            connection.host or None,
            connection.login or None,
            connection.password or None,
            {name: value for name, value in extra.items() if value not in (None, "")},
        )

    def get(self, name: str) -> Any:
        """Return a member of the extra. Connections of old providers have a prefix before its name."""
        value = self.extra.get(name)
        return value if value is not None else self.extra.get(f"extra__{self.conn_type}__{name}")

    def text(self, name: str) -> str | None:
        """
        :raises UnusableConnection: the member is not a text.
        """
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.unusable(f"its {name!r} is not a text", f"Write {name!r} of its extra as a text.")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        """
        :raises UnusableConnection: the member is neither an object nor a text that holds one.
        """
        value = self.get(name)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                value = ""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.unusable(
                f"its {name!r} is not a JSON object", f"Write {name!r} of its extra as an object."
            )
        return value

    def flag(self, name: str) -> bool:
        """
        :raises UnusableConnection: the member is neither true nor false.
        """
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        word = str(value).lower()
        if word not in _TRUE + _FALSE:
            raise self.unusable(
                f"its {name!r} is neither true nor false", f"Write {name!r} as true or false."
            )
        return word in _TRUE

    def unusable(self, problem: str, remedy: str) -> UnusableConnection:
        return UnusableConnection(
            f"Connection {self.conn_id!r} of type {self.conn_type!r} cannot be used for tables: {problem}. Nothing was "
            f"started. {remedy}"
        )


def _parsed(conn_id: str, text: str | None) -> dict[str, Any]:
    """The connection's extra. Airflow reads an extra that is not JSON as empty, which would mean another identity."""
    try:
        extra = json.loads(text or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise UnusableConnection(
            f"The extra of connection {conn_id!r} is not a JSON object, so its storage options cannot be read. Correct it in "
            "the connection's form."
        )
    return extra
