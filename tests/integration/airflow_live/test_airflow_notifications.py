"""Notifiers in a real Airflow: what one run leaves for the next, and mails that arrive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.servers.smtp import MailServer

from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

EXAMPLE = "tell_of_tables"


def test_a_table_that_comes_to_need_attention_and_one_that_fails_three_times_are_told_once(
    airflow: LiveAirflow, write_table: Callable[[str], Path], tmp_path: Path, mail_server: MailServer
) -> None:
    airflow.wait_for_dag(EXAMPLE)
    tables = [str(write_table("told")), str(tmp_path / "absent")]
    # One after the other, since max_active_runs is 1.
    for run_id in [airflow.trigger(EXAMPLE, conf={"tables": tables}) for _ in range(3)]:
        assert airflow.wait_for_run(EXAMPLE, run_id) == "failed", airflow.story(EXAMPLE, run_id)
    assert sorted(mail_server.subjects()) == [
        "health of absent has failed 3 times",
        "optimize of absent has failed 3 times",
        "told: attention",
    ]
    text = "\n".join(part.get_content() for part in mail_server.mails[0].walk() if not part.is_multipart())
    assert "OPTIMIZE would merge" in text
    assert "/plugin/delta-tables?table=" in text
