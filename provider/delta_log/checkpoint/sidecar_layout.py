"""Which sidecars of the newest checkpoint stay as they are in the next one, and which rows are written anew.

A pure decision. Sidecars are in order of age, the newest first, live files and tombstones apart: most changes concern
few sidecars, mainly the newest. Rows are written anew in *runs* of neighbouring sidecars, which keeps the order.

1. A sidecar joins a run if it holds superseded or expired rows, or has another form. New rows come before the newest
   sidecar.
2. A run takes in its next older neighbour if that is at most twice as large as the run and less than half full. This
   keeps small sidecars few. An action is written again as often as the logarithm of the number of later actions.
3. Where there are many more sidecars than their actions need, all of them form one run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from delta_log.log.actions import Sidecar

#: How many actions a sidecar has at most.
SIDECAR_ACTIONS = 50_000
_SPARE_SIDECARS = 16


class OldSidecar(Struct, frozen=True):
    """A sidecar of the newest checkpoint.

    :ivar rows: number of its rows that still count.
    :ivar stays: whether the next checkpoint can name it again.
    """

    key: str
    sidecar: Sidecar
    rows: int
    stays: bool


class Run(Struct, frozen=True):
    """Rows that are written anew: the new rows if ``takes_new``, and the rows that count of some neighbouring sidecars.

    :ivar rows: approximate number of these rows.
    :ivar sidecar_actions: number of actions that each sidecar of the run gets, so that all have the same size.
    """

    sidecars: tuple[OldSidecar, ...]
    rows: int
    takes_new: bool
    sidecar_actions: int


Layout = tuple["OldSidecar | Run", ...]


def lay_out(
    newest_first: Sequence[OldSidecar], new_rows: int, sidecar_actions: int = SIDECAR_ACTIONS
) -> Layout:
    """The parts of the next checkpoint, in its order."""

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
