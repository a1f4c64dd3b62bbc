"""Finds the tables of a fleet: by their addresses, by patterns of addresses, and in the databases of catalogs.

==============================  ====================================================================================
include                         finds
==============================  ====================================================================================
``s3://lake/gold/events``       this table; nothing is asked
``glue://sales.events``         this table; the catalog is asked where it is
``s3://lake/**``, ``/data/*``   the tables whose addresses match (:mod:`~delta_maintenance.fleet.pattern`)
``glue://sales.*``              the Delta tables of a database whose names match
``uc://prod.*``                 the Delta tables of all databases of a catalog, where catalogs have databases
``uc://prod.sales.*``           the Delta tables of one of them
==============================  ====================================================================================

A pattern is searched from its last directory without a wildcard on. A directory with a ``_delta_log`` is a table, and is not searched
further; that is found out with one request. Any other directory takes one listing more. Hidden directories (``_…``, ``.…``) are not
searched. Symbolic links below the first directory are not followed. Several requests are on their way at once.

A place that cannot be listed is a finding, and the search goes on beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct

from delta_log.arrow.prefetch import map_ordered
from delta_log.catalog.lookup import databases_of, locate, locate_all, without_catalogs
from delta_log.catalog.table_name import TableName
from delta_log.errors import DeltaLogError, InvalidRequest, NotAFile, NotDelta, brief
from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.redaction import redact_uri
from delta_log.runtime import Runtime
from delta_log.storage.opening import StoragePool, open_storage
from delta_log.storage.schemes import CATALOGS
from delta_log.storage.storage import Storage
from delta_log.storage.table_uri import is_name, one_spelling, require_absolute
from delta_maintenance.errors import error_report
from delta_maintenance.fleet.facts import UnreadTable
from delta_maintenance.fleet.pattern import AddressPattern, Place, covers, has_wildcard, is_match

_NAMES = re.compile(r"([a-z]+)://([\w-]{1,255})((?:\.[\w*-]{1,255})+)")
#: Requests to a catalog that are on their way at once. Catalogs throttle sooner than stores.
_LOOKUPS_AT_ONCE = 4
_HIDDEN = ("_", ".")


class FoundTable(Struct, frozen=True, order=True):
    """A table of a fleet.

    :param table: address or name, as the include that found it spells it.
    :param location: address that opens it: of a name the place where the catalog says that it is, else the same as `table`.
    """

    table: str
    location: str


class Discovery(Struct, frozen=True):
    """What was found.

    :param tables: tables, sorted by their addresses. Each table is there once: a table that several includes find has the address by
        which the first of them finds it.
    :param unlisted: places that could not be listed and names that could not be looked up, sorted by their addresses.
    :param without_tables: includes that found no table, although everything could be listed; a table that is excluded counts as not found.
    """

    tables: tuple[FoundTable, ...]
    unlisted: tuple[UnreadTable, ...] = ()
    without_tables: tuple[str, ...] = ()


def discover(
    include: Iterable[str],
    exclude: Iterable[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    *,
    runtime: Runtime | None = None,
    open_place: Callable[[str], Storage] | None = None,
) -> Discovery:
    """Find the tables that some includes name and no exclude does.

    :param include: addresses, names in catalogs, and patterns of both, as in the table of the module.
    :param exclude: patterns; a table is left out if one matches its address, its name, or a directory above it.
    :param storage_options: options of the stores and the catalogs.
    :param open_place: function that opens the storage of a directory; default: one client for each bucket.
    :raises InvalidRequest: an include is relative, carries credentials, has a wildcard in place of a bucket or a database, or is no name.
    """
    patterns = list(dict.fromkeys(include))
    for text in patterns:
        _require_searchable(text)
    opened = open_place or StoragePool(without_catalogs(storage_options)).open
    search = _Search(opened, storage_options or {}, tuple(exclude), (runtime or Runtime()).now_ms())
    found: dict[str, FoundTable] = {}
    unlisted: dict[str, UnreadTable] = {}
    without_tables = []
    for text in patterns:
        results = list(search.found(text))
        for one in results:
            if isinstance(one, FoundTable):
                found.setdefault(one.location, one)
            else:
                unlisted.setdefault(one.table, one)
        if not results:
            without_tables.append(text)
    return Discovery(
        tuple(sorted(found.values())),
        tuple(unlisted[address] for address in sorted(unlisted)),
        tuple(without_tables),
    )


def read_addresses(place: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Read a file with one address or pattern a line. Empty lines, and lines that begin with ``#``, are left out.

    :param place: path or URI of the file.
    :raises InvalidRequest: there is no such file, or it is not UTF-8.
    :raises StorageError: the file cannot be read.
    """
    directory, _, name = one_spelling(place).rpartition("/")
    try:
        text = open_storage(directory or "/", without_catalogs(storage_options)).read(name).decode()
    except (FileNotFoundError, NotAFile) as error:
        raise InvalidRequest(
            f"There is no file {redact_uri(place)} with addresses of tables. Check its address."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{redact_uri(place)} is not UTF-8 text. Write one address a line.") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _require_searchable(text: str) -> None:
    if is_name(text):
        if has_wildcard(text):
            _Names.parse(text)
        else:
            TableName.parse(text)
        return
    require_absolute(text)
    if "://" in text and not _head(text).partition("://")[2]:
        raise InvalidRequest(
            f"{brief(redact_uri(text))!r} has a wildcard in place of the bucket or container, and those are not listed. Name each, as in "
            "s3://lake/**."
        )


class _Names(Struct, frozen=True):
    """A pattern of names in a catalog.

    :param catalog: scheme of the catalog.
    :param database: the only database whose tables may match; ``None``: all databases of `parent` are looked at.
    :param parent: first part of the names.
    :param pattern: pattern of names without their scheme.
    """

    catalog: str
    parent: str
    database: str | None
    pattern: str

    @classmethod
    def parse(cls, text: str) -> _Names:
        """
        :raises InvalidRequest: it is no such pattern.
        """
        match = _NAMES.fullmatch(one_spelling(text))
        if match is not None:
            catalog, parent, rest = match.groups()
            database = f"{parent}{rest}".rpartition(".")[0]
            if CATALOGS[catalog].has_catalogs:
                is_whole = "." in database and not has_wildcard(database)
                return cls(catalog, parent, database if is_whole else None, f"{parent}{rest}")
            if not has_wildcard(database) and "." not in database:
                return cls(catalog, parent, database, f"{parent}{rest}")
        raise InvalidRequest(
            f"{brief(redact_uri(text))!r} is not a pattern of names in a catalog. Write one such as glue://sales.* with wildcards in the "
            "name of the table alone, or uc://prod.* with wildcards behind the name of the catalog."
        )


def _head(pattern: str) -> str:
    """Return the part of a pattern before its first segment with a wildcard; empty for the root of a disk."""
    segments = one_spelling(pattern).split("/")
    return "/".join(takewhile(lambda segment: not has_wildcard(segment), segments))


class _Directory(Struct, frozen=True):
    """A directory that is to be looked at.

    :param key: key below the head of the pattern.
    """

    key: str
    place: Place


class _Look(Struct, frozen=True):
    """What a look at a directory has shown."""

    is_table: bool = False
    below: tuple[_Directory, ...] = ()
    error: DeltaLogError | None = None


class _Search:
    """One discovery. What one include has asked a store, another does not ask again.

    :param excluded: patterns of what is left out.
    """

    def __init__(
        self,
        open_place: Callable[[str], Storage],
        storage_options: Mapping[str, Any],
        excluded: Sequence[str],
        now_ms: int,
    ) -> None:
        self._open, self._options, self._excluded, self._now_ms = (
            open_place,
            storage_options,
            excluded,
            now_ms,
        )
        self._tables: dict[str, bool] = {}
        self._listed: dict[str, list[str]] = {}

    def found(self, include: str) -> Iterator[FoundTable | UnreadTable]:
        """Yield the tables of an include, and what could not be listed or looked up for it."""
        address = one_spelling(include)
        if not has_wildcard(address):
            found = self._named([address]) if is_name(address) else iter([FoundTable(address, address)])
        else:
            found = self._in_database(address) if is_name(address) else self._below(address)
        for one in found:
            if isinstance(one, UnreadTable) or not self._is_excluded(one.table, one.location):
                yield one

    def _is_excluded(self, *addresses: str) -> bool:
        return any(covers(pattern, address) for pattern in self._excluded for address in addresses)

    def _unread(self, address: str, error: DeltaLogError) -> UnreadTable:
        return UnreadTable(address, self._now_ms, error_report(error))

    # -- catalogs --------------------------------------------------------------------------------------------------

    def _named(self, names: Sequence[str]) -> Iterator[FoundTable | UnreadTable]:
        def look_up(name: str) -> FoundTable | UnreadTable:
            try:
                return FoundTable(name, one_spelling(locate(name, self._options)))
            except DeltaLogError as error:
                return self._unread(name, error)

        wanted = [name for name in names if not self._is_excluded(name)]
        yield from map_ordered(look_up, wanted, min(_LOOKUPS_AT_ONCE, len(wanted)))

    def _in_database(self, pattern: str) -> Iterator[FoundTable | UnreadTable]:
        names, links = _Names.parse(pattern), []
        try:
            databases = list(self._databases(names))
        except DeltaLogError as error:
            yield self._unread(pattern, error)
            return
        for database in databases:
            try:
                for name, location in locate_all(TableName(names.catalog, database, "*"), self._options):
                    if not is_match(names.pattern, f"{name.database}.{name.table}"):
                        continue
                    if location is None:
                        links.append(str(name))
                    else:
                        yield FoundTable(str(name), one_spelling(location))
            except DeltaLogError as error:
                yield self._unread(f"{names.catalog}://{database}.*", error)
        for found in self._named(links):
            # It was found by a listing, which does not tell formats.
            if not (isinstance(found, UnreadTable) and found.error.type == NotDelta.__name__):
                yield found

    def _databases(self, names: _Names) -> Iterable[str]:
        if names.database is not None:
            return [names.database]
        return databases_of(names.catalog, names.parent, self._options)

    # -- stores ----------------------------------------------------------------------------------------------------

    def _below(self, text: str) -> Iterator[FoundTable | UnreadTable]:
        """Search a tree, all directories of one depth at once."""
        pattern, head = AddressPattern.parse(text), _head(text)
        *_, place = pattern.places(head)
        try:
            storage = self._open(head or "/")
        except DeltaLogError as error:
            yield self._unread(head or "/", error)
            return

        def look(directory: _Directory) -> _Look:
            return self._look(storage, pattern, head, directory)

        level = [_Directory("", place)]
        while level:
            below: list[_Directory] = []
            for directory, looked in zip(level, map_ordered(look, level, storage.concurrency), strict=True):
                address = _address(head, directory.key)
                if looked.is_table:
                    yield FoundTable(address, address)
                if looked.error is not None:
                    yield self._unread(address, looked.error)
                below += looked.below
            level = below

    def _look(self, storage: Storage, pattern: AddressPattern, head: str, directory: _Directory) -> _Look:
        address = _address(head, directory.key)
        if self._is_excluded(address):
            return _Look()
        may_be_found = pattern.ends_at(directory.place)
        try:
            if may_be_found and self._is_table(storage, address, directory.key):
                return _Look(is_table=True)
            names = pattern.next_names(directory.place)
            if names is None:
                names = self._directories(storage, address, directory.key)
                if LOG_DIRECTORY in names:
                    # A log without a commit is a table that cannot be read, and a survey says so.
                    return _Look(is_table=may_be_found)
                names = [name for name in names if not name.startswith(_HIDDEN)]
        except DeltaLogError as error:
            return _Look(error=error)
        places = ((name, pattern.step(directory.place, name)) for name in names)
        return _Look(
            below=tuple(_Directory(_key(directory.key, name), place) for name, place in places if place)
        )

    def _is_table(self, storage: Storage, address: str, key: str) -> bool:
        if address not in self._tables:
            first = next(iter(storage.list_from(_key(key, LOG_DIRECTORY))), None)
            self._tables[address] = first is not None
        return self._tables[address]

    def _directories(self, storage: Storage, address: str, key: str) -> list[str]:
        """Return the names of the directories in a directory."""
        if address not in self._listed:
            keys = storage.list_directories(key)
            self._listed[address] = [below.rpartition("/")[2] for below in keys]
        return self._listed[address]


def _key(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _address(head: str, key: str) -> str:
    return f"{head}/{key}" if key else head or "/"
