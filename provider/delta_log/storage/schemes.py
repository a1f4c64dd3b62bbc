"""The kinds of store, each with the form of its addresses and the class that implements it.

To add a store, write its module and add one entry to :data:`STORES`; all that compares, opens or allows addresses follows.
``setup.cfg`` lists the module in its layer, and ``pyproject.toml`` has the extra. A scheme without an entry is opened by
fsspec and can only be read (:mod:`delta_log.storage.remote`).

Loads no client library: operators compare addresses while a DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from delta_log.errors import InvalidRequest


class StoreKind(Struct, frozen=True):
    """One kind of store that can be written to.

    :param family: name that stands for all schemes of this store when addresses are compared.
    :param schemes: schemes that open a table.
    :param aliases: further schemes that other writers put into paths of the log.
    :param implementation: module and class of the storage. It is loaded when the first table is opened there, because
        client libraries are large.
    :param extra: the extra of this distribution that installs the client library.
    :param case_sensitive: ``True`` if names of buckets or containers that differ in case are two names; ``False`` for names of hosts.
    :param has_account: an address may be ``container@account``, where the account is a name or a host.
    :param account_endpoints: labels of the account's host that name one of its endpoints; all lead to one account. The first
        label belongs to :attr:`spelling`.
    :param spelling: the scheme of the one spelling that stands for all; default: the family.
    :param unsigned: options with which the storage signs nothing.
    """

    family: str
    schemes: tuple[str, ...]
    aliases: tuple[str, ...]
    implementation: tuple[str, str]
    extra: str
    case_sensitive: bool = True
    has_account: bool = False
    account_endpoints: tuple[str, ...] = ()
    spelling: str = ""
    unsigned: Mapping[str, Any] = {}

    def canonical_authority(self, authority: str) -> str:
        """Return one text for all spellings of a bucket, a container or ``container@account``, for comparisons."""
        return self._authority(authority, ())

    def spelled_authority(self, authority: str) -> str:
        """Return the one spelling of a bucket, a container or ``container@account`` that opens a table."""
        return self._authority(authority, self.account_endpoints[:1])

    def _authority(self, authority: str, endpoint: tuple[str, ...]) -> str:
        """
        :param endpoint: labels that take the place of the label that names an endpoint.
        """
        container, at, account = authority.partition("@")
        labels = account.lower().split(".")
        found = next((label for label in labels[1:-1] if label in self.account_endpoints), None)
        if found is not None:
            place = labels.index(found, 1)
            labels[place : place + 1] = endpoint
        return (container if self.case_sensitive else container.lower()) + at + ".".join(labels)


S3 = StoreKind(
    "s3",
    ("s3", "s3a"),
    ("s3n",),
    ("delta_log.storage.objects.s3", "S3Storage"),
    "s3",
    unsigned={"anon": True},
)
GCS = StoreKind(
    "gs",
    ("gs", "gcs"),
    (),
    ("delta_log.storage.objects.gcs", "GcsStorage"),
    "gcs",
    unsigned={"token": "anon"},
)
AZURE = StoreKind(
    "abfs",
    ("abfs", "abfss", "az"),
    ("wasb", "wasbs"),
    ("delta_log.storage.objects.azure", "AzureStorage"),
    "azure",
    has_account=True,
    account_endpoints=("dfs", "blob"),
    spelling="abfss",
    unsigned={"anon": True},
)
STORES = (S3, GCS, AZURE)


class CatalogKind(Struct, frozen=True):
    """One kind of catalog, whose names say not where a table is, but which entry of the catalog says so (:mod:`delta_log.catalog`).

    :param option: storage option that says which catalog is asked.
    :param module: module that asks it.
    :param form: form of its names behind the scheme, for messages.
    :param keeps_case: ``False``: the catalog keeps names in lower case.
    :param nests: ``True``: a name may have more parts than its form, since a database may lie in another one.
    :param vends: ``True``: the catalog gives out credentials for the stores of its tables.
    :param manages: ``True``: the catalog may ratify the commits of its tables.
    """

    option: str
    module: str
    form: str
    keeps_case: bool = True
    nests: bool = False
    vends: bool = False
    manages: bool = False

    @property
    def has_catalogs(self) -> bool:
        """Whether the first part of a name is a catalog, whose databases can be listed."""
        return self.form.count(".") > 1

    def is_parted(self, parts: int) -> bool:
        """Whether a name has so many parts."""
        fewest = self.form.count(".") + 1
        return parts >= fewest if self.nests else parts == fewest


#: By scheme. :mod:`delta_log.catalog.rest` asks those that speak HTTP.
CATALOGS: Mapping[str, CatalogKind] = {
    "glue": CatalogKind("glue", "delta_log.catalog.glue", "database.table", keeps_case=False),
    "hms": CatalogKind("hive_metastore", "delta_log.catalog.hive", "database.table", keeps_case=False),
    "uc": CatalogKind("unity", "delta_log.catalog.rest", "catalog.schema.table", vends=True, manages=True),
    "polaris": CatalogKind("polaris", "delta_log.catalog.rest", "catalog.namespace.table", nests=True),
    "lakekeeper": CatalogKind(
        "lakekeeper", "delta_log.catalog.rest", "warehouse.namespace.table", nests=True, vends=True
    ),
    "gravitino": CatalogKind("gravitino", "delta_log.catalog.rest", "catalog.schema.table"),
}
#: Names of the storage options of catalogs, which no store sees.
CATALOG_OPTIONS = frozenset(kind.option for kind in CATALOGS.values())
#: Names of the storage options that this package makes of a name, for the table of that name alone.
NAMED_TABLE_OPTIONS = ("vended", "managed_by")

_KINDS = {scheme: kind for kind in STORES for scheme in (*kind.schemes, *kind.aliases)}


def kind_of(scheme: str) -> StoreKind | None:
    """Return the store that a scheme or an alias names, or ``None`` if it has no entry."""
    return _KINDS.get(scheme)


def opened_kind(scheme: str) -> StoreKind | None:
    """Return the store that opens addresses of a scheme, or ``None`` where fsspec has to, as for an alias."""
    kind = _KINDS.get(scheme)
    return kind if kind is not None and scheme in kind.schemes else None


def family_of(scheme: str) -> str:
    """Return the scheme that stands for a scheme and its aliases; an unknown scheme stands for itself."""
    kind = _KINDS.get(scheme)
    return scheme if kind is None else kind.family


def scheme_of(address: str) -> str:
    """Return the scheme of an address in lower case, or an empty text for a path.

    :raises InvalidRequest: the address is not a URI.
    """
    if "://" not in address and address[:5].lower() != "file:":
        return ""
    try:
        return urlsplit(address).scheme
    except ValueError as error:
        raise InvalidRequest(f"{address} is not a URI ({error}). Check the address.") from error


def same_store(one: str, other: str) -> bool:
    """Whether two addresses are in one bucket or container, whatever alias of the scheme they use."""
    return store_of(one) == store_of(other)


def store_of(address: str) -> tuple[str, str]:
    """Return what one client serves: the family of schemes, and the bucket, container or host."""
    return family_of(scheme_of(address)), urlsplit(address).netloc
