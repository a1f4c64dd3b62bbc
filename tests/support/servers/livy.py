"""An emulator of Apache Livy: the routes of its REST server that start, follow and end batches, whose programs run as processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers.driver_process import DriverProcess, driver_command
from tests.support.servers.json_api import Request, serving


@dataclass
class Livy:
    directory: Path
    port: int = 0
    batches: dict[int, tuple[dict[str, Any], DriverProcess]] = field(default_factory=dict)

    def answer(self, request: Request) -> tuple[int, Any]:
        path = re.fullmatch(r"/batches(?:/(\d+)(/state)?)?", request.path)
        if path is None:
            return 404, {"msg": "no such route"}
        if path[1] is None:
            return self._all(request)
        number = int(path[1])
        if number not in self.batches:
            return 404, {"msg": f"Session '{number}' not found."}
        if request.method == "DELETE":
            self.batches.pop(number)[1].end()
            return 200, {"msg": "deleted"}
        return 200, self._described(number)

    def _all(self, request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return 200, {"sessions": [self._described(number) for number in self.batches]}
        batch = request.body
        if any(other["name"] == batch["name"] for other, _ in self.batches.values()):
            return 400, {"msg": f"Duplicate session name: {batch['name']}"}
        prefix = "spark.yarn.appMasterEnv."
        environment = {
            name.removeprefix(prefix): value
            for name, value in batch["conf"].items()
            if name.startswith(prefix)
        }
        number = max(self.batches, default=-1) + 1
        command = driver_command(batch["file"], batch["args"], None, with_spark=False)
        process = DriverProcess(command, self.directory / f"batch-{number}", environment)
        self.batches[number] = batch, process
        return 201, self._described(number)

    def _described(self, number: int) -> dict[str, Any]:
        batch, process = self.batches[number]
        code = process.exit_code
        state = "running" if code is None else "success" if code == 0 else "dead"
        return {"id": number, "name": batch["name"], "state": state}


@contextmanager
def running_livy(directory: Path) -> Iterator[Livy]:
    livy = Livy(directory)
    with serving(livy.answer) as livy.port:
        try:
            yield livy
        finally:
            for _, process in livy.batches.values():
                process.end()
