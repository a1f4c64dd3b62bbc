from __future__ import annotations

import json
from typing import Any

from delta_log.table_config.schema import PHYSICAL_NAME, TYPE_CHANGES
from delta_maintenance.drop_feature.plan.lower_schema import (
    has_notes,
    renamed_columns,
    unusual_names,
    without_notes,
)


def _field(name: str, kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _everywhere(**metadata: Any) -> str:
    """A schema with a note at a field of a struct within a map's value within an array."""
    inner = _struct(_field("deep", **metadata), _field("comment", comment="stays"))
    nested = {"type": "array", "containsNull": True,
              "elementType": {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}}  # fmt: skip
    return json.dumps(_struct(_field("top"), _field("nested", nested)))


def test_notes_go_at_every_depth_and_nothing_else_does() -> None:
    schema = _everywhere(**{TYPE_CHANGES: [], "comment": "stays"})
    assert has_notes(schema, TYPE_CHANGES)
    left = without_notes(schema, (TYPE_CHANGES,))
    assert not has_notes(left, TYPE_CHANGES)
    assert json.loads(left) == json.loads(_everywhere(comment="stays"))


def test_a_column_that_was_renamed_is_found_at_every_depth() -> None:
    assert renamed_columns(_everywhere(**{PHYSICAL_NAME: "col-1"})) == ["deep"]
    assert renamed_columns(_everywhere(**{PHYSICAL_NAME: "deep"})) == []


def test_names_that_need_column_mapping_are_found() -> None:
    schema = _struct(_field("plain"), _field("a b"), _field("in", _struct(_field("x=y"), _field("ü-.'"))))
    assert unusual_names(json.dumps(schema)) == ["a b", "x=y"]
