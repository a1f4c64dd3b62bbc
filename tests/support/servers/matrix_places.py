"""Where the jobs of the matrix run: a real standalone cluster and Connect server, emulated Kubernetes and YARN, each behind a valve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.runs.maintenance_matrix import WAYS, all_cells
from tests.support.servers.gate import gated_environment
from tests.support.servers.kubernetes import Kubernetes, running_kubernetes
from tests.support.servers.spark_connect import TOKEN, SparkConnect, running_spark_connect
from tests.support.servers.spark_standalone import SparkCluster, running_spark_cluster
from tests.support.servers.valve import Valve, valve_before
from tests.support.servers.yarn import Yarn, running_yarn


@dataclass(frozen=True, slots=True)
class Places:
    """
    :param valves: by the name of the place. Nothing of Airflow's reaches a place but through its valve.
    """

    standalone: SparkCluster
    connect: SparkConnect
    kubernetes: Kubernetes
    yarn: Yarn
    valves: dict[str, Valve]

    def set_open(self, is_open: bool) -> None:
        for valve in self.valves.values():
            if is_open:
                valve.open()
            else:
                valve.close()

    def connections(self) -> dict[str, dict[str, Any]]:
        """The Airflow connections, by id, which is the name of the place."""
        ports = {name: valve.port for name, valve in self.valves.items()}
        return {
            "client": {"conn_type": "spark", "host": f"spark://127.0.0.1:{ports['client']}"},
            "standalone": {
                "conn_type": "spark",
                "host": self.standalone.master,
                "extra": {"deploy-mode": "cluster", "rest-port": ports["standalone"]},
            },
            "connect": {
                "conn_type": "spark_connect",
                "host": "localhost",
                "port": ports["connect"],
                "password": TOKEN,
            },
            "kubernetes": {
                "conn_type": "spark",
                "host": f"k8s://http://127.0.0.1:{ports['kubernetes']}",
                "extra": {"deploy-mode": "cluster", "namespace": "lake"},
            },
            "yarn": {
                "conn_type": "spark",
                "host": "yarn",
                "extra": {
                    "deploy-mode": "cluster",
                    "yarn_resourcemanager_webapp_address": f"http://127.0.0.1:{ports['yarn']}",
                },
            },
        }

    def arguments(self, uploads: Path) -> dict[str, dict[str, Any]]:
        """By way of running, the arguments of its operators.

        :param uploads: a directory for what is handed to Kubernetes.
        """
        of_place: dict[str, dict[str, Any]] = {
            "local": {"engine": "local"},
            "client": {"spark_conf": SparkCluster.conf},
            "standalone": {"spark_conf": SparkCluster.conf},
            "connect": {},
            "kubernetes": {
                "spark_conf": {
                    "spark.kubernetes.container.image": "spark:4.2",
                    "spark.kubernetes.file.upload.path": uploads.as_uri(),
                }
            },
            "yarn": {
                "spark_conf": {"spark.pyspark.python": sys.executable},
                "spark_binary": self.yarn.spark_submit_through(self.valves["yarn"].port),
            },
        }
        return {way: _arguments(way, of_place) for way in WAYS}


def _arguments(way: str, of_place: dict[str, dict[str, Any]]) -> dict[str, Any]:
    cell = next(cell for cell in all_cells() if cell.way == way)
    place, is_deferred = cell.place, cell.is_deferred
    found = dict(of_place[place])
    if place != "local":
        found |= {"engine": "spark", "spark_conn_id": place}
    if place not in ("local", "client"):
        found["deferrable"] = is_deferred
    return found


@contextmanager
def running_places(directory: Path) -> Iterator[Places]:
    environment = gated_environment(directory / "gated")
    for name in ("connect", "kubernetes", "yarn"):
        (directory / name).mkdir()
    with ExitStack() as stack:
        # Tasks that a gate holds up take a slot, so there are more than processors.
        places = Places(
            stack.enter_context(running_spark_cluster(directory / "standalone", environment)),
            stack.enter_context(running_spark_connect(directory / "connect", slots=16)),
            stack.enter_context(running_kubernetes(directory / "kubernetes")),
            stack.enter_context(running_yarn(directory / "yarn")),
            {},
        )
        for emulator in (places.kubernetes, places.yarn):
            emulator.is_with_spark, emulator.environment = True, environment
        ports = {
            "client": int(places.standalone.master.rpartition(":")[2]),
            "standalone": places.standalone.rest_port,
            "connect": places.connect.port,
            "kubernetes": places.kubernetes.port,
            "yarn": places.yarn.port,
        }
        for name, port in ports.items():
            places.valves[name] = stack.enter_context(valve_before(port))
        yield places
