"""The tree of an object store is listed whole, each file once, and no faster than the caller takes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from delta_log.storage.objects.object_listing import ListSpan, SpanPage, list_object_tree
from delta_log.storage.storage import FileInfo, KeySpan

LANES = 3
SEGMENTS = st.sampled_from(["a", "b", "a-b", "p=1", "p=2", "x0"])
KEYS = st.sets(st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join), max_size=40)


def store_of(keys: Sequence[str], page_keys: int) -> ListSpan:
    """Lists as S3 does: by prefix, from a key on, with directories in the place of what is below them."""
    infos = [FileInfo(key, key.rpartition("/")[2], 1, 1) for key in sorted(keys)]

    def list_span(span: KeySpan) -> Iterator[SpanPage]:
        found: list[FileInfo | str] = []
        for info in infos:
            rest = info.key[len(span.prefix) :]
            if not info.key.startswith(span.prefix) or info.key < span.start:
                continue
            if span.end is not None and info.key >= span.end:
                continue
            directory, slash, _ = rest.partition("/")
            entry = f"{span.prefix}{directory}" if slash and not span.deep else info
            if not found or found[-1] != entry:
                found.append(entry)
        for start in range(0, len(found), page_keys):
            part = found[start : start + page_keys]
            yield SpanPage(
                [entry for entry in part if isinstance(entry, FileInfo)],
                [entry for entry in part if isinstance(entry, str)],
            )

    return list_span


@given(KEYS, st.integers(1, 5), st.booleans(), st.sets(SEGMENTS, max_size=2))
def test_every_file_is_listed_once_but_below_what_is_refused(
    keys: set[str], page_keys: int, has_ranges: bool, refused: set[str]
) -> None:
    pages = list_object_tree(
        store_of(sorted(keys), page_keys),
        lambda names: [name for name in names if name not in refused],
        LANES,
        has_ranges=has_ranges,
    )
    found = [key for page in pages for key in page.names()]
    assert sorted(found) == sorted(key for key in keys if "/" not in key or key.split("/")[0] not in refused)


def test_a_directory_of_many_pages_waits_for_its_reader() -> None:
    pages, listed = 200, 0
    changed = threading.Lock()

    def list_span(span: KeySpan) -> Iterator[SpanPage]:
        nonlocal listed
        for number in range(pages):
            with changed:
                listed += 1
            yield SpanPage([FileInfo(f"part-{number:05d}", f"part-{number:05d}", 1, 1)], [])

    taken = 0
    for page in list_object_tree(list_span, lambda names: names, LANES, has_ranges=True):
        taken += len(page.names())
        if taken % 40 == 1:
            time.sleep(0.02)
        assert listed - taken <= 2 * LANES + 2
    assert taken == pages
