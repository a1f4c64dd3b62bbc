"""The page has words for what reports name."""

from __future__ import annotations

import re

from tests.support import ROOT

from airflow_delta.monitoring.fleet import STATUSES
from delta_maintenance.text.selection import LEFT_WORDS

SOURCES = ROOT / "provider" / "airflow_delta" / "monitoring" / "page" / "src"


def names_of(file: str, table: str) -> set[str]:
    """The names in an object of the page's sources."""
    found = re.search(rf"const {table}: [^=]+= \{{\n(.*?)\n\}};", (SOURCES / file).read_text(), re.DOTALL)
    assert found is not None
    return set(re.findall(r"^ *(\w+):", found[1], re.MULTILINE))


def test_each_reason_why_a_file_was_left_has_words() -> None:
    assert names_of("format.ts", "LEFT") == set(LEFT_WORDS)


def test_each_status_of_a_table_has_a_word_and_a_shape() -> None:
    assert names_of("status.tsx", "TABLE_STATUSES") == {*STATUSES, "failing"}
