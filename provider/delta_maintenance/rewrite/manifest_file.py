"""The file of a manifest: how a run proves that it wrote it, and what has to hold for its content to be believed.

A manifest lies in the table's directory, where others may write. So it is data, and no order, until two things are shown:

1. *The run wrote it.* Each run has a secret key (:class:`RunKey`) that never lies in the table. The file carries an HMAC of
   its body under that key, together with the names of the run and the bin, so that no manifest counts under another
   name. It is verified over the bytes as they are, before any of them is parsed. A file without a valid HMAC is nobody's:
   it is never taken over, and nothing that it names is touched.
2. *It is well formed.* :func:`parsed` checks each member: types, ranges, the names under which it stands, keys below the
   table's root and not hidden, rows that add up.

Whether the manifest answers the plan of the run is decided elsewhere: by :meth:`BinManifest.differs_from` for a task that
was given out, by :mod:`delta_maintenance.optimize.resume` for what an earlier try has left.

The file is one JSON object, ``{"manifest_version":2,"mac":"…","body":{…}}``, with these members in this order. A release
that knows no keys reads the version, and refuses the run (:class:`NewerManifest`).
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from delta_log.errors import InvalidRequest
from delta_log.log.data_path import encode_path, escape_hive
from delta_maintenance.contract import RUN_KEY_VARIABLE
from delta_maintenance.errors import BadManifest, NewerManifest
from delta_maintenance.rewrite.task import MANIFEST_VERSION, BinManifest, OutputFile, SourceFile

#: A larger file is not read. A bin of 100,000 files has a manifest of about half of that.
MAX_BYTES = 64 << 20
#: The id of a bin: a digest, see :mod:`delta_maintenance.optimize.plan.bin_id`.
BIN_ID = re.compile(r"[0-9a-f]{32}")
_KEY_TEXT = re.compile(r"[0-9a-fA-F]{32,1024}")
_DOMAIN = b"airflow-provider-delta manifest"
_HEAD = re.compile(rb'\{"manifest_version":[0-9]{1,9},"mac":"([0-9a-f]{64})","body":')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INT64_END = 1 << 63

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunKey:
    """The secret of one run, the same for all its tries; it never stands in the table, a spec, a report or a log.

    :param text: at least 32 hexadecimal digits.
    :raises InvalidRequest: it is not.
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
        """
        :return: ``None``: the environment names none.
        """
        text = environment.get(RUN_KEY_VARIABLE)
        return None if text is None else cls(text)

    def mac(self, run_id: str, bin_id: str, body: bytes) -> str:
        """What proves that the holder of the key wrote `body` as the manifest of this bin."""
        message = b"\0".join((_DOMAIN, run_id.encode(), bin_id.encode(), body))
        return hmac.new(self.text.lower().encode(), message, "sha256").hexdigest()


def sealed(manifest: BinManifest, run_key: RunKey) -> bytes:
    """A manifest as its file holds it."""
    body = manifest.to_json().encode()
    mac = run_key.mac(manifest.run_id, manifest.bin_id, body)
    return b'{"manifest_version":%d,"mac":"%s","body":%s}' % (MANIFEST_VERSION, mac.encode(), body)


def unsealed(content: bytes, run_key: RunKey, run_id: str, bin_id: str) -> BinManifest | None:
    """The manifest in a file that stands under these names.

    :param content: at most :data:`MAX_BYTES` and one more.
    :return: ``None``: this run did not write it, or it is not well formed; either way it is nobody's.
    :raises NewerManifest: this run wrote it, by a newer release.
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
    """:func:`parsed` of JSON text."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadManifest("it is no JSON") from error
    return parsed(values)


def parsed(values: Any) -> BinManifest:
    """The manifest of JSON values, or of :meth:`BinManifest.to_dict`; every member was checked.

    :raises BadManifest: it is none.
    :raises NewerManifest: a newer release wrote it, in a way that this release does not know.
    """
    if not isinstance(values, dict):
        raise BadManifest("it is no JSON object")
    version = values.get("manifest_version", 1)
    if type(version) is not int or not 1 <= version <= MANIFEST_VERSION:
        raise NewerManifest(str(values.get("bin_id")), str(values.get("run_id")), version, MANIFEST_VERSION)
    for name in ("sources", "outputs"):
        if not isinstance(values.get(name), (list, tuple)):
            raise BadManifest(f"its {name} are no list")
    found = _made(
        BinManifest,
        {
            **values,
            "sources": tuple(_made(SourceFile, item, _SOURCE, "a source") for item in values["sources"]),
            "outputs": tuple(_made(OutputFile, item, _OUTPUT, "an output") for item in values["outputs"]),
            "source_rows": _counts(values.get("source_rows", [])),
        },
        _MANIFEST,
        "it",
    )
    check_outputs(found)
    _check_rows(found)
    return found


def check_outputs(manifest: BinManifest) -> None:
    """Each output lies where a rewrite puts its files: below the root, where no reader and no VACUUM overlooks it.

    :raises BadManifest: one does not.
    """
    # A directory of a partition may start with an underscore, as its column may.
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
    if manifest.source_rows and (
        len(manifest.source_rows) != len(manifest.sources) or sum(manifest.source_rows) != manifest.rows_in
    ):
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


# -- members -------------------------------------------------------------------------------------------------


def _is_text(value: object) -> bool:
    # A lone surrogate is in no file name, and no store, log or column takes it.
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
    """Of texts to texts or nulls."""
    return isinstance(value, dict) and all(
        _is_text(name) and (member is None or _is_text(member)) for name, member in value.items()
    )


def _is_vector(value: object) -> bool:
    """A deletion vector's descriptor, as the log has it."""
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
_SOURCE: dict[str, Callable[[object], bool]] = {
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
_OUTPUT: dict[str, Callable[[object], bool]] = {
    "path": _is_text,
    "key": _is_text,
    "size_bytes": _is_count,
    "modification_time_ms": _is_int64,
    "num_records": _is_count,
    "stats": _or_null(_is_text),
    "tags": _is_map,
}
_MANIFEST: dict[str, Callable[[object], bool]] = {
    "bin_id": lambda value: isinstance(value, str) and BIN_ID.fullmatch(value) is not None,
    "run_id": _is_text,
    "partition_values": _is_map,
    "rows_in": _is_count,
    "rows_deleted": _is_count,
    "rows_out": _is_count,
    "elapsed_ms": _is_count,
    "rewrite_tag": _is_text,
    "num_outputs": _is_count,
}


def _counts(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all(map(_is_count, value)):
        raise BadManifest("its source_rows are no list of counts")
    return tuple(value)


def _made(cls: type[_T], values: object, members: Mapping[str, Callable[[object], bool]], what: str) -> _T:
    """Members that are not known are ignored, and absent ones have their defaults."""
    if not isinstance(values, dict):
        raise BadManifest(f"{what} is no JSON object")
    known: dict[str, Any] = {}
    for member in fields(cls):  # type: ignore[arg-type]
        name = member.name
        if name not in values:
            if member.default is MISSING and member.default_factory is MISSING:
                raise BadManifest(f"{what} has no {name}")
            continue
        fits = members.get(name)
        if fits is not None and not fits(values[name]):
            raise BadManifest(f"the {name} of {what} is not what it has to be")
        known[name] = values[name]
    return cls(**known)
