"""Checks the address of a table, or of another place that a caller names, before anything is opened.

An address is a path, a ``file`` URI or a URI of a store, as :func:`~delta_log.storage.opening.open_storage` takes it.

1. An address that carries credentials is refused, because logs, reports and user interfaces show it
   (:func:`require_no_credentials`).
2. A relative path is refused, because it names another place in every working directory (:func:`require_absolute`).
3. *Allowed roots* let an address pass that lies below one of them (:func:`require_within`). Both are compared as
   :class:`TableUri`, segment by segment, so that ``s3://lake/a`` does not allow ``s3://lake/ab``. An address that client
   libraries may read in two ways is refused. On a disk, the place to which symbolic links lead must be below a root, too.

Loads no client library: operators use this module while a DAG is parsed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from msgspec import Struct

from delta_log.errors import InvalidRequest, OutsideAllowedRoots
from delta_log.redaction import has_credentials, redact_uri
from delta_log.storage.schemes import CATALOGS, StoreKind, kind_of

#: The roots of each administrator, by the name of the setting, which messages quote. An address must be below a root of each.
AllowedRoots = Mapping[str, Sequence[str]]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)
#: A URI of Hadoop without an authority. One letter could be a drive.
_ONE_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class TableUri(Struct, frozen=True):
    """A parsed address; two addresses of one place are equal.

    :param scheme: scheme of the store, the same for all aliases; empty for a disk of this machine.
    :param authority: bucket, container and account, or host.
    :param segments: segments of the path; decoded if :func:`~delta_log.storage.opening.open_storage` decodes (a ``file`` URI).
    """

    scheme: str
    authority: str
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, address: str) -> TableUri:
        """
        :raises InvalidRequest: the address is relative, carries credentials, or has more than one meaning.
        """
        require_absolute(address)
        if _CONTROL.search(address):
            raise _ambiguous(address, "it holds control characters")
        path = local_path(address)
        if path is not None:
            return cls("", "", _segments_on_disk(path, address))
        match = _URI.fullmatch(address)
        if match is None:
            raise _ambiguous(address, "it is neither a path nor a URI")
        scheme, authority, path = match.groups()
        scheme = scheme.lower()
        if scheme in CATALOGS:
            raise _ambiguous(address, "it is a name in a catalog, which may lead to any place")
        kind = kind_of(scheme)
        family = scheme if kind is None else kind.family
        return cls(family, _authority(kind, authority, address), _segments(path, address))

    def is_within(self, root: TableUri) -> bool:
        """Whether this is `root` or lies below it."""
        return (self.scheme, self.authority) == (root.scheme, root.authority) and (
            self.segments[: len(root.segments)] == root.segments
        )

    def resolved(self) -> TableUri:
        """Return the place to which symbolic links lead; on a store, the address itself."""
        if self.scheme:
            return self
        return TableUri.parse(os.path.realpath(str(self)))

    def __str__(self) -> str:
        path = "/".join(self.segments)
        return f"{self.scheme}://{self.authority}/{path}".rstrip("/") if self.scheme else f"/{path}"


def one_spelling(address: str) -> str:
    """Return the spelling of a table's address that stands for all: ``s3://lake/t`` for ``s3a://lake/t/``, a path for a ``file`` URI.

    What is kept for a table outside of its log goes by it: maintenance assets, run identities, the page. A name in a catalog stands
    for itself, in lower case where the catalog keeps names so. So does an address that has more than one meaning, without a slash at its end.
    """
    bare = address.rstrip("/") or "/"
    if is_name(address):
        scheme, separator, name = address.partition("://")
        scheme, name = scheme.lower(), name.rstrip("/")
        return f"{scheme}{separator}{name if CATALOGS[scheme].keeps_case else name.lower()}"
    try:
        path = local_path(address)
        if path is not None:
            return bare if path == address else path.rstrip("/") or "/"
        uri = TableUri.parse(address)
    except InvalidRequest:
        return bare
    scheme, _, rest = address.partition("://")
    kind = kind_of(scheme.lower())
    if kind is None:
        return bare
    authority = kind.spelled_authority(rest.partition("/")[0])
    return f"{kind.spelling or kind.family}://{'/'.join((authority, *uri.segments))}"


def is_name(address: str) -> bool:
    """Whether an address names a table in a catalog, as ``glue://sales.events`` does."""
    scheme, separator, _ = address.partition("://")
    return bool(separator) and scheme.lower() in CATALOGS


def local_path(address: str) -> str | None:
    """Return the path of an address on a disk of this machine, or ``None`` for an address of a store.

    :raises InvalidRequest: it is a ``file`` URI with a part that opening would ignore.
    """
    if address[:5].lower() != "file:":
        if _ONE_SLASH.match(address):
            raise InvalidRequest(
                f"{redact_uri(address)!r} is neither a path nor the address of a store: its scheme is followed by one slash. Write two, "
                "as in s3://bucket/table. A dbfs:/ path means something in Databricks alone: give the address of the store behind it."
            )
        return None if "://" in address and not address.startswith("/") else address
    rest = address[5:]
    if "?" in rest or "#" in rest:
        raise _ambiguous(address, "a '?' or '#' in a file URI must be escaped")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise _ambiguous(
                address, f"it names the host {host!r}, and files of this machine are what is opened"
            )
        rest = slash + path
    return unquote(rest)


def require_absolute(address: str) -> None:
    """
    :raises InvalidRequest: the address is a relative path, or carries credentials.
    """
    require_no_credentials(address)
    path = local_path(address)
    if path is not None and not path.startswith("/"):
        raise InvalidRequest(
            f"{address!r} is a relative path, which means another place in every working directory. "
            "Give an absolute path, or a URI such as s3://bucket/table."
        )


def require_no_credentials(address: str) -> None:
    """
    :raises InvalidRequest: the address carries a password, a key or a signature.
    """
    if has_credentials(address):
        raise InvalidRequest(
            f"The address {redact_uri(address)} carries credentials, and addresses are shown in logs, reports and "
            "user interfaces. Nothing was opened. Put them into the storage options (in Airflow: into the connection "
            "of type 'delta'), and give the address without them."
        )


def require_within(address: str, allowed_roots: AllowedRoots) -> None:
    """Check that an address is below an allowed root of every administrator who has set some.

    It checks the address first, and then the place to which symbolic links lead at this moment.

    :raises OutsideAllowedRoots: the address is elsewhere.
    :raises InvalidRequest: the address, or a root, has more than one meaning.
    """
    if not allowed_roots:
        return
    place = TableUri.parse(address)
    fences = {who: [TableUri.parse(root) for root in roots] for who, roots in allowed_roots.items()}
    for who, roots in fences.items():
        if not any(place.is_within(root) for root in roots):
            raise OutsideAllowedRoots(address, who, tuple(allowed_roots[who]))
    real = place.resolved()
    for who, roots in fences.items():
        if not any(real.is_within(root.resolved()) for root in roots):
            raise OutsideAllowedRoots(address, who, tuple(allowed_roots[who]), leads_to=str(real))


def _authority(kind: StoreKind | None, authority: str, address: str) -> str:
    if not authority:
        raise _ambiguous(address, "it names no bucket, container or host")
    if "\\" in authority or "?" in authority or "#" in authority or "%" in authority:
        raise _ambiguous(address, "its host holds a character that no host has")
    container, at, account = authority.partition("@")
    if at and (kind is None or not kind.has_account):
        raise _ambiguous(address, "it names a user")
    if at and ("@" in account or not (container and account)):
        raise _ambiguous(address, "its container and account cannot be told apart")
    return authority.lower() if kind is None else kind.canonical_authority(authority)


def _segments_on_disk(path: str, address: str) -> tuple[str, ...]:
    """Split a path of this machine. What a ``..`` leads to depends on the links before it, so it has no place that can be compared."""
    encoded = address.lower() if address[:5].lower() == "file:" else ""
    if ".." in path.split("/") or any(escape in encoded for escape in ("%2f", "%2e")):
        raise _ambiguous(
            address,
            "it holds '..' or an encoded dot or slash, and a symbolic link before that may lead anywhere",
        )
    return tuple(segment for segment in path.split("/") if segment not in ("", "."))


def _segments(path: str, address: str) -> tuple[str, ...]:
    """Split the path of a store's URI, which opening takes literally, and refuse segments with two meanings."""
    if "?" in path or "#" in path or "\\" in path:
        raise _ambiguous(address, "it holds a '?', a '#' or a backslash")
    segments = path.strip("/").split("/") if path.strip("/") else []
    if path.startswith("//"):
        segments.insert(0, "")
    for segment in segments:
        decoded = segment
        while (further := unquote(decoded)) != decoded:
            decoded = further
        if decoded in ("", ".", "..") or "/" in decoded or "\\" in decoded or _CONTROL.search(decoded):
            raise _ambiguous(
                address, f"its path holds {segment!r}, which some programs resolve and others do not"
            )
    return tuple(segments)


def _ambiguous(address: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The address {redact_uri(address)!r} cannot be compared with the allowed roots: {why}. "
        "Give an absolute path, or a plain URI such as s3://bucket/table."
    )
