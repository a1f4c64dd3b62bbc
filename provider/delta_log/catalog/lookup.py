"""Finds out where a table is that is given by its name in a catalog, and which tables a database of a catalog has.

A lookup is one request. Requests are made with the identity of the table's storage options. Two options belong to catalogs alone, and no store
ever sees them: ``glue`` (:mod:`delta_log.catalog.glue`) and ``hive_metastore`` (:mod:`delta_log.catalog.hive`). The client library
of a catalog is loaded by the first lookup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from delta_log.catalog.table_name import CatalogEntry, TableName
from delta_log.errors import InvalidRequest, NotDelta
from delta_log.storage.schemes import kind_of, opened_kind, scheme_of
from delta_log.storage.table_uri import is_name, one_spelling

#: By scheme: the module whose ``entry_of`` asks the catalog for a table, and ``entries_of`` for the tables of a database.
_MODULES = {"glue": "delta_log.catalog.glue", "hms": "delta_log.catalog.hive"}
#: Storage options that are for catalogs.
CATALOG_OPTIONS = ("glue", "hive_metastore")


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
    entry: CatalogEntry = import_module(_MODULES[name.catalog]).entry_of(name, storage_options or {})
    return _location(entry, name)


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
    for name, entry in import_module(_MODULES[database.catalog]).entries_of(database, storage_options or {}):
        location = None
        try:
            location = None if entry is None else _location(entry, name)
        except NotDelta:
            continue
        except (
            InvalidRequest
        ):  # a location that is no address: the lookup says so, and the other tables are found
            pass
        yield name, location


def _location(entry: CatalogEntry, name: TableName) -> str:
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
