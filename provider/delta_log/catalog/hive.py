"""Asks a Hive metastore for a table, by its Thrift API, with thriftpy2, which the extra ``hive`` installs.

The storage option ``hive_metastore`` says which: ``"thrift://host:9083"``, several with commas between them, which are asked in
their order, or ``{"uri": …, "user": …}``. A metastore believes the name of the user that a client gives. Encrypted connections and
Kerberos are not spoken.

The interface below is the part of Hive's that the requests need; fields that it leaves out are skipped. Metastores from 2.3 on know
``get_table_req`` and ``get_table_objects_by_name_req``, and older ones ``get_table`` and ``get_table_objects_by_name`` alone.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from delta_log.catalog.table_name import CatalogEntry, TableName
from delta_log.errors import (
    AccessDenied,
    DeltaLogError,
    InvalidRequest,
    NotInCatalog,
    StorageError,
    brief,
)
from delta_log.redaction import redact_uri

_INTERFACE = """
exception MetaException { 1: string message }
exception NoSuchObjectException { 1: string message }
exception InvalidOperationException { 1: string message }
exception UnknownDBException { 1: string message }
struct SerDeInfo { 3: map<string, string> parameters }
struct StorageDescriptor { 2: string location, 3: string inputFormat, 7: SerDeInfo serdeInfo }
struct Table { 1: string tableName, 7: StorageDescriptor sd, 9: map<string, string> parameters, 12: string tableType }
struct GetTableRequest { 1: required string dbName, 2: required string tblName }
struct GetTableResult { 1: required Table table }
struct GetTablesRequest { 1: required string dbName, 2: list<string> tblNames }
struct GetTablesResult { 1: required list<Table> tables }
service ThriftHiveMetastore {
  list<string> set_ugi(1: string user_name, 2: list<string> group_names) throws (1: MetaException o1)
  GetTableResult get_table_req(1: GetTableRequest req) throws (1: MetaException o1, 2: NoSuchObjectException o2)
  Table get_table(1: string dbname, 2: string tbl_name) throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<string> get_all_tables(1: string db_name) throws (1: MetaException o1)
  GetTablesResult get_table_objects_by_name_req(1: GetTablesRequest req)
    throws (1: MetaException o1, 2: InvalidOperationException o2, 3: UnknownDBException o3)
  list<Table> get_table_objects_by_name(1: string dbname, 2: list<string> tbl_names)
    throws (1: MetaException o1, 2: InvalidOperationException o2, 3: UnknownDBException o3)
}
"""
_PORT = 9083
#: Fewer than Hive takes in one request to its own database.
_TABLES_OF_REQUEST = 300
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 30.0
_EXAMPLE = '"thrift://metastore.example.org:9083"'
#: A metastore has no error of its own for a refusal; these are words of its authorizers.
_WORDS_OF_REFUSALS = (
    "permission denied",
    "accesscontrolexception",
    "not authorized",
    "does not have privileges",
)


class Metastore(Struct, frozen=True):
    """The value of ``hive_metastore`` in the storage options.

    :param places: hosts and ports, which serve the same tables.
    :param user: name of the user that the client gives; ``None``: the client names no user, and the metastore chooses one.
    """

    places: tuple[tuple[str, int], ...]
    user: str | None = None

    @classmethod
    def from_option(cls, name: TableName, given: Any) -> Metastore:
        """
        :raises InvalidRequest: the option is missing or wrong.
        """
        if given is None:
            raise InvalidRequest(
                f"{name} is a name in a Hive metastore, and no metastore is given. Set the storage option hive_metastore to its address, "
                f"such as {_EXAMPLE} (in Airflow: hive_metastore in the connection's extra, or the setting [delta] hive_metastore)."
            )
        options = {"uri": given} if isinstance(given, str) else given
        if (
            not isinstance(options, Mapping)
            or not {"uri"} <= set(options) <= {"uri", "user"}
            or not all(isinstance(value, str) and value for value in options.values())
        ):
            raise InvalidRequest(
                f'The storage option "hive_metastore" is neither an address such as {_EXAMPLE} nor an object with the texts "uri" and '
                'perhaps "user".'
            )
        return cls(tuple(map(_place, options["uri"].split(","))), options.get("user"))


def _place(uri: str) -> tuple[str, int]:
    try:
        parts = urlsplit(uri.strip())
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        parts, host, port = urlsplit(""), None, _PORT
    if not host or parts.scheme != "thrift" or parts.path.strip("/") or parts.username or parts.query:
        raise InvalidRequest(
            f'The storage option "hive_metastore" holds {redact_uri(brief(uri.strip()))!r}, which is no address of a metastore. Write one '
            f"such as {_EXAMPLE}."
        )
    return host, port


def entry_of(name: TableName, storage_options: Mapping[str, Any]) -> CatalogEntry:
    """
    :raises InvalidRequest: an option is wrong, or a package is missing.
    :raises NotInCatalog: there is no such table.
    :raises StorageError: the metastore refuses, or none answers.
    """
    metastore = Metastore.from_option(name, storage_options.get("hive_metastore"))
    return _entry(_asked(name, metastore, lambda client: _get_table(client, name.database, name.table)))


def entries_of(
    name: TableName, storage_options: Mapping[str, Any]
) -> Iterator[tuple[TableName, CatalogEntry]]:
    """Yield the tables of a database, which take one request for their names and one for each few hundred of them.

    A metastore has no tables of a database that is absent.

    :param name: name whose database is listed; its table stands in messages.
    :raises InvalidRequest: an option is wrong, or a package is missing.
    :raises StorageError: the metastore refuses, or none answers.
    """
    metastore = Metastore.from_option(name, storage_options.get("hive_metastore"))
    tables = sorted(_asked(name, metastore, lambda client: client.get_all_tables(name.database)))
    for first in range(0, len(tables), _TABLES_OF_REQUEST):
        wanted = tables[first : first + _TABLES_OF_REQUEST]
        for table in _asked(name, metastore, partial(_get_tables, database=name.database, tables=wanted)):
            yield TableName(name.catalog, name.database, table.tableName), _entry(table)


def _get_table(client: Any, database: str, table: str) -> Any:
    request = _interface().GetTableRequest(dbName=database, tblName=table)
    return _either(lambda: client.get_table_req(request).table, lambda: client.get_table(database, table))


def _get_tables(client: Any, database: str, tables: list[str]) -> Any:
    request = _interface().GetTablesRequest(dbName=database, tblNames=tables)
    return _either(
        lambda: client.get_table_objects_by_name_req(request).tables,
        lambda: client.get_table_objects_by_name(database, tables),
    )


def _either(ask: Callable[[], Any], ask_old: Callable[[], Any]) -> Any:
    """Make a request, or the older form of it where the metastore does not know the method."""
    from thriftpy2.thrift import TApplicationException

    try:
        return ask()
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
        return ask_old()


def _entry(table: Any) -> CatalogEntry:
    storage = table.sd
    serde = None if storage is None else storage.serdeInfo
    return CatalogEntry(
        table.tableType or "",
        table.parameters or {},
        None if storage is None else storage.location,
        None if storage is None else storage.inputFormat,
        {} if serde is None else serde.parameters or {},
    )


def _asked(name: TableName, metastore: Metastore, request: Callable[[Any], Any]) -> Any:
    """Ask the first metastore that answers.

    :param request: function that makes the request, given a client.
    """
    try:
        import thriftpy2  # noqa: F401
    except ImportError as error:
        raise InvalidRequest(
            f"{name} needs a package that is not installed ({error}). Install airflow-provider-delta[hive]."
        ) from error
    silent: list[str] = []
    for host, port in metastore.places:
        try:
            return _answer(name, host, port, metastore.user, request)
        except DeltaLogError:
            raise
        # A server that does not speak plain Thrift ends the connection, or sends what the library cannot decode in one way or another.
        except Exception as error:  # noqa: BLE001 - its errors have no base of their own
            silent.append(f"{host}:{port}: {type(error).__name__}: {' '.join(str(error).split())}")
            cause = error
    raise StorageError(
        f"{name}: no Hive metastore answers ({brief('; '.join(silent))}). Check the address, and that it takes connections without "
        "encryption and Kerberos, which this package does not speak. If both are right, run again when it answers.",
        str(name),
    ) from cause


def _answer(name: TableName, host: str, port: int, user: str | None, request: Callable[[Any], Any]) -> Any:
    from thriftpy2.protocol import TBinaryProtocol
    from thriftpy2.thrift import TClient
    from thriftpy2.transport import TBufferedTransport, TSocket

    interface = _interface()
    with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        transport = TBufferedTransport(TSocket(sock=connection))  # type: ignore[no-untyped-call]
        client = TClient(interface.ThriftHiveMetastore, TBinaryProtocol(transport))  # type: ignore[no-untyped-call]
        try:
            if user is not None:
                client.set_ugi(user, [])
            return request(client)
        except interface.NoSuchObjectException as error:
            raise NotInCatalog(str(name), f"Hive metastore {host}:{port}: {_said(error)}") from error
        except interface.MetaException as error:
            said = _said(error)
            if any(words in said.lower() for words in _WORDS_OF_REFUSALS):
                raise AccessDenied(
                    f"{name}: Hive metastore {host}:{port} denied access to {user or 'a client that names no user'} ({said}). Grant it "
                    'the right to read the table, or set "user" of the storage option hive_metastore. Another try cannot help before '
                    "that.",
                    str(name),
                ) from error
            raise StorageError(
                f"{name}: Hive metastore {host}:{port} failed ({said}). Run again.", str(name)
            ) from error


def _said(error: Any) -> str:
    return brief(" ".join(str(error.message or type(error).__name__).split()))


@cache
def _interface() -> Any:
    import thriftpy2

    return thriftpy2.load_fp(io.StringIO(_INTERFACE), "delta_log_hive_metastore_thrift")
