"""Directories below a table's root that belong to others: tables of any format, and checkpoints of Spark streams.

Their files would look like orphans of the table. They show by a directory that only their format has, which for some kinds
has a file with a certain name in it:

* Delta and Hudi tables: a directory that is hidden and so never listed;
* Iceberg tables: ``metadata`` with the file of a version or a list of manifests;
* checkpoints of Spark streams: ``offsets`` with a file whose name is the number of a batch.

The marked directory is the neighbour's root. If that is the root of the table itself, for example where a catalog writes the
metadata of Iceberg for a Delta table, then the neighbour has only some directories there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.prefetch import map_ordered
from delta_log.storage.storage import Storage
from delta_maintenance.listing.hidden_names import LOG_DIRECTORY, HiddenNames
from delta_maintenance.listing.key_columns import directories_of, may_contain


class _Kind(Struct, frozen=True):
    """A kind of neighbour.

    :param marker: the name of a directory in the neighbour's root.
    :param file: what the name of a file in ``marker`` has to match.
    :param beside: what belongs to the neighbour if its root is the root of the table.
    """

    words: str
    marker: str
    file: re.Pattern[str]
    beside: tuple[str, ...] = ()


_ANY = re.compile(r".+")
_DELTA = _Kind("a Delta table", LOG_DIRECTORY, _ANY)
_HUDI = _Kind("a Hudi table", ".hoodie", _ANY)
_ICEBERG = _Kind(
    "an Iceberg table",
    "metadata",
    re.compile(r".+\.metadata\.json(\.gz)?|version-hint\.text|snap-.+\.avro"),
    ("metadata",),
)
_STREAM = _Kind(
    "the checkpoint of a stream",
    "offsets",
    re.compile(r"\d+(\.compact)?"),
    ("commits", "metadata", "offsets", "sources", "state"),
)
_KINDS = (_DELTA, _HUDI, _ICEBERG, _STREAM)
_HIDDEN = (_DELTA, _HUDI)
_VISIBLE = (_ICEBERG, _STREAM)


def neighbours_by_directory(directories: Iterable[str], hidden: HiddenNames) -> dict[str, str]:
    """Find neighbours whose marker is a hidden directory, among directories or files that a store has met.

    :return: the kind of each neighbour in words, by directory.
    """
    found = {}
    for key in directories:
        for kind in _HIDDEN:
            root, marker, _ = f"{key}/".partition(f"/{kind.marker}/")
            if marker and not hidden.hides(root):
                found[root] = kind.words
    return found


def neighbours_by_file(keys: pa.StringArray, hidden: HiddenNames) -> dict[str, str]:
    """Find neighbours among a column of files.

    :param keys: keys, which may include hidden files.
    :return: the kind of each neighbour in words, by directory.
    """
    found: dict[str, str] = {}
    texts = {f"/{kind.marker}/": kind for kind in _HIDDEN} | {f"{kind.marker}/": kind for kind in _VISIBLE}
    if not may_contain(keys, [text.encode() for text in texts]):
        return found
    for text, kind in texts.items():
        marked = keys.filter(pc.match_substring(keys, text)).to_pylist()
        if kind in _HIDDEN:
            found |= neighbours_by_directory(marked, hidden)
            continue
        for key in marked:
            directory, _, name = key.rpartition("/")
            root, _, last = directory.rpartition("/")
            if last == kind.marker and kind.file.fullmatch(name) and not hidden.hides(key):
                found |= dict.fromkeys([root] if root else kind.beside, kind.words)
    return found


def neighbours_above(storage: Storage, keys: pa.ChunkedArray, hidden: HiddenNames) -> dict[str, str]:
    """Look in the store for the markers of neighbours in the directories of some files, and in those above.

    :return: the kind of each neighbour in words, by directory.
    """
    above: set[str] = set()
    for parent in directories_of(keys):
        directory = parent
        while directory and directory not in above:
            above.add(directory)
            directory = directory.rpartition("/")[0]
    looks = [(directory, kind) for directory in sorted(above) for kind in _KINDS]
    # The root itself is a Delta table, and what a Hudi table there needs is hidden.
    looks += [("", kind) for kind in _VISIBLE if above.intersection(kind.beside)]

    def is_there(look: tuple[str, _Kind]) -> bool:
        directory, kind = look
        place = f"{directory}/{kind.marker}".lstrip("/")
        if kind in _VISIBLE and hidden.hides(place):
            return False
        return any(kind.file.fullmatch(info.name) for info in storage.list_from(place))

    answers = map_ordered(is_there, looks, storage.concurrency)
    found: dict[str, str] = {}
    for (directory, kind), answer in zip(looks, answers, strict=True):
        if answer:
            found |= dict.fromkeys([directory] if directory else kind.beside, kind.words)
    return found


def in_words(neighbours: Mapping[str, str], most: int = 5) -> str:
    """Name some neighbours with their kinds."""
    named = [f"{directory} ({kind})" for directory, kind in sorted(neighbours.items())]
    more = f" and {len(named) - most:,} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more
