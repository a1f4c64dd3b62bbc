"""Arguments that the tasks of a fleet share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_maintenance.options import Address, Kind, Option, Text, shown


class PolicySource(Kind):
    """The path of a policy's file, or the members of a policy as a dictionary."""

    def read(self, value: Any) -> str | Mapping[str, Any]:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
        if isinstance(value, str) and value.strip():
            return value
        raise ValueError(
            f"{shown(value)} is neither the path of a policy's file nor a dictionary with its members."
        )


class UnitNumbers(Kind):
    """Numbers of units within a decision."""

    def read(self, value: Any) -> list[int]:
        if isinstance(value, list | tuple) and all(type(one) is int and one >= 0 for one in value):
            return list(value)
        raise ValueError(f"{shown(value)} is not a list of numbers of units.")


POLICY = Option(
    "policy",
    PolicySource(),
    "the policy: path of its file, absolute or beside the DAG file, or its members as a dictionary",
    required=True,
)
STATE = Option(
    "state",
    Address(),
    "directory in which the fleet keeps its memory: an absolute path, or a URI of a store that delta_conn_id opens",
    required=True,
)
ASSET = Option(
    "asset",
    Text(),
    "name of the asset whose event tells that a run is over, and in whose state store the page Delta tables keeps what it knows of the fleet",
    default="fleet",
    templates="none",
)
DECIDED_BY = Option(
    "decided_by",
    Text(),
    "id of the task that has decided what this run does",
    required=True,
    templates="none",
)
