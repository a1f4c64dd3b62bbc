from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.fleet.pattern import AddressPattern, covers, matches

NAMES = st.text("ab.[", min_size=1, max_size=3)
ADDRESSES = st.lists(NAMES, min_size=1, max_size=5).map(lambda names: "s3://lake/" + "/".join(names))
PIECES = st.one_of(
    st.just("**"), st.text("ab*.[", min_size=1, max_size=3).filter(lambda text: "**" not in text)
)
PATTERNS = st.lists(PIECES, min_size=1, max_size=5).map(lambda pieces: "s3://lake/" + "/".join(pieces))


def naive(pattern: list[str], address: list[str]) -> bool:
    """The meaning of a pattern, by trying everything."""
    if not pattern:
        return not address
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        lowest = 0 if rest else 1
        return any(naive(rest, address[count:]) for count in range(lowest, len(address) + 1))
    return bool(address) and naive_segment(first, address[0]) and naive(rest, address[1:])


def naive_segment(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(naive_segment(pattern[1:], text[count:]) for count in range(len(text) + 1))
    return text[:1] == pattern[0] and naive_segment(pattern[1:], text[1:])


@given(PATTERNS, ADDRESSES)
def test_a_pattern_matches_what_trying_everything_finds(pattern: str, address: str) -> None:
    assert matches(pattern, address) == naive(pattern.split("/"), address.split("/"))


@given(PATTERNS, ADDRESSES)
def test_a_directory_is_covered_with_all_below_it(pattern: str, address: str) -> None:
    segments = address.split("/")
    above = ["/".join(segments[:count]) for count in range(3, len(segments) + 1)]
    assert covers(pattern, address) == any(matches(pattern, one) for one in above)


@given(PATTERNS, ADDRESSES)
def test_a_search_never_leaves_a_directory_out_below_which_something_matches(
    pattern: str, address: str
) -> None:
    parsed = AddressPattern.parse(pattern)
    if matches(pattern, address):
        places = list(parsed.places(address))
        assert all(places)
        for place, following in zip(places, address.split("/")[1:], strict=False):
            names = parsed.next_names(place)
            assert names is None or following in names


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("s3://lake/**", "s3://lake/gold/events", True),
        ("s3://lake/**", "s3://lake", False),
        ("s3a://lake/*", "s3://lake/events/", True),
        ("s3://lake/*", "s3://lake/gold/events", False),
        ("s3://lake/**/events", "s3://lake/events", True),
        ("**/tmp_*", "s3://lake/gold/tmp_1", True),
        ("**/tmp_*", "/data/tmp_1", True),
        ("glue://sales.*", "glue://Sales.Events", True),
        ("/data/*/events", "file:///data/a/events", True),
        ("/data/a.b", "/data/aXb", False),
        ("s3://lake/**", "s3://lakes/x", False),
    ],
)
def test_a_pattern_means_what_the_documentation_says(pattern: str, address: str, expected: bool) -> None:
    assert matches(pattern, address) is expected


def test_many_stars_in_one_segment_are_compared_in_time_that_a_person_has() -> None:
    """Trying each way to share the text among the stars would never end."""
    assert not matches("s3://lake/" + "a*" * 40 + "b", "s3://lake/" + "a" * 200)
    assert matches("s3://lake/" + "a*" * 40 + "b", "s3://lake/" + "a" * 200 + "b")
