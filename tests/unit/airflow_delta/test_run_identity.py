from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_delta.run_identity import mark_succeeded, recall_or_begin
from airflow_delta.testing import FakeStateStore

MakeContext = Callable[..., dict[str, Any]]


def test_a_retry_goes_on_with_the_same_piece_of_work(make_context: MakeContext) -> None:
    store = FakeStateStore()
    first = recall_or_begin(make_context(store, 2), "optimize", "/t", 1000)
    second = recall_or_begin(make_context(store, 2), "optimize", "/t", 2000)
    assert (first.version, second) == (1000, first)


def test_a_retry_after_the_work_was_done_goes_on_with_it_too(make_context: MakeContext) -> None:
    store = FakeStateStore()
    context = make_context(store, 2)
    first = recall_or_begin(context, "optimize", "/t", 1000)
    mark_succeeded(context, first)
    assert recall_or_begin(make_context(store, 2), "optimize", "/t", 2000).version == first.version


def test_clearing_a_succeeded_task_begins_anew_and_with_a_greater_version(make_context: MakeContext) -> None:
    store = FakeStateStore()
    context = make_context(store, 2)
    first = recall_or_begin(context, "optimize", "/t", 1000)
    mark_succeeded(context, first)
    again = recall_or_begin(make_context(store, 3), "optimize", "/t", 500)
    assert again.version == 1001, "also where the clock has gone back"
    assert again.run_id != first.run_id
    assert recall_or_begin(make_context(store, 3), "optimize", "/t", 3000) == again


def test_clearing_a_failed_task_goes_on_with_its_work(make_context: MakeContext) -> None:
    store = FakeStateStore()
    first = recall_or_begin(make_context(store, 0), "optimize", "/t", 1000)
    assert recall_or_begin(make_context(store, 1), "optimize", "/t", 2000) == first


def test_a_table_that_was_rendered_differently_is_other_work(make_context: MakeContext) -> None:
    store = FakeStateStore()
    first = recall_or_begin(make_context(store), "optimize", "/t1", 1000)
    second = recall_or_begin(make_context(store), "optimize", "/t2", 1000)
    assert (second.app_id, second.version) == ("airflow:nightly:optimize:optimize:/t2", first.version + 1)


def test_the_application_id_names_neither_run_nor_map_index(make_context: MakeContext) -> None:
    contexts = [make_context(run_id=f"manual__{n}", map_index=n) for n in range(3)]
    assert len({recall_or_begin(context, "optimize", "/t", 1).app_id for context in contexts}) == 1


def test_what_another_release_has_stored_begins_anew(make_context: MakeContext) -> None:
    store = FakeStateStore()
    store.set("delta_maintenance_run", {"of": "another release"})
    assert recall_or_begin(make_context(store), "optimize", "/t", 1000).version == 1000


def test_the_tries_of_one_piece_of_work_share_a_key_that_no_other_has(make_context: MakeContext) -> None:
    store = FakeStateStore()
    context = make_context(store, 2)
    first = recall_or_begin(context, "optimize", "/t", 1000)
    assert len(first.secret) == 64
    assert first.secret not in repr(first)
    mark_succeeded(context, first)
    assert recall_or_begin(make_context(store, 2), "optimize", "/t", 2000).secret == first.secret
    anew = recall_or_begin(make_context(store, 3), "optimize", "/t", 3000)
    assert anew.secret != first.secret
    assert recall_or_begin(make_context(), "optimize", "/t", 1000).secret not in (first.secret, anew.secret)


def test_work_that_an_earlier_release_began_gets_a_key_and_keeps_it(make_context: MakeContext) -> None:
    store = FakeStateStore()
    begun = {
        "app_id": "airflow:nightly:optimize:optimize:/t",
        "version": 7,
        "run_id": "airflow-7-0",
        "max_tries": 0,
        "succeeded": False,
    }
    store.set("delta_maintenance_run", begun)
    first = recall_or_begin(make_context(store), "optimize", "/t", 1000)
    assert (first.run_id, len(first.secret)) == ("airflow-7-0", 64)
    assert recall_or_begin(make_context(store), "optimize", "/t", 2000) == first
    # An earlier release finds what it knows, and nothing else.
    assert store.get("delta_maintenance_run") == begun


def test_without_a_state_store_the_work_is_done_and_a_warning_given(
    make_context: MakeContext, caplog: pytest.LogCaptureFixture
) -> None:
    context = make_context()
    del context["task_state_store"]
    assert recall_or_begin(context, "optimize", "/t", 1000).version == 1000
    assert "no state store" in caplog.text
