"""Finds out where a table is that is given by its name in a catalog, and which tables a database of a catalog has.

A lookup is one request, or two. Options of catalogs (:data:`~delta_log.storage.schemes.CATALOG_OPTIONS`) stand beside the options of the
store, which never sees them: ``glue`` (:mod:`delta_log.catalog.glue`), ``hive_metastore`` (:mod:`delta_log.catalog.hive`), and ``unity``,
``polaris``, ``lakekeeper`` and ``gravitino`` (:mod:`delta_log.catalog.rest`). The client library of a catalog is loaded by the first lookup.

Some catalogs give out credentials for the store, and some ratify the commits of tables. :func:`opening_options` says so to the store by
the options ``vended`` and ``managed_by``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol

from delta_log.catalog.table_name import TableName
from delta_log.errors import InvalidRequest, NotDelta
from delta_log.storage.schemes import CATALOG_OPTIONS, CATALOGS, kind_of, opened_kind, scheme_of
from delta_log.storage.table_uri import is_name, one_spelling


def locate(address: str, storage_options: Mapping[str, Any] | None = None) -> str:
    """Return the address of a table's place, in a spelling that opens it: where a catalog says that a name leads, else the given one.

    A lookup blocks; the address of a place needs none.

    :raises InvalidRequest: the name or an option is wrong, or a package is missing.
    :raises NotInCatalog: the catalog has no such table.
    :raises NotDelta: it is a view, or a table of another format.
    :raises StorageError: the catalog refuses (:class:`~delta_log.errors.AccessDenied`), or does not answer.
    """
    name = TableName.parse(address)
    if name is None:
        return _openable(address)
    entry: _Entry = import_module(CATALOGS[name.catalog].module).entry_of(name, storage_options or {})
    return _location(entry, name)


def databases_of(
    scheme: str, catalog: str, storage_options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield the databases of a catalog, each with the catalog before it and dots between the parts.

    :raises InvalidRequest: an option is wrong.
    :raises NotInCatalog: there is no such catalog.
    :raises StorageError: the catalog refuses (:class:`~delta_log.errors.AccessDenied`), or does not answer.
    """
    found: Iterator[str] = import_module(CATALOGS[scheme].module).databases_of(
        scheme, catalog, storage_options or {}
    )
    return found


def locate_all(
    database: TableName, storage_options: Mapping[str, Any] | None = None
) -> Iterator[tuple[TableName, str | None]]:
    """Yield the Delta tables of a database, each with the address of its place; ``None``: only :func:`locate` finds it out.

    What is no Delta table is left out.

    :param database: name whose database is listed; its table stands in messages.
    :raises InvalidRequest: an option is wrong, or a package is missing.
    :raises NotInCatalog: the catalog has no such database. A Hive metastore has no tables of it instead.
    :raises StorageError: the catalog refuses (:class:`~delta_log.errors.AccessDenied`), or does not answer.
    """
    module = import_module(CATALOGS[database.catalog].module)
    for name, entry in module.entries_of(database, storage_options or {}):
        location = None
        try:
            location = None if entry is None else _location(entry, name)
        except NotDelta:
            continue
        # A location that is no address: the lookup says so, and the other tables are found.
        except InvalidRequest:
            pass
        yield name, location


class _Entry(Protocol):
    """What a catalog knows of a table."""

    def location_as(self, name: TableName) -> str: ...


def _location(entry: _Entry, name: TableName) -> str:
    location = entry.location_as(name)
    if is_name(location):
        raise NotDelta(str(name), f"the catalog has another name as its location ({location})")
    location = one_spelling(location) if scheme_of(location) == "file" else location.rstrip("/") or "/"
    return _openable(location)


def _openable(address: str) -> str:
    scheme = scheme_of(address)
    return one_spelling(address) if kind_of(scheme) is not None and opened_kind(scheme) is None else address


def without_catalogs(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options that are for the store."""
    return {name: value for name, value in (storage_options or {}).items() if name not in CATALOG_OPTIONS}


def opening_options(address: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options that open the place of a table. This asks no catalog.

    For a name in a catalog that gives out credentials, the option ``vended`` says which ones the store is opened with; each process gets
    them for itself and renews them (:mod:`delta_log.storage.vending.vended_credentials`). ``vended_credentials`` of the catalog's option
    may say otherwise. For a catalog that may ratify commits, ``managed_by`` says which table of it to ask for
    (:mod:`delta_log.storage.managed`).

    :param address: address or name of the table.
    :raises InvalidRequest: the name is wrong.
    """
    options, name = without_catalogs(storage_options), TableName.parse(address)
    if name is None:
        return options
    kind = CATALOGS[name.catalog]
    catalog = (storage_options or {}).get(kind.option)
    if not isinstance(catalog, Mapping):
        return options
    table = {"scheme": name.catalog, "name": list(name.parts), "catalog": dict(catalog)}
    if kind.vends and catalog.get("vended_credentials") is not False:
        options["vended"] = table
    if kind.manages:
        options["managed_by"] = table
    return options
