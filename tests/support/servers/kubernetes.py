"""An emulator of Kubernetes: the routes of its API that Spark's client and ours use, for pods, config maps and services.

It runs the pods of Spark drivers: the command of the container becomes a process of this machine, with the variables of the container and the
config map in place of its volume. The image's entry point is left out, and the driver gets a local Spark instead of executors.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers.driver_process import DriverProcess, driver_command
from tests.support.servers.json_api import Request, serving

_ROUTE = re.compile(
    r"/(?:api|apis/networking.k8s.io)/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(/(?P<name>[^/]+))?"
)
_RUNNER = "org.apache.spark.deploy.PythonRunner"
_Key = tuple[str, str, str]


@dataclass
class Kubernetes:
    """
    :param refusal: HTTP status and reason with which the creation of pods is refused.
    :param status: HTTP status with which every request is refused, if it is not 200.
    :param is_with_spark: whether drivers get a Spark.
    :param environment: further variables of drivers, as an image may set them.
    """

    directory: Path
    port: int = 0
    refusal: tuple[int, str] | None = None
    status: int = 200
    is_with_spark: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    objects: dict[_Key, dict[str, Any]] = field(default_factory=dict)
    drivers: dict[_Key, DriverProcess] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def master(self) -> str:
        return f"k8s://http://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> str:
        """The path of a configuration with which clients reach this cluster."""
        return self.kubeconfig_through(self.port)

    def kubeconfig_through(self, port: int) -> str:
        """The same, which reaches this cluster through another port."""
        path = self.directory / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{port}"}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "emulated",
                    "clusters": [{"name": "emulated", "cluster": cluster}],
                    "users": [{"name": "emulated", "user": {}}],
                    "contexts": [
                        {"name": "emulated", "context": {"cluster": "emulated", "user": "emulated"}}
                    ],
                }
            )
        )
        return str(path)

    def pods(self) -> list[dict[str, Any]]:
        return [value for (_, kind, _), value in self.objects.items() if kind == "pods"]

    def answer(self, request: Request) -> tuple[int, Any]:
        with self._lock:
            self.requests.append(f"{request.method} {request.path}")
            if self.status != 200:
                return _failure(self.status, "refused")
            route = _ROUTE.fullmatch(request.path)
            if route is None:
                return _failure(404, f"no route {request.path}")
            namespace, kind, name = route["namespace"], route["kind"], route["name"]
            if request.method == "POST":
                return self._create(namespace, kind, request.body)
            if name is None:
                return self._list(namespace, kind, request)
            key = (namespace, kind, name)
            if key not in self.objects and request.method != "PATCH":
                return _failure(404, f'{kind} "{name}" not found')
            if request.method == "DELETE":
                return 200, self._delete(key)
            if request.method == "PATCH":
                if key not in self.objects:
                    return self._create(namespace, kind, request.body)
                _merge(self.objects[key], request.body)
            return 200, self._seen(key)

    def _create(self, namespace: str, kind: str, value: dict[str, Any]) -> tuple[int, Any]:
        if kind == "pods" and self.refusal is not None:
            return _failure(*self.refusal)
        key = (namespace, kind, value["metadata"]["name"])
        if key in self.objects:
            return _failure(409, "already exists")
        value["metadata"] |= {
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        self.objects[key] = value
        self._start_drivers()
        return 201, self._seen(key)

    def _list(self, namespace: str, kind: str, request: Request) -> tuple[int, Any]:
        wanted = dict(
            part.split("=", 1) for part in request.query.get("labelSelector", "").split(",") if part
        )
        keys = [
            key
            for key, value in self.objects.items()
            if key[:2] == (namespace, kind) and wanted.items() <= value["metadata"].get("labels", {}).items()
        ]
        if request.method == "DELETE":
            return 200, [self._delete(key) for key in keys]
        items = [self._seen(key) for key in keys]
        return 200, {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}

    def _delete(self, key: _Key) -> dict[str, Any]:
        value = self.objects.pop(key)
        if key in self.drivers:
            self.drivers.pop(key).end()
        uid = value["metadata"]["uid"]
        for other, owned in list(self.objects.items()):
            if any(owner["uid"] == uid for owner in owned["metadata"].get("ownerReferences") or []):
                self._delete(other)
        return value

    def _seen(self, key: _Key) -> dict[str, Any]:
        value = self.objects[key]
        if key[1] == "pods":
            value["status"] = self._pod_status(key)
        return value

    def _pod_status(self, key: _Key) -> dict[str, Any]:
        driver = self.drivers.get(key)
        if driver is None:
            return {"phase": "Pending"}
        container = self.objects[key]["spec"]["containers"][0]["name"]
        code = driver.exit_code
        phase = "Running" if code is None else "Succeeded" if code == 0 else "Failed"
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Completed"}}
        status = {"name": container, "image": "", "imageID": "", "ready": False, "restartCount": 0}
        return {"phase": phase, "containerStatuses": [{**status, "state": state}]}

    def _start_drivers(self) -> None:
        """Start pods whose config maps are there."""
        for key, pod in self.objects.items():
            if key[1] != "pods" or key in self.drivers:
                continue
            volumes = [volume for volume in pod["spec"].get("volumes") or [] if "configMap" in volume]
            maps = [(key[0], "configmaps", volume["configMap"]["name"]) for volume in volumes]
            if all(name in self.objects for name in maps):
                self.drivers[key] = self._started(
                    key, pod, [self.objects[name].get("data") or {} for name in maps]
                )

    def _started(self, key: _Key, pod: dict[str, Any], maps: list[dict[str, str]]) -> DriverProcess:
        home = self.directory / "pods" / key[2]
        configuration = home / "conf"
        configuration.mkdir(parents=True)
        for name, content in (item for data in maps for item in data.items()):
            (configuration / name).write_text(content)
        container = pod["spec"]["containers"][0]
        arguments = container["args"]
        program, *rest = arguments[arguments.index(_RUNNER) + 1 :]
        environment = {item["name"]: item["value"] for item in container["env"] if "value" in item}
        properties = (configuration / "spark.properties").read_text()
        py_files = re.search(r"^spark\.submit\.pyFiles=(.+)$", properties, re.MULTILINE)
        return DriverProcess(
            driver_command(
                re.sub(r"^(local|file)\\?:(//)?", "", program),
                rest,
                py_files and py_files[1].replace("\\", "").removeprefix("file:"),
                with_spark=self.is_with_spark,
            ),
            home,
            {**self.environment, **environment, "SPARK_CONF_DIR": str(home / "no-conf")},
        )


def _failure(code: int, message: str) -> tuple[int, Any]:
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists"}
    return code, {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": reasons.get(code, "InternalError"),
        "code": code,
    }


def _merge(value: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, item in patch.items():
        if isinstance(item, dict) and isinstance(value.get(name), dict):
            _merge(value[name], item)
        else:
            value[name] = item


@contextmanager
def running_kubernetes(directory: Path) -> Iterator[Kubernetes]:
    kubernetes = Kubernetes(directory)
    with serving(kubernetes.answer) as kubernetes.port:
        try:
            yield kubernetes
        finally:
            for driver in kubernetes.drivers.values():
                driver.end()
