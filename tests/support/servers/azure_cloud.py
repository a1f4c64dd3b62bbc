"""A piece of the public Azure cloud under its own names: a storage account that takes tokens, and what gives them out.

Azurite takes tokens over https alone, and looks at who issued them, for what, and until when. Clients ask for the hosts of the public
cloud; a proxy, which they find in HTTPS_PROXY, leads these to the servers of this machine. Both have certificates of an
authority that clients trust by SSL_CERT_FILE.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs
from uuid import uuid4

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.support.servers.azure import AzureServer, running_azurite
from tests.support.servers.connect_proxy import running_connect_proxy

_LOGIN = "login.microsoftonline.com"
_STORE = "https://storage.azure.com"
_CA = "authority"


@dataclass
class AzureCloud:
    """A tenant with one service principal, and one storage account.

    :ivar environment: what a process needs to find this cloud and to trust it.
    :ivar asked: the paths of the requests for tokens.
    :ivar busy: so many of the next requests are answered with 503.
    """

    server: AzureServer
    environment: Mapping[str, str]
    tenant: str = field(default_factory=lambda: str(uuid4()))
    client_id: str = field(default_factory=lambda: str(uuid4()))
    client_secret: str = "secret of the tests' principal"
    asked: list[str] = field(default_factory=list)
    busy: int = 0

    def token_for(self, path: str, form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        """The answer to a request for a token."""
        expected = {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "scope": f"{_STORE}/.default",
        }
        self.asked.append(path)
        if self.busy:
            self.busy -= 1
            return 503, {"error": "temporarily_unavailable", "error_description": "AADSTS90033: busy"}
        wrong = [name for name, value in expected.items() if form.get(name) != value]
        if path != f"/{self.tenant}/oauth2/v2.0/token" or wrong:
            return 401, {"error": "invalid_client", "error_description": f"AADSTS7000215: wrong {wrong}"}
        now = int(time.time())
        claims = {
            "iss": f"https://sts.windows.net/{self.tenant}/",
            "aud": _STORE,
            "nbf": now - 60,
            "exp": now + 3600,
        }
        token = jwt.encode(
            {**claims, "iat": now - 60}, "a key that Azurite does not look at: 32 bytes", "HS256"
        )
        return 200, {"token_type": "Bearer", "expires_in": 3600, "access_token": token}


@contextmanager
def running_azure_cloud(program: list[str], directory: Path) -> Iterator[AzureCloud]:
    """
    :param program: the beginning of Azurite's command line.
    """
    account = AzureServer("").account
    hosts = {name: f"{account}.{name}.core.windows.net" for name in ("blob", "dfs")}
    certificates = _certificates(directory, [*hosts.values(), _LOGIN])
    tls = ["--oauth", "basic", "--cert", str(certificates.server), "--key", str(certificates.key)]
    with ExitStack() as stack:
        server = stack.enter_context(running_azurite([*program, *tls], directory, scheme="https"))
        cloud = AzureCloud(server, {})
        login = stack.enter_context(_running_login(cloud, certificates))
        store = int(server.endpoint.rpartition(":")[2])
        ports = {**dict.fromkeys(hosts.values(), store), _LOGIN: login}
        proxy = stack.enter_context(running_connect_proxy(ports))
        proxies = {"https_proxy": proxy, "no_proxy": "127.0.0.1,localhost"}
        cloud.environment = {
            **proxies,
            **{name.upper(): value for name, value in proxies.items()},
            "SSL_CERT_FILE": str(certificates.authority),
            "REQUESTS_CA_BUNDLE": str(certificates.authority),
        }
        yield cloud


@contextmanager
def _running_login(cloud: AzureCloud, certificates: _Certificates) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def do_POST(self) -> None:
            sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.reply(*cloud.token_for(self.path, {name: values[0] for name, values in sent.items()}))

        def do_GET(self) -> None:
            """Tell that this host has no other names, and where a tenant gives out tokens."""
            tenant = f"https://{_LOGIN}/{cloud.tenant}"
            self.reply(
                200,
                {
                    "metadata": [],
                    "issuer": f"{tenant}/v2.0",
                    "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
                    "token_endpoint": f"{tenant}/oauth2/v2.0/token",
                },
            )

        def reply(self, status: int, answer: Mapping[str, object]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)
    # The thread of a connection does the handshake.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class _Certificates:
    """Files in PEM form: an authority to trust, and the certificate of the servers with its key."""

    authority: Path
    server: Path
    key: Path


def _certificates(directory: Path, hosts: list[str]) -> _Certificates:
    """Make an authority, and a certificate for some hosts and this machine."""
    found = _Certificates(*(directory / f"{name}.pem" for name in ("authority", "server", "key")))
    keys = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]
    authority = _signed(_CA, keys[0], keys[0]).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = [*map(x509.DNSName, (*hosts, "localhost")), x509.IPAddress(ip_address("127.0.0.1"))]
    server = _signed("server", keys[1], keys[0]).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    for path, certificate in ((found.authority, authority), (found.server, server)):
        signed = certificate.sign(keys[0], hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    found.key.write_bytes(keys[1].private_bytes(serialization.Encoding.PEM, form, plain))
    return found


def _signed(name: str, key: rsa.RSAPrivateKey, authority: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    """
    :param authority: key of the authority that will sign.
    """
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"airflow-provider-delta tests {who}")])
        for who in (name, _CA)
    )
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
    )
