"""What every catalog with a REST interface can be asked, and the catalogs by the schemes of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field

from delta_log.errors import StorageError
from delta_log.storage.schemes import CATALOGS
from delta_log.storage.vending.rest_client import RestClient


class RestTable(Struct, frozen=True):
    """A table as a catalog has it.

    :param format: format in the catalog's words; ``None``: the catalog does not say it.
    :param location: address of the table.
    :param kind: kind of table in the catalog's words, such as ``EXTERNAL``.
    :param key: id by which the catalog gives out credentials.
    """

    format: str | None
    location: str | None
    kind: str = ""
    key: str = ""


class Grant(Struct, frozen=True):
    """Credentials for the store of a table.

    :param family: family of the store (:mod:`delta_log.storage.schemes`).
    :param credentials: credentials by the names that the client of the store has for them.
    :param expires_ms: end of their life, in milliseconds since the epoch; ``None``: the catalog does not say it.
    """

    family: str
    credentials: Mapping[str, str] = field(default_factory=dict)
    expires_ms: int | None = None


class RestCatalog(ABC):
    """A catalog. A name is the parts of a table's name, of which the last is the table; a database is the parts before it.

    Each method raises :class:`~delta_log.storage.vending.rest_client.NotFound` for what is absent, and
    :class:`~delta_log.errors.StorageError` if the catalog refuses or does not answer.
    """

    #: Scheme of the names, and words for messages.
    scheme: ClassVar[str]
    words: ClassVar[str]

    def __init__(self, client: RestClient) -> None:
        self.client = client

    @abstractmethod
    def table(self, name: tuple[str, ...]) -> RestTable: ...

    @abstractmethod
    def tables(self, database: tuple[str, ...]) -> Iterator[tuple[str, RestTable | None]]:
        """Yield the names of the tables of a database; ``None``: only :meth:`table` shows the table."""

    @abstractmethod
    def databases(self, catalog: str) -> Iterator[tuple[str, ...]]:
        """Yield the databases of a catalog; those within others follow them."""

    def grant(self, name: tuple[str, ...]) -> tuple[RestTable, Grant]:
        """Return a table as it is now, with credentials that read and write it.

        :raises StorageError: the catalog has none for the table's store.
        """
        raise NotImplementedError


def no_grant(catalog: RestCatalog, name: tuple[str, ...]) -> StorageError:
    """Return the error for an answer without credentials for any store that this package writes to."""
    return StorageError(
        f"{catalog.client.place} has given no credentials of S3, Google Cloud Storage or Azure for {'.'.join(name)}. Set them up in the "
        f'catalog, or set vended_credentials of the storage option "{CATALOGS[catalog.scheme].option}" to false to use credentials of your own.',
        ".".join(name),
        is_final=True,
    )
