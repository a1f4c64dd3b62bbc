"""The file of a manifest: how a run proves that it wrote the file, and when a reader may believe its content.

A manifest lies in the table's directory, where others may write. So a reader acts on it only after two checks:

1. *The run wrote it.* Each run has a secret key (:class:`RunKey`) that is never stored in the table. The file carries an HMAC
   of its body under that key, together with the names of the run and the bin, so that a manifest does not count under another
   name. The reader verifies it over the raw bytes, before it parses any of them. A file without a valid HMAC is foreign: the
   run never takes it over, and touches nothing that it names.
2. *It is well formed.* :func:`parsed` checks each member: types, ranges, the names of run and bin, keys below the table's root
   and not hidden, rows that add up.

Two other places decide whether the manifest answers the run's plan: :meth:`BinManifest.differs_from` for a task that was given
out, and :mod:`delta_maintenance.optimize.commit.resume` for the manifests of an earlier try.

The file is one JSON object, ``{"manifest_version":2,"mac":"…","body":{…}}``, with these members in this order. A release
that knows no keys reads the version, and refuses the run (:class:`NewerManifest`).
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_log.log.data_path import encode_path, escape_hive
from delta_maintenance.errors import BadManifest, NewerManifest
from delta_maintenance.job_interface import RUN_KEY_VARIABLE
from delta_maintenance.rewrite.task import MANIFEST_VERSION, BinManifest, OutputFile, RowMap, SourceFile

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


#: A larger file is not read. A bin of 100,000 files has a manifest of about half of that.
MAX_BYTES = 64 << 20
_KEY_TEXT = re.compile(r"[0-9a-fA-F]{32,1024}")
_DOMAIN = b"airflow-provider-delta manifest"
_HEAD = re.compile(rb'\{"manifest_version":[0-9]{1,9},"mac":"([0-9a-f]{64})","body":')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class RunKey:
    """The secret of one run, which all its tries share. It is never written to the table, a spec, a report or a log.

    :param text: 32 to 1,024 hexadecimal digits.
    :raises InvalidRequest: the text is something else.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not _KEY_TEXT.fullmatch(self.text):
            raise InvalidRequest(
                f"The key of the run ({RUN_KEY_VARIABLE}) must be 32 to 1,024 hexadecimal digits, and this one is not. Make "
                "one with: openssl rand -hex 32. Without the variable the run draws a key by itself."
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RunKey | None:
        """Read the key of the environment; ``None`` if there is none."""
        text = environment.get(RUN_KEY_VARIABLE)
        return None if text is None else cls(text)

    def mac(self, run_id: str, bin_id: str, body: bytes) -> str:
        """Return the proof that the holder of the key wrote `body` as the manifest of this bin."""
        message = b"\0".join((_DOMAIN, run_id.encode(), bin_id.encode(), body))
        return hmac.new(self.text.lower().encode(), message, "sha256").hexdigest()


def sealed(manifest: BinManifest, run_key: RunKey) -> bytes:
    """Return the content of a manifest's file."""
    body = manifest.to_json().encode()
    mac = run_key.mac(manifest.run_id, manifest.bin_id, body)
    return b'{"manifest_version":%d,"mac":"%s","body":%s}' % (MANIFEST_VERSION, mac.encode(), body)


def unsealed(content: bytes, run_key: RunKey, run_id: str, bin_id: str) -> BinManifest | None:
    """Read a manifest from the content of its file.

    :param content: content of the file, at most one byte more than :data:`MAX_BYTES`.
    :param run_id: the run by the file's name; ``bin_id`` likewise.
    :return: ``None`` if this run did not write the file, or it is not well formed. Such a file is foreign.
    :raises NewerManifest: a newer release wrote it for this run.
    """
    head = _HEAD.match(content)
    if head is None or not content.endswith(b"}") or len(content) > MAX_BYTES:
        return None
    body = content[head.end() : -1]
    if not hmac.compare_digest(head[1].decode(), run_key.mac(run_id, bin_id, body)):
        return None
    try:
        manifest = parsed_text(body)
    except BadManifest:
        return None
    return manifest if (manifest.run_id, manifest.bin_id) == (run_id, bin_id) else None


def parsed_text(text: str | bytes) -> BinManifest:
    """Parse a manifest from JSON text; see :func:`parsed`."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadManifest("it is no JSON") from error
    return parsed(values)


def parsed(values: Any) -> BinManifest:
    """Make a manifest from JSON values, or from :meth:`BinManifest.to_dict`, and check every member.

    :raises BadManifest: the values are not a manifest.
    :raises NewerManifest: a newer release wrote it in a format that this release does not know.
    """
    if not isinstance(values, dict):
        raise BadManifest("it is no JSON object")
    version = values.get("manifest_version", 1)
    if type(version) is not int or not 1 <= version <= MANIFEST_VERSION:
        raise NewerManifest(str(values.get("bin_id")), str(values.get("run_id")), version, MANIFEST_VERSION)
    for name in ("sources", "outputs"):
        if not isinstance(values.get(name), (list, tuple)):
            raise BadManifest(f"its {name} are no list")
    found = checked(
        BinManifest,
        {
            **values,
            "sources": tuple(
                checked(SourceFile, item, SOURCE_MEMBERS, "a source") for item in values["sources"]
            ),
            "outputs": tuple(
                checked(OutputFile, item, OUTPUT_MEMBERS, "an output") for item in values["outputs"]
            ),
            "source_rows": checked_counts(values.get("source_rows", [])),
            "row_map": _row_map(values.get("row_map")),
        },
        MANIFEST_MEMBERS,
        "it",
    )
    check_outputs(found)
    _check_rows(found)
    return found


def _row_map(values: Any) -> RowMap | None:
    if values is None:
        return None
    found = checked(RowMap, values, ROW_MAP_MEMBERS, "its row map")
    return replace(found, source_rows=checked_counts(found.source_rows))


def check_outputs(manifest: BinManifest) -> None:
    """Check that each output lies where a rewrite writes files: below the root, and not hidden from readers or VACUUM.

    :raises BadManifest: an output lies elsewhere.
    """
    # The directory of a partition may begin with an underscore, as its column may.
    partitions = tuple(f"{escape_hive(column)}=" for column in manifest.partition_values)
    for output in manifest.outputs:
        try:
            spelt = encode_path(output.key)
        except InvalidRequest as error:
            raise BadManifest(f"{output.key!r} is no key of a file below the table's root") from error
        if spelt != output.path:
            raise BadManifest(f"the path {output.path!r} does not name the file {output.key!r}")
        if _CONTROL.search(output.key):
            raise BadManifest(f"the key {output.key!r} holds control characters")
        *directories, name = output.key.split("/")
        if _is_hidden(name) or any(_is_hidden(d) and not d.startswith(partitions) for d in directories):
            raise BadManifest(f"{output.key!r} is hidden")
    keys = [output.key for output in manifest.outputs]
    if len({*keys, *(source.key for source in manifest.sources)}) < len(keys) + len(manifest.sources):
        raise BadManifest("a file is named twice")


def _is_hidden(name: str) -> bool:
    return name[:1] in ("_", ".")


def _check_rows(manifest: BinManifest) -> None:
    if not manifest.sources:
        raise BadManifest("it has no sources")
    if manifest.rows_in != manifest.rows_deleted + manifest.rows_out:
        raise BadManifest(
            f"{manifest.rows_in} rows went in, {manifest.rows_deleted} of them deleted, and {manifest.rows_out} came out"
        )
    written = sum(output.num_records for output in manifest.outputs)
    if written != manifest.rows_out:
        raise BadManifest(f"{manifest.rows_out} rows came out, and its files hold {written}")
    for rows in (manifest.source_rows, manifest.row_map.source_rows if manifest.row_map else ()):
        if rows and (len(rows) != len(manifest.sources) or sum(rows) != manifest.rows_in):
            raise BadManifest("the rows of its sources do not add up")
    for output in manifest.outputs:
        if output.stats is not None and _num_records_of(output.stats) != output.num_records:
            raise BadManifest(f"the statistics of {output.key!r} do not count its rows")


def _num_records_of(stats: str) -> object:
    try:
        found = json.loads(stats)
    except (ValueError, RecursionError):
        return None
    return found.get("numRecords") if isinstance(found, dict) else None
