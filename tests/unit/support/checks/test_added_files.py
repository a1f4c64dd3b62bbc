"""The check that so many tests of rewrites rest on finds what may be wrong: in statistics, in an add, in a file's schema."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.checks.added_files import check_added_files
from tests.support.runs.maintenance_runs import run
from tests.support.tables.rewritable_tables import File, GeneratedTable

from delta_log.log.file_names import commit_key

_COLUMNS = ("long", "cents", "double", "day", "flag", "text", "bytes", "deep", "list")
_MOMENT = datetime(2020, 2, 3, 4, 5, 6, 7_008, timezone.utc)
_EMPTY: dict[str, Any] = dict.fromkeys(_COLUMNS)
_FULL: dict[str, Any] = {
    "long": 3,
    "cents": Decimal("-1.25"),
    "double": -0.0,
    "day": date(2020, 2, 3),
    "flag": True,
    "text": "z" * 40,
    "bytes": b"x",
    "deep": {"d": {"e": {"f": 0.5, "g": _MOMENT}, "h": Decimal("7.0001")}, "i": None},
    "list": [1.0],
}
_OTHER = {**_FULL, "long": 9, "double": 0.0, "text": "a" * 40, "deep": {"d": None, "i": date(1, 2, 3)}}
_GONE = object()


def compacted(path: Path, **properties: str) -> Path:
    """Three rows of two files in one, of which the statistics name each column."""
    files = [
        File(_COLUMNS, rows, frozenset(), None, extra=False, has_stats=True, row_group=1)
        for rows in ([_FULL, _OTHER], [_EMPTY])
    ]
    table = GeneratedTable(_COLUMNS, "name", False, False, tuple(files), properties=properties)
    table.write(path)
    assert run(path, full=True).metrics["numAddedFiles"] == 1
    return path


def in_metadata(path: Path, old: str, new: str) -> None:
    """The table was always otherwise than its files think."""
    commit = path / commit_key(0)
    text = commit.read_text()
    assert text.count(old) == 1
    commit.write_text(text.replace(old, new))


def put(tree: dict[str, Any], names: list[str], value: Any) -> None:
    for name in names[:-1]:
        tree = tree[name]
    if value is _GONE:
        del tree[names[-1]]
    else:
        assert tree.get(names[-1]) != value or repr(tree[names[-1]]) != repr(value)
        tree[names[-1]] = value


#: Where in the add, or by logical names in its statistics, and what is said there instead of the truth.
_WRONG = [
    ("add dataChange", True),
    ("add size", 1),
    ("add deletionVector", {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 1, "cardinality": 1}),
    ("numRecords", 4),
    ("tightBounds", False),
    ("tightBounds", _GONE),
    ("nullCount long", 0),
    ("nullCount long", _GONE),
    ("nullCount list", 2),
    ("nullCount deep d e f", 1),
    ("nullCount deep d e", _GONE),
    ("nullCount more", 0),
    ("minValues long", 4),
    ("minValues long", 2),
    ("minValues long", _GONE),
    ("maxValues cents", -1.24),
    ("maxValues cents", "-1.25"),
    ("minValues double", 0.0),
    ("maxValues double", -0.0),
    ("minValues day", "2020-02-02"),
    ("minValues flag", False),
    ("maxValues bytes", "x"),
    ("maxValues list", 1.0),
    ("minValues text", "a" * 31),
    ("minValues text", "a" * 40),
    ("maxValues text", "z" * 32),
    ("maxValues text", "z" * 31 + "\x7f"),
    ("maxValues text", "z" * 32 + "\U0010ffff"),
    ("maxValues text", "z" * 41),
    ("maxValues text", _GONE),
    ("maxValues deep d e f", 0.75),
    ("minValues deep d e g", "2020-02-03T04:05:06.006Z"),
    ("minValues deep d e g", "2020-02-03T04:05:06.008Z"),
    ("maxValues deep d e g", "2020-02-03T04:05:06.007Z"),
    ("maxValues deep d e g", "2020-02-03T04:05:06.009Z"),
    ("maxValues deep d e g", "2020-02-03 04:05:06.008Z"),
    ("maxValues deep d h", 7.0002),
    ("maxValues deep i", _GONE),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compacted(tmp_path_factory.mktemp("table"))


@pytest.mark.parametrize(("where", "value"), _WRONG)
def test_what_an_add_says_that_is_not_the_truth_is_found(table: Path, where: str, value: Any) -> None:
    assert check_added_files(table, 1) == 1
    commit = table / commit_key(1)
    text = commit.read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    stats = json.loads(add["stats"])
    part, *names = where.split()
    if part == "add":
        put(add, names, value)
    else:
        put(stats, [part, *map(physical_name, names)], value)
    add["stats"] = json.dumps(stats)
    try:
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        with pytest.raises(AssertionError):
            check_added_files(table, 1)
    finally:
        commit.write_text(text)


def physical_name(name: str) -> str:
    """Return the physical name of a column or member of the table, at any depth."""
    names = (*_COLUMNS[:8], "d", "e", "f", "g", "h", "i", "list")
    return f"col-{names.index(name) + 1:04}" if name in names else name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('Mapping.id\\": 11', 'Mapping.id\\": 111'),
        ('Name\\": \\"col-0011', 'Name\\": \\"col-0111'),
        ('type\\": \\"long\\"', 'type\\": \\"integer\\"'),
    ],
)
def test_a_file_that_is_not_as_the_schema_says_is_found(tmp_path: Path, old: str, new: str) -> None:
    compacted(tmp_path)
    in_metadata(tmp_path, old, new)
    with pytest.raises(AssertionError):
        check_added_files(tmp_path, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NumIndexedCols", "3"),
        ("NumIndexedCols", "0"),
        ("StatsColumns", "deep.d"),
        ("StringPrefixLength", "8"),
    ],
)
def test_what_a_table_says_of_its_statistics_is_to_be_obeyed(tmp_path: Path, name: str, value: str) -> None:
    obeyed = compacted(tmp_path / "obeyed", **{f"delta.dataSkipping{name}": value})
    assert check_added_files(obeyed, 1) == 1
    ignored = compacted(tmp_path / "ignored")
    mode = '"delta.columnMapping.mode"'
    in_metadata(ignored, mode, f'"delta.dataSkipping{name}": "{value}", {mode}')
    with pytest.raises(AssertionError):
        check_added_files(ignored, 1)
