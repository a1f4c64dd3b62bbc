"""Patterns of addresses: ``*`` stands for any text within one segment of a path, ``**`` for any number of segments.

A pattern is compared segment by segment, from the scheme on: ``s3://lake/**``, ``/data/*/events``, ``glue://sales.*``, and
``**/tmp_*`` for every store. A ``**`` at the end stands for at least one segment, so ``s3://lake/gold/**`` is everything below
``s3://lake/gold``. All other characters stand for themselves.

A *place* is where a comparison stands: the segments of the pattern that may be next. So a search of a directory tree
knows at each directory whether a table there would match, and whether a search further down is of use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from delta_log.storage.table_uri import one_spelling

ANY_DEPTH = "**"
#: Indexes of segments of a pattern; its length stands for the end.
Place = frozenset[int]


class AddressPattern(Struct, frozen=True):
    """A parsed pattern.

    :param segments: segments of the pattern, which begin with the scheme (``s3:``, an empty one, the bucket).
    """

    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> AddressPattern:
        segments = tuple(one_spelling(text).split("/"))
        return cls((*segments[:-1], "*", ANY_DEPTH) if segments[-1] == ANY_DEPTH else segments)

    @property
    def start(self) -> Place:
        return self._with_empty_depths({0})

    def step(self, place: Place, segment: str) -> Place:
        """Return the place behind a segment of an address; an empty place: the address does not match, whatever follows."""
        followed = set()
        for index in place:
            if index == len(self.segments):
                continue
            if self.segments[index] == ANY_DEPTH:
                followed.add(index)
            elif is_match(self.segments[index], segment):
                followed.add(index + 1)
        return self._with_empty_depths(followed)

    def ends_at(self, place: Place) -> bool:
        """Whether the segments up to this place are a whole match."""
        return len(self.segments) in place

    def next_names(self, place: Place) -> list[str] | None:
        """Return the only segments that may be next; ``None``: only a listing shows them."""
        following = [self.segments[index] for index in sorted(place) if index < len(self.segments)]
        return None if any("*" in segment for segment in following) else following

    def places(self, address: str) -> Iterator[Place]:
        """Yield the place behind each segment of an address."""
        place = self.start
        for segment in address.split("/"):
            place = self.step(place, segment)
            yield place

    def _with_empty_depths(self, indexes: set[int]) -> Place:
        """Add the places that a ``**`` without any segment leads to."""
        found = set(indexes)
        for index, segment in enumerate(self.segments):
            if index in found and segment == ANY_DEPTH:
                found.add(index + 1)
        return frozenset(found)


def matches(pattern: str, address: str) -> bool:
    """Whether a pattern matches a whole address, such as ``s3://lake/gold/events`` or ``glue://sales.orders``."""
    parsed = _parsed(pattern)
    *_, last = parsed.places(one_spelling(address))
    return parsed.ends_at(last)


def covers(pattern: str, address: str) -> bool:
    """Whether a pattern matches an address, or a directory above it."""
    parsed = _parsed(pattern)
    return any(map(parsed.ends_at, parsed.places(one_spelling(address))))


def has_wildcard(text: str) -> bool:
    return "*" in text


@lru_cache(maxsize=4096)
def _parsed(pattern: str) -> AddressPattern:
    return AddressPattern.parse(pattern)


def is_match(pattern: str, segment: str) -> bool:
    """Whether a pattern of one segment matches it."""
    first, *middle = pattern.split("*")
    if not middle:
        return pattern == segment
    last = middle.pop()
    at, end = len(first), len(segment) - len(last)
    if at > end or not (segment.startswith(first) and segment.endswith(last)):
        return False
    # The first place of each piece leaves the most room for the others.
    for piece in middle:
        found = segment.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
