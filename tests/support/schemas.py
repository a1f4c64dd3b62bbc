"""The JSON Schemas in the documentation."""

from __future__ import annotations

import json
from typing import Any

from tests.support import ROOT


def published_schema(name: str) -> dict[str, Any]:
    """A schema by the name of its document, such as ``job-report``."""
    file = ROOT / "docs" / "reference" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema
