from __future__ import annotations

import pytest

from delta_log.errors import InvalidRequest
from delta_maintenance.partitions.predicate import filtered_columns


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = 1", [{"a": False}]),
        ("7 < a", [{"a": True}]),
        ("a = 1; b >= DATE '2026-01-31' AND c.d IN (1, 2)", [{"a": False}, {"b": True, "c.d": False}]),
        ("a BETWEEN 1 AND 2 OR lower(b) = 'x' OR b LIKE 'x%'", [{"a": True, "b": True}]),
        ("a > 1 AND a = 5", [{"a": False}]),
        ("`odd name`.x <=> 'y' AND z <> 3 AND NOT w IN (1) AND u = v", [{"`odd name`.x": False}]),
        ("a = 1;", [{"a": False}]),
    ],
)
def test_columns_that_are_compared_with_values_are_found(text: str, found: list[dict[str, bool]]) -> None:
    assert filtered_columns(text) == found


@pytest.mark.parametrize(
    "text", ["a =", "a", "a <> 3", "a = b", "SELECT 1", ";", "(" * 3000 + "a = 1" + ")" * 3000]
)
def test_what_filters_by_no_column_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be used"):
        filtered_columns(text)
