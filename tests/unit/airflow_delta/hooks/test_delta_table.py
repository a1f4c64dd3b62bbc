from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.tables.hostile_text import CONTROLS, FORGED_LINE, write_hostile_table
from tests.support.tables.small_tables import write_days

from airflow_delta.hooks.delta_table import DeltaTableHook


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> DeltaTableHook:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", **fields}))
    return DeltaTableHook("lake")


def test_without_a_connection_the_identity_is_the_machines() -> None:
    assert DeltaTableHook().storage_options == {}


def test_the_extra_is_the_storage_options(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "key": "AK",
        "secret": "S",
        "token": "",
        "endpoint_url": None,
        "anon": False,
        "use_ssl": False,
        "test_table": "s3://lake/events",
        "allowed_roots": "s3://lake",
    }
    assert connect(monkeypatch, extra=extra).storage_options == {"key": "AK", "secret": "S", "use_ssl": False}


def test_a_connection_that_does_not_exist_is_named() -> None:
    with pytest.raises(AirflowFailException, match="no Airflow connection 'nowhere'"):
        _ = DeltaTableHook("nowhere").storage_options


def test_a_connection_to_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="has type 'postgres'"):
        _ = connect(monkeypatch, conn_type="postgres").storage_options


@pytest.mark.parametrize("extra", ["{not json", "[1]"])
def test_an_extra_that_cannot_be_read_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    with pytest.raises(AirflowFailException, match="not a JSON object"):
        _ = connect(monkeypatch, extra=extra).storage_options


def test_the_test_button_examines_the_table_that_the_connection_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    write_days(tmp_path / "t", files=1)
    ok, message = connect(monkeypatch, extra={"test_table": str(tmp_path / "t")}).test_connection()
    assert (ok, message) == (True, f"{tmp_path}/t: table ok: version 0, 1 files")
    ok, message = connect(monkeypatch, extra={"test_table": str(tmp_path / "nothing")}).test_connection()
    assert not ok
    assert "There is no directory" in message
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "empty").mkdir()
    ok, message = connect(monkeypatch, extra={"test_table": str(tmp_path / "empty")}).test_connection()
    assert not ok
    assert "is not a Delta table" in message


def test_the_test_button_says_that_it_tried_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ok, message = connect(monkeypatch).test_connection()
    assert ok
    assert "nothing was tried" in message


def test_the_test_button_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ok, message = connect(monkeypatch, conn_type="postgres").test_connection()
    assert not ok
    assert "has type 'postgres'" in message


def test_what_the_test_button_shows_is_one_printable_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    address = str(tmp_path / (CONTROLS + FORGED_LINE))
    ok, message = connect(monkeypatch, extra={"test_table": address}).test_connection()
    assert not ok
    assert "forged line" in message
    assert message.isprintable()
    write_hostile_table(tmp_path / (CONTROLS + FORGED_LINE))
    ok, message = connect(monkeypatch, extra={"test_table": address}).test_connection()
    assert ok
    assert message.isprintable()


def test_options_for_many_tables_have_the_catalogs_that_their_names_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"hive_metastore": "thrift://metastore:9083", "key": "k", "secret": "s"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": extra}))
    hook = DeltaTableHook("lake")
    assert hook.options_for(["s3://lake/**"]) == {"key": "k", "secret": "s"}
    assert hook.options_for(["s3://lake/**", "hms://sales.*"])["hive_metastore"] == "thrift://metastore:9083"
    assert DeltaTableHook().options_for(["s3://lake/**", "glue://sales.events"]) == {}


def test_a_pattern_in_another_store_than_the_connections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "aws"}))
    with pytest.raises(AirflowFailException, match=r"gs://lake/\*\* is in another store"):
        DeltaTableHook("lake").options_for(["s3://lake/**", "gs://lake/**"])
