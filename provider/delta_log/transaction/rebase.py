"""Moves a commit behind the commits that won a version before it, and keeps track of what of it still stands."""

from __future__ import annotations

from msgspec import Struct, field

from delta_log.errors import CommitFailed, DeltaLogError
from delta_log.log.actions import Add, Remove
from delta_log.log.data_path import address_of
from delta_log.printable import printable_logger
from delta_log.transaction.commit_body import FileGroup, Remap
from delta_log.transaction.conflict import (
    Basis,
    Conflict,
    Head,
    WinningCommit,
    conflicts_of,
    refreshed_row_ids,
)

SourceFile = Add | Remove


class SourceStates(Struct):
    """The live file actions of each source that a winner has touched.

    Path and deletion vector together identify a file. A commit that gives a file another vector removes and adds it, and its actions
    have no order. So the removes of each winner are applied before its adds.

    :param touched: live file actions by the source's key, then by the id of the deletion vector.
    """

    basis: Basis
    touched: dict[str, dict[str, SourceFile]]

    @classmethod
    def of(cls, basis: Basis) -> SourceStates:
        return cls(basis, {})

    def advance(self, winner: WinningCommit) -> None:
        """Apply a winner's actions."""
        for action in winner.actions:
            if action.remove is not None and (live := self._live(action.remove)) is not None:
                live.pop(_vector_id(action.remove), None)
        for action in winner.actions:
            if action.add is not None and (live := self._live(action.add)) is not None:
                live[_vector_id(action.add)] = action.add

    def _live(self, file: SourceFile) -> dict[str, SourceFile] | None:
        key = address_of(file.path, self.basis.table_uri)
        source = self.basis.sources.get(key)
        if source is None:
            return None
        return self.touched.setdefault(key, {_vector_id(source[1]): source[1]})

    def of_group(self, number: int) -> dict[str, tuple[SourceFile, ...]]:
        """Return the live actions of a group's touched sources by key; none for a file that is gone."""
        return {
            key: tuple(live.values())
            for key, live in self.touched.items()
            if self.basis.sources[key][0] == number
        }


def _vector_id(file: SourceFile) -> str:
    return file.deletionVector.unique_id if file.deletionVector is not None else ""


_LOG = printable_logger(__name__)


class Rebase(Struct):
    """The state of a commit on its way to a version.

    :ivar head: the version that the commit would follow.
    :ivar kept: numbers of the groups that still stand.
    :ivar dropped: groups that are left out, and why.
    :ivar stale: groups that lost sources and must be remapped, and why they cannot stay as they are.
    :ivar remapped: the remapped groups, as they follow version ``remapped_behind``.
    :ivar refreshed_row_ids: sources by key, with the row ids that a winner gave them.
    """

    head: Head
    kept: tuple[int, ...]
    states: SourceStates | None = None
    last_app_version: int | None = None
    winners: list[WinningCommit] = field(default_factory=list)
    dropped: dict[int, CommitFailed] = field(default_factory=dict)
    refreshed_row_ids: dict[str, Add] = field(default_factory=dict)
    stale: dict[int, CommitFailed] = field(default_factory=dict)
    remapped: dict[int, FileGroup] = field(default_factory=dict)
    remapped_behind: int = -1

    @property
    def winning_commits(self) -> tuple[int, ...]:
        return tuple(winner.version for winner in self.winners)

    def advance(self, winner: WinningCommit, basis: Basis, transaction: tuple[str, int] | None) -> None:
        """Move the commit behind a winner.

        :raises CommitFailed: nothing of the commit can follow it.
        """
        self.winners.append(winner)
        if self.states is not None:
            self.states.advance(winner)
        for conflict in conflicts_of(winner, self.head, basis):
            if self.states is not None and conflict.group in self.kept:
                self.stale.setdefault(conflict.group, conflict.error)
            else:
                self._drop_or_raise(conflict)
        self.refreshed_row_ids.update(refreshed_row_ids(winner, basis))
        self.head = self.head.after(winner)
        if transaction is not None:
            versions = (self.last_app_version, winner.app_version(transaction[0]))
            self.last_app_version = max((v for v in versions if v is not None), default=None)

    def remap(self, made_anew: Remap) -> None:
        """Make the groups that lost sources anew from the present state of their sources. Drop those that cannot be remapped.

        :raises CommitFailed: nothing of the commit is left.
        """
        assert self.states is not None
        if self.remapped_behind == self.head.version:
            return
        self.remapped_behind = self.head.version
        self.remapped.clear()
        for number, why in [(number, why) for number, why in self.stale.items() if number in self.kept]:
            try:
                self.remapped[number] = made_anew(number, self.head, self.states.of_group(number))
            except CommitFailed as error:
                self._drop_or_raise(Conflict(error, number))
            except DeltaLogError as error:
                _LOG.warning("what became of %s cannot be read: %s", why, error)
                self._drop_or_raise(Conflict(why, number))

    def _drop_or_raise(self, conflict: Conflict) -> None:
        """Drop the group of a conflict; raise its error if it concerns the whole commit, or no group is left."""
        if conflict.group is not None:
            self.dropped.setdefault(conflict.group, conflict.error)
            self.kept = tuple(number for number in self.kept if number != conflict.group)
        if conflict.group is None or not self.kept:
            conflict.error.winning_commits = self.winning_commits
            raise conflict.error
