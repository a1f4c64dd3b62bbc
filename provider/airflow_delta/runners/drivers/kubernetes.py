"""Drivers on Kubernetes: spark-submit creates the driver's pod, and the Kubernetes API follows and ends it.

The pod's name follows from the submission id, so that it is found without being remembered. Kubernetes deletes the executors of a driver whose
pod is deleted, since that owns them. The client is the one that the Spark provider's hook uses, configured as for Airflow's executor on
Kubernetes (``[kubernetes_executor]`` ``in_cluster``, ``config_file``, ``cluster_context``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from airflow_delta.runners.drivers.spark_submission import NAMESPACE_PROPERTY, is_local_file, submit_driver
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_submit import require_connection, require_kubernetes_client
from delta_log.printable import printable

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api, V1ContainerStatus, V1Pod

UPLOAD_PATH_PROPERTY = "spark.kubernetes.file.upload.path"
#: On every driver's pod, with the submission id as its value.
LABEL = "delta-maintenance"
_CONTAINER = "spark-kubernetes-driver"
_PHASES = {
    "Pending": DriverPhase.WAITING,
    "Running": DriverPhase.RUNNING,
    "Succeeded": DriverPhase.SUCCEEDED,
    "Failed": DriverPhase.FAILED,
    "Unknown": DriverPhase.UNKNOWN,
}
_LONGEST_TEXT = 300


class KubernetesDriver(DriverLauncher):
    """A :class:`~airflow_delta.runners.drivers.driver.DriverLauncher` on Kubernetes.

    :param spark_conn_id: the connection with master ``k8s://…``.
    :param namespace: namespace of the pods; ``None``: the namespace in the connection's extra, or ``default``.
    :param spark_binary: the spark-submit to use instead of the connection's.
    """

    def __init__(
        self, spark_conn_id: str, namespace: str | None = None, spark_binary: str | None = None
    ) -> None:
        self._spark_conn_id, self._given_namespace, self._spark_binary = (
            spark_conn_id,
            namespace,
            spark_binary,
        )
        self.place = f"Kubernetes (connection {spark_conn_id})"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {
            "spark_conn_id": self._spark_conn_id,
            "namespace": self._given_namespace,
            "spark_binary": self._spark_binary,
        }
        return f"{__name__}.{type(self).__name__}", kwargs

    def start(self, request: DriverRequest) -> JobHandle:
        handle = self._handle(request.submission_id)
        properties = _properties(request, handle)
        if is_local_file(request.application) and not properties.get(UPLOAD_PATH_PROPERTY):
            raise JobCannotStart(
                f"The job's program {request.application} is on this worker, and pods cannot read it. Nothing was submitted. Set cluster_application "
                "to its place in the image, such as local:///opt/app/delta_maintenance/entrypoint/run_job.py, or the Spark property "
                f"{UPLOAD_PATH_PROPERTY} to a directory that worker and pods can use."
            )
        # Whether the driver can be followed is found out before it is started.
        with self._answering(handle["namespace"]):
            if self._pod(handle) is not None:
                return handle
        try:
            submit_driver(self._spark_conn_id, request, properties, self._spark_binary)
        except JobLost:
            # The answer may be lost, and the pod created.
            if self.find(request.submission_id) is None:
                raise
        return handle

    def find(self, submission_id: str) -> JobHandle | None:
        handle = self._handle(submission_id)
        try:
            return None if self._pod(handle) is None else handle
        except _failures():
            return None

    def prepare(self) -> None:
        self._client  # noqa: B018 - makes it
        _failures()  # imports what it names

    def state(self, handle: JobHandle) -> DriverState:
        try:
            pod = self._pod(handle)
        except _failures() as error:
            self.__dict__.pop("_client", None)  # its token may have expired
            return DriverState(DriverPhase.UNKNOWN, _said(error))
        return DriverState(DriverPhase.GONE) if pod is None else driver_state(pod)

    def end(self, handle: JobHandle) -> None:
        from kubernetes.client import ApiException

        try:
            self._client.delete_namespaced_pod(handle["pod"], handle["namespace"])
        except _failures() as error:
            if isinstance(error, ApiException) and error.status == 404:
                return
            raise JobLost(
                f"{self.place} did not delete the driver's pod {handle['pod']}: {_said(error)}."
            ) from error

    def _handle(self, submission_id: str) -> JobHandle:
        return {"namespace": self._namespace, "pod": f"delta-maintenance-{submission_id}"}

    def _pod(self, handle: JobHandle) -> V1Pod | None:
        from kubernetes.client import ApiException

        try:
            return self._client.read_namespaced_pod(handle["pod"], handle["namespace"])
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    @contextmanager
    def _answering(self, namespace: str) -> Iterator[None]:
        from kubernetes.client import ApiException

        try:
            yield
        except _failures() as error:
            if isinstance(error, ApiException) and error.status in (401, 403):
                raise JobCannotStart(
                    f"{self.place} does not let this worker read pods in namespace {namespace!r} ({_said(error)}). Nothing was submitted. Its "
                    "account needs to get, create and delete pods, and to create config maps and services."
                ) from error
            raise JobLost(
                f"The API of {self.place} does not answer: {_said(error)}. Check that it runs, and Airflow's settings for it "
                "([kubernetes_executor]). Another try may succeed."
            ) from error

    @cached_property
    def _namespace(self) -> str:
        if self._given_namespace:
            return self._given_namespace
        return str(require_connection(self._spark_conn_id).extra_dejson.get("namespace") or "default")

    @cached_property
    def _client(self) -> CoreV1Api:
        require_kubernetes_client(self._spark_conn_id)
        from airflow.providers.cncf.kubernetes.kube_client import get_kube_client
        from kubernetes.config import ConfigException

        try:
            return get_kube_client()
        except (ConfigException, OSError) as error:
            raise JobCannotStart(
                f"There is no way to the API of {self.place}: {error}. Configure [kubernetes_executor] of Airflow: in_cluster, or config_file and "
                "cluster_context."
            ) from error


def driver_state(pod: V1Pod) -> DriverState:
    """The state of a driver by its pod.

    The driver's container tells more than the pod: another container may go on when the driver is over.
    """
    status = pod.status
    phase = _PHASES.get(status.phase, DriverPhase.WAITING)
    container = _driver_container(status.container_statuses or [])
    ended = container and container.state and container.state.terminated
    waiting = container and container.state and container.state.waiting
    if ended:
        over = DriverPhase.SUCCEEDED if ended.exit_code == 0 else DriverPhase.FAILED
        return DriverState(over, _text(f"exit code {ended.exit_code}", ended.reason, ended.message))
    if waiting and not phase.is_over:
        return DriverState(DriverPhase.WAITING, _text(status.phase, waiting.reason, waiting.message))
    for condition in status.conditions or []:
        if phase is DriverPhase.WAITING and condition.type == "PodScheduled" and condition.status == "False":
            return DriverState(phase, _text(status.phase, condition.reason, condition.message))
    return DriverState(phase, _text(status.phase, status.reason, status.message))


def _driver_container(statuses: list[V1ContainerStatus]) -> V1ContainerStatus | None:
    named = [status for status in statuses if status.name == _CONTAINER]
    return next(iter(named or statuses), None)


def _text(*parts: str | None) -> str:
    """The parts that say something, such as ``Pending: ErrImagePull: no such image``."""
    said = ": ".join(" ".join(part.split()) for part in parts if part)
    return printable(said)[:_LONGEST_TEXT]


def _failures() -> tuple[type[Exception], ...]:
    """What the client raises if the API does not do as it is asked, or cannot be reached."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    return ApiException, HTTPError


def _said(error: Exception) -> str:
    from kubernetes.client import ApiException

    if isinstance(error, ApiException):
        return _text(f"HTTP {error.status}", error.reason)
    return _text(type(error).__name__, str(error))


def _properties(request: DriverRequest, handle: JobHandle) -> dict[str, str]:
    return {
        **{str(name): str(value) for name, value in request.spark_conf.items()},
        NAMESPACE_PROPERTY: handle["namespace"],
        "spark.kubernetes.driver.pod.name": handle["pod"],
        f"spark.kubernetes.driver.label.{LABEL}": request.submission_id,
        "spark.kubernetes.submission.waitAppCompletion": "false",
        **{f"spark.kubernetes.driverEnv.{name}": value for name, value in request.environment.items()},
    }
