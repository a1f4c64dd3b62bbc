"""What is known of a driver by its pod, and what is refused before anything is submitted.

``tests/integration/test_cluster_drivers.py`` starts drivers with Spark's own client.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.kubernetes import Kubernetes, running_kubernetes
from tests.support.servers.process import free_port

from airflow_delta.runners import spark_settings
from airflow_delta.runners.drivers.driver import DriverPhase, DriverRequest
from airflow_delta.runners.drivers.kubernetes import KubernetesDriver, driver_state
from airflow_delta.runners.drivers.spark_submission import failed_submission
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_runner import SparkChoice

HANDLE = {"namespace": "lake", "pod": "delta-maintenance-1"}


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Kubernetes]:
    with running_kubernetes(tmp_path) as kubernetes:
        yield kubernetes


@pytest.fixture
def launcher(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> KubernetesDriver:
    extra = {"deploy-mode": "cluster", "namespace": "lake"}
    value = {"conn_type": "spark", "host": kubernetes.master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_K8S", json.dumps(value))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", kubernetes.kubeconfig)
    return KubernetesDriver("lake_k8s")


def request_of(application: str, **spark_conf: str) -> DriverRequest:
    return DriverRequest("n", secrets.token_hex(16), application, [], {}, spark_conf)


def pod(phase: str, *containers: dict[str, Any], **status: Any) -> Any:
    """A pod as the client reads it."""
    from kubernetes.client import ApiClient

    statuses = [
        {"image": "", "imageID": "", "ready": False, "restartCount": 0, "name": "driver", **container}
        for container in containers
    ]
    text = json.dumps({"status": {"phase": phase, "containerStatuses": statuses, **status}})

    class Answer:
        data = text

    return ApiClient().deserialize(Answer(), "V1Pod")


@pytest.mark.parametrize(
    ("found", "phase", "text"),
    [
        (
            pod(
                "Pending",
                {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image spark:9"}}},
            ),
            DriverPhase.WAITING,
            "Pending: ImagePullBackOff: no image spark:9",
        ),
        (
            pod(
                "Pending",
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient memory.",
                    }
                ],
            ),
            DriverPhase.WAITING,
            "Pending: Unschedulable: 0/3 nodes are available: 3 Insufficient memory.",
        ),
        (pod("Running", {"state": {"running": {}}}), DriverPhase.RUNNING, "Running"),
        (
            pod("Failed", {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
            DriverPhase.FAILED,
            "exit code 137: OOMKilled",
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
            DriverPhase.FAILED,
            "Failed: Evicted: The node was low on resource: memory.",
        ),
        (
            # Another container goes on.
            pod(
                "Running",
                {"name": "proxy", "state": {"running": {}}},
                {"name": "spark-kubernetes-driver", "state": {"terminated": {"exitCode": 0}}},
            ),
            DriverPhase.SUCCEEDED,
            "exit code 0",
        ),
        (pod("Unknown"), DriverPhase.UNKNOWN, "Unknown"),
    ],
)
def test_the_state_of_a_driver_is_told_in_the_words_of_kubernetes(
    found: Any, phase: DriverPhase, text: str
) -> None:
    state = driver_state(found)
    assert (state.phase, state.text) == (phase, text)


def test_a_connection_in_deploy_mode_cluster_gets_it_with_the_namespace_of_the_operator(
    launcher: KubernetesDriver,
) -> None:
    choice = SparkChoice("optimize", "lake_k8s", spark_conf={"spark.kubernetes.namespace": "night"})
    runner: Any = choice.runner({}, None)  # type: ignore[arg-type]
    _, kwargs = runner.serialize()
    assert kwargs["launcher_kwargs"]["namespace"] == "night"
    assert launcher.find("0" * 32) is None


def test_a_missing_package_for_kubernetes_is_told_with_its_name(
    launcher: KubernetesDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes", None)
    with pytest.raises(JobCannotStart, match=r"airflow-provider-delta\[kubernetes\]"):
        SparkChoice("optimize", "lake_k8s").runner({}, None)  # type: ignore[arg-type]


def test_a_program_of_this_machine_needs_a_place_to_be_uploaded_to(
    kubernetes: Kubernetes, launcher: KubernetesDriver
) -> None:
    with pytest.raises(JobCannotStart, match=r"cluster_application.*spark\.kubernetes\.file\.upload\.path"):
        launcher.start(request_of(spark_settings.application()))
    assert kubernetes.requests == []


@pytest.mark.parametrize("status", [401, 403])
def test_an_api_that_refuses_this_worker_is_found_before_submission(
    kubernetes: Kubernetes, launcher: KubernetesDriver, status: int
) -> None:
    kubernetes.status = status
    with pytest.raises(JobCannotStart, match=rf"namespace 'lake' \(HTTP {status}.*Nothing was submitted"):
        launcher.start(request_of("local:///app.py"))
    assert launcher.state(HANDLE).phase is DriverPhase.UNKNOWN
    assert launcher.find("0" * 32) is None
    with pytest.raises(JobLost, match="did not delete"):
        launcher.end(HANDLE)


def test_an_api_that_does_not_answer_is_an_outage(
    kubernetes: Kubernetes, launcher: KubernetesDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.port = free_port()
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", kubernetes.kubeconfig)
    with pytest.raises(JobLost, match="Another try may succeed"):
        launcher.start(request_of("local:///app.py"))
    assert launcher.state(HANDLE).phase is DriverPhase.UNKNOWN
    with pytest.raises(JobLost):
        launcher.end(HANDLE)


def test_without_a_configuration_of_the_client_the_message_names_its_settings(
    launcher: KubernetesDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "absent"))
    with pytest.raises(JobCannotStart, match=r"\[kubernetes_executor\]"):
        launcher.state(HANDLE)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            'KubernetesClientException: pods is forbidden: User "airflow" cannot create resource',
            JobCannotStart,
        ),
        (
            "KubernetesClientException: Message: Unauthorized. Received status: Status(code=401)",
            JobCannotStart,
        ),
        ("KubernetesClientException: pods is forbidden: exceeded quota: night, used: pods=9", JobLost),
        ("java.net.ConnectException: Connection refused", JobLost),
        ("Something else went wrong", JobLost),
    ],
)
def test_a_refusal_of_spark_s_client_is_final_and_a_full_cluster_is_not(
    said: str, error: type[Exception]
) -> None:
    found = failed_submission("spark-submit ended with exit code 1", ["INFO x", said])
    assert type(found) is error
    assert said in str(found)


def test_the_properties_with_secrets_are_redacted_by_spark() -> None:
    import re

    pattern = re.compile(spark_settings.CLUSTER_DEFAULTS["spark.redaction.regex"])
    for prefix in ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv."):
        assert pattern.search(f"{prefix}DELTA_MAINTENANCE_RUN_KEY")


def test_a_launcher_that_is_prepared_ends_a_driver_without_a_look_at_its_configuration(
    launcher: KubernetesDriver, kubernetes: Kubernetes
) -> None:
    """A signal may come while the task is looking something up."""
    launcher.prepare()
    Path(kubernetes.kubeconfig).unlink()
    launcher.end(HANDLE)  # there is no such pod
    with pytest.raises(JobCannotStart, match="no way to the API"):
        KubernetesDriver("lake_k8s").prepare()
