"""Everything below a table's root on an object store, listed by several requests at a time.

A listing is a chain of pages, each of which names the next, so one chain takes as long as all its answers. Here the
tree is cut first: its upper levels are listed directory by directory, all of a level at once, until there are more
directories than lanes. From there on each lane lists *spans*: runs of neighbouring directories, by one chain of full
pages, wherever the store can start and end a listing at a key. So many small directories cost few requests, and no
directory that the caller refused lies within a span.

Pages reach the caller as they come, a few wait for it: a directory of millions of files is never held here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TypeVar

from delta_log.storage.storage import ODD_KEY, EnterDirectories, FileInfo, KeySpan, TreePage

#: A tree is cut at this level at the latest.
MAX_SHALLOW_LEVELS = 6
#: So many spans for each lane, since nobody knows how many files a directory holds.
_SPANS_PER_LANE = 4
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class SpanPage:
    """One answer of a store: files, directories (keys without a slash at the end), and the name of the next page."""

    files: Sequence[FileInfo]
    directories: Sequence[str]
    following: str | None


ListSpan = Callable[[KeySpan, "str | None"], SpanPage]


def list_object_tree(
    list_span: ListSpan, enter: EnterDirectories, lanes: int, *, has_ranges: bool
) -> Iterator[TreePage]:
    """The pages of a whole tree.

    :param list_span: one page of a span; called from several threads.
    :param has_ranges: the store can start and end a listing at a key; else a span is one directory.
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
    """One span of a tree, see :meth:`~delta_log.storage.storage.Storage.list_part`."""
    if span.deep:
        yield from _deep(list_span, span)
        return
    for met in _shallow(list_span, span):
        if isinstance(met, TreePage):
            yield met
        elif met.names:
            enter(met.names)


@dataclass(frozen=True, slots=True)
class _Below:
    """The directories in a directory."""

    directory: str
    names: Sequence[str]


def _shallow(list_span: ListSpan, span: KeySpan) -> Iterator[TreePage | _Below]:
    """One directory, or a part of it: its files, and at last the directories in it."""
    directories: list[str] = []
    following = None
    while True:
        page = list_span(span, following)
        yield _tree_page(page.files)
        directories += page.directories
        following = page.following
        if following is None or (span.end is not None and directories and f"{directories[-1]}/" >= span.end):
            break
    if span.end is not None:
        directories = [name for name in directories if f"{name}/" < span.end]
    directories = list(
        dict.fromkeys(directories)
    )  # a page may begin with the directory that ended the one before
    odd = [name for name in directories if ODD_KEY.search(name)]
    if odd:
        yield TreePage(others=odd)
    yield _Below(span.prefix.rstrip("/"), [name for name in directories if not ODD_KEY.search(name)])


def _deep(list_span: ListSpan, span: KeySpan) -> Iterator[TreePage]:
    following = None
    while True:
        page = list_span(span, following)
        yield _tree_page(_below(page.files, span))
        following = page.following
        if following is None:
            return


def span_of(directory: str, *, deep: bool = False) -> KeySpan:
    """A directory by itself, or with all below it."""
    return KeySpan(f"{directory}/" if directory else "", deep)


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring directories of one parent, in the order of their keys, with nothing refused between them."""

    prefix: str
    directories: Sequence[str]

    def spans(self, directories: int) -> Iterator[KeySpan]:
        """Of at most so many directories each."""
        for first in range(0, len(self.directories), directories):
            part = self.directories[first : first + directories]
            if len(part) == 1:
                yield span_of(part[0], deep=True)
            else:  # the character after the slash ends the last directory
                yield KeySpan(self.prefix, True, f"{part[0]}/", f"{part[-1]}0")


def runs_of(directory: str, found: Sequence[str], entered: set[str], *, has_ranges: bool) -> list[Run]:
    """Of the directories found in one, those that are entered."""
    prefix = f"{directory}/" if directory else ""
    runs: list[list[str]] = [[]]
    # By their keys, with the slash: "a-b/" lies before "a/".
    for name in sorted(found, key=lambda name: f"{name}/"):
        if name in entered:
            runs[-1].append(name)
        if runs[-1] and not (name in entered and has_ranges):
            runs.append([])
    return [Run(prefix, run) for run in runs if run]


def side_by_side(pool: ThreadPoolExecutor, lanes: int, works: Sequence[Iterator[_Item]]) -> Iterator[_Item]:
    """What several iterators give as it comes, each of them in a thread; at most a few items wait for the caller."""
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
        except BaseException as error:  # noqa: BLE001 - it is the caller's
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
    """Without the files beside the directories of a span: those were listed with their level."""
    if not span.start:
        return list(files)
    at = len(span.prefix)
    return [info for info in files if "/" in info.key[at:]]


def _tree_page(files: Sequence[FileInfo]) -> TreePage:
    odd = [info.key for info in files if ODD_KEY.search(info.key)]
    if odd:
        files = [info for info in files if not ODD_KEY.search(info.key)]
    return TreePage(
        [info.key for info in files],
        [info.size for info in files],
        [info.modification_time_ms for info in files],
        # An object whose name ends with a slash stands for a directory.
        others=[key for key in odd if not key.endswith("/")],
    )
