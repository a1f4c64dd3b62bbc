"""Random histories of a table in memory, with the files that each version needed, to compare VACUUM with.

The model has no tombstones. It records the files of each version, and when that version was the latest one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.data.deletion_vector import deletion_vector_key, encode_z85
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.testing import Fault, FaultyStorage, MemoryStorage

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_800_000_000_000
RUNTIME = Runtime(now_ms=lambda: NOW_MS, jitter=lambda: 0.5, sleep=lambda seconds: None)
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "changeDataFeed", "domainMetadata"],
}
#: Keys as the store has them; two need escapes in the log.
DATA_KEYS = ("a", "p=1/b", "p=1/c d%", "p=a%3Ab/ü", "_p=2/d", "deep/er/e", "f")
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("p", "string"), ("_p", "string"), ("x", "long"))
    ],
}


def metadata(properties: dict[str, str] | None = None, table_id: str = "t") -> dict[str, Any]:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": ["p", "_p"],
        "configuration": properties or {},
    }


@dataclass
class History:
    """A table in memory, and the files of each of its versions.

    :ivar versions: for each version, the time of its commit and the keys of its live files and deletion vectors.
    """

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    versions: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    #: By key of a live file, the number of its deletion vector, if it has one.
    live: dict[str, int | None] = field(default_factory=dict)
    vectors: int = 0

    def put(self, key: str, time_ms: int) -> None:
        self.storage.objects[key] = (key.encode(), time_ms)

    def commit(self, actions: list[dict[str, Any]], time_ms: int) -> None:
        body = "".join(json.dumps(action) + "\n" for action in actions).encode()
        self.storage.objects[f"_delta_log/{len(self.versions):020d}.json"] = (body, time_ms)
        keys = {*self.live, *(vector_key(number) for number in self.live.values() if number is not None)}
        self.versions.append((time_ms, frozenset(keys)))

    def needed_since(self, cutoff_ms: int) -> set[str]:
        """Collect the files of every version that was the latest one at some moment since the cutoff."""
        ends = [time_ms for time_ms, _ in self.versions[1:]] + [NOW_MS * 2]
        found: set[str] = set()
        for (_, keys), end_ms in zip(self.versions, ends, strict=True):
            if end_ms >= cutoff_ms:
                found |= keys
        return found

    def add(self, key: str) -> dict[str, Any]:
        return {"add": {**self._file(key), "modificationTime": 1, "dataChange": True}}

    def remove(self, key: str, deletion_ms: int | None) -> dict[str, Any]:
        stamp = {} if deletion_ms is None else {"deletionTimestamp": deletion_ms}
        return {"remove": {**self._file(key), "dataChange": True, **stamp}}

    def _file(self, key: str) -> dict[str, Any]:
        number = self.live[key]
        vector = {} if number is None else {"deletionVector": _vector(number)}
        return {
            "path": quote(key),
            "size": len(key.encode()),
            "partitionValues": {"p": "1", "_p": None},
            **vector,
        }

    def snapshot(self) -> Snapshot:
        return Snapshot(self.storage, find_log_segment(self.storage))


def history_of_removals(*removed: str, size: int | None = 4) -> History:
    """Make a table with one live file, ``live``, and others that were removed a month ago.

    :param size: what the removals say.
    """
    history = History()
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], NOW_MS - 31 * DAY_MS)
    for key in ("live", *removed):
        history.put(key, NOW_MS - 31 * DAY_MS)
        history.live[key] = None
        history.commit([history.add(key)], NOW_MS - 31 * DAY_MS)
    for key in removed:
        remove = history.remove(key, NOW_MS - 30 * DAY_MS)
        remove["remove"]["size"] = size
        del history.live[key]
        history.commit([remove], NOW_MS - 30 * DAY_MS)
    history.storage._clock_ms = NOW_MS
    return history


def _vector(number: int) -> dict[str, Any]:
    path = encode_z85(uuid.UUID(int=number).bytes)
    return {"storageType": "u", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 4, "cardinality": 1}


def vector_key(number: int) -> str:
    return deletion_vector_key(uuid.UUID(int=number))


@st.composite
def histories(draw: st.DrawFn, max_steps: int = 10) -> History:
    """Draw a history of one to twenty days: appends, deletes with and without vectors, restores, checkpoints, log cleanup."""
    history = History()
    # Hypothesis draws mostly small numbers. With a single span, every removal would be twenty days old.
    span_ms = draw(st.sampled_from([20, 5, 1])) * DAY_MS
    time_ms = NOW_MS - span_ms
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], time_ms)
    for _ in range(draw(st.integers(1, max_steps))):
        time_ms += 1 + span_ms * draw(st.integers(0, 40)) // 100
        if time_ms >= NOW_MS:
            break
        actions = []
        for key in draw(st.lists(st.sampled_from(DATA_KEYS), unique=True, min_size=1, max_size=3)):
            actions += _changed(draw, history, key, time_ms)
        history.commit([{"commitInfo": {"operation": "WRITE"}}, *actions], time_ms)
        if draw(st.integers(0, 3)) == 0:
            _checkpoint(history, time_ms, clean=draw(st.booleans()))
    for key in draw(
        st.lists(st.sampled_from(["orphan", "p=1/orphan", ".hidden", "_x/y", "p=1/.crc", "_change_data/c"]))
    ):
        history.put(key, NOW_MS - draw(st.integers(0, 20 * DAY_MS)))
    history.storage._clock_ms = NOW_MS
    return history


def _changed(draw: st.DrawFn, history: History, key: str, time_ms: int) -> list[dict[str, Any]]:
    stamp = draw(st.none() | st.integers(0, 6 * HOUR_MS).map(lambda early: time_ms - early))
    if key not in history.live:
        # A file that is there already is restored by this commit, and keeps its age.
        if key not in history.storage.objects:
            history.put(key, time_ms - draw(st.integers(0, HOUR_MS)))
        history.live[key] = None
        return [history.add(key)]
    removed = history.remove(key, stamp)
    if draw(st.booleans()):
        del history.live[key]
        return [removed]
    history.vectors += 1
    history.live[key] = history.vectors
    history.put(vector_key(history.vectors), time_ms)
    return [removed, history.add(key)]


def _checkpoint(history: History, time_ms: int, *, clean: bool) -> None:
    version = len(history.versions) - 1
    write_checkpoint(history.storage, history.snapshot(), Runtime(now_ms=lambda: time_ms))
    for key, (body, written_ms) in list(history.storage.objects.items()):
        if key.startswith("_delta_log/") and written_ms < NOW_MS - 20 * DAY_MS:
            history.storage.objects[key] = (body, time_ms)
    if clean:  # as a log cleanup does, when the log's retention is over
        for old in range(version):
            if history.versions[old + 1][0] < NOW_MS - 10 * DAY_MS:
                history.storage.delete([f"_delta_log/{old:020d}.json"])


def dying_everywhere(history: History, work: Callable[[Storage], object]) -> Iterator[bool]:
    """Repeat a piece of work, and let it die one storage call later each time, before or after the call takes effect.

    :return: yields after each repetition whether the work died; it survives the last of each kind.
    """
    start = dict(history.storage.objects)
    for moment in ("before", "after"):
        number, died = 0, True
        while died:
            history.storage.objects = dict(start)
            left = number

            def die(name: str, key: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Fault

            try:
                work(FaultyStorage(history.storage, **{moment: die}))
            except Fault:
                pass
            else:
                died = False
            yield died
            number += 1 + number // 8
