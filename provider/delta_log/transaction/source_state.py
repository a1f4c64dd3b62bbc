"""Tracks what winning commits did to the sources of a commit.

Path and deletion vector together identify a file. A commit that gives a file another vector removes and adds it, and its actions
have no order. So the removes of each winner are applied before its adds.
"""

from __future__ import annotations

from msgspec import Struct

from delta_log.log.actions import Add, Remove
from delta_log.log.data_path import address_of
from delta_log.transaction.conflict import Basis, WinningCommit

SourceFile = Add | Remove


class SourceStates(Struct):
    """The live file actions of each source that a winner has touched.

    :param touched: by the source's key, then by the id of the deletion vector.
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
