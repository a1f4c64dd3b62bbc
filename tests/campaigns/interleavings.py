"""Explores every interleaving of two writers with at most one fault, and of one writer with two; samples of three writers with
two faults. Listings of the log may be torn, like those of a local directory. Without faults, explores every writer beside one
that drops the table and makes another one in its place.

    ./dev campaign interleavings [--faults 1] [--samples 2000] [--seed 0] [--only compaction,delete] [--managed] [--whole]

Then the same of tables whose commits a catalog ratifies, where requests to the catalog have a place in the order, and faults, too.

Prints what was explored for each set of actors. Then breaks the code on purpose and prints how each break was caught. The exit
code is 1 if a rule was violated or a break was not caught.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

from tests.support.explorer import actors
from tests.support.explorer.breaks import BREAKS
from tests.support.explorer.history import Violation
from tests.support.explorer.search import Found, Search

Kinds = tuple[str, ...]
_BUSY_SAMPLES = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev campaign interleavings")
    parser.add_argument("--faults", type=int, default=1, help="at most so many in every schedule of a pair")
    parser.add_argument(
        "--samples", type=int, default=2_000, help="random schedules of three actors, and of two faults"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one set of actors, separated by commas")
    parser.add_argument("--managed", action="store_true", help="only tables that a catalog manages")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="no pair is sampled; a vacuum with another takes minutes, two hours",
    )
    options = parser.parse_args(arguments)
    chosen = [tuple(options.only.split(","))] if options.only else None
    kinds = [] if options.managed else chosen or list(_pairs())
    total, violated = Found(), 0
    with multiprocessing.get_context("spawn").Pool(
        os.cpu_count(), logging.disable, (logging.CRITICAL,)
    ) as pool:
        pairs = [(pair, options.faults, options.whole, False) for pair in kinds]
        if options.managed or not options.only:
            managed = chosen or list(combinations_with_replacement(actors.MANAGED, 2))
            pairs += [(pair, options.faults, options.whole, True) for pair in managed]
        for what, found in pool.imap_unordered(_exhaustive, pairs):
            violated += _told(what, found, total)
        print(f"every schedule with at most {options.faults} faults: {total}", flush=True)
        alone = Found()
        jobs_alone = (
            [] if options.only or options.managed else [((k,), 2, True, False) for k in actors.ACTORS]
        )
        jobs_alone += [] if options.only else [((kind,), 2, options.whole, True) for kind in actors.MANAGED]
        for what, found in pool.imap_unordered(_exhaustive, jobs_alone):
            violated += _told(f"{what} alone", found, alone)
        print(f"every schedule of one writer with at most 2 faults: {alone}", flush=True)
        sampled = Found()
        jobs = [] if options.only or options.managed else list(_samples(options.samples, options.seed))
        for what, found in pool.imap_unordered(_sampled, jobs):
            violated += _told(what, found, sampled)
        print(f"sampled: {sampled}", flush=True)
    logging.disable(logging.CRITICAL)
    unseen = 0
    breaks = [broken for broken in BREAKS if broken.managed or not options.managed]
    for broken in breaks:
        caught = broken.is_caught()
        unseen += caught is None
        print(
            f"{'caught' if caught else 'UNSEEN'}: {broken.what}{f': {caught}' if caught else ''}", flush=True
        )
    print(f"{violated} violations; {len(breaks) - unseen} of {len(breaks)} breaks caught")
    return 1 if violated or unseen else 0


def _pairs() -> Iterator[Kinds]:
    yield from combinations_with_replacement(actors.ACTORS, 2)
    yield from ((kind, actors.REPLACE) for kind in actors.ACTORS)
    for own in (actors.WAITING, actors.LAYOUT, actors.REBASING):
        yield from ((own, kind) for kind in (*actors.ACTORS, own, actors.REPLACE))


def _samples(runs: int, seed: int) -> Iterator[tuple[Kinds, int, int, int]]:
    """In portions: actors, faults, runs, seed."""
    chance = random.Random(seed)
    portion = 50
    for number in range(max(1, runs // portion)):
        count = 3 if number % 2 else 2
        yield tuple(chance.choices(list(actors.ACTORS), k=count)), 2, portion, seed * 1_000_003 + number


def _exhaustive(job: tuple[Kinds, int, bool, bool]) -> tuple[str, Found | str]:
    kinds, faults, whole, managed = job
    what = f"{' + '.join(kinds)}{' on a managed table' if managed else ''}"
    search = Search(kinds, actors.managed_table() if managed else actors.table(), torn=not managed)
    if actors.REPLACE in kinds:
        faults = 0  # who dies before the second look leaves the commit
    try:
        busy = sum(kind in ("vacuum", "batches", "checkpoint") for kind in kinds)
        # They look at so much that all orders take too long for every day.
        is_long = (
            busy > 1
            or ("vacuum" in kinds and len(kinds) > 1 and faults)
            or (managed and (busy or len(kinds) > 1))
        )
        if is_long and not whole:
            return what, search.sampled(faults, _BUSY_SAMPLES, 0)
        return what, search.exhaustive(faults)
    except Violation as violation:
        return what, str(violation)


def _sampled(job: tuple[Kinds, int, int, int]) -> tuple[str, Found | str]:
    kinds, faults, runs, seed = job
    what = f"{' + '.join(kinds)}, seed {seed}"
    try:
        return what, Search(kinds, actors.table(), torn=True).sampled(faults, runs, seed)
    except Violation as violation:
        return what, str(violation)


def _told(what: str, found: Found | str, total: Found) -> int:
    if isinstance(found, str):
        print(f"VIOLATED by {what}: {found}", flush=True)
        return 1
    total.include(found)
    print(f"{what}: {found}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
