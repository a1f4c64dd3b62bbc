"""Paths of data files: the log's spelling, and the key in the store.

Protocol sections "Add File and Remove File" and "Partition Values". A ``path`` of the log is an RFC 2396 URI, relative
to the table's root or absolute. A *key* is the decoded, normalised path below the root, as
:class:`~delta_log.storage.storage.Storage` takes it. All spellings of a file have one key, so keys are compared; a
``remove`` repeats the log's spelling.

1. Percent-escapes are decoded exactly once, as UTF-8; ``+`` is a plus. Ambiguous paths are refused: a broken escape,
   bytes that are not UTF-8, a bare ``?`` or ``#``, a NUL, a scheme without a slash.
2. A file outside the root (absolute URI, or ``..`` that climbs out) has no key. It is an :class:`ExternalFile`, whose
   address starts with ``/`` or contains ``://``; no key does (:func:`is_external`).
3. Scheme aliases of one store (``s3``/``s3a``/``s3n``, …) are equal. Symbolic links are not resolved.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeVar
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.errors import OTHER_COMMIT, CorruptLog, InvalidRequest
from delta_log.storage.schemes import family_of, kind_of

#: The directory of a null partition value. Empty values are null as well.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_HIVE_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
#: A path without any match is its own key.
_NOT_PLAIN = r"[%:?#\x00]|//|^/|^$|/$|(^|/)\.{1,2}(/|$)"
_PLAIN = re.compile(_NOT_PLAIN)
#: Matches a path whose last segment needs no decoding, whatever its directory needs.
_PLAIN_NAME = r"[^/]/[^/%:?#\x00]*[^/%:?#\x00.][^/%:?#\x00]*$"
#: Characters that Java does not escape in the path of a URI, except ":", which could look like the end of a scheme.
_SAFE = "/-_.!~*'()=+,;$&@"

_SLASH, _DOT = b"/."
#: Stands for the name of a file while its directory is decoded. No table may have this name.
_ANY_NAME = "the-name-of-a-file-in-this-directory"

PathColumn = TypeVar("PathColumn", pa.Array, pa.ChunkedArray)


class ExternalFile(Struct, frozen=True):
    """A file that the log names and that does not lie below the table's root, as shallow clones have them."""

    uri: str
    """The address, as :func:`~delta_log.storage.opening.open_storage` takes it: a local path or a decoded URI."""
    same_store: bool
    """Whether the file is in the table's store, and so certainly outside of the table. Another store may be the table's
    under another name."""


Location = str | ExternalFile


def decode_path(log_path: str) -> str:
    """The key of a path that must be relative to the table's root.

    :raises CorruptLog: the path is no URI, is absolute, or climbs out of the root.
    """
    if not _PLAIN.search(log_path):
        return log_path
    if _SCHEME.match(log_path) or log_path.startswith("/"):
        raise CorruptLog(
            log_path,
            "a path relative to the table's root is needed here, and this one is absolute",
            OTHER_COMMIT,
        )
    segments = _normalise(log_path, _unquote(log_path, log_path), climb_from=None)
    if not segments:
        raise CorruptLog(log_path, "this path names the table's root, not a file in it", OTHER_COMMIT)
    return "/".join(segments)


def encode_path(key: str) -> str:
    """The log's spelling of a key; :func:`decode_path` is its inverse.

    :raises InvalidRequest: not a key (absolute, not normalised, or not Unicode).
    """
    parts = key.split("/")
    if "\x00" in key or any(part in ("", ".", "..") for part in parts):
        raise InvalidRequest(f"{key!r} is not a key: it must be a normalised path below the table's root.")
    try:
        return quote(key, safe=_SAFE)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{key!r} is not Unicode text and cannot be written to the log.") from error


def resolve(log_path: str, table_uri: str) -> Location:
    """The place of a file that the log names: a key, or an :class:`ExternalFile`.

    :param table_uri: the table's root: a local path, or a URI as :func:`~delta_log.storage.opening.open_storage` takes it.
    :raises CorruptLog: the path has no meaning.
    """
    return _Root.of(table_uri).resolve(log_path)


def address_of(log_path: str, table_uri: str) -> str:
    """The result of :func:`resolve` as a text: the key, or ``ExternalFile.uri`` (see :func:`is_external`)."""
    return log_path if not _PLAIN.search(log_path) else _address(resolve(log_path, table_uri))


def is_external(key: str) -> bool:
    """Whether a result of :func:`address_of` or :func:`decode_paths` is the address of an :class:`ExternalFile`."""
    return key.startswith("/") or "://" in key


def are_external(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """What :func:`is_external` gives, for a column."""
    return pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))


def decode_paths(paths: PathColumn, table_uri: str) -> PathColumn:
    """A column of the log's paths as keys; a file outside the root becomes its ``ExternalFile.uri``.

    :raises CorruptLog: a path has no meaning.
    """
    if isinstance(paths, pa.ChunkedArray):
        return pa.chunked_array([decode_paths(chunk, table_uri) for chunk in paths.chunks], type=paths.type)
    if _all_plain(paths):
        return paths
    odd = pc.fill_null(pc.match_substring_regex(paths, _NOT_PLAIN), False)
    if not pc.any(odd).as_py():
        return paths
    root = _Root.of(table_uri)
    # Mostly the directory of a partition needs decoding, and it has many files: it is decoded once for all of them.
    by_directory = pc.and_(odd, pc.fill_null(pc.match_substring_regex(paths, _PLAIN_NAME), False))
    by_itself = pc.and_not(odd, by_directory)
    keys = _decode_directories(paths.filter(by_directory), root)
    decoded = pc.replace_with_mask(paths, by_directory, keys)
    single = [_address(root.resolve(path)) for path in paths.filter(by_itself).to_pylist()]
    return pc.replace_with_mask(decoded, by_itself, pa.array(single, paths.type))


def _all_plain(paths: pa.Array) -> bool:
    """Whether every path certainly is its own key, told by their bytes. A look at each path takes many times longer."""
    if not len(paths) or paths.null_count or paths.type != pa.string():
        return False
    _, offsets, data = paths.buffers()
    ends = np.frombuffer(offsets, np.int32)[paths.offset : paths.offset + len(paths) + 1]
    starts, stops = ends[:-1], ends[1:]
    if (starts == stops).any():
        return False
    text = np.frombuffer(data, np.uint8)
    first, last = text[starts], text[stops - 1]
    if ((first == _SLASH) | (first == _DOT) | (last == _SLASH)).any():
        return False
    window = text[starts[0] : stops[-1]]
    # No path ends in a slash, so each has a byte after it.
    behind_slashes = window[np.flatnonzero(window == _SLASH) + 1]
    if ((behind_slashes == _SLASH) | (behind_slashes == _DOT)).any():
        return False
    content = window.tobytes()
    return not any(odd in content for odd in (b"%", b":", b"?", b"#", b"\0"))


def _decode_directories(paths: pa.Array, root: _Root) -> pa.Array:
    parts = pc.split_pattern(paths, "/", max_splits=1, reverse=True).flatten()
    directories, names = parts[::2], parts[1::2]
    distinct = directories.dictionary_encode()
    prefixes = [
        _address(root.resolve(f"{directory}/{_ANY_NAME}"))[: -len(_ANY_NAME)]
        for directory in distinct.dictionary.to_pylist()
    ]
    by_row = pa.array(prefixes, paths.type).take(distinct.indices)
    return pc.binary_join_element_wise(by_row, names, pa.scalar("", paths.type))


def _address(location: Location) -> str:
    return location if isinstance(location, str) else location.uri


def escape_hive(text: str) -> str:
    """A column name or value as a Hive-style directory spells it; :func:`encode_path` escapes the result once more."""
    return _HIVE_UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def hive_directory(column: str, value: str | None) -> str:
    """One level of a partition's directory, ``column=value``, as a part of a key."""
    return f"{escape_hive(column)}={escape_hive(value) if value else HIVE_NULL}"


class _Root(Struct, frozen=True):
    """The parts of a table's root; ``scheme`` is empty for files of this machine."""

    scheme: str
    authority: str
    segments: tuple[str, ...]

    @classmethod
    @lru_cache(maxsize=64)  # a log names one table's files, one after the other
    def of(cls, table_uri: str) -> _Root:
        if table_uri.lower().startswith("file:"):
            scheme, authority, path = _split_absolute(table_uri, table_uri)
        elif "://" in table_uri:
            # fsspec takes the rest of an address literally; only paths of the log have escapes.
            scheme, _, rest = table_uri.partition("://")
            authority, _, path = rest.partition("/")
        else:
            scheme, authority, path = "", "", table_uri
            if not path.startswith("/"):
                raise InvalidRequest(
                    f"{path!r} is no address of a table: an absolute path or a URI is needed here."
                )
        return cls(scheme.lower(), authority, _normalise(table_uri, path, climb_from=()))

    def resolve(self, log_path: str) -> Location:
        if not _PLAIN.search(log_path):
            return log_path
        scheme = _SCHEME.match(log_path)
        if scheme is None and not log_path.startswith("/"):
            target = _normalise(log_path, _unquote(log_path, log_path), climb_from=self.segments)
            return self._locate(log_path, self.scheme, self.authority, target)
        if scheme is None:
            if log_path.startswith("//"):
                raise CorruptLog(
                    log_path, "a path that starts with two slashes names a host, not a file", OTHER_COMMIT
                )
            # As in Hadoop, a path without a scheme is in the table's own store.
            kind, authority, path = self.scheme, self.authority, _unquote(log_path, log_path)
        else:
            kind, authority, path = _split_absolute(log_path, log_path)
        return self._locate(log_path, kind, authority, _normalise(log_path, path, climb_from=()))

    def _locate(self, log_path: str, scheme: str, authority: str, target: tuple[str, ...]) -> Location:
        depth = len(self.segments)
        same_store = _same_store((scheme, authority), (self.scheme, self.authority))
        if not target or (same_store and target == self.segments):
            raise CorruptLog(log_path, "this path names a root directory, not a file in it", OTHER_COMMIT)
        if same_store and target[:depth] == self.segments:
            return "/".join(target[depth:])
        if same_store:
            scheme, authority = self.scheme, self.authority
        path = "/".join(target)
        return ExternalFile(f"{scheme}://{authority}/{path}" if scheme else f"/{path}", same_store)


def _split_absolute(uri: str, log_path: str) -> tuple[str, str, str]:
    """Scheme (empty for ``file``), authority and decoded path of an absolute URI."""
    scheme, _, rest = uri.partition(":")
    scheme = scheme.lower()
    if not rest.startswith("/"):
        raise CorruptLog(log_path, f"it reads as a URI of the scheme {scheme!r} without a path", OTHER_COMMIT)
    authority, path = "", rest
    if rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
    if scheme == "file" and authority in ("", "localhost"):
        scheme, authority = "", ""
    return scheme, authority, _unquote(path, log_path)


def _same_store(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two (scheme, authority) mean one store. They count as one where either leaves its host out."""
    if family_of(one[0]) != family_of(other[0]):
        return False
    kind = kind_of(one[0])
    if kind is None or not kind.has_account:
        return one[1] == other[1] or "" in (one[1], other[1])
    (container, _, host), (other_container, _, other_host) = one[1].partition("@"), other[1].partition("@")
    # The account is the host's first label: its endpoints differ in the others.
    accounts = {name.partition(".")[0].lower() for name in (host, other_host) if name}
    return container == other_container and len(accounts) < 2


def _unquote(text: str, log_path: str) -> str:
    """Decode percent-escapes. A percent sign without two hexadecimal digits stands for itself, as other readers take it."""
    if "?" in text or "#" in text:
        raise CorruptLog(
            log_path,
            "a bare '?' or '#' has no meaning in the path of a file; it must be escaped",
            OTHER_COMMIT,
        )
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise CorruptLog(log_path, "its percent-escapes do not decode to UTF-8", OTHER_COMMIT) from error


def _normalise(log_path: str, path: str, climb_from: tuple[str, ...] | None) -> tuple[str, ...]:
    """Append the segments of a decoded path to the segments of its start, and resolve ``.``, ``..`` and empty segments.

    :param climb_from: the segments of the start; ``None``: an empty start, which ``..`` may not leave.
    """
    if "\x00" in path:
        raise CorruptLog(log_path, "it holds a NUL character", OTHER_COMMIT)
    segments = list(climb_from or ())
    for segment in path.split("/"):
        if segment == "..":
            if not segments:
                raise CorruptLog(log_path, "its '..' climb out of the root", OTHER_COMMIT)
            segments.pop()
        elif segment not in ("", "."):
            segments.append(segment)
    return tuple(segments)
