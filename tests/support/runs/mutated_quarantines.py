"""Records of a quarantine that are changed at random, then restored or purged: each is refused, or harmless.

The table is a quarantine of two files, in memory. Each example changes the record's manifest or its list of files, bytes or
fields, and may plant files beside those that wait. Whatever was changed:

1. what leaves a restoration or a purge is a :class:`~delta_log.errors.DeltaLogError` at most;
2. a restoration that succeeds brings back the two files and nothing else, one that is refused changes nothing;
3. a purge deletes nothing but what lies in that quarantine's own directory.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa

from delta_log.errors import DeltaLogError
from delta_log.storage.storage import Storage
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.execution import VacuumOutcome
from delta_maintenance.vacuum.quarantine.purge import purge
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY, Quarantine, list_quarantines
from delta_maintenance.vacuum.quarantine.restoration import restore
from tests.support.runs.vacuum_runs import vacuum_on
from tests.support.tables.vacuum_histories import DAY_MS, NOW_MS, PROTOCOL, History, metadata

KEYS = ("p=1/b", "p=1/orphan")
_NOTHING = pa.chunked_array([], pa.string())
_ODD_BYTES = (b"", b"\xff", b"{", b"[" * 500, b"9" * 30, b"-1", b"null", b'"', b"../", b"_delta_log/")
_ODD_VALUES: tuple[Any, ...] = (
    None,
    -1,
    10**30,
    1e300,
    True,
    "",
    "../victim",
    "_delta_log/00000000000000000009.json",
    "a//b",
    "\ud800",
    [],
    {"a": {}},
)
_PLANTED = ("_delta_log/00000000000000000009.json", "_x/y", "p=1/b", "p=2/new", "a//b")


def vacuum_into_quarantine(storage: Storage, **options: Any) -> VacuumOutcome:
    """Run a vacuum that keeps the deleted files in quarantine."""
    return vacuum_on(storage, retention_check=False, quarantine=True, **options)


def restore_all(history: History, storage: Storage) -> None:
    """Restore every quarantine of a table."""
    restore(storage, HiddenNames.of(history.snapshot()), None, SilentProgress(), dry_run=False)


def run(examples: int, seed: int) -> Counter[str]:
    """Run examples, and count the restorations that succeeded and those that were refused.

    :raises AssertionError: an example did harm; the message names it.
    """
    history = _history()
    (quarantine,) = list_quarantines(history.storage)
    start = dict(history.storage.objects)
    outcomes: Counter[str] = Counter()
    for number in range(examples):
        try:
            outcomes[_check(history, quarantine, start, random.Random(f"{seed}-{number}"))] += 1
        except Exception as error:
            raise AssertionError(
                f"example {number} of seed {seed}: {type(error).__name__}: {error}"
            ) from error
    return outcomes


def _history() -> History:
    history = History()
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], NOW_MS - 9 * DAY_MS)
    history.put("a", NOW_MS - 9 * DAY_MS)
    history.live["a"] = None
    history.commit([history.add("a")], NOW_MS - 8 * DAY_MS)
    for key in KEYS:
        history.put(key, NOW_MS - 8 * DAY_MS)
    history.storage._clock_ms = NOW_MS
    vacuum_into_quarantine(history.storage, retain_hours=0)
    return history


def _check(
    history: History, quarantine: Quarantine, start: dict[str, tuple[bytes, int]], chance: random.Random
) -> str:
    storage = history.storage
    storage.objects, storage._clock_ms = dict(start), NOW_MS
    for key in chance.choice([[quarantine.manifest_key], [quarantine.file_list_key], []]):
        body, written_ms = start[key]
        mutate = chance.choice([_bytes_changed, _field_changed])
        storage.objects[key] = mutate(body, chance), written_ms
    for key in chance.sample(_PLANTED, chance.randint(0, 2)):
        storage.objects.setdefault(quarantine.prefix + key, (b"planted", NOW_MS))
    before = dict(storage.objects)
    purge(storage, 1, NOW_MS, _NOTHING, SilentProgress(), dry_run=True)
    assert storage.objects == before, "a dry run changed something"
    try:
        restore_all(history, storage)
    except DeltaLogError:
        assert storage.objects == before, "a refused restoration changed something"
        outcome = "refused"
    else:
        expected = {**_outside(start), **{key: start[quarantine.prefix + key][0] for key in KEYS}}
        assert _outside(storage.objects) == expected, "a restoration changed something else"
        outcome = "restored"
    storage.objects = dict(before)
    storage._clock_ms = NOW_MS + 2 * DAY_MS
    purge(storage, 1, storage._clock_ms, _NOTHING, SilentProgress(), dry_run=False)
    assert _outside(storage.objects) == _outside(before), "a purge left its directory"
    return outcome


def _outside(objects: dict[str, tuple[bytes, int]]) -> dict[str, bytes]:
    return {key: body for key, (body, _) in objects.items() if not key.startswith(QUARANTINE_DIRECTORY)}


def _bytes_changed(data: bytes, chance: random.Random) -> bytes:
    """Change, cut out, double or insert a few bytes."""
    for _ in range(chance.randint(1, 3)):
        at, length = chance.randrange(len(data) + 1), chance.randint(0, 12)
        rest = chance.choice([data[at : at + length], b""]) + data[at + length :]
        data = data[:at] + chance.choice(_ODD_BYTES) + rest
    return data


def _field_changed(data: bytes, chance: random.Random) -> bytes:
    """Replace, remove or add one member of one line, or double a line."""
    lines = [json.loads(line) for line in data.splitlines()]
    line = chance.choice(lines)
    name = chance.choice([*line, "more"])
    way = chance.randrange(3)
    if way == 0:
        line[name] = chance.choice(_ODD_VALUES)
    elif way == 1:
        line.pop(name, None)
    else:
        lines.append({**line, "path": chance.choice(_PLANTED), "key": chance.choice(_PLANTED)})
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
