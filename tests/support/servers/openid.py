"""An OpenID provider, as far as a store's token service needs one: it publishes its key, and signs tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

_KEY_ID = "tests"
_CLIENT_ID = "lake"


class OpenIdProvider:
    """``endpoint`` is its URL."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, seconds: int = 3600) -> str:
        """Returns a token of a client, for so long; for a negative number it has expired."""
        now = int(time.time())
        claims = {"iss": self.endpoint, "sub": "job", "aud": _CLIENT_ID, "iat": now, "exp": now + seconds}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": _KEY_ID})

    @property
    def minio_environment(self) -> dict[str, str]:
        """Variables of a MinIO that gives a role with all rights to the client."""
        return {
            "MINIO_IDENTITY_OPENID_CONFIG_URL": f"{self.endpoint}/.well-known/openid-configuration",
            "MINIO_IDENTITY_OPENID_CLIENT_ID": _CLIENT_ID,
            "MINIO_IDENTITY_OPENID_ROLE_POLICY": "readwrite",
        }

    @property
    def minio_role(self) -> str:
        """The name of that role, which MinIO derives from the client's."""
        digest = hashlib.sha1(_CLIENT_ID.encode()).digest()
        return f"arn:minio:iam:::role/{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/keys":
            public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
            return {"keys": [{**public, "kid": _KEY_ID, "alg": "RS256", "use": "sig"}]}
        return {"issuer": self.endpoint, "jwks_uri": f"{self.endpoint}/keys"}


@contextmanager
def running_openid_provider() -> Iterator[OpenIdProvider]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def do_GET(self) -> None:
            body = json.dumps(provider.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = OpenIdProvider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
