"""What gives out Google's access tokens: the token service of service accounts, and that of workload identities.

google-auth signs its requests and reads the answers as it does with Google's own; the emulator of the store takes any token.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


class GoogleIdentity:
    """``endpoint`` is its URL; ``asked`` has the path of each request."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.asked: list[str] = []
        self.refusal = ""

    def refuse(self, said: str = "Invalid JWT Signature.") -> None:
        """Have all further requests answered as for a key that was revoked.

        :param said: the words of the service.
        """
        self.refusal = said

    @property
    def key(self) -> dict[str, str]:
        """The key of a service account, as Google issues it."""
        return {
            "type": "service_account",
            "project_id": "tests",
            "client_email": "lake@tests.iam.gserviceaccount.com",
            "token_uri": f"{self.endpoint}/token",
            "private_key": private_key(),
        }

    def federation(self, token_file: Path) -> dict[str, Any]:
        """The configuration of a workload identity."""
        return {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.endpoint}/federation",
            "credential_source": {"file": str(token_file)},
        }


@cache
def private_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@contextmanager
def running_google_identity() -> Iterator[GoogleIdentity]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            identity.asked.append(self.path)
            answer: dict[str, Any] = {
                "access_token": "of the tests",
                "token_type": "Bearer",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "expires_in": 3600,
            }
            if identity.refusal:
                answer = {"error": "invalid_grant", "error_description": identity.refusal}
            body = json.dumps(answer).encode()
            self.send_response(400 if identity.refusal else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    identity = GoogleIdentity(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield identity
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
