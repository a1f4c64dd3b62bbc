"""Which sidecars of the newest checkpoint stay as they are in the next one, and which rows are written anew.

A pure decision. Sidecars are in order of age, the newest first, live files and tombstones apart: most changes then meet
few of them, above all the newest. What is written anew are *runs* of neighbours, so that the order stays.

1. A sidecar that holds something superseded, expired or spelt in another way is in a run. What is new comes before the
   newest sidecar.
2. So that small sidecars stay few, a run takes in its next older neighbour where that is at most twice as large as the
   run and less than half full: every action is written again as often as the logarithm of how many come after it.
3. Where there are many more sidecars than their actions need, all of them are one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delta_log.log.actions import Sidecar

#: Of one sidecar.
SIDECAR_ACTIONS = 50_000
_SPARE_SIDECARS = 16


@dataclass(frozen=True, slots=True)
class OldSidecar:
    """
    :ivar rows: those that still count.
    :ivar stays: it can be named again as it is.
    """

    key: str
    sidecar: Sidecar
    rows: int
    stays: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are written anew: what is new, if ``takes_new``, and what still counts of some neighbours.

    :ivar rows: about how many.
    :ivar sidecar_actions: of each of its sidecars, so that they are of one size.
    """

    sidecars: tuple[OldSidecar, ...]
    rows: int
    takes_new: bool
    sidecar_actions: int


Layout = tuple["OldSidecar | Run", ...]


def lay_out(
    newest_first: Sequence[OldSidecar], new_rows: int, sidecar_actions: int = SIDECAR_ACTIONS
) -> Layout:
    """What the next checkpoint consists of, in its order."""

    def run_of(sidecars: Sequence[OldSidecar], rows: int, *, takes_new: bool) -> Run:
        count = max(1, -(-rows // sidecar_actions))
        return Run(tuple(sidecars), rows, takes_new, max(1, -(-rows // count)))

    total = new_rows + sum(old.rows for old in newest_first)
    if len(newest_first) > 2 * (total // sidecar_actions) + _SPARE_SIDECARS:
        return (run_of(newest_first, total, takes_new=True),)
    layout: list[OldSidecar | Run] = []
    run: list[OldSidecar] = []
    rows, takes_new = new_rows, new_rows > 0
    for old in newest_first:
        opened = bool(run) or takes_new
        small = 2 * old.rows < sidecar_actions and old.rows <= 2 * rows
        if not old.stays or (opened and small):
            run.append(old)
            rows += old.rows
            continue
        if opened:
            layout.append(run_of(run, rows, takes_new=takes_new))
            run, rows, takes_new = [], 0, False
        layout.append(old)
    if run or takes_new:
        layout.append(run_of(run, rows, takes_new=takes_new))
    return tuple(layout)
