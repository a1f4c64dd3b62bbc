"""The members of a manifest, with a check for the value of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from delta_maintenance.errors import BadManifest

#: The id of a bin: a digest, see :mod:`delta_maintenance.optimize.plan.bin_id`.
BIN_ID = re.compile(r"[0-9a-f]{32}")
_INT64_END = 1 << 63
_TOKEN, _SHA256 = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")

_T = TypeVar("_T", bound=Struct)


def _is_text(value: object) -> bool:
    # A lone surrogate is part of no file name, and no store, log or column accepts it.
    return isinstance(value, str) and (value.isascii() or _is_unicode(value))


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _INT64_END


def _is_int64(value: object) -> bool:
    return type(value) is int and -_INT64_END <= value < _INT64_END


def _is_map(value: object) -> bool:
    """Accept maps of texts to texts or nulls."""
    return isinstance(value, dict) and all(
        _is_text(name) and (member is None or _is_text(member)) for name, member in value.items()
    )


def _is_vector(value: object) -> bool:
    """Accept the log's descriptor of a deletion vector."""
    if not isinstance(value, dict) or set(value) - {*_VECTOR, "offset", "maxRowIndex"}:
        return False
    return all(name in value and fits(value[name]) for name, fits in _VECTOR.items()) and all(
        value.get(name) is None or _is_count(value[name]) for name in ("offset", "maxRowIndex")
    )


def _or_null(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


_VECTOR: dict[str, Callable[[object], bool]] = {
    "storageType": _is_text,
    "pathOrInlineDv": _is_text,
    "sizeInBytes": _is_count,
    "cardinality": _is_count,
}
SOURCE_MEMBERS: dict[str, Callable[[object], bool]] = {
    "path": _is_text,
    "key": _is_text,
    "size_bytes": _is_count,
    "partition_values": _is_map,
    "deletion_vector": _or_null(_is_vector),
    "num_records": _or_null(_is_count),
    "base_row_id": _or_null(_is_int64),
    "default_row_commit_version": _or_null(_is_int64),
    "tags": _or_null(_is_map),
}
OUTPUT_MEMBERS: dict[str, Callable[[object], bool]] = {
    "path": _is_text,
    "key": _is_text,
    "size_bytes": _is_count,
    "modification_time_ms": _is_int64,
    "num_records": _is_count,
    "stats": _or_null(_is_text),
    "tags": _is_map,
}
MANIFEST_MEMBERS: dict[str, Callable[[object], bool]] = {
    "bin_id": lambda value: isinstance(value, str) and BIN_ID.fullmatch(value) is not None,
    "run_id": _is_text,
    "partition_values": _is_map,
    "rows_in": _is_count,
    "rows_deleted": _is_count,
    "rows_out": _is_count,
    "elapsed_ms": _is_count,
    "rewrite_tag": _is_text,
    "num_outputs": _is_count,
    "bytes_copied": _is_count,
    "clustering_provider": _or_null(_is_text),
    "verify": _is_text,
    "rewrite": _is_text,
}
ROW_MAP_MEMBERS: dict[str, Callable[[object], bool]] = {
    "token": lambda value: isinstance(value, str) and _TOKEN.fullmatch(value) is not None,
    "sha256": lambda value: isinstance(value, str) and _SHA256.fullmatch(value) is not None,
}


def checked_counts(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all(map(_is_count, value)):
        raise BadManifest("its source_rows are no list of counts")
    return tuple(value)


def checked(cls: type[_T], values: object, members: Mapping[str, Callable[[object], bool]], what: str) -> _T:
    """Make an instance of a class from JSON values. Ignore unknown members, and give absent ones their defaults.

    :param members: the check for each member; one without is taken as it is.
    :param what: the object's name in an error.
    :raises BadManifest: a member is missing, or its value does not pass its check.
    """
    if not isinstance(values, dict):
        raise BadManifest(f"{what} is no JSON object")
    known: dict[str, Any] = {}
    num_required = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    for number, name in enumerate(cls.__struct_fields__):
        if name not in values:
            if number < num_required:
                raise BadManifest(f"{what} has no {name}")
            continue
        fits = members.get(name)
        if fits is not None and not fits(values[name]):
            raise BadManifest(f"the {name} of {what} is not what it has to be")
        known[name] = values[name]
    return cls(**known)
