"""The published form of the contract: JSON Schemas of a job's spec and report.

Each schema follows from the table of members that the reader checks by (:mod:`delta_maintenance.contract`), and its descriptions
from the docstring of the dataclass. ``./dev lint --fix`` writes them to ``docs/reference``; a test compares.

A schema says what this release writes. It permits further members, since a reader ignores those that it does not know.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from delta_maintenance import contract
from delta_maintenance.checked_json import Kind

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: A line of a docstring that describes a member, and the indented lines that go on with it.
_PARAM = re.compile(r"^:param (\w+):\s*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)


def published_schemas() -> dict[str, dict[str, Any]]:
    """Every schema, by the name of its file."""
    return {
        "job-report.schema.json": schema_of(
            contract.JobReport, contract.REPORT_MEMBERS, contract.REQUIRED_IN_REPORT
        ),
        "job-spec.schema.json": schema_of(contract.JobSpec, contract.SPEC_MEMBERS, contract.REQUIRED_IN_SPEC),
    }


def schema_of(cls: type, members: Mapping[str, Kind], required: Sequence[str]) -> dict[str, Any]:
    """The schema of a dataclass that is written as a JSON object.

    :param members: by name, as its reader checks them. One called ``contract_version`` is required in any case.
    """
    documentation = inspect.cleandoc(cls.__doc__ or "")
    summary = plain(documentation.partition("\n:param ")[0].strip())
    described = {name: plain(text) for name, text in _PARAM.findall(documentation)}
    properties = {}
    for name, kind in members.items():
        description = {"description": described[name]} if name in described else {}
        properties[name] = {**kind.schema, **description}
    properties["contract_version"] = {
        "const": contract.CONTRACT_VERSION,
        "description": "The version of this contract. A release reads its own version and the one before.",
    }
    return {
        "$schema": _DIALECT,
        "title": cls.__name__,
        "description": summary,
        "type": "object",
        "properties": properties,
        "required": [*required, "contract_version"],
    }


def plain(text: str) -> str:
    """A piece of a docstring without its markup, as one paragraph. A member that is ``None`` is absent from the JSON object."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``None``", "absent")
    return re.sub(r"\s+", " ", text.replace("``", "").replace("`", "")).strip()


def text_of(schema: Mapping[str, Any]) -> str:
    """The content of a schema's file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
