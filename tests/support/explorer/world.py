"""A store in which nothing happens by itself: every call of every actor waits until a schedule lets it go on.

Actors are greenlets, so that a run is one thread, and the same choices give the same run. An actor's next call follows from the
answers that it has had. So it is computed once (:data:`Steps`), and in all other runs with the same answers it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from greenlet import greenlet

from delta_log.errors import CommitRefused, StorageError
from delta_log.runtime import Runtime
from delta_log.storage.managed.commit_catalog import (
    CatalogState,
    CommitCatalog,
    RatifiedCommit,
    TooManyUnpublished,
    VersionTaken,
)
from delta_log.storage.managed.managed_storage import ManagedStorage
from delta_log.storage.storage import EnterDirectories, FileInfo, Storage, TreePage
from delta_maintenance.rewrite.task import ROW_MAP_SUFFIX

NOW_MS = 1_800_000_000_000
#: Everything is written at this time, so that the order of writes shows in nothing but the content.
WRITTEN_MS = NOW_MS - 1_000
#: What is there at the beginning is older than any retention.
FIRST_MS = NOW_MS - 30 * 86_400_000
WRITES = frozenset({"put", "put_if_absent", "delete", "ratify", "set_published"})
#: The object that holds what the catalog of a managed table knows, and the most commits that it holds.
CATALOG = "_catalog"
MOST_UNPUBLISHED = 2
STAGED = "_delta_log/_staged_commits/"
TORN = ("torn", "blind")


class ProcessDied(BaseException):
    """The actor's process is gone: nothing in the product may catch it."""


class Call(NamedTuple):
    """A storage call that an actor is about to make."""

    name: str
    key: str
    data: bytes = b""
    start: int = 0
    length: int | None = None


class Choice(NamedTuple):
    """What happens next.

    ``go``: the actor's call takes place. ``fail``: it fails without effect. ``lost``: it takes effect, and the actor is
    told that it failed. ``late``: the actor is told that it failed, and it takes effect later. ``die``: the process ends
    right before the call. ``arrive``: what was late takes effect now. ``torn`` and ``blind``: the
    log is listed as a directory of a local disk is, that is not at one moment: of the commits since the actor asked, it is
    told of the last one only, or of none, but of whatever else is new.
    """

    what: str
    who: int

    @property
    def is_fault(self) -> bool:
        return self.what not in ("go", "arrive", *TORN)

    @property
    def is_torn(self) -> bool:
        return self.what in TORN


@dataclass
class Store:
    """Objects by key."""

    objects: dict[str, bytes] = field(default_factory=dict)
    #: Every object that was ever written.
    contents: dict[str, bytes] = field(default_factory=dict)
    #: Keys that existed at the beginning.
    first: frozenset[str] = frozenset()
    #: Whether a conditional put is conditional; switched off to see that the checks notice.
    honest: bool = True
    #: The objects that replace all others when the table is dropped and made anew.
    replacement: dict[str, bytes] = field(default_factory=dict)
    replaced: bool = False

    def perform(self, call: Call) -> Any:
        name, key = call.name, call.key
        if name == "read":
            if key not in self.objects:
                raise FileNotFoundError(key)
            end = None if call.length is None else call.start + call.length
            return self.objects[key][call.start : end]
        if name == "head":
            return self._info(key) if key in self.objects else None
        if name == "list_from":
            directory, _, start = key.rpartition("/")
            prefix = f"{directory}/" if directory else ""
            names = sorted(k for k in self.objects if k.startswith(prefix) and "/" not in k[len(prefix) :])
            return [self._info(k) for k in names if k[len(prefix) :] >= start]
        if name == "list_tree":
            return [self._info(k) for k in sorted(self.objects) if not k.startswith("_delta_log/")]
        if name == "delete":
            self.objects.pop(key, None)
            return None
        if name == "replace":
            self.objects, self.first = dict(self.replacement), frozenset()
            self.contents.update(self.replacement)
            self.replaced = True
            return None
        if name in ("load", "ratify", "set_published"):
            state = msgspec.json.decode(self.objects[key], type=CatalogState)
            answer = state if name == "load" else _changed(state, call)
            if isinstance(answer, CatalogState):
                self.objects[key] = msgspec.json.encode(answer)
                return self.objects[key]
            return answer
        if name == "put_if_absent" and self.honest and key in self.objects:
            return False
        self.objects[key] = self.contents[key] = call.data
        return True

    def _info(self, key: str) -> FileInfo:
        written_ms = FIRST_MS if key in self.first else WRITTEN_MS
        content = self.objects[key]
        # As an object store's ETag: it tells the content, and nothing about when it was written.
        return FileInfo(key, key.rpartition("/")[2], len(content), written_ms, str(hash(content)))


def _changed(state: CatalogState, call: Call) -> CatalogState | bytes:
    """The state of a catalog after a call, or why nothing has changed."""
    if call.name == "set_published":
        last = int(call.data)
        if last > state.latest_version:
            return b"not ratified"
        rest = tuple(commit for commit in state.commits if commit.version > last)
        return CatalogState(state.latest_version, rest)
    commit = msgspec.json.decode(call.data, type=RatifiedCommit)
    held = state.commit(commit.version)
    if held is not None and held.file_name == commit.file_name:
        return state
    if commit.version <= state.latest_version:
        return b"taken"
    if commit.version > state.latest_version + 1:
        return b"gap"
    if len(state.commits) >= MOST_UNPUBLISHED:
        return b"too many"
    return CatalogState(commit.version, (*state.commits, commit))


class ActorStorage(Storage):
    """One actor's view of the store: each call is handed to the world, which decides when and whether it happens."""

    concurrency = 1

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.dead = False

    def _ask(self, call: Call) -> Any:
        if self.dead:
            raise ProcessDied
        answer = greenlet.getcurrent().parent.switch(call)
        if isinstance(answer, BaseException):
            self.dead = isinstance(answer, ProcessDied)
            raise answer
        return answer

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return bytes(self._ask(Call("read", key, start=start, length=length)))

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        return map(self.read, keys)

    def open_read(self, key: str) -> Any:
        return pa.BufferReader(self.read(key))

    @contextmanager
    def open_write(self, key: str) -> Iterator[Any]:
        sink = pa.BufferOutputStream()
        yield sink
        self._ask(Call("put", key, sink.getvalue().to_pybytes()))

    def put(self, key: str, data: bytes) -> None:
        self._ask(Call("put", key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return bool(self._ask(Call("put_if_absent", key, data)))

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        return iter(self._ask(Call("list_from", f"{directory}/{start_name}" if directory else start_name)))

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        """All but the log, at one moment; there are no directories besides."""
        files = self._ask(Call("list_tree", ""))
        yield TreePage(
            [info.key for info in files],
            [info.size for info in files],
            [info.modification_time_ms for info in files],
        )

    def head(self, key: str) -> FileInfo | None:
        found: FileInfo | None = self._ask(Call("head", key))
        return found

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._ask(Call("delete", key))

    def replace(self) -> None:
        """Drop the table and make another one in its place."""
        self._ask(Call("replace", ""))


class ActorCatalog(CommitCatalog):
    """One actor's view of the catalog: its requests are calls of the world, too."""

    def __init__(self, storage: ActorStorage) -> None:
        self._storage = storage

    def _ask(self, name: str, data: bytes = b"") -> CatalogState:
        answer = bytes(self._storage._ask(Call(name, CATALOG, data)))
        if answer == b"taken":
            raise VersionTaken(answer)
        if answer == b"too many":
            raise TooManyUnpublished(answer)
        if not answer.startswith(b"{"):
            raise CommitRefused(CATALOG, answer.decode())
        return msgspec.json.decode(answer, type=CatalogState)

    def load(self) -> CatalogState:
        return self._ask("load")

    def ratify(self, commit: RatifiedCommit, domains: Mapping[str, str]) -> CatalogState:
        return self._ask("ratify", msgspec.json.encode(commit))

    def set_published(self, version: int) -> CatalogState:
        return self._ask("set_published", str(version).encode())


class Context(NamedTuple):
    """What an actor works with."""

    name: str
    storage: Storage
    runtime: Runtime
    contents: Mapping[str, bytes]


#: Does its work and says what came of it (a version, ``None`` for nothing to do), or raises.
Actor = Callable[[Context], Any]


@dataclass
class Outcome:
    """How an actor ended: with a result, with an error, or by dying."""

    result: Any = None
    error: Exception | None = None
    died: bool = False


class Step(NamedTuple):
    """What an actor does when it has had certain answers: it makes a call, or ends."""

    came: Call | Outcome
    #: The objects at which it looked past the schedule (:attr:`Context.contents`) since its call before.
    looked_at: tuple[tuple[str, bytes], ...]


#: The steps that are known, by the number of an actor and a hash of all answers that it has had.
Steps = dict[tuple[int, int], Step]


class _Looks(Mapping[str, bytes]):
    """Objects, and a record of those that somebody looks at."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self.seen: dict[str, bytes] = {}

    def __getitem__(self, key: str) -> bytes:
        self.seen[key] = self._contents[key]
        return self.seen[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)


class _Player:
    """An actor in one run. Its code runs only where no other run has shown what it does next.

    :param start: makes the greenlet of an attempt, which is resumed with answers, and returns calls and at last its outcome.
    """

    def __init__(
        self, index: int, start: Callable[[int, Mapping[str, bytes]], greenlet], steps: Steps
    ) -> None:
        self._index, self._start, self._steps = index, start, steps
        self._trail = 0
        self._attempt = 0
        self._answers: list[Any] = []
        self._running: greenlet | None = None
        #: So many answers has the greenlet had.
        self._told = 0

    def begin(self, attempt: int, contents: Mapping[str, bytes]) -> Call | Outcome:
        """Start, as a new process."""
        self.close()  # another run knew how the process before ended, so that its greenlet may not have come there
        self._running, self._attempt, self._answers, self._told = None, attempt, [], 0
        return self.resume(None, contents)

    def resume(self, answer: Any, contents: Mapping[str, bytes]) -> Call | Outcome:
        """Give the actor the answer to its call, and return what it does next."""
        self._answers.append(answer)
        self._trail = hash((self._trail, self._attempt, _identity(answer)))
        step = self._steps.get((self._index, self._trail))
        if step is None or any(contents.get(key) != body for key, body in step.looked_at):
            step = self._steps[self._index, self._trail] = self._computed(contents)
        return step.came

    def _computed(self, contents: Mapping[str, bytes]) -> Step:
        if self._running is None:
            self._looks = _Looks(contents)
            self._running = self._start(self._attempt, self._looks)
        came: Call | Outcome | None = None
        for answer in self._answers[self._told :]:
            self._looks.seen = {}
            came = self._running.switch(answer)
        assert came is not None
        self._told = len(self._answers)
        return Step(came, tuple(self._looks.seen.items()))

    def close(self) -> None:
        """End what still runs, so that nothing of it is left."""
        if self._running:
            self._running.switch(ProcessDied())


def _identity(answer: Any) -> object:
    if isinstance(answer, BaseException):
        return repr(answer)
    return tuple(answer) if isinstance(answer, list) else answer


class World:
    """Some actors and a store, run by choices from the beginning.

    :param restarted: numbers of actors that are started again, once, where their process died, as a scheduler would.
    :param torn: may listings of the log be torn?
    :param replacement: what an actor puts in the place of everything, if one does.
    :param steps: what the same actors have done in other worlds; is added to.
    """

    def __init__(
        self,
        objects: dict[str, bytes],
        actors: list[tuple[str, Actor]],
        *,
        restarted: Collection[int] = (),
        honest: bool = True,
        torn: bool = False,
        replacement: dict[str, bytes] | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.store = Store(dict(objects), dict(objects), frozenset(objects), honest, replacement or {})
        #: Who had listed the log of the table before the other one came.
        self.knows_old: set[int] = set()
        self.uri = "memory://table"
        self.late: list[Call] = []
        self.outcomes: list[Outcome | None] = [None] * len(actors)
        #: What each actor has seen so far; with it and its code, its state is known.
        self.seen: list[int] = [0] * len(actors)
        self.written = 0
        self._actors, self._retries = actors, [int(index in restarted) for index in range(len(actors))]
        self._pending: list[Call | None] = [None] * len(actors)
        self._torn = torn
        #: What was there when an actor began to list the log; ``None``: it does not.
        self._at_begin: list[frozenset[str] | None] = [None] * len(actors)
        steps = {} if steps is None else steps
        self._players = [_Player(index, partial(self._start, index), steps) for index in range(len(actors))]
        for index, player in enumerate(self._players):
            self._came(index, player.begin(0, self.store.contents))

    def _start(self, index: int, attempt: int, contents: Mapping[str, bytes]) -> greenlet:
        name, actor = self._actors[index]
        ids = iter(range(1_000))
        runtime = Runtime(
            now_ms=lambda: NOW_MS,
            new_id=lambda: f"{name}-{index}-{attempt}-{next(ids)}",
            jitter=lambda: 0.5,
            sleep=lambda seconds: None,
        )
        storage: Storage = ActorStorage(self.uri)
        if CATALOG in self.store.objects:
            assert isinstance(storage, ActorStorage)
            storage = ManagedStorage(
                storage, ActorCatalog(storage), new_id=runtime.new_id, sleep=runtime.sleep
            )

        def run(_: object) -> Outcome:
            try:
                return Outcome(actor(Context(name, storage, runtime, contents)))
            except ProcessDied:
                return Outcome(died=True)
            except Exception as error:
                return Outcome(error=error)

        return greenlet(run)

    def _resume(self, index: int, answer: Any) -> None:
        self._came(index, self._players[index].resume(answer, self.store.contents))

    def _came(self, index: int, came: Call | Outcome) -> None:
        lists_log = isinstance(came, Call) and came.name == "list_from" and came.key.startswith("_delta_log/")
        self._at_begin[index] = frozenset(self.store.objects) if self._torn and lists_log else None
        if isinstance(came, Call):
            self._pending[index] = came
            return
        self._pending[index] = None
        if came.died and self._retries[index]:
            self._retries[index] -= 1
            self._came(index, self._players[index].begin(self._retries[index] + 1, self.store.contents))
            return
        self.outcomes[index] = came

    def close(self) -> None:
        for player in self._players:
            player.close()

    @property
    def finished(self) -> bool:
        return not self.late and all(outcome is not None for outcome in self.outcomes)

    def pending(self, who: int) -> Call | None:
        return self._pending[who]

    def choices(self, faults_left: int) -> list[Choice]:
        """Everything that may happen next, but for orders that make no difference.

        Where an actor is at a call that means nothing to the others, and theirs nothing to it, the others wait: whatever
        they do first leads to the same states.
        """
        waiting = {who: call for who, call in enumerate(self._pending) if call is not None}
        private = next((who for who, call in waiting.items() if self._is_private(call)), None)
        if private is not None:
            waiting = {private: waiting[private]}
        found = [Choice("go", who) for who in waiting]
        found += [Choice(what, who) for who in waiting for what in TORN if self._hidden(who, what)]
        if private is None:
            found += [Choice("arrive", index) for index in range(len(self.late))]
        if faults_left:
            for who, call in waiting.items():
                found += [Choice("fail", who), Choice("die", who)]
                if call.name in WRITES:
                    found.append(Choice("lost", who))
                if call.name in ("put_if_absent", "ratify"):
                    found.append(Choice("late", who))
        return found

    def _new_in_log(self, who: int) -> list[str]:
        """What came since an actor began to list the log."""
        before = self._at_begin[who]
        if before is None:
            return []
        new = self.store.objects.keys() - before
        return sorted(key for key in new if key.startswith("_delta_log/") and not key.endswith(".crc"))

    def _hidden(self, who: int, what: str) -> list[str]:
        """The commits that a torn listing does not show, though it shows something newer."""
        new = self._new_in_log(who)
        commits = [key for key in new if _is_commit(key)]
        if what == "torn":
            return commits[:-1]
        return commits if len(new) > len(commits) else []

    def _is_private(self, call: Call) -> bool:
        """Looking at a commit, which never changes; writing a note, or data under a name of one's own; one's own row map."""
        if self.store.replacement and not self.store.replaced:
            return False
        if call.key.endswith(ROW_MAP_SUFFIX):
            return True
        if call.key.startswith(STAGED):
            # The name of the file is unique, and it means nothing before the catalog names it.
            return True
        in_log = call.key.startswith("_delta_log/")
        if call.name in ("read", "head"):
            return in_log and _is_commit(call.key) and call.key in self.store.objects
        # Only a vacuum that lists nothing would ask for what another one noted.
        return call.key.endswith((".crc", "_last_vacuum_info")) if in_log else call.name == "put"

    def take(self, choice: Choice) -> bool:
        """Let it happen; has the store changed?"""
        before = self.written
        if choice.what == "arrive":
            self._perform(self.late.pop(choice.who))
            return self.written != before
        call = self._pending[choice.who]
        assert call is not None
        answer: Any
        if choice.what == "die":
            answer = ProcessDied()
        elif choice.what == "go" or choice.is_torn:
            hidden = self._hidden(choice.who, choice.what) if choice.is_torn else ()
            if call.name == "list_from" and not self.store.replaced:
                self.knows_old.add(choice.who)
            try:
                answer = self._perform(call)
            except FileNotFoundError as error:
                answer = error
            if hidden:
                answer = [info for info in answer if info.key not in hidden]
        else:
            if choice.what == "lost":
                self._perform(call)
            elif choice.what == "late":
                self.late.append(call)
            answer = StorageError(f"{call.key}: {choice.what}", call.key)
        if isinstance(answer, list):
            told: Any = tuple((info.key, info.size) for info in answer if not info.key.endswith(".crc"))
        else:
            told = answer if isinstance(answer, (bytes, bool)) else repr(answer)
        self.seen[choice.who] = hash((self.seen[choice.who], choice.what, call.name, call.key, told))
        self._resume(choice.who, answer)
        return self.written != before

    def _perform(self, call: Call) -> Any:
        if call.name == "replace":
            self.written += 1
            return self.store.perform(call)
        known = self.store.objects.get(call.key)
        answer = self.store.perform(call)
        if self.store.objects.get(call.key) is not known:
            self.written += 1
        return answer

    def state(self) -> int:
        """What decides all that can still happen."""
        return hash(
            (
                frozenset(self.store.objects.items()),
                tuple(self.seen),
                tuple(self._retries),
                frozenset(self.late),
                tuple(tuple(self._new_in_log(who)) for who in range(len(self._actors))),
            )
        )


def _is_commit(key: str) -> bool:
    return key.endswith(".json") and key.count(".") == 1
