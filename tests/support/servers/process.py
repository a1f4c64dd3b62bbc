"""A server process on the loopback address, for as long as a block lasts."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_TRIES = 5
_SECONDS_TO_START = 60
_SECONDS_TO_STOP = 10


@contextmanager
def running(
    command: Callable[[int], Sequence[str]],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Iterator[int]:
    """Start a server; gives its port.

    :param command: for a port.
    :param user: the id of the user that it runs as; ``None``: this process's own.
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
            # Somebody else may have taken the port in between; then the server ends, and another is tried.
            if _answers(process, port):
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


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _SECONDS_TO_START
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as connection:
            connection.settimeout(1)
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
