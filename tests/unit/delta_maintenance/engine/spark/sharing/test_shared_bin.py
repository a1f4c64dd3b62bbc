"""How a bin is shared: every byte of it once, and a sample that is even however the shares differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from delta_maintenance.engine.spark.sharing import shared_bins
from delta_maintenance.engine.spark.sharing.shared_bin import Share, shares_of
from delta_maintenance.engine.spark.sharing.shared_bins import is_shared
from delta_maintenance.layout.layout import Layout
from delta_maintenance.rewrite.sort.row_division import Sample
from delta_maintenance.rewrite.task import RewriteTask, SourceFile

_SHARE_BYTES = 100


def task(sizes: list[int], **facts: Any) -> RewriteTask:
    sources = tuple(SourceFile(f"f{number}", f"f{number}", size) for number, size in enumerate(sizes))
    return RewriteTask("b" * 32, "/t", "run", "{}", (), "none", {}, (), {}, sources, 1, "tag", **facts)


@given(sizes=st.lists(st.integers(0, 350), min_size=1, max_size=30))
@example(sizes=[0, 150])
def test_every_source_is_in_one_share_or_all_parts_of_it_are(sizes: list[int]) -> None:
    shares = shares_of(task(sizes), _SHARE_BYTES)
    assert [share.number for share in shares] == list(range(len(shares)))
    met: list[tuple[int, int, int]] = []
    for share in shares:
        assert share.bytes_in <= _SHARE_BYTES
        assert share.parts == 1 or len(share.task.sources) == 1
        for place, source in enumerate(share.task.sources, share.first_source):
            assert source.key == f"f{place}"
            met.append((place, share.part, share.parts))
    expected = [
        (place, part, parts)
        for place, parts in dict.fromkeys((place, parts) for place, _, parts in met)
        for part in range(parts)
    ]
    assert met == expected
    assert list(dict.fromkeys(place for place, _, _ in met)) == list(range(len(sizes)))


@given(sizes=st.lists(st.integers(0, 350), min_size=1, max_size=5))
def test_a_share_crosses_to_another_process(sizes: list[int]) -> None:
    for share in shares_of(task(sizes, layout=Layout("kd", (("a",),))), _SHARE_BYTES):
        assert Share.from_dict(share.to_dict()) == share


@given(
    rows=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    limits=st.lists(st.sampled_from([1, 10, 100]), min_size=8, max_size=8),
)
def test_a_sample_of_samples_takes_every_part_alike(rows: list[int], limits: list[int]) -> None:
    whole = Sample(limit_rows=200)
    for number, (count, limit) in enumerate(zip(rows, limits, strict=False)):
        sample = Sample(limit)
        for start in range(0, count, 700):
            values = np.full(min(700, count - start), number)
            sample.add(pa.record_batch({"0": values}))
        if not count:
            sample.add(pa.record_batch({"0": np.empty(0, np.int64)}))
        whole.include(Sample.given(sample.rows, sample.every))
    found = np.bincount(whole.rows.column(0).to_numpy(), minlength=len(rows))
    assert len(whole.rows) <= 400
    for count, taken in zip(rows, found, strict=True):
        # A part has a rest at its end, once for each time that it was thinned.
        assert abs(taken - count / whole.every) <= 1


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=20), processors=st.integers(1, 50))
def test_a_bin_is_shared_only_if_it_would_end_long_after_the_others(
    sizes: list[int], processors: int
) -> None:
    total = sum(sizes)
    for size in sizes:
        given_task = SimpleNamespace(
            layout=Layout("kd", (("a",),)), num_outputs=2, bytes_in=shared_bins.LEAST_BYTES * size
        )
        shared = is_shared(given_task, shared_bins.LEAST_BYTES * total, processors)  # type: ignore[arg-type]
        assert shared == (size >= 2 * total / processors)
        for other in ({"layout": None}, {"num_outputs": 1}, {"bytes_in": shared_bins.LEAST_BYTES - 1}):
            changed: Any = SimpleNamespace(**{**vars(given_task), **other})
            assert not is_shared(changed, 1, 50)
