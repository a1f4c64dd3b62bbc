from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tables.memory_lake import MemoryLake
from tests.support.tables.written_log import write_log

from delta_log.errors import InvalidRequest
from delta_log.runtime import Runtime
from delta_maintenance.fleet.discovery import Discovery, FoundTable, discover, read_addresses
from delta_maintenance.fleet.pattern import covers, matches

HEAD = "s3://lake"


@pytest.fixture
def lake() -> MemoryLake:
    made = MemoryLake()
    for address in (
        "gold/events",
        "gold/orders",
        "raw/2026/clicks",
        "raw/tmp_x",
        "raw/tmp_y/below",
        "_hidden/t",
    ):
        made.put_table(f"{HEAD}/{address}")
    made.put(f"{HEAD}/gold/events/day=1/part-0.parquet")
    made.put(f"{HEAD}/raw/files/2026/a.json")
    return made


def found(discovery: Discovery) -> list[str]:
    return [table.table for table in discovery.tables]


def search(lake: MemoryLake, *include: str, exclude: tuple[str, ...] = ()) -> Discovery:
    return discover(include, exclude, open_place=lake.open)


def test_tables_are_found_at_any_depth_and_hidden_directories_are_not_searched(lake: MemoryLake) -> None:
    expected = ["gold/events", "gold/orders", "raw/2026/clicks", "raw/tmp_x", "raw/tmp_y/below"]
    everything = search(lake, f"{HEAD}/**")
    assert found(everything) == [f"{HEAD}/{name}" for name in expected]
    assert not everything.unlisted
    assert not everything.without_tables
    assert all(table.location == table.table for table in everything.tables)
    assert found(search(lake, f"{HEAD}/*/events")) == [f"{HEAD}/gold/events"]
    assert found(search(lake, f"{HEAD}/**", exclude=("**/tmp_*", "s3a://lake/gold/**"))) == [
        f"{HEAD}/raw/2026/clicks"
    ]


def test_a_table_takes_one_request_and_any_other_directory_two(lake: MemoryLake) -> None:
    search(lake, f"{HEAD}/**")
    probes = sorted(address for name, address in lake.calls if name == "list_from")
    listings = sorted(address for name, address in lake.calls if name == "list_directories")
    others = ["gold", "raw", "raw/2026", "raw/files", "raw/files/2026", "raw/tmp_y"]
    tables = ["gold/events", "gold/orders", "raw/2026/clicks", "raw/tmp_x", "raw/tmp_y/below"]
    assert probes == sorted(f"{HEAD}/{name}/_delta_log" for name in (*tables, *others))
    assert listings == sorted([HEAD, *(f"{HEAD}/{name}" for name in others)])
    assert len(lake.calls) == len(probes) + len(listings)


def test_names_without_a_wildcard_are_not_listed(lake: MemoryLake) -> None:
    search(lake, f"{HEAD}/*/events")
    assert sorted(lake.calls) == [
        ("list_directories", HEAD),
        ("list_from", f"{HEAD}/gold/events/_delta_log"),
        ("list_from", f"{HEAD}/raw/events/_delta_log"),
    ]


def test_what_is_excluded_is_asked_for_nothing(lake: MemoryLake) -> None:
    search(lake, f"{HEAD}/**", exclude=(f"{HEAD}/raw/**", f"{HEAD}/raw"))
    assert not any("/raw" in address for _, address in lake.calls)


def test_patterns_that_overlap_ask_and_find_once(lake: MemoryLake) -> None:
    once = search(lake, f"{HEAD}/**")
    calls = len(lake.calls)
    assert search(
        lake, f"{HEAD}/**", f"{HEAD}/gold/*", f"{HEAD}/gold/events", "s3a://lake/gold/events/"
    ) == once.__class__(once.tables)
    assert len(lake.calls) == 2 * calls


def test_an_address_is_taken_as_it_is(lake: MemoryLake) -> None:
    assert discover(["s3a://lake/b/", "/data/x", "s3://lake/b"], open_place=lake.open) == Discovery(
        (FoundTable("/data/x", "/data/x"), FoundTable("s3://lake/b", "s3://lake/b"))
    )
    assert lake.calls == []


def test_an_include_without_tables_is_told(lake: MemoryLake) -> None:
    assert search(lake, f"{HEAD}/silver/**", f"{HEAD}/gold/*").without_tables == (f"{HEAD}/silver/**",)


def test_a_log_without_commits_is_a_table_for_the_survey_to_tell_of(lake: MemoryLake) -> None:
    lake.put(f"{HEAD}/empty/_delta_log/_sidecars/x.parquet")
    assert f"{HEAD}/empty" in found(search(lake, f"{HEAD}/**"))


def test_each_call_that_fails_is_told_and_what_lies_beside_is_found(lake: MemoryLake) -> None:
    whole = found(search(lake, f"{HEAD}/**"))
    calls = lake.calls
    for number, (_, address) in enumerate(list(calls)):
        lake.calls = []
        lake.failing = lambda at, number=number: at == number  # type: ignore[misc]
        told = discover([f"{HEAD}/**"], open_place=lake.open, runtime=Runtime(now_ms=lambda: 7))
        (unread,) = told.unlisted
        place = address.removesuffix("/_delta_log")
        assert (unread.table, unread.seen_ms, unread.error.type) == (place, 7, "StorageError")
        assert unread.error.retryable
        assert found(told) == [one for one in whole if one != place and not one.startswith(f"{place}/")]
        assert told.without_tables == ()


SEGMENTS = st.sampled_from(["a", "b", "ab", "_a", ".b"])
TREES = st.sets(st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join), max_size=8)
PATTERNS = st.lists(st.sampled_from(["a", "*", "a*", "*b", "**"]), min_size=1, max_size=4).map("/".join)


@given(TREES, TREES, st.lists(PATTERNS, min_size=1, max_size=3), st.lists(PATTERNS, max_size=2))
def test_what_is_found_is_what_matches(
    tables: set[str], others: set[str], include: list[str], exclude: list[str]
) -> None:
    # A table in a table is another matter.
    tables = {one for one in tables if not any(one.startswith(f"{other}/") for other in tables)}
    lake = MemoryLake()
    for directory in others:
        lake.put(f"{HEAD}/{directory}/file")
    for table in tables:
        lake.put_table(f"{HEAD}/{table}")
    wanted, unwanted = ([f"{HEAD}/{pattern}" for pattern in patterns] for patterns in (include, exclude))

    def is_found(address: str) -> bool:
        is_hidden = any(name[0] in "_." for name in address.removeprefix(HEAD).split("/")[1:])
        return not is_hidden and not any(covers(one, address) for one in unwanted)

    patterns = [one for one in wanted if "*" in one]
    named = {one for one in wanted if "*" not in one and is_found(one)}
    expected = {
        address
        for address in (f"{HEAD}/{table}" for table in tables)
        if is_found(address) and any(matches(one, address) for one in patterns)
    }
    assert found(search(lake, *wanted, exclude=tuple(unwanted))) == sorted(expected | named)


def test_links_of_a_disk_are_not_followed(tmp_path: Path) -> None:
    write_log(tmp_path / "lake" / "a" / "t", [])
    write_log(tmp_path / "elsewhere" / "u", [])
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "lake" / "again").symlink_to(tmp_path / "lake")
    assert found(discover([f"{tmp_path}/lake/**"])) == [f"{tmp_path}/lake/a/t"]
    # The directory that the pattern names may be one.
    assert found(discover([f"{tmp_path}/lake/again/**"])) == [f"{tmp_path}/lake/again/a/t"]


@pytest.mark.parametrize(
    ("include", "why"),
    [
        ("lake/**", "relative path"),
        ("s3://*/events", "wildcard in place of the bucket"),
        ("s3://**", "wildcard in place of the bucket"),
        ("s3://key:secret-secret@lake/**", "carries credentials"),
        ("glue://*.*", "not a pattern of names"),
        ("glue://sales", "not a name in a catalog"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_asked(
    lake: MemoryLake, include: str, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        search(lake, f"{HEAD}/**", include)
    assert lake.calls == []


def test_a_store_that_cannot_be_opened_is_told() -> None:
    (unread,) = discover(["nosuch://lake/**"]).unlisted
    assert unread.error.type == "InvalidRequest"


def test_addresses_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "tables.txt").write_text("# gold\ns3://lake/gold/**\n\n  /data/é  \r\n")
    assert read_addresses(str(tmp_path / "tables.txt")) == ["s3://lake/gold/**", "/data/é"]
    with pytest.raises(InvalidRequest, match="There is no file"):
        read_addresses(str(tmp_path / "absent.txt"))
    (tmp_path / "tables.txt").write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        read_addresses(str(tmp_path / "tables.txt"))
