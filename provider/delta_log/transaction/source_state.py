"""What others have made of the files that a commit takes the place of, while it waits for its turn.

A file is known by its path and its deletion vector together; one that got another vector is removed and added in one
commit, whose actions have no order. So each winner is taken as a whole: its removes first, then its adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from delta_log.log.actions import Add, Remove
from delta_log.log.data_path import address_of
from delta_log.transaction.conflict import Basis, WinningCommit

SourceFile = Add | Remove


@dataclass(slots=True)
class SourceStates:
    """By key of a source, what is live of it: by the id of its deletion vector.

    Only sources that a winner has touched are in it.
    """

    basis: Basis
    touched: dict[str, dict[str, SourceFile]]

    @classmethod
    def of(cls, basis: Basis) -> SourceStates:
        return cls(basis, {})

    def advance(self, winner: WinningCommit) -> None:
        """Step behind a winner."""
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
        """Of a group's sources that were touched, by key: what is live; nothing, for a file that is gone."""
        return {
            key: tuple(live.values())
            for key, live in self.touched.items()
            if self.basis.sources[key][0] == number
        }


def _vector_id(file: SourceFile) -> str:
    return file.deletionVector.unique_id if file.deletionVector is not None else ""
