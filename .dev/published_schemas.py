"""Write JSON Schemas into the documentation: of the contract and of a fleet's policy, from their types.

A schema says what this release writes. It permits further members, since a reader ignores those that it does not know.

Called by `./dev lint --fix`; a test says which file is out of date.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.fleet.policy import document
from delta_maintenance.fleet.policy.reading import described_members
from delta_maintenance.job_interface import CONTRACT_VERSION

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "reference"
_KINDS = {"job-report.schema.json": JobReport, "job-spec.schema.json": JobSpec}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: A line of a docstring that describes a member, and the indented lines that go on with it.
_PARAM = re.compile(r"^:param (\w+):\s*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)


def published_schemas() -> dict[str, str]:
    """The content of each schema, by the name of its file."""
    schemas = {name: _schema_of(kind) for name, kind in _KINDS.items()}
    schemas["fleet-policy.schema.json"] = _schema_of_policy()
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in schemas.items()}


def _schema_of(kind: type) -> dict[str, Any]:
    parts = msgspec.json.schema(kind)["$defs"]
    for part in parts.values():
        text = inspect.cleandoc(part.pop("description", ""))
        for name, described in _PARAM.findall(text):
            if name in part["properties"]:
                part["properties"][name]["description"] = _plain(described)
        part["description"] = _plain(text.partition(":param ")[0])
    if "ErrorReport" in parts:  # the facts are members beside the others
        del parts["ErrorReport"]["properties"]["facts"]
    schema = {"$schema": _DIALECT, **parts.pop(kind.__name__), "$defs": parts}
    # Both sides state the version, and a reader refuses a document without it.
    schema["required"].append("contract_version")
    schema["properties"]["contract_version"] = {
        "const": CONTRACT_VERSION,
        "description": "The version of this contract. A release reads its own version and the one before.",
    }
    return schema


def _schema_of_policy() -> dict[str, Any]:
    """The schema of a policy's file, for editors. A policy is strict: it permits no further members."""
    parts = msgspec.json.schema(document.Policy, schema_hook=_schema_of_quantity)["$defs"]
    for name, part in parts.items():
        kind = getattr(document, name)
        described = described_members(kind)
        for field in msgspec.structs.fields(kind):
            if field.name in described:
                part["properties"][field.encode_name]["description"] = described[field.name]
        part["description"] = _plain((inspect.getdoc(kind) or "").partition(":param ")[0])
    return {"$schema": _DIALECT, **parts.pop("Policy"), "$defs": parts}


def _schema_of_quantity(kind: Any) -> dict[str, Any]:
    return dict(kind.schema)


def _plain(text: str) -> str:
    """A piece of a docstring without its markup, as one paragraph. A member that is ``None`` is absent from the JSON object."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``None``", "absent")
    return re.sub(r"\s+", " ", text.replace("``", "").replace("`", "")).strip()


def main() -> None:
    for name, text in published_schemas().items():
        path = DIRECTORY / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{name}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
