"""What a fleet keeps: nights in their order, results of killed nights, nothing older than ninety days, nothing of other programs."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_log.testing import FaultyStorage, MemoryStorage
from delta_log.testing.faulty_storage import Fault
from delta_maintenance.fleet.account.night import Night, NotBegun, Outcome, UnitResult
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import Work, WorkUnit
from delta_maintenance.fleet.history import Cost, FleetHistory, PastRun
from delta_maintenance.fleet.policy.reading import policy_of

DAY_MS = 86_400_000
NOW_MS = 1_795_000_000_000
POLICY = policy_of({})
WORK = tuple(Work(name, {}, (), "", {}, Cost(), 0) for name in ("optimize", "checkpoint"))


def _night(
    started_ms: int, run_id: str = "run", history: FleetHistory | None = None, tables: str = ""
) -> Night:
    """
    :param tables: names of the tables that have work, each of one letter.
    """
    known = history or FleetHistory()
    units = tuple(WorkUnit(table, 1, WORK, Cost(), 0, 0, 0, 0) for table in tables)
    decision = replace(decide(POLICY, FleetState((), known, started_ms)), units=units)
    return Night(run_id, started_ms, started_ms, POLICY.text, POLICY.source, (), known, {}, decision)


def _result(table: str) -> UnitResult:
    return UnitResult(not_begun=NotBegun(table, "time", "The time of the run is over."))


def test_a_night_has_the_results_of_its_units() -> None:
    store = FleetStore(MemoryStorage())
    night = _night(NOW_MS, tables="ab")
    store.begin(night)
    for number, table in ((1, "b"), (0, "a")):
        store.add(night, number, _result(table))
    assert store.unfinished_night() == night
    whole = store.finish(night, NOW_MS + 5)
    assert [one.table for one in whole.not_begun] == ["a", "b"]
    assert (whole.finished_ms, whole.is_finished) == (NOW_MS + 5, True)
    assert store.unfinished_night() is None
    assert store.newest_night() == whole
    assert [figures.started_ms for figures in store.history().nights] == [NOW_MS]


def test_a_unit_without_an_end_was_interrupted() -> None:
    store = FleetStore(MemoryStorage())
    night = _night(NOW_MS, tables="abcd")
    store.begin(night)

    def outcome(operation: str, status: str) -> Outcome:
        return Outcome("", "run", PastRun(operation, NOW_MS, status, Cost()), NOW_MS)

    store.add(night, 0, UnitResult((outcome("optimize", "committed"), outcome("checkpoint", "written"))))
    store.add(night, 1, UnitResult((outcome("optimize", "failed"),)))
    store.add(night, 2, UnitResult((outcome("optimize", "committed"),)))
    left = store.finish(night, NOW_MS).not_begun
    assert [(one.table, one.reason) for one in left] == [("c", "interrupted"), ("d", "interrupted")]
    assert "CHECKPOINT" in left[0].why


def test_nights_come_in_their_order_and_old_ones_go() -> None:
    store = FleetStore(MemoryStorage())
    for days, run_id in ((0, "z"), (1, "y"), (91, "x")):
        night = _night(NOW_MS + days * DAY_MS, run_id, store.history())
        store.begin(night)
        store.finish(night, night.started_ms)
    assert [night.run_id for night in store.nights(0)] == ["y", "x"]
    assert [night.run_id for night in store.nights(NOW_MS + 2 * DAY_MS)] == ["x"]


@pytest.mark.parametrize("body", [b"", b"{}", b"another program's file"])
def test_a_foreign_file_is_refused_with_a_remedy(body: bytes) -> None:
    storage = MemoryStorage("memory://state")
    storage.put("history.json.z", body)
    with pytest.raises(InvalidRequest, match="or delete the file"):
        FleetStore(storage).history()


class _Dying:
    """Hooks of a process that dies at its n-th request, before or after it has taken effect."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __call__(self, name: str, key: str) -> None:
        if self._left == 0:
            raise Fault
        self._left -= 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_night_whose_end_dies_at_any_request_is_finished_by_the_next_run(moment: str) -> None:
    for at in count():
        storage = MemoryStorage()
        night = _night(NOW_MS, tables="a")
        FleetStore(storage).begin(night)
        FleetStore(storage).add(night, 0, _result("a"))
        has_died = False
        try:
            FleetStore(FaultyStorage(storage, **{moment: _Dying(at)})).finish(night, NOW_MS)
        except Fault:
            has_died = True
        store = FleetStore(storage)
        killed = store.unfinished_night()
        if killed is not None:
            store.finish(killed, NOW_MS)
        assert [one.table for one in next(store.nights(0)).not_begun] == ["a"]
        assert len(store.history().nights) == 1
        if not has_died:
            assert at > 3
            return


def test_a_store_beside_catalogs_is_opened_without_their_options(tmp_path: Path) -> None:
    options = {"unity": {"uri": "https://catalog.example.org", "token": "t"}}
    store = FleetStore.open(str(tmp_path), options)
    store.begin(_night(NOW_MS))
    assert [night.run_id for night in FleetStore.open(str(tmp_path), {}).nights(NOW_MS)] == ["run"]
