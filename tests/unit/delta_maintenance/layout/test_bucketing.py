from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_maintenance.layout.bucketing import Bucketing, random_noise
from delta_maintenance.layout.kd_tree import KdTree
from delta_maintenance.layout.layout import HILBERT, KD, KINDS, ZORDER, Layout

ROWS = 40_000


def bucketed(
    kind: str, columns: list[pa.Array], files: int, buckets_of_a_file: int = 1, step: int = 1 << 14
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The bucket of each row, and the numbers that order them; given chunk by chunk."""
    count = len(columns[0])
    rule = Bucketing.of(kind, columns, files, buckets_of_a_file, random_noise("sample", 0, count))
    found = [
        rule(
            [column.slice(start, step) for column in columns],
            random_noise("rows", start, min(step, count - start)),
        )
        for start in range(0, count, step)
    ]
    return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])


def skipped(columns: list[pa.Array], file_of: np.ndarray[Any, Any], files: int) -> list[float]:
    """By column, the percentage of files that a query for the value of a random row skips."""
    shares = []
    for column in columns:
        values = column.to_numpy(zero_copy_only=False)
        low, high = np.full(files, np.inf), np.full(files, -np.inf)
        np.minimum.at(low, file_of, values)
        np.maximum.at(high, file_of, values)
        asked = np.random.default_rng(5).choice(values, 200)[:, None]
        shares.append(100 * (1 - ((low <= asked) & (asked <= high)).mean()))
    return shares


def addresses(seed: int) -> list[pa.Array]:
    """The experiment of the Delta paper (section 6.2): two addresses of 32 bits and two ports of 16, at random."""
    rng = np.random.default_rng(seed)
    return [pa.array(rng.integers(0, 1 << bits, ROWS)) for bits in (32, 32, 16, 16)]


def skewed(seed: int) -> list[pa.Array]:
    rng = np.random.default_rng(seed)
    columns = [
        rng.zipf(1.3, ROWS) % (1 << 32),
        rng.exponential(1e6, ROWS),
        rng.pareto(1.5, ROWS),
        rng.random(ROWS),
    ]
    return [pa.array(column) for column in columns]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("kind", "average", "least"), [(ZORDER, 54, 43), (HILBERT, 60, 57), (KD, 67, 65)])
def test_a_layout_skips_as_many_files_as_the_literature_promises(
    kind: str, average: float, least: float, seed: int
) -> None:
    columns = addresses(seed)
    found = skipped(columns, bucketed(kind, columns, 100)[0], 100)
    assert np.mean(found) >= average
    assert min(found) >= least


def test_a_tree_serves_skewed_columns_as_well() -> None:
    columns = skewed(1)
    found = skipped(columns, bucketed(KD, columns, 100)[0], 100)
    assert np.mean(found) >= 64
    assert min(found) >= 62


COLUMNS: dict[str, pa.Array] = {
    "spread": pa.array(np.random.default_rng(1).permutation(ROWS)),
    "skewed": pa.array(np.random.default_rng(1).zipf(1.3, ROWS)),
    "constant": pa.array([7] * ROWS),
    "two values": pa.array([number % 7 == 0 for number in range(ROWS)]),
    "null": pa.nulls(ROWS, pa.string()),
    "mostly null": pa.array([str(number) if number % 10 == 0 else None for number in range(ROWS)]),
}


@pytest.mark.parametrize("buckets_of_a_file", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "names", [(one,) for one in COLUMNS] + [("constant", "two values"), ("skewed", "null", "spread")]
)
def test_files_are_evenly_large_whatever_the_values(
    names: tuple[str, ...], kind: str, buckets_of_a_file: int
) -> None:
    buckets, order = bucketed(kind, [COLUMNS[name] for name in names], 16, buckets_of_a_file)
    sizes = np.bincount(buckets // buckets_of_a_file, minlength=16)
    assert len(sizes) == 16
    even = ROWS / 16
    # A tree keeps a value whole where that costs less than half a file.
    least, most = (0.5, 1.5) if kind == KD else (0.8, 1.2)
    assert least * even <= sizes.min() <= sizes.max() <= most * even
    # The buckets follow each other in the order of the rows.
    for bucket in range(1, int(buckets.max()) + 1):
        before, here = order[buckets == bucket - 1], order[buckets == bucket]
        assert not len(before) or not len(here) or before.max() <= here.min()


def test_chunks_do_not_matter_where_no_value_fills_several_files() -> None:
    columns = [COLUMNS["spread"], COLUMNS["mostly null"]]
    whole, _ = bucketed(HILBERT, columns, 10, step=ROWS)
    parts, _ = bucketed(HILBERT, columns, 10, step=1000)
    assert (whole == parts).mean() > 0.999


@examples(200)
@given(st.data(), st.integers(1, 30), st.integers(1, 4))
def test_every_file_of_a_tree_gets_rows_if_there_are_enough(
    data: st.DataObject, files: int, dimensions: int
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    distinct = [data.draw(st.sampled_from([1, 2, 3, 50, 5000])) for _ in range(dimensions)]
    ranks = [rng.integers(0, count, 6000).astype(np.uint64) for count in distinct]
    tree = KdTree.of(ranks, files)
    found = tree.files_of(ranks, random_noise("rows", 0, 6000))
    assert 0 <= found.min() <= found.max() < files
    assert len(np.unique(found)) == files


def test_no_rows_need_no_file() -> None:
    none = [pa.array([], pa.int64())] * 2
    for kind in KINDS:
        rule = Bucketing.of(kind, none, 3, 2, random_noise("sample", 0, 0))
        assert rule(none, random_noise("rows", 0, 0))[0].tolist() == []


def test_a_layout_survives_json() -> None:
    layout = Layout(KD, (("a",), ("b", "ü")))
    assert Layout.from_dict(layout.to_dict()) == layout
    assert layout.tag == '["kd",["a"],["b","ü"]]'
