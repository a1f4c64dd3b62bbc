"""How many files a query for one value skips after each layout. ``./dev bench layout_skipping``.

A million rows of four columns are divided between a hundred files, in memory. A query asks for the value of a random row in one
column; it reads the files whose bounds hold the value. The experiment with uniform values comes from the Delta Lake paper (section 6.2).
No layout can skip more than ``1 - 100 ** (-1 / 4)``, 68.4 %, in four columns alike.

``./dev bench layout_skipping --chart docs/images/layout-skipping.svg`` draws what the documentation shows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import svg_chart

from delta_maintenance.layout.bucketing import Bucketing, random_noise
from delta_maintenance.layout.layout import KINDS

_FILES, _QUERIES, _CHUNK = 100, 300, 1 << 16
_Values = npt.NDArray[np.float64]


def tables(rows: int, seed: int) -> dict[str, list[_Values]]:
    """The columns of each experiment."""
    rng = np.random.default_rng(seed)
    moment = np.sort(rng.random(rows))
    return {
        "uniform": [rng.integers(0, 1 << bits, rows).astype(float) for bits in (32, 32, 16, 16)],
        "skewed": [
            (rng.zipf(1.3, rows) % (1 << 32)).astype(float),
            rng.exponential(1e6, rows),
            rng.pareto(1.5, rows),
            rng.random(rows),
        ],
        "correlated": [
            moment,
            moment + rng.normal(0, 0.01, rows),
            rng.random(rows),
            moment * rng.random(rows),
        ],
        "few values": [rng.integers(0, count, rows).astype(float) for count in (5, 2, 1 << 32, 50)],
    }


def skipped(kind: str, columns: list[_Values], width: float) -> list[float]:
    """The percentage of skipped files, by column.

    :param width: width of the range that a query asks for, as a share of the rows; 0: one value.
    """
    arrays = [pa.array(column) for column in columns]
    rows = len(columns[0])
    rule = Bucketing.of(kind, arrays, _FILES, 1, random_noise("sample", 0, rows))
    files = np.concatenate(
        [
            rule(
                [array.slice(start, _CHUNK) for array in arrays],
                random_noise("rows", start, min(_CHUNK, rows - start)),
            )[0]
            for start in range(0, rows, _CHUNK)
        ]
    )
    found = []
    for column in columns:
        low, high = np.full(_FILES, np.inf), np.full(_FILES, -np.inf)
        np.minimum.at(low, files, column)
        np.maximum.at(high, files, column)
        ascending = np.sort(column)
        first = np.random.default_rng(5).integers(0, max(1, int(rows * (1 - width))), _QUERIES)
        least, most = (
            ascending[first][:, None],
            ascending[np.minimum(rows - 1, first + int(rows * width))][:, None],
        )
        found.append(100 * (1 - ((low <= most) & (least <= high)).mean()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--range", type=float, default=0.0, help="share of the rows that a query asks for")
    parser.add_argument("--chart", type=Path, help="write a chart to this SVG file")
    asked = parser.parse_args()
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name, columns in tables(asked.rows, asked.seed).items():
        for kind in KINDS:
            shares = skipped(kind, columns, asked.range)
            found.setdefault(name, {})[kind] = (float(np.mean(shares)), min(shares))
            each = " ".join(f"{share:5.1f}" for share in shares)
            print(
                f"{name:12} {kind:8} average {np.mean(shares):5.1f}  worst {min(shares):5.1f}   by column {each}"
            )
    if asked.chart is not None:
        what = "one value" if not asked.range else f"{asked.range:.0%} of the rows"
        title = f"Files that a query for {what} skips, on average; black: the worst column"
        svg_chart.bars(asked.chart, title, " %", 100, found)


if __name__ == "__main__":
    main()
