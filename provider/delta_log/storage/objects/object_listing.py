"""Lists everything below a table's root on an object store by several requests at a time.

A listing is a chain of pages, each of which names the next one, so a single chain takes the time of all its answers. This
module cuts the tree first. It lists the upper levels directory by directory, all of a level at once, until there are at least
as many directories as lanes. Each lane (a thread) then lists *spans*. Where the store can start and end a listing at a key, a
span is a run of neighbouring directories, listed by one chain of full pages. So many small directories cost few requests. A
span holds no directory that the caller refused.

Pages reach the caller as they come, and only a few wait, so that a directory of millions of files is never held in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Full, Queue
from typing import TypeVar

from msgspec import Struct

from delta_log.storage.storage import EnterDirectories, FileInfo, KeySpan, TreePage

#: At most this many levels are listed directory by directory.
MAX_SHALLOW_LEVELS = 6
#: How many spans each lane gets. Several, because directories hold unequal numbers of files.
_SPANS_PER_LANE = 4
_Item = TypeVar("_Item")


class SpanPage(Struct, frozen=True):
    """A part of a span: files, and directories (keys without a final slash)."""

    files: Sequence[FileInfo]
    directories: Sequence[str]


#: Yields the pages of a span, in the order of their keys.
ListSpan = Callable[[KeySpan], Iterator[SpanPage]]


def list_object_tree(
    list_span: ListSpan, enter: EnterDirectories, lanes: int, *, has_ranges: bool
) -> Iterator[TreePage]:
    """Yield the pages of a whole tree.

    :param list_span: function that yields the pages of a span; called from several threads.
    :param has_ranges: whether the store can start and end a listing at a key; otherwise a span is one directory.
    """
    with ThreadPoolExecutor(lanes) as pool:
        runs: list[Run] = []
        level = [""]
        for _ in range(MAX_SHALLOW_LEVELS):
            following: list[str] = []
            runs = []
            for met in side_by_side(pool, lanes, [_shallow(list_span, span_of(name)) for name in level]):
                if isinstance(met, TreePage):
                    yield met
                    continue
                entered = set(enter(met.names)) if met.names else set()
                following += (name for name in met.names if name in entered)
                runs += runs_of(met.directory, met.names, entered, has_ranges=has_ranges)
            level = following
            if not level or len(level) >= lanes:
                break
        if level:
            per_span = max(1, len(level) // (lanes * _SPANS_PER_LANE))
            spans = [span for run in runs for span in run.spans(per_span)]
            yield from side_by_side(pool, lanes, [_deep(list_span, span) for span in spans])


def list_span_tree(list_span: ListSpan, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
    """Yield the pages of one span, see :meth:`~delta_log.storage.storage.Storage.list_part`."""
    if span.deep:
        yield from _deep(list_span, span)
        return
    for met in _shallow(list_span, span):
        if isinstance(met, TreePage):
            yield met
        elif met.names:
            enter(met.names)


class _Below(Struct, frozen=True):
    """The directories directly in a directory."""

    directory: str
    names: Sequence[str]


def _shallow(list_span: ListSpan, span: KeySpan) -> Iterator[TreePage | _Below]:
    """List one directory, or a part of it: yield its files, and last the directories in it."""
    directories: list[str] = []
    for page in list_span(span):
        yield TreePage.of_files(page.files)
        directories += page.directories
    yield _Below(span.prefix.rstrip("/"), directories)


def _deep(list_span: ListSpan, span: KeySpan) -> Iterator[TreePage]:
    for page in list_span(span):
        yield TreePage.of_files(_below(page.files, span))


def span_of(directory: str, *, deep: bool = False) -> KeySpan:
    """Return the span of a directory, alone or with all below it."""
    return KeySpan(f"{directory}/" if directory else "", deep)


class Run(Struct, frozen=True):
    """Neighbouring directories of one parent, in the order of their keys, without a refused one between them."""

    prefix: str
    directories: Sequence[str]

    def spans(self, directories: int) -> Iterator[KeySpan]:
        """Yield spans of at most this many directories each."""
        for first in range(0, len(self.directories), directories):
            part = self.directories[first : first + directories]
            if len(part) == 1:
                yield span_of(part[0], deep=True)
            else:  # the character after the slash ends the last directory
                yield KeySpan(self.prefix, True, f"{part[0]}/", f"{part[-1]}0")


def runs_of(directory: str, found: Sequence[str], entered: set[str], *, has_ranges: bool) -> list[Run]:
    """Group the entered ones among the directories found in a directory into runs."""
    prefix = f"{directory}/" if directory else ""
    runs: list[list[str]] = [[]]
    # In the order of keys with their slash: "a-b/" comes before "a/".
    for name in sorted(found, key=lambda name: f"{name}/"):
        if name in entered:
            runs[-1].append(name)
        if runs[-1] and not (name in entered and has_ranges):
            runs.append([])
    return [Run(prefix, run) for run in runs if run]


def side_by_side(pool: ThreadPoolExecutor, lanes: int, works: Sequence[Iterator[_Item]]) -> Iterator[_Item]:
    """Run each iterator in a thread and yield their items as they come; at most a few items wait for the caller."""
    items: Queue[_Item | BaseException | None] = Queue(2 * lanes)
    stopped = threading.Event()

    def put(item: _Item | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                items.put(item, timeout=0.5)
            except Full:
                continue
            return

    def work(iterator: Iterator[_Item]) -> None:
        try:
            for item in iterator:
                put(item)
                if stopped.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            put(error)
        put(None)

    running = [pool.submit(work, iterator) for iterator in works]
    remaining = len(running)
    try:
        while remaining:
            try:
                item = items.get(timeout=1)
            except Empty:
                continue
            if isinstance(item, BaseException):
                raise item
            if item is None:
                remaining -= 1
            else:
                yield item
    finally:
        stopped.set()
        for future in running:
            future.cancel()


def _below(files: Sequence[FileInfo], span: KeySpan) -> list[FileInfo]:
    """Remove the files beside the directories of a span, which were listed with their level."""
    if not span.start:
        return list(files)
    at = len(span.prefix)
    return [info for info in files if "/" in info.key[at:]]
