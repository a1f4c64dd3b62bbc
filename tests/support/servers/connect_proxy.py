"""A proxy for https that leads hosts of the internet to servers of this machine, and lets nothing through to others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer

_CHUNK = 1 << 16
_SECONDS_IDLE = 120


@contextmanager
def running_connect_proxy(ports: Mapping[str, int]) -> Iterator[str]:
    """Yields the proxy's URL.

    :param ports: by host, the port of this machine to which a connection to its port 443 leads.
    """

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head and (received := self.request.recv(_CHUNK)):
                head += received
            words = head.split(b"\r\n", 1)[0].decode(errors="replace").split()
            host, _, port = words[1].rpartition(":") if len(words) > 1 else ("", "", "")
            if words[:1] != ["CONNECT"] or port != "443" or host not in ports:
                self.request.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", ports[host]), _SECONDS_IDLE) as server:
                self.request.settimeout(_SECONDS_IDLE)
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(server, self.request))
                back.start()
                _pass_on(self.request, server)
                back.join()

    class Server(ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that has gone is no news."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(_CHUNK):
            target.sendall(received)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
