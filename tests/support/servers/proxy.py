"""A proxy between a client and an object store: records the requests, and loses or spoils some of them.

Client and server are real; only the connection between them is replaced.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """``path`` is decoded; ``query`` has one value for each name; names of ``headers`` are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """An answer in place of the server's, which does not receive the request."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lose:
    """The server handles the request, and the connection breaks before its answer arrives."""


@dataclass(frozen=True)
class Halve:
    """The server handles the request, and the connection breaks in the middle of its answer's body."""


@dataclass(frozen=True)
class Without:
    """The server gets the request without this header."""

    header: str


@dataclass(frozen=True)
class Hold:
    """The server gets the request when this is set."""

    until: threading.Event


Verdict = Answer | Halve | Hold | Lose | Without
Rule = Callable[[Request], Verdict | None]


def s3_error(status: int, code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>said by the proxy</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


class Proxy:
    """``endpoint`` is its URL; ``rule`` decides what becomes of a request (``None``: it goes through)."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.requests: list[Request] = []
        self.rule: Rule = lambda _: None
        self.lock = threading.Lock()

    def seen(self, method: str, suffix: str = "") -> list[Request]:
        return [r for r in self.requests if r.method == method and r.path.endswith(suffix)]


def only(times: int, matches: Callable[[Request], bool], then: Verdict) -> Rule:
    """A rule for the first ``times`` matching requests; 0: for all."""
    met = [0]

    def rule(request: Request) -> Verdict | None:
        if not matches(request):
            return None
        met[0] += 1
        return then if not times or met[0] <= times else None

    return rule


@contextmanager
def proxied(upstream: str) -> Iterator[Proxy]:
    target = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def handle_request(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, unquote(url.path), query, headers)
            with proxy.lock:
                proxy.requests.append(request)
                verdict = proxy.rule(request)
            if isinstance(verdict, Answer):
                self.reply(verdict.status, verdict.headers, verdict.body)
                return
            if isinstance(verdict, Hold):
                verdict.until.wait()
            if isinstance(verdict, Without):
                headers.pop(verdict.header.lower(), None)
            connection = http.client.HTTPConnection(target)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                response = connection.getresponse()
                content = response.read()
            finally:
                connection.close()
            if isinstance(verdict, Lose):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.reply(
                response.status, dict(response.getheaders()), content, is_halved=isinstance(verdict, Halve)
            )

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_request  # noqa: N815 - BaseHTTPRequestHandler's

        def reply(
            self, status: int, headers: dict[str, str], content: bytes, *, is_halved: bool = False
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            lengths = [value for name, value in headers.items() if name.lower() == "content-length"]
            size = (lengths or ["0"])[0] if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", size)
            self.end_headers()
            if is_halved:
                self.close_connection = True
                content = content[: len(content) // 2]
            if self.command != "HEAD":
                self.wfile.write(content)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignores a client that closed its connection."""

    server = Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
