"""A mail server in this process that keeps what it is sent."""

from __future__ import annotations

import email
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from socketserver import StreamRequestHandler, ThreadingTCPServer


@dataclass
class MailServer:
    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)

    def subjects(self) -> list[str]:
        return [str(mail["Subject"]) for mail in self.mails]

    @property
    def connection(self) -> str:
        """For Airflow's SMTP provider."""
        options = "disable_ssl=true&disable_tls=true&retry_limit=1"
        return f"smtp://127.0.0.1:{self.port}/?{options}"


@contextmanager
def running_mail_server() -> Iterator[MailServer]:
    """Serves on the loopback address for the length of a block."""
    kept = MailServer()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            while line := self.rfile.readline():
                verb = line[:4].upper().strip()
                if verb == b"DATA":
                    self._say("354 go on")
                    content = b"".join(iter(self.rfile.readline, b".\r\n"))
                    kept.mails.append(email.message_from_bytes(content, _class=EmailMessage, policy=default))
                self._say("221 bye" if verb == b"QUIT" else "250 ok")
                if verb == b"QUIT":
                    return

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        kept.port = int(server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield kept
        finally:
            server.shutdown()
