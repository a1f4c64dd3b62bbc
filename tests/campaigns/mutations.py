"""The campaign of tampered files: what others may write beside a table's data, changed at random by the ten thousand.

``./dev campaign mutations [--examples N] [--seed N]`` mutates manifests of a killed run, records of a quarantine, and
reports and output of a job, by bytes and by fields. Each is refused or harmless: no foreign exception, nothing changed
outside of the table, nothing committed that was not planned. A failure names its example and seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tests.support.runs import mutated_manifests, mutated_quarantines, mutated_reports


def _manifests(examples: int, seed: int) -> str:
    outcome = mutated_manifests.run(examples, seed)
    return f"committed as planned {outcome.committed.total():,}, refused {outcome.refused.total():,}"


#: By name, what runs so many examples from a seed. A manifest's example is a whole run of OPTIMIZE, so there are fewer.
KINDS: dict[str, tuple[int, Callable[[int, int], str]]] = {
    "manifests": (5, _manifests),
    "quarantines": (1, lambda examples, seed: str(dict(mutated_quarantines.run(examples, seed)))),
    "reports": (1, lambda examples, seed: str(dict(mutated_reports.run(examples, seed)))),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=20_000, help="of each kind; of manifests a fifth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    options = parser.parse_args()
    for kind in options.kind or KINDS:
        divisor, run = KINDS[kind]
        examples = max(1, options.examples // divisor)
        print(f"{kind}: {examples:,} examples: {run(examples, options.seed)}", flush=True)


if __name__ == "__main__":
    main()
