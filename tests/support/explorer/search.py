"""Every schedule of some actors with at most so many faults, or a seeded sample of them.

A run cannot be taken back, so it is repeated from the start for each way that it could go on, from what is known of each
actor's steps where it is known. A state that was seen before is not explored again, and what can follow depends on the state alone: on the objects in the store, and on
what each actor has seen of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from delta_log.errors import CommitFailed, CommitUnknown, CorruptLog, DeltaLogError
from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.managed.commit_catalog import CatalogState, CommitCatalog, RatifiedCommit
from delta_log.storage.managed.managed_storage import ManagedStorage
from delta_log.testing import MemoryStorage
from tests.support.explorer import history
from tests.support.explorer.actors import (
    ACTORS,
    LAYOUT,
    REBASING,
    REPLACE,
    RESTARTED,
    WAITING,
    effect_of,
    layout,
    rebasing,
    replace_table,
    replacement,
    waiting,
)
from tests.support.explorer.history import Violation
from tests.support.explorer.world import CATALOG, Choice, Steps, World

#: A start and an end; two batches.
_COMMIT_TWICE = ("vacuum", "batches")


@dataclass
class Found:
    """What a search saw.

    :ivar ends: how the actors ended, by what they ended with.
    :ivar torn: listings that showed a commit and not the one before it.
    """

    states: int = 0
    runs: int = 0
    transitions: int = 0
    torn: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def include(self, other: Found) -> None:
        self.states += other.states
        self.runs += other.runs
        self.transitions += other.transitions
        self.torn += other.torn
        self.faults += other.faults
        self.ends += other.ends

    def __str__(self) -> str:
        faults = ", ".join(f"{n:,} {what}" for what, n in sorted(self.faults.items()))
        ends = ", ".join(f"{n:,} {what}" for what, n in sorted(self.ends.items()))
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.runs:,} runs; "
            f"faults: {faults or 'none'}; torn listings: {self.torn:,}; ends: {ends}"
        )


class Search:
    """
    :param kinds: of the actors, by their names in :data:`ACTORS`; one may come several times.
    :param objects: the store at the beginning.
    :param honest: see :class:`~tests.support.explorer.world.Store`.
    :param torn: see :class:`~tests.support.explorer.world.World`.
    """

    def __init__(
        self, kinds: Sequence[str], objects: dict[str, bytes], *, honest: bool = True, torn: bool = False
    ) -> None:
        known = {**ACTORS, WAITING: waiting, LAYOUT: layout, REBASING: rebasing, REPLACE: replace_table}
        self._actors = [(f"{kind}.{number}", known[kind]) for number, kind in enumerate(kinds)]
        self._replacement = replacement() if REPLACE in kinds else None
        self._effects = {name: effect_of(name) for name, _ in self._actors}
        self._restarted = [number for number, kind in enumerate(kinds) if kind in RESTARTED]
        self._objects, self._honest, self._torn = objects, honest, torn
        self._checked: set[int] = set()
        self._steps: Steps = {}

    def exhaustive(self, faults: int) -> Found:
        """Every schedule with at most so many faults.

        :raises Violation: with the schedule that leads to it.
        """
        found = Found()
        seen: set[tuple[int, int]] = set()
        ahead: list[list[Choice]] = [[]]
        while ahead:
            prefix = ahead.pop()
            world, taken = self._replayed(prefix), list(prefix)
            found.runs += 1
            found.faults.update(choice.what for choice in prefix[-1:] if choice.is_fault)
            found.torn += any(choice.is_torn for choice in prefix[-1:])
            while True:
                left = faults - sum(choice.is_fault for choice in taken)
                state = (world.state(), left)
                if state in seen:
                    break
                seen.add(state)
                found.states += 1
                if world.finished:
                    self._end(world, taken, found)
                    break
                first, *others = world.choices(left)
                ahead += [[*taken, other] for other in others]
                self._step(world, first, taken)
                found.transitions += 1 + len(others)
            world.close()
        return found

    def sampled(self, faults: int, runs: int, seed: int) -> Found:
        """So many random schedules, each with so many faults at random calls."""
        found = Found()
        chance = random.Random(seed)
        for _ in range(runs):
            world, taken = self._replayed([]), list[Choice]()
            found.runs += 1
            while not world.finished:
                left = faults - sum(choice.is_fault for choice in taken)
                quiet = world.choices(0)
                broken = [choice for choice in world.choices(left) if choice.is_fault]
                torn = [choice for choice in quiet if choice.is_torn]
                choice = chance.choice(broken if broken and chance.random() < 0.08 else torn or quiet)
                found.faults.update([choice.what] if choice.is_fault else [])
                found.torn += choice.is_torn
                self._step(world, choice, taken)
                found.transitions += 1
            self._end(world, taken, found)
            world.close()
        return found

    def _replayed(self, prefix: Sequence[Choice]) -> World:
        world = World(
            self._objects,
            self._actors,
            restarted=self._restarted,
            honest=self._honest,
            torn=self._torn,
            replacement=self._replacement,
            steps=self._steps,
        )
        for choice in prefix[:-1]:
            world.take(choice)
        if prefix:
            self._step(world, prefix[-1], list(prefix[:-1]))
        return world

    def _step(self, world: World, choice: Choice, taken: list[Choice]) -> None:
        log = _log_of(world)
        changed = world.take(choice)
        taken.append(choice)
        if not changed or world.store.replaced:
            # What an actor has left in another table's log, it may still take back.
            return
        now = _log_of(world)
        rewritten = [key for key, body in log.items() if now.get(key) != body]
        if rewritten:
            raise Violation(f"{rewritten} changed after they were written\n{_told(taken)}")
        self._check(world, taken)

    def _check(self, world: World, taken: list[Choice]) -> None:
        objects = world.store.objects
        state = hash(frozenset(objects.items()))
        if state in self._checked:
            return
        self._checked.add(state)
        try:
            expected = history.check(_seen(objects), world.store.contents, self._effects)
            self._check_reader(objects, expected)
        except Violation as violation:
            raise Violation(f"{violation}\n{_told(taken)}") from None

    def _check_reader(self, objects: dict[str, bytes], expected: history.State) -> None:
        """The table loads, and says what the model says; so does a checksum file, where there is one."""
        memory = MemoryStorage("memory://table")
        memory.objects = {key: (body, 1) for key, body in objects.items()}
        storage = ManagedStorage(memory, StoredCatalog(objects[CATALOG])) if CATALOG in objects else memory
        snapshot = Snapshot(storage, find_log_segment(storage))
        files = {row["path"]: row["deletion_vector"] for row in snapshot.files().to_pylist()}
        live = {path: file.get("deletionVector") for path, file in expected.live.items()}
        if {path: v and v["pathOrInlineDv"] for path, v in files.items()} != {
            path: v and v["pathOrInlineDv"] for path, v in live.items()
        }:
            raise Violation(f"version {snapshot.version} reads as {files}, and is {live}")

    def _end(self, world: World, taken: list[Choice], found: Found) -> None:
        if world.store.replaced:
            self._end_replaced(world, taken, found)
            return
        bodies = history.commits_of(_seen(world.store.objects))
        by_actor = Counter(history.operation_of(commit) for commit in bodies)
        for (name, _), outcome in zip(self._actors, world.outcomes, strict=True):
            assert outcome is not None
            commits, error = by_actor[name], outcome.error
            usual = 2 if name.startswith(_COMMIT_TWICE) else 1
            if error is not None and not isinstance(error, DeltaLogError):
                raise Violation(f"{name} ended with {error!r}\n{_told(taken)}") from error
            if isinstance(error, CorruptLog) or type(error) is CommitFailed:
                raise Violation(f"{name} misses a commit that is there: {error}\n{_told(taken)}")
            # Who is started again says so again.
            if commits > usual and not (usual == 2 and "die" in {c.what for c in taken}):
                raise Violation(f"{name} was committed {commits} times\n{_told(taken)}")
            if isinstance(outcome.result, int) and not name.startswith("checkpoint"):
                if outcome.result >= len(bodies) or history.operation_of(bodies[outcome.result]) != name:
                    raise Violation(f"{name} believes in version {outcome.result}\n{_told(taken)}")
            settled = error is not None and not isinstance(error, CommitUnknown)
            if settled and commits and usual == 1 and "die" not in {c.what for c in taken}:
                raise Violation(f"{name} ended with {error!r} and is in the log\n{_told(taken)}")
            winner = bodies[error.version] if isinstance(error, CommitFailed) and error.version else []
            if name.startswith("compaction") and (history.operation_of(winner) or "").startswith(
                "compaction"
            ):
                raise Violation(f"{name} lost to its own work: {error}\n{_told(taken)}")
            found.ends[_named(outcome.result, error, died=outcome.died)] += 1

    def _end_replaced(self, world: World, taken: list[Choice], found: Found) -> None:
        """The new table is whole, and nothing in its log was meant for the one before."""
        self._check(world, taken)
        by_actor = Counter(history.operation_of(commit) for commit in history.commits_of(world.store.objects))
        for who, ((name, _), outcome) in enumerate(zip(self._actors, world.outcomes, strict=True)):
            assert outcome is not None
            if who in world.knows_old and by_actor[name]:
                raise Violation(f"{name} committed to another table than it had read\n{_told(taken)}")
            # A file that went with the table is named by whatever first asked for it.
            if outcome.error is not None and not isinstance(
                outcome.error, (DeltaLogError, FileNotFoundError)
            ):
                raise Violation(f"{name} ended with {outcome.error!r}\n{_told(taken)}") from outcome.error
            found.ends[_named(outcome.result, outcome.error, died=outcome.died)] += 1


class StoredCatalog(CommitCatalog):
    """A catalog that only tells its state."""

    def __init__(self, state: bytes) -> None:
        self._state = state

    def load(self) -> CatalogState:
        return msgspec.json.decode(self._state, type=CatalogState)

    def ratify(self, commit: RatifiedCommit, domains: Mapping[str, str]) -> CatalogState:
        raise NotImplementedError

    def set_published(self, version: int) -> CatalogState:
        raise NotImplementedError


def _seen(objects: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The objects as a reader has to see them."""
    return history.as_published(objects) if CATALOG in objects else objects


def _log_of(world: World) -> dict[str, bytes]:
    return {
        key: body
        for key, body in _seen(world.store.objects).items()
        if key.startswith(history.LOG) and key.endswith((".json", ".crc")) and "checkpoint" not in key
    }


def _named(result: object, error: Exception | None, *, died: bool) -> str:
    if died:
        return "died"
    if error is not None:
        return type(error).__name__
    return "nothing to do" if result is None else "done"


def _told(taken: Sequence[Choice]) -> str:
    return "schedule: " + " ".join(f"{choice.what}:{choice.who}" for choice in taken)
