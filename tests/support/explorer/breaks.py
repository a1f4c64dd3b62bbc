"""The code broken on purpose, one thing at a time: the explorer has to notice each.

A break names the actors, the faults and the table that bring it to light, and patches the code under test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from delta_log.errors import StorageError
from delta_log.log.data_path import address_of
from delta_log.log.file_names import commit_key, known_commit
from delta_log.log.log_segment import LogListing
from delta_log.storage.managed.commit_catalog import (
    CatalogState,
    RatifiedCommit,
)
from delta_log.storage.managed.managed_storage import ManagedStorage
from delta_log.transaction import conflict, rebase, transaction
from delta_log.transaction.commit_body import Remap
from delta_log.transaction.conflict import Basis, Conflict, Head, WinningCommit
from delta_maintenance.optimize.commit import batches, compaction_tags, orphans, remapping, resume
from delta_maintenance.rewrite.manifest.row_map import remapped
from delta_maintenance.rewrite.task import BinManifest, SourceFile
from tests.support.explorer import actors
from tests.support.explorer.history import Violation
from tests.support.explorer.search import Found, Search
from tests.support.explorer.world import STAGED, ActorStorage

Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Break:
    what: str
    kinds: tuple[str, ...]
    patched: Patch
    faults: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    #: So many random schedules, where all of them would be too many.
    samples: int = 0
    torn: bool = False
    #: Whether a catalog manages the table.
    managed: bool = False

    def explore(self, *, broken: bool) -> Found:
        """Search as far as the break shows; in the sound code the same search finds nothing."""
        objects = actors.managed_table() if self.managed else actors.table(self.properties)
        search = Search(self.kinds, objects, torn=self.torn)
        with self.patched() if broken else nullcontext():
            if self.samples:
                return search.sampled(self.faults, self.samples, seed=0)
            return search.exhaustive(self.faults)

    def is_caught(self) -> str | None:
        """What the explorer says of it, or ``None``: the break went unseen."""
        try:
            self.explore(broken=True)
        except Violation as violation:
            return str(violation).partition("\n")[0]
        return None


def _without_rule(name: str) -> Patch:
    rest = {other: rule for other, rule in conflict.RULES.items() if other != name}
    return lambda: patch.object(conflict, "RULES", rest)


def _overwrites(storage: ActorStorage, key: str, data: bytes) -> bool:
    storage.put(key, data)
    return True


def _checks_then_writes(storage: ActorStorage, key: str, data: bytes) -> bool:
    if storage.head(key) is not None:
        return False
    storage.put(key, data)
    return True


def _blind_to_new_vectors(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    """Takes a source that only got a deletion vector for unchanged."""
    added = {address_of(a.add.path, basis.table_uri) for a in winner.actions if a.add is not None}
    for found in _SOUND_RULES["remove of a source"](winner, head, basis):
        if not any(key in added for key, (group, _) in basis.sources.items() if group == found.group):
            yield found


def _last_only(self: transaction.Transaction, version: int, latest: int) -> Sequence[WinningCommit]:
    return _WINNERS(self, version, latest)[-1:]


def _only_passed(self: transaction.Transaction) -> tuple[WinningCommit, ...]:
    """Takes what was seen while waiting for known, and does not look at it."""
    self._snapshot = self._tip.advanced(
        [(known_commit(winner.version, winner.size_bytes), winner.actions) for winner in self._seen]
    )
    return self._passed


_SOUND_RULES = dict(conflict.RULES)
_WINNERS = transaction.Transaction._winners
_AFTER = Head.after
_REMAP = rebase.Rebase.remap


def _counting_from_one(manifest: BinManifest) -> Sequence[dict[str, str]]:
    for tags in (found := compaction_tags.compaction_tags(manifest)):
        (info,) = json.loads(tags["compactionInfo"])
        tags["compactionInfo"] = json.dumps([{**info, "rowOffsetInTarget": info["rowOffsetInTarget"] + 1}])
    return found


def _same_but(*names: str) -> Callable[[SourceFile, SourceFile | None], bool]:
    """Looks at every fact of a source but these."""

    def is_same(source: SourceFile, live: SourceFile | None) -> bool:
        return live is not None and replace(source, **{name: getattr(live, name) for name in names}) == live

    return is_same


def _head_keeps(name: str) -> Patch:
    def after(head: Head, winner: WinningCommit) -> Head:
        return msgspec.structs.replace(_AFTER(head, winner), **{name: getattr(head, name)})

    return lambda: patch.object(Head, "after", after)


def _trusts_an_error(self: transaction.Transaction, version: int, body: bytes) -> bool:
    """Takes a put that failed for one that did nothing, and goes on to the next version."""
    try:
        return bool(self._storage.put_if_absent(commit_key(version), body))
    except StorageError:
        return False


def _remaps_once(self: rebase.Rebase, made_anew: Remap) -> None:
    if not self.remapped:
        _REMAP(self, made_anew)


_LOADED, _STAGED = ManagedStorage._loaded, ManagedStorage._staged


def _counts_staged_files(self: ManagedStorage) -> CatalogState | None:
    """Takes a staged file of the next version for a ratified one."""
    state = _LOADED(self)
    assert state is not None
    following = state.latest_version + 1
    for info in self._inner.list_from(STAGED.rstrip("/"), f"{following:020d}"):
        if info.name.startswith(f"{following:020d}"):
            found = RatifiedCommit(following, info.name, info.size, info.modification_time_ms, 0)
            self._learn(CatalogState(following, (*state.commits, found)))
    return self._state


def _publishes_backwards(self: ManagedStorage, version: int) -> None:
    assert self._state is not None
    commits = [one for one in self._state.commits if one.version <= version]
    for commit in reversed(commits):
        self._publish_one(commit)
    if commits:
        self._learn(self._catalog.set_published(version))


def _tells_too_early(self: ManagedStorage, version: int) -> None:
    assert self._state is not None
    commits = [one for one in self._state.commits if one.version <= version]
    self._learn(self._catalog.set_published(version))
    for commit in commits:
        self._publish_one(commit)


def _publishes_what_is_staged(
    self: ManagedStorage, version: int, data: bytes, timestamp_ms: int
) -> RatifiedCommit:
    self._inner.put_if_absent(commit_key(version), data)
    return _STAGED(self, version, data, timestamp_ms)


def _goes_around(self: ManagedStorage, key: str, data: bytes) -> bool:
    return self._inner.put_if_absent(key, data)


def _broken_manager(what: str, kinds: tuple[str, ...], method: str, broken: Any, faults: int = 0) -> Break:
    return Break(
        what, kinds, lambda: patch.object(ManagedStorage, method, broken), faults=faults, managed=True
    )


@contextmanager
def _several(*patches: Any) -> Iterator[None]:
    if not patches:
        yield
        return
    with patches[0], _several(*patches[1:]):
        yield


BREAKS = [
    Break("a commit does not ask whether its log is still there", ("append", "replace"),
          lambda: patch.object(transaction, "require_same_log", lambda *_: None)),
    Break("a commit is not looked at again", ("append", "replace"),
          lambda: patch.object(transaction.Transaction, "_look_again", lambda *_: None)),
    Break("put-if-absent overwrites", ("append", "append"),
          lambda: patch.object(ActorStorage, "put_if_absent", _overwrites)),
    Break("put-if-absent checks, then writes", ("append", "append"),
          lambda: patch.object(ActorStorage, "put_if_absent", _checks_then_writes)),
    Break("rule left out: protocol", ("append", "upgrade"), _without_rule("protocol")),
    Break("rule left out: metaData", ("compaction", "widen"), _without_rule("metaData")),
    Break("rule left out: domainMetadata", ("cluster", "recluster"), _without_rule("domainMetadata")),
    Break("rule left out: remove of a source", ("compaction", "update"), _without_rule("remove of a source")),
    Break("rule left out: add of a source", ("compaction", "backfill"), _without_rule("add of a source")),
    Break("rule left out: changed rows", ("restore", "append"), _without_rule("changed rows")),
    Break("removes a source with a stale deletion vector", ("compaction", "delete"),
          lambda: _several(patch.object(conflict, "_same_logical_file", lambda *_: True),
                           patch.object(conflict, "RULES", {
                               **_SOUND_RULES, "remove of a source": _blind_to_new_vectors}))),
    Break("row ids are not taken anew", ("append", "append"), _head_keeps("row_id_mark")),
    Break("in-commit timestamps are not moved on", ("append", "append"), _head_keeps("in_commit_timestamp_ms")),
    Break("newer row ids of a source are not adopted", ("compaction", "backfill"),
          lambda: patch.object(rebase, "refreshed_row_ids", lambda *_: {}),
          properties={"delta.enableRowTracking": "false"}),
    Break("a failed put is taken for one without effect", ("append",),
          lambda: _several(patch.object(transaction.Transaction, "_put", _trusts_an_error),
                           patch.object(transaction, "_is_ours", lambda *_: False)), faults=1),
    Break("a commit of ours is not recognised when it is read back", ("append",),
          lambda: patch.object(transaction, "_is_ours", lambda *_: False), faults=1),
    Break("a concurrent try's commit is not recognised", ("compaction", "compaction"),
          lambda: patch.object(transaction, "_is_same_work", lambda *_: False)),
    Break("an earlier try's commit is not looked for", ("compaction",),
          lambda: patch.object(actors, "find_transaction", lambda *_: None), faults=1),
    Break("a remapped source is removed as it was read", ("remapping", "delete"),
          lambda: patch.object(remapping, "_removal_of", lambda now, read: read)),
    Break("a remapped source may have new row ids", ("remapping", "backfill"),
          lambda: patch.object(remapping, "_check_file", lambda *_: None)),
    Break("the rows of a layout are taken for rows in order", (actors.LAYOUT, "delete"),
          lambda: patch.object(remapping, "remapped", lambda sources, rows, _: remapped(sources, rows))),
    Break("a remapping is not made anew after a lost race", ("remapping", "delete", "update"),
          lambda: patch.object(rebase.Rebase, "remap", _remaps_once), samples=150),
    Break("a finished bin is committed although a source lost rows since", ("batches", "delete"),
          lambda: patch.object(resume, "_is_same_file", _same_but("deletion_vector")), faults=1, samples=400),
    Break("a finished bin is committed although its sources have other row ids since", ("batches", "backfill"),
          lambda: patch.object(resume, "_is_same_file",
                               _same_but("base_row_id", "default_row_commit_version")), faults=1, samples=400),
    Break("a finished bin is committed although the schema is another one since", ("batches", "widen"),
          lambda: patch.object(resume, "_is_wanted", lambda *_: True), faults=1, samples=400),
    Break("what another try has committed is deleted as an orphan", ("batches", "batches"),
          lambda: patch.object(orphans, "live_files", lambda *_: {}), samples=400),
    Break("the tags of a compaction count deleted rows", (actors.REBASING, actors.WAITING, "delete"),
          lambda: patch.object(compaction_tags, "_num_deleted", lambda _: 0), samples=200),
    Break("the tags of a compaction count from one", (actors.REBASING, actors.WAITING),
          lambda: patch.object(batches, "compaction_tags", _counting_from_one)),
    Break("commits met while waiting are not checked", ("waiting", "update"),
          lambda: patch.object(transaction.Transaction, "_known", _only_passed)),
    Break("of several winners only the last is looked at", ("compaction", "delete", "append"),
          lambda: patch.object(transaction.Transaction, "_winners", _last_only), samples=200),
    Break("a commit that one listing does not show is taken for missing", ("append", "batches"),
          lambda: patch.object(LogListing, "is_torn", new=False), torn=True),
    _broken_manager("commits are published out of order", ("append",), "_publish", _publishes_backwards),
    _broken_manager("a staged file counts that was not ratified", ("append",), "_loaded", _counts_staged_files),
    _broken_manager("a commit is published before it is ratified", ("append",), "_staged", _publishes_what_is_staged),
    _broken_manager("the catalog is told of a commit before it is published", ("append",), "_publish", _tells_too_early, 1),
    _broken_manager("a commit goes around the catalog", ("append",), "put_if_absent", _goes_around),
    _broken_manager("a checkpoint is written of a version that is not published", ("checkpoint",), "_prepare",
                    lambda *_: None),
]  # fmt: skip
