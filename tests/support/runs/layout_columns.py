"""Which columns of a table a layout accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from delta_log import Table
from delta_log.errors import InvalidRequest
from tests.support.runs.maintenance_runs import run


def sortable(table: Path) -> list[str]:
    """The columns that a layout accepts, as a dry run tells."""

    def names(fields: list[dict[str, Any]]) -> list[list[str]]:
        found = []
        for member in fields:
            found.append([member["name"]])
            if isinstance(member["type"], dict) and member["type"]["type"] == "struct":
                found += [[member["name"], *inner] for inner in names(member["type"]["fields"])]
        return found

    accepted = []
    for parts in names(json.loads(Table(str(table)).snapshot().metadata.schemaString)["fields"]):
        name = ".".join(f"`{part}`" for part in parts)
        try:
            run(table, zorder_by=[name], dry_run=True)
        except InvalidRequest:
            continue
        accepted.append(name)
    return accepted
