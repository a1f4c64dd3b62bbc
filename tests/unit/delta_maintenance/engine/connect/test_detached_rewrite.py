from __future__ import annotations

import uuid

import pytest

from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.job_interface import ContractError

REWRITE = DetachedRewrite.named("0123456789abcdef", "me")


def test_a_name_gives_the_same_ids_each_time_and_they_are_of_the_form_that_spark_wants() -> None:
    assert DetachedRewrite.named("0123456789abcdef", "me") == REWRITE
    assert len({REWRITE.session_id, REWRITE.operation_id}) == 2
    assert {uuid.UUID(text).version for text in (REWRITE.session_id, REWRITE.operation_id)} == {4}


def test_the_next_rewrite_has_other_ids_and_keeps_what_the_first_plan_said() -> None:
    begun = REWRITE.begun(bins=3, bytes_in=9, read_version=4, started_ms=5, facts={"selection": {}})
    following = begun.next()
    assert following.session_id != begun.session_id
    assert following.operation_id != begun.operation_id
    assert (following.bins, following.facts) == (None, {"selection": {}})
    again = following.begun(bins=1, bytes_in=3, read_version=5, started_ms=5, facts={"selection": {"new": 1}})
    assert again.facts == {"selection": {}}


def test_a_rewrite_is_read_back_as_it_was_written() -> None:
    begun = REWRITE.begun(bins=3, bytes_in=9, read_version=4, started_ms=5, facts={"selection": {}})
    for rewrite in (REWRITE, begun):
        assert DetachedRewrite.from_json(rewrite.to_json()) == rewrite


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"session_id": 1, "operation_id": "b", "user_id": "c"}', '{"session_id": "a"}']
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="detached rewrite"):
        DetachedRewrite.from_json(text)
