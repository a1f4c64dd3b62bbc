"""Catalogs with a REST interface, served by a thread of this process: as much of each as this package asks.

A test chooses what a fake knows (:meth:`FakeCatalog.register`), what credentials it gives out (``grants``), how long they last
(``life_seconds``), which requests fail (``faults``), and which names nobody may use any more (``revoked``).
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from delta_log.testing.fake_managed_table import FakeManagedTable, declined

#: Status and JSON value of an answer.
Answer = tuple[int, Any]

_OK, _BAD, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 400, 401, 403, 404
_SEPARATOR = "\x1f"


class CatalogRequest(Struct, frozen=True):
    """A request that a fake got.

    :param segments: segments of the path, decoded.
    """

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]


class FakeTable(Struct):
    """A table of a fake.

    :param kind: kind of table in the words of Unity Catalog.
    :param managed: commits of a managed table of Unity Catalog.
    """

    location: str | None
    format: str = "DELTA"
    kind: str = "EXTERNAL"
    key: str = ""
    managed: FakeManagedTable | None = None


def _random_grant(_: str) -> Mapping[str, str]:
    return {name: uuid.uuid4().hex for name in ("access_key_id", "secret_access_key", "session_token")}


class FakeCatalog(ABC):
    """A running catalog. Make one by :meth:`running`.

    :ivar grants: function from the location of a table to credentials of S3 (``access_key_id``, ``secret_access_key``,
        ``session_token``).
    :ivar life_seconds: life of these credentials, and of the tokens of OAuth clients.
    :ivar now_seconds: clock of the catalog, which returns seconds since the epoch.
    :ivar faults: what becomes of the next requests, in this order: a status, or a number of seconds that a request waits; ``None``
        closes the connection without an answer.
    :ivar is_down: ``True``: no request is answered.
    :ivar revoked: names for which no credentials are given out any more.
    :ivar requests: requests that came, those that failed included.
    :ivar page_size: number of entries of one page of a listing.
    """

    scheme: ClassVar[str]
    token = "a-token-for-tests"  # noqa: S105 - of tests
    client_id, client_secret = "tests", "a-secret-of-tests"

    def __init__(self) -> None:
        self.tables: dict[tuple[str, ...], FakeTable] = {}
        self.databases: dict[tuple[str, ...], None] = {}
        self.grants: Callable[[str], Mapping[str, str]] = _random_grant
        self.life_seconds = 3600.0
        self.now_seconds: Callable[[], float] = time.time
        self.faults: list[float | None] = []
        self.is_down = False
        self.revoked: set[str] = set()
        self.requests: list[CatalogRequest] = []
        self.page_size = 100
        self.uri = ""
        self._tokens: dict[str, float] = {}
        self._lock = threading.Lock()

    # -- what a test says --------------------------------------------------------------------------------

    def register(
        self, name: str, location: str | None, format_: str = "DELTA", kind: str = "EXTERNAL"
    ) -> str:
        """Put a table into the catalog, with its databases, and return its name as an address.

        :param name: parts of the name, with dots between them.
        """
        parts = tuple(name.split("."))
        for end in range(2, len(parts)):
            self.databases[parts[:end]] = None
        self.tables[parts] = FakeTable(location, format_, kind, str(uuid.uuid4()))
        return f"{self.scheme}://{name}"

    @property
    def option(self) -> dict[str, Any]:
        """The value of the storage option, with the token."""
        return {"uri": self.uri, "token": self.token}

    @property
    def oauth_option(self) -> dict[str, Any]:
        """The value of the storage option, with the OAuth client."""
        return {
            "uri": self.uri,
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "token_uri": f"{self.uri}/oauth/token",
        }

    # -- the server --------------------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[FakeCatalog]:
        """Serve on the loopback address for the length of a block."""
        catalog = cls()
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(catalog))
        server.daemon_threads = True
        catalog.uri = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield catalog
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, request: CatalogRequest) -> Answer | None:
        """Answer a request; ``None``: close the connection."""
        with self._lock:
            self.requests.append(request)
            fault = self.faults.pop(0) if self.faults else 0.0
        if self.is_down or fault is None:
            return None
        if fault >= _OK:
            return self.failed(int(fault), "a fault that the test asked for")
        time.sleep(fault)
        if request.segments == ("oauth", "token"):
            return self._token(request)
        if not self._is_known(request.headers.get("authorization", "")):
            return self.failed(_UNAUTHORIZED, "the token is not valid")
        with self._lock:
            return self._answered(request)

    def _token(self, request: CatalogRequest) -> Answer:
        if (request.body["client_id"], request.body["client_secret"]) != (self.client_id, self.client_secret):
            return self.failed(_UNAUTHORIZED, "there is no such client")
        token = uuid.uuid4().hex
        self._tokens[token] = self.now_seconds() + self.life_seconds
        return _OK, {"access_token": token, "expires_in": self.life_seconds, "token_type": "bearer"}

    def forget_tokens(self) -> None:
        """Have the tokens that OAuth clients hold refused from now on."""
        self._tokens.clear()

    def _is_known(self, authorization: str) -> bool:
        token = authorization.removeprefix("Bearer ")
        return token == self.token or self._tokens.get(token, 0.0) > self.now_seconds()

    @property
    def expires_ms(self) -> int:
        return int((self.now_seconds() + self.life_seconds) * 1000)

    def page(self, entries: list[Any], token: str | None) -> tuple[list[Any], str | None]:
        """Return the entries of a page, and the token of the next one."""
        start = int(token or 0)
        end = start + self.page_size
        return entries[start:end], str(end) if end < len(entries) else None

    @abstractmethod
    def failed(self, status: int, message: str) -> Answer:
        """Return an error in the form of the catalog."""

    @abstractmethod
    def _answered(self, request: CatalogRequest) -> Answer: ...

    def not_found(self, what: str) -> Answer:
        return self.failed(_NOT_FOUND, f"{what} does not exist")


class FakeUnityCatalog(FakeCatalog):
    """``/api/2.1/unity-catalog``, with the requests that make catalogs, schemas and tables, and the commits of managed tables (``delta/v1``).

    :ivar lost_answers: number of the next changes of managed tables that take effect, and whose answers are lost.
    """

    scheme = "uc"

    def __init__(self) -> None:
        super().__init__()
        self.lost_answers = 0

    def manage(self, name: str, location: str, latest_version: int = 0) -> str:
        """Put a managed table into the catalog, whose commits are published up to a version, and return its name as an address.

        :param name: parts of the name, with dots between them.
        """
        address = self.register(name, location, kind="MANAGED")
        self.managed(name).latest_version = latest_version
        return address

    def managed(self, name: str) -> FakeManagedTable:
        """Return the commits of a managed table."""
        found = self.tables[tuple(name.split("."))]
        found.managed = found.managed or FakeManagedTable()
        return found.managed

    def failed(self, status: int, message: str) -> Answer:
        return status, {"error_code": f"HTTP_{status}", "message": message, "details": []}

    def answer(self, request: CatalogRequest) -> Answer | None:
        answer = super().answer(request)
        if (
            self.lost_answers
            and answer is not None
            and answer[0] == _OK
            and "requirements" in (request.body or ())
        ):
            self.lost_answers -= 1
            return None
        return answer

    def _answered(self, request: CatalogRequest) -> Answer:
        match (request.method, *request.segments[3:]):
            case (method, "delta", "v1", "catalogs", catalog, "schemas", schema, "tables", name):
                return self._commits((catalog, schema, name), request.body if method == "POST" else None)
            case ("GET", "tables", name):
                found = self.tables.get(tuple(name.split(".")))
                return self.not_found(f"Table {name}") if found is None else (_OK, self._info(name, found))
            case ("GET", "tables"):
                return self._listed(request.query)
            case ("GET", "schemas"):
                catalog = request.query["catalog_name"]
                found_schemas = [{"name": name[1]} for name in self.databases if name[0] == catalog]
                if not found_schemas:
                    return self.not_found(f"Catalog {catalog}")
                page, token = self.page(found_schemas, request.query.get("page_token"))
                return _OK, {"schemas": page, "next_page_token": token}
            case ("POST", "temporary-table-credentials"):
                return self._credentials(request.body)
            case ("POST", "catalogs" | "schemas"):
                if request.segments[-1] == "schemas":
                    self.databases[request.body["catalog_name"], request.body["name"]] = None
                return _OK, dict(request.body)
            case ("POST", "tables"):
                given = request.body
                name = ".".join((given["catalog_name"], given["schema_name"], given["name"]))
                self.register(
                    name, given["storage_location"], given["data_source_format"], given["table_type"]
                )
                return _OK, self._info(name, self.tables[tuple(name.split("."))])
            case _:
                return self.not_found("/".join(request.segments))

    def _commits(self, name: tuple[str, ...], changes: Mapping[str, Any] | None) -> Answer:
        found = self.tables.get(name)
        if found is None:
            return declined(_NOT_FOUND, "NoSuchTableException", f"{'.'.join(name)} does not exist")
        if found.managed is None and changes is not None:
            return declined(_BAD, "InvalidParameterValueException", "the table is not managed")
        managed = found.managed or FakeManagedTable()
        refusal = None if changes is None else managed.update(found.key, changes)
        loaded = managed.loaded(found.key, found.location or "", is_managed=found.managed is not None)
        return refusal or (_OK, loaded)

    def _listed(self, query: Mapping[str, str]) -> Answer:
        database = (query["catalog_name"], query["schema_name"])
        if database not in self.databases:
            return self.not_found(f"Schema {'.'.join(database)}")
        found = [
            self._info(".".join(name), table) for name, table in self.tables.items() if name[:-1] == database
        ]
        page, token = self.page(found, query.get("page_token"))
        return _OK, {"tables": page, "next_page_token": token}

    def _credentials(self, body: Mapping[str, Any]) -> Answer:
        for name, table in self.tables.items():
            if table.key == body["table_id"]:
                if ".".join(name) in self.revoked:
                    return self.failed(_FORBIDDEN, "Access denied.")
                given = dict(self.grants(table.location or ""))
                return _OK, {"aws_temp_credentials": given, "expiration_time": self.expires_ms}
        return self.not_found("Table")

    @staticmethod
    def _info(name: str, table: FakeTable) -> dict[str, Any]:
        catalog, schema, last = name.split(".")
        return {
            "name": last,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": table.kind,
            "data_source_format": table.format,
            "storage_location": table.location,
            "table_id": table.key,
            "columns": [],
            "properties": {},
        }


class _FakeGenericTables(FakeCatalog):
    """The generic tables of Polaris and Lakekeeper. Namespaces and listings are as in the Iceberg REST catalog."""

    #: Segments before the catalog in addresses of generic tables, and of namespaces.
    of_tables: ClassVar[tuple[str, ...]]
    of_namespaces: ClassVar[tuple[str, ...]]

    def failed(self, status: int, message: str) -> Answer:
        return status, {"error": {"message": message, "type": f"Error{status}", "code": status}}

    def catalog_of(self, prefix: str) -> str:
        """Return the catalog that addresses know by a prefix."""
        return prefix

    def _answered(self, request: CatalogRequest) -> Answer:
        for base in (self.of_tables, self.of_namespaces):
            if request.method == "GET" and request.segments[: len(base)] == base:
                prefix, *rest = request.segments[len(base) :]
                answer = self._routed(self.catalog_of(prefix), tuple(rest), request, base == self.of_tables)
                if answer is not None:
                    return answer
        return self.not_found("/".join(request.segments))

    def _routed(
        self, catalog: str, rest: tuple[str, ...], request: CatalogRequest, is_of_tables: bool
    ) -> Answer | None:
        match rest:
            case ("namespaces", namespace, "generic-tables") if is_of_tables:
                return self._identifiers((catalog, *namespace.split(_SEPARATOR)), request.query)
            case ("namespaces", namespace, "generic-tables", table) if is_of_tables:
                return self._loaded((catalog, *namespace.split(_SEPARATOR), table), request.headers)
            case ("namespaces",) if not is_of_tables:
                return self._namespaces(catalog, request.query)
        return None

    def _identifiers(self, database: tuple[str, ...], query: Mapping[str, str]) -> Answer:
        if database not in self.databases:
            return self.not_found(f"Namespace {'.'.join(database)}")
        found = [
            {"namespace": list(name[1:-1]), "name": name[-1]} for name in self.tables if name[:-1] == database
        ]
        page, token = self.page(found, query.get("pageToken"))
        return _OK, {"identifiers": page, "next-page-token": token}

    def _namespaces(self, catalog: str, query: Mapping[str, str]) -> Answer:
        parent = (catalog, *filter(None, query.get("parent", "").split(_SEPARATOR)))
        if not any(name[0] == catalog for name in self.databases):
            return self.not_found(f"Catalog {catalog}")
        found = [list(name[1:]) for name in self.databases if name[:-1] == parent]
        page, token = self.page(found, query.get("pageToken"))
        return _OK, {"namespaces": page, "next-page-token": token}

    def _loaded(self, name: tuple[str, ...], headers: Mapping[str, str]) -> Answer:
        table = self.tables.get(name)
        if table is None:
            return self.not_found(f"Generic table {'.'.join(name)}")
        answer: dict[str, Any] = {
            "table": {"name": name[-1], "format": table.format.lower(), "properties": {}}
        }
        if table.location is not None:
            answer["table"]["base-location"] = table.location
        if headers.get("x-iceberg-access-delegation") != "vended-credentials":
            return _OK, answer
        if ".".join(name) in self.revoked:
            return self.failed(_FORBIDDEN, "Access denied.")
        answer["storage-credentials"] = self.storage_credentials(table)
        return _OK, answer

    def storage_credentials(self, table: FakeTable) -> list[Any]:
        return []


class FakePolaris(_FakeGenericTables):
    scheme = "polaris"
    of_tables, of_namespaces = ("polaris", "v1"), ("v1",)


class FakeLakekeeper(_FakeGenericTables):
    """Addresses know a warehouse by an id, which is not its name."""

    scheme = "lakekeeper"
    of_tables, of_namespaces = ("lakekeeper", "v1"), ("catalog", "v1")

    def catalog_of(self, prefix: str) -> str:
        return prefix.removeprefix("id-of-")

    def _answered(self, request: CatalogRequest) -> Answer:
        if request.segments == ("catalog", "v1", "config"):
            warehouse = request.query["warehouse"]
            if not any(name[0] == warehouse for name in self.databases):
                return self.not_found(f"Warehouse {warehouse}")
            return _OK, {"defaults": {}, "overrides": {"prefix": f"id-of-{warehouse}"}}
        return super()._answered(request)

    def storage_credentials(self, table: FakeTable) -> list[Any]:
        given = self.grants(table.location or "")
        config = {
            "s3.access-key-id": given["access_key_id"],
            "s3.secret-access-key": given["secret_access_key"],
            "s3.session-token": given["session_token"],
            "s3.session-token-expires-at-ms": str(self.expires_ms),
        }
        return [{"prefix": table.location, "config": config}]


class FakeGravitino(FakeCatalog):
    """The tables of one metalake. It gives out no credentials."""

    scheme = "gravitino"
    metalake = "tests"

    @property
    def option(self) -> dict[str, Any]:
        return {**super().option, "metalake": self.metalake}

    @property
    def oauth_option(self) -> dict[str, Any]:
        return {**super().oauth_option, "metalake": self.metalake}

    def failed(self, status: int, message: str) -> Answer:
        return status, {"code": 1000 + status, "type": "Error", "message": message, "stack": []}

    def _answered(self, request: CatalogRequest) -> Answer:
        match request.segments:
            case ("api", "metalakes", self.metalake, "catalogs", *name):
                return self._routed(name[0], name[2::2])
            case _:
                return self.not_found("/".join(request.segments))

    def _routed(self, catalog: str, names: list[str]) -> Answer:
        """
        :param names: schema and table of the address, as far as it has them.
        """
        if len(names) > 1:
            table = self.tables.get((catalog, *names))
            if table is None:
                return self.not_found(f"Table {names[-1]}")
            found = {"format": table.format.lower(), "external": "true", "location": table.location}
            properties = {name: value for name, value in found.items() if value is not None}
            return _OK, {"code": 0, "table": {"name": names[-1], "columns": [], "properties": properties}}
        database = (catalog, *names)
        entries = [name[-1] for name in (self.tables if names else self.databases) if name[:-1] == database]
        if not any(name[: len(database)] == database for name in self.databases):
            return self.not_found(".".join(database))
        return _OK, {
            "code": 0,
            "identifiers": [{"namespace": list(database), "name": name} for name in entries],
        }


FAKE_CATALOGS: tuple[type[FakeCatalog], ...] = (FakeUnityCatalog, FakePolaris, FakeLakekeeper, FakeGravitino)


def _handler(catalog: FakeCatalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = catalog.answer(_request(self.command, self.path, dict(self.headers.items()), content))
            if answer is None:
                self.close_connection = True
                return
            status, value = answer
            encoded = json.dumps(value).encode()
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the server's names

        def log_message(self, *_: Any) -> None: ...

    return Handler


def _request(method: str, path: str, headers: Mapping[str, str], content: bytes) -> CatalogRequest:
    address = urlsplit(path)
    lowered = {name.lower(): value for name, value in headers.items()}
    is_form = "form" in lowered.get("content-type", "")
    body = _single(content.decode()) if is_form else json.loads(content or b"null")
    segments = tuple(map(unquote, address.path.strip("/").split("/")))
    return CatalogRequest(method, segments, _single(address.query), body, lowered)


def _single(query: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(query).items()}
