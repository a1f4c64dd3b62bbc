"""The matrix of operators, ways of running and situations: which cells there are and apply, and which ones `./dev test slow` runs.

``tests/integration/airflow_matrix`` runs the cells on a real Airflow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from zlib import crc32

OPERATIONS = ("optimize", "purge", "vacuum", "checkpoint")
#: Beside the task, in a process of its own or as a Spark driver; elsewhere, while the task waits in its slot or is deferred.
WAYS = (
    "local",
    "client",
    "standalone waiting",
    "standalone deferred",
    "connect waiting",
    "connect deferred",
    "kubernetes waiting",
    "kubernetes deferred",
    "yarn waiting",
    "yarn deferred",
)
#: Each with its kind. What Airflow does in a situation depends on how the task waits. For an operation, and for the place where the
#: job runs, those of a kind are alike: the job is left alone, does not come about, is told to end, or loses the one that waits for it.
SITUATIONS = {
    "success, then cleared": "undisturbed",
    "refusal": "undisturbed",
    "another writer": "undisturbed",
    "outage": "outage",
    "marked failed": "ended",
    "worker killed": "abandoned",
    "retry after commit": "abandoned",
    "execution timeout": "ended",
    "DAG-run timeout": "ended",
    "scheduler restart": "abandoned",
    "triggerer restart": "abandoned",
}
#: So many run at a time: each may have a driver and an executor.
CELLS_AT_ONCE = 8
#: On a Connect server these have a job beside the task, whose slot they hold.
_BESIDE_THE_TASK_ON_CONNECT = ("vacuum", "checkpoint")


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    operation: str
    way: str
    situation: str

    def __str__(self) -> str:
        return f"{self.situation}: {self.operation}, {self.way}"

    @property
    def place(self) -> str:
        return self.way.partition(" ")[0]

    @property
    def how_it_waits(self) -> str:
        if self.place in ("local", "client"):
            return "beside its job"
        return "deferred" if self.way.endswith("deferred") else "in its slot"

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """What :func:`selected` leaves no combination of out."""
        return {
            *combinations((self.operation, self.place, self.how_it_waits, SITUATIONS[self.situation]), 2),
            (self.how_it_waits, self.situation),
        }

    @property
    def is_deferred(self) -> bool:
        return self.how_it_waits == "deferred"

    @property
    def why_not(self) -> str | None:
        """Why there is no such cell; ``None``: there is."""
        if self.is_deferred and self.place == "connect" and self.operation in _BESIDE_THE_TASK_ON_CONNECT:
            return "runs beside the task and cannot be deferred"
        if self.situation == "triggerer restart" and not self.is_deferred:
            return "no triggerer takes part"
        if self.situation == "outage" and self.place == "local":
            return "no cluster takes part"
        if (
            self.situation == "outage"
            and self.operation == "checkpoint"
            and self.place in ("client", "connect")
        ):
            return "a checkpoint beside the task asks Spark nothing"
        return None


def all_cells() -> list[Cell]:
    """Every cell that applies, by situation."""
    cells = (
        Cell(operation, way, situation)
        for situation in SITUATIONS
        for way in WAYS
        for operation in OPERATIONS
    )
    return [cell for cell in cells if cell.why_not is None]


def cells_of_run() -> list[Cell]:
    """The cells that this run of the tests is about: all for `./dev test-matrix`, else a pairwise selection."""
    return all_cells() if os.environ.get("MATRIX") == "whole" else selected(all_cells())


def selected(cells: Sequence[Cell]) -> list[Cell]:
    """Cells in which each pair of an operation, a place, a way of waiting and a kind of situation occurs that occurs in `cells`.

    Each way of waiting also meets each situation, not only one of each kind.

    Chosen greedily, and the same on each call: the next cell is the one with the most pairs that are new.
    """
    missing = {pair for cell in cells for pair in cell.pairs}
    chosen: list[Cell] = []
    while missing:
        # Among equals, one that looks drawn, so that no operation and no way is preferred.
        best = max(cells, key=lambda cell: (len(missing & cell.pairs), crc32(str(cell).encode())))
        chosen.append(best)
        missing -= best.pairs
    return sorted(chosen, key=cells.index)


def table_of(results: Mapping[Cell, str]) -> str:
    """The results as a table in Markdown, with a line for each situation and way; not every cell has to have been run."""
    lines = [
        "| situation | way | " + " | ".join(OPERATIONS) + " |",
        "|---|---|" + "---|" * len(OPERATIONS),
    ]
    for situation in SITUATIONS:
        for way in WAYS:
            cells = [Cell(operation, way, situation) for operation in OPERATIONS]
            shown = [_shown(cell, results) for cell in cells]
            if any(cell.why_not is None for cell in cells):
                lines.append(f"| {situation} | {way} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _shown(cell: Cell, results: Mapping[Cell, str]) -> str:
    if cell.why_not is not None:
        return "does not apply"
    return results.get(cell, "not run")


def cells_of(situation: str, cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.situation == situation]
