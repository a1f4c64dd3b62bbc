"""The example of a launcher in the documentation, against an emulated Livy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.servers.livy import running_livy
from tests.support.servers.process import free_port

from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase
from airflow_delta.runners.job_runner import JobLost
from airflow_delta.testing import DriverLauncherContract


def connect(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    value = {"conn_type": "livy", "host": "127.0.0.1", "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_LIVY", json.dumps(value))


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverLauncher]:
    monkeypatch.syspath_prepend(ROOT / "docs" / "guides")
    with running_livy(tmp_path) as livy:
        connect(monkeypatch, livy.port)
        made: DriverLauncher = import_module("livy_launcher").LivyLauncher("livy")
        yield made


class TestLivyLauncher(DriverLauncherContract):
    @pytest.fixture
    def program_directory(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def unknown_handle(self) -> JobHandle:
        return {"batch": 99}


def test_an_outage_of_livy_is_no_end_of_a_driver(
    launcher: DriverLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, free_port())
    assert launcher.state({"batch": 0}).phase is DriverPhase.UNKNOWN
    with pytest.raises(JobLost):
        launcher.end({"batch": 0})
