"""Two or more programs at the same work, measured side by side.

Every figure is of a fresh process in which imports are done before the clock starts. The contenders of a case take
turns (A B A B …), so that a noisy minute hits all of them; what is printed are medians, and ratios of medians against
the peer. Memory is the peak above what the imports took.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Contender:
    """One program of a case.

    :param function: ``module:function`` in this directory; called with the case's arguments, it returns facts that
        all contenders must agree on (a count of files, a sum of rows).
    :param peer: mark of the contender against which ratios are taken.
    """

    name: str
    function: str
    peer: bool = False


@dataclass(frozen=True)
class Case:
    """The same work for every contender."""

    name: str
    contenders: tuple[Contender, ...]
    arguments: tuple[Any, ...] = ()
    #: Facts that need not agree, for contenders that answer different questions.
    same_facts: bool = True


def run_cases(
    cases: Sequence[Case],
    rounds: int = 5,
    measure: Callable[[Contender, Sequence[Any]], dict[str, Any]] | None = None,
    what: str = "fresh processes, imports excluded",
) -> list[dict[str, Any]]:
    """Measures all cases, prints a table of them, and returns its rows.

    :param measure: function that runs a contender once and returns ``wall``, ``cpu``, ``peak_mb`` and ``facts``.
    :param what: text for the heading of the table: what `measure` measures.
    """
    measure = measure or _measure
    rows: list[dict[str, Any]] = []
    print(f"{os.cpu_count()} cores, medians of {rounds} interleaved runs, {what}")
    print(
        f"{'case':<44} {'contender':<22} {'wall s':>8} {'min-max':>15} {'cpu s':>7} {'peak MB':>8} {'ratio':>7} {'mem':>6}"
    )
    for case in cases:
        results: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in case.contenders}
        for _ in range(rounds):
            for contender in case.contenders:
                results[contender.name].append(measure(contender, case.arguments))
        facts = {name: runs[0]["facts"] for name, runs in results.items()}
        if case.same_facts and len({json.dumps(f, sort_keys=True) for f in facts.values()}) != 1:
            raise SystemExit(f"{case.name}: the contenders disagree: {facts}")
        medians = {name: _medians(runs) for name, runs in results.items()}
        peer = next((medians[c.name] for c in case.contenders if c.peer), None)
        for contender in case.contenders:
            mine = medians[contender.name]
            row: dict[str, Any] = {"case": case.name, "contender": contender.name, **mine}
            row["facts"] = facts[contender.name]
            if peer is not None and not contender.peer:
                row |= {
                    "ratio": peer["wall"] / mine["wall"],
                    "memory_ratio": mine["peak_mb"] / max(peer["peak_mb"], 1),
                }
            rows.append(row)
            ratio = f"{row['ratio']:.2f}x" if "ratio" in row else "-"
            memory = f"{row['memory_ratio']:.2f}" if "memory_ratio" in row else "-"
            print(
                f"{case.name:<44} {contender.name:<22} {mine['wall']:>8.3f} {mine['spread']:>15} {mine['cpu']:>7.2f} "
                f"{mine['peak_mb']:>8.0f} {ratio:>7} {memory:>6}",
                flush=True,
            )
    return rows


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    walls = [run["wall"] for run in runs]
    return {
        "wall": statistics.median(walls),
        "spread": f"{min(walls):.3f}-{max(walls):.3f}",
        "cpu": statistics.median(run["cpu"] for run in runs),
        "peak_mb": statistics.median(run["peak_mb"] for run in runs),
    }


def _measure(contender: Contender, arguments: Sequence[Any]) -> dict[str, Any]:
    return _figures([str(Path(__file__)), contender.function, json.dumps(list(arguments))], contender.name)


def run_program(command: Sequence[str], *, tree: bool = False) -> dict[str, Any]:
    """Run a program once and measure it whole, start-up and the processes that it waits for included.

    :param tree: switch to add up the memory of all processes that the program starts; without it, the peak is the peak of
        the largest process.
    """
    options = ["--tree"] if tree else []
    return _figures([str(HERE / "whole_process.py"), *options, *command], " ".join(command))


def _figures(arguments: Sequence[str], name: str) -> dict[str, Any]:
    """Return what a program of Python prints in its last line."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "provider")])}
    # Compiled modules are kept, as they are after an installation with pip.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _child(function: str, arguments: list[Any]) -> None:
    module_name, _, name = function.partition(":")
    call = getattr(importlib.import_module(module_name), name)
    before, peak_before_kb = resource.getrusage(resource.RUSAGE_SELF), _peak_kb()
    started = time.perf_counter()
    facts = call(*arguments)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    # A contender that must prepare first says itself how long the measured part took.
    if isinstance(facts, dict) and "measured_seconds" in facts:
        wall = facts.pop("measured_seconds")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak_mb = (_peak_kb() - peak_before_kb) / 1024
    figures = {"wall": wall, "cpu": cpu, "peak_mb": peak_mb}
    # And one whose work is done by other processes measures those.
    if isinstance(facts, dict):
        figures |= facts.pop("measured", {})
    print(json.dumps({**figures, "facts": facts}))


def _peak_kb() -> int:
    """Returns this program's peak; without /proc it includes the parent's memory at the fork."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1])


if __name__ == "__main__":
    _child(sys.argv[1], json.loads(sys.argv[2]))
