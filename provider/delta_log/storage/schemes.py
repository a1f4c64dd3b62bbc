"""The kinds of store, each with the schemes of its addresses and the class that implements it.

To add a store, write its module and add one entry to :data:`STORES`. A scheme without an entry is opened by fsspec and can
only be read (:mod:`delta_log.storage.remote`).

Standard library only: operators compare addresses while a DAG is parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from delta_log.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One kind of store that can be written to.

    :param family: stands for all schemes of this store when addresses are compared.
    :param schemes: those that open a table.
    :param aliases: further schemes that other writers put into paths of the log.
    :param implementation: module and class of the storage. It is loaded when the first table is opened there, because
        client libraries are large.
    :param extra: the extra of this distribution that installs the client library.
    """

    family: str
    schemes: tuple[str, ...]
    aliases: tuple[str, ...]
    implementation: tuple[str, str]
    extra: str


S3 = StoreKind("s3", ("s3", "s3a"), ("s3n",), ("delta_log.storage.s3", "S3Storage"), "s3")
GCS = StoreKind("gs", ("gs", "gcs"), (), ("delta_log.storage.gcs", "GcsStorage"), "gcs")
AZURE = StoreKind(
    "abfs",
    ("abfs", "abfss", "az"),
    ("wasb", "wasbs"),
    ("delta_log.storage.azure", "AzureStorage"),
    "azure",
)
STORES = (S3, GCS, AZURE)

_BY_SCHEME = {scheme: kind for kind in STORES for scheme in kind.schemes}
_FAMILIES = {scheme: kind.family for kind in STORES for scheme in (*kind.schemes, *kind.aliases)}


def store_kind(scheme: str) -> StoreKind | None:
    """Returns the store that opens addresses of a scheme, or ``None`` where fsspec has to."""
    return _BY_SCHEME.get(scheme)


def family_of(scheme: str) -> str:
    """Returns the scheme that stands for a scheme and its aliases; an unknown scheme stands for itself."""
    return _FAMILIES.get(scheme, scheme)


def scheme_of(address: str) -> str:
    """Returns the scheme of an address in lower case, or an empty text for a path.

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
    """Returns what one client serves: the family of schemes, and the bucket, container or host."""
    return family_of(scheme_of(address)), urlsplit(address).netloc
