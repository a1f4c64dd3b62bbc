from __future__ import annotations

import pytest

from delta_maintenance.engine.spark.session import user_of


@pytest.mark.parametrize(
    ("remote", "user"),
    [
        ("sc://host/;user_id=a%20b;token=x", "a b"),
        ("sc://host:1/;token=x", "worker"),
        ("sc://host", "worker"),
        ("sc://host/;user_id=", "worker"),
    ],
)
def test_the_user_of_a_session_is_that_of_the_address(
    monkeypatch: pytest.MonkeyPatch, remote: str, user: str
) -> None:
    monkeypatch.delenv("SPARK_USER", raising=False)
    monkeypatch.setenv("USER", "worker")
    assert user_of(remote) == user


def test_a_session_of_a_process_without_a_user_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_USER", "USER"):
        monkeypatch.delenv(name, raising=False)
    assert user_of("sc://host") == "delta-maintenance"
