"""Runs a server process on the loopback address for as long as a block lasts."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # Airflow depends on it

from tests.support.environment.patience import PATIENCE_SECONDS

_TRIES = 5
_SECONDS_TO_STOP = 10


@contextmanager
def running(
    command: Callable[[int], Sequence[str]],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Iterator[int]:
    """Starts a server and yields its port.

    :param command: returns the command line for a port.
    :param user: the id of the user that runs the server; ``None``: the user of this process.
    """
    log = directory / "server.log"
    for _ in range(_TRIES):
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port),
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=user,
            )
        try:
            # Another process may take the port before the server does. Then the server ends, and another port is tried.
            if _listens(process, port):
                yield port
                return
        finally:
            process.terminate()
            try:
                process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    raise AssertionError(f"{command(0)[0]} does not start: {log.read_text(errors='replace')[-2000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Waits until this very process listens at the port; an answer alone may come from a stranger who took the port."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if port in _listened_ports(process.pid):
            return True
        time.sleep(0.05)
    return False


def _listened_ports(pid: int) -> set[int]:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return set()
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}
