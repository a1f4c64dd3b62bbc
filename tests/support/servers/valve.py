"""A valve in front of a server: while it is closed, the server's address refuses connections, and those that were open are broken."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Valve:
    """Forwards connections to a port of this machine while it is open."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.open()

    def open(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the thread that accepts, which a mere close would not.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            open_ones, self._connections = self._connections, set()
        for connection in open_ones:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.socket() as server:
            try:
                server.connect(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._connections |= {client, server}
            try:
                _exchange(client, server)
            finally:
                with self._lock:
                    self._connections -= {client, server}


def _exchange(client: socket.socket, server: socket.socket) -> None:
    other = {client: server, server: client}
    with suppress(OSError):
        while True:
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(65_536)
                if not data:
                    return
                other[source].sendall(data)


@contextmanager
def valve_before(target: int) -> Iterator[Valve]:
    """
    :param target: the port of the server.
    """
    valve = Valve(target)
    try:
        yield valve
    finally:
        valve.close()
