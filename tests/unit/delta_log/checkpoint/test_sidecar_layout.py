"""Which sidecars stay, and which rows are written anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.checkpoint.sidecar_layout import Layout, OldSidecar, Run, lay_out
from delta_log.log.actions import Sidecar


def old(number: int, rows: int, *, stays: bool = True) -> OldSidecar:
    return OldSidecar(f"s{number}", Sidecar(f"s{number}"), rows, stays)


def drawn(layout: Layout) -> list[str]:
    """Kept sidecars by their keys, runs as ``new+s0+s1``."""
    return [
        part.key
        if isinstance(part, OldSidecar)
        else "+".join([*(["new"] if part.takes_new else []), *(o.key for o in part.sidecars)])
        for part in layout
    ]


def test_what_is_new_comes_first_and_full_sidecars_stay() -> None:
    assert drawn(lay_out([old(0, 100), old(1, 100)], 5, 100)) == ["new", "s0", "s1"]
    assert drawn(lay_out([old(0, 100), old(1, 100)], 0, 100)) == ["s0", "s1"]
    assert drawn(lay_out([], 5, 100)) == ["new"]
    assert lay_out([], 0, 100) == ()


def test_a_run_takes_small_older_neighbours_in() -> None:
    sidecars = [old(0, 8), old(1, 20), old(2, 49), old(3, 100)]
    assert drawn(lay_out(sidecars, 5, 100)) == ["new+s0+s1+s2", "s3"]
    assert drawn(lay_out(sidecars, 3, 100)) == ["new", "s0", "s1", "s2", "s3"]


def test_neighbours_that_changed_are_one_run_and_keep_their_place() -> None:
    sidecars = [
        old(0, 90),
        old(1, 90, stays=False),
        old(2, 90, stays=False),
        old(3, 90),
        old(4, 9, stays=False),
    ]
    layout = lay_out(sidecars, 0, 100)
    assert drawn(layout) == ["s0", "s1+s2", "s3", "s4"]
    assert [part.sidecar_actions for part in layout if isinstance(part, Run)] == [90, 9]


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=60),
    st.integers(0, 300),
    st.integers(1, 100),
)
def test_every_sidecar_is_kept_or_written_anew_once_and_in_order(
    found: list[tuple[int, bool]], new_rows: int, sidecar_actions: int
) -> None:
    sidecars = [old(n, rows, stays=stays) for n, (rows, stays) in enumerate(found)]
    layout = lay_out(sidecars, new_rows, sidecar_actions)
    flat = [o for part in layout for o in ([part] if isinstance(part, OldSidecar) else part.sidecars)]
    assert flat == sidecars
    assert all(part.stays for part in layout if isinstance(part, OldSidecar))
    runs = [part for part in layout if isinstance(part, Run)]
    assert sum(run.takes_new for run in runs) == (new_rows > 0)
    assert not any(run.takes_new for run in runs[1:])
    assert sum(run.rows for run in runs) == new_rows + sum(o.rows for run in runs for o in run.sidecars)
    assert all(run.sidecar_actions <= sidecar_actions for run in runs)


def test_sidecars_that_became_too_many_become_few() -> None:
    layout = lay_out([old(n, 3) for n in range(40)], 1, 100)
    assert len(layout) == 1
    assert isinstance(layout[0], Run)
    assert layout[0].takes_new
