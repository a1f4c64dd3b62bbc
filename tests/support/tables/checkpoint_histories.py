"""Random histories of tables with V2 checkpoints, and what each of these checkpoints must hold.

The truth is in the commits, all of which stay: a checkpoint's own files, with nothing of the log beside them, must give
the state that the commits replay to.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from delta_log.checkpoint.writer import CheckpointResult, write_checkpoint
from delta_log.log.actions import decode_actions, encode_actions
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.testing import MemoryStorage
from tests.support.checks.checkpoint_state import state_of
from tests.support.tables.random_log import DAY_MS, NOW_MS, adds, metadata, removes


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def at(now_ms: int) -> Runtime:
    return Runtime(now_ms=lambda: now_ms)


def only_the_checkpoint(storage: MemoryStorage, result: CheckpointResult) -> Snapshot:
    """The version from this very checkpoint: every other file of the log is taken away."""
    copy = MemoryStorage(storage.uri)
    copy.objects = {key: storage.objects[key] for key in result.keys}
    return snapshot_of(copy)


class FreshStorage(MemoryStorage):
    """A store whose clock stands at the time of these logs, so that its sidecars are young."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._clock_ms = max(self._clock_ms, NOW_MS - DAY_MS)
        return super().put_if_absent(key, data)


def fresh_copy(storage: MemoryStorage) -> FreshStorage:
    copy = FreshStorage(storage.uri)
    copy.objects = dict(storage.objects)
    return copy


PROPERTIES = st.fixed_dictionaries(
    {"delta.checkpointPolicy": st.just("v2")},
    optional={
        "delta.checkpoint.writeStatsAsJson": st.sampled_from(["true", "false"]),
        "delta.checkpoint.writeStatsAsStruct": st.sampled_from(["true", "false"]),
    },
)


PATHS = [f"p{n}" for n in range(9)] + ["b%20c", "s3://elsewhere/x"]
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "timestampNtz", "v2Checkpoint"],
    "writerFeatures": ["deletionVectors", "timestampNtz", "v2Checkpoint", "domainMetadata", "rowTracking"],
}


def identity_of(add: dict[str, Any]) -> tuple[Any, ...]:
    vector = add.get("deletionVector") or {}
    return vector.get("pathOrInlineDv"), vector.get("offset")


@st.composite
def file_actions(draw: st.DrawFn, live: dict[str, dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Appends, removals, refreshed and re-added files, changed deletion vectors; ``live`` is brought up to date."""
    actions: list[dict[str, Any]] = []
    for path in draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=most)):
        add = draw(adds(path))
        old = live.get(path)
        if old is None:
            actions.append(add)
        elif draw(st.booleans()):
            actions.append(draw(removes(path, live.pop(path).get("deletionVector"))))
            continue
        elif draw(st.booleans()):  # with newer statistics or tags
            add["add"]["deletionVector"] = old.get("deletionVector")
            actions.append(add)
        else:
            if identity_of(old) != identity_of(add["add"]):
                actions.append(draw(removes(path, old.get("deletionVector"))))
            actions.append(add)
        live[path] = add["add"]
    return actions


def commit(storage: MemoryStorage, version: int, actions: list[dict[str, Any]]) -> None:
    lines = [{"commitInfo": {"operation": "WRITE"}}, *actions]
    storage.put(
        f"_delta_log/{version:020d}.json", "".join(json.dumps(line) + "\n" for line in lines).encode()
    )


def check_history(data: st.DataObject, properties: dict[str, str], sidecar_actions: int) -> int:
    """Write a history and its checkpoints, and compare each; gives how many sidecars were named again."""
    reused = 0
    storage = FreshStorage()
    live: dict[str, dict[str, Any]] = {}
    first = [{"protocol": PROTOCOL}, data.draw(metadata(properties))]
    now_ms = NOW_MS
    for version in range(data.draw(st.integers(2, 6))):
        news = data.draw(file_actions(live, 11 if version == 0 else 3))
        commit(storage, version, [*(first if version == 0 else []), *news])
        now_ms += data.draw(st.sampled_from([0, 1, DAY_MS]))
        step = data.draw(st.sampled_from(["incremental"] * 4 + ["classic", "full", "foreign", "none"]))
        if step == "none":
            continue
        snapshot = snapshot_of(storage)
        result = write_checkpoint(
            storage,
            snapshot,
            at(now_ms),
            "classic" if step == "classic" else "v2",
            incremental=step == "incremental",
            sidecar_actions=sidecar_actions,
            top_format=data.draw(st.sampled_from(["json", "parquet"])),
        )
        # The truth is in the commits, all of which are still there.
        every = [file.key for c in list_log(storage).checkpoints for file in c.files]
        replayed = Snapshot(storage, find_log_segment(storage, version, frozenset(every)))
        stats = "json" if "json" in result.stats_forms else "struct" if result.stats_forms else "none"
        found = state_of(only_the_checkpoint(storage, result), now_ms, stats=stats)
        assert found == state_of(replayed, now_ms, stats=stats)
        assert (result.num_add_files, result.version) == (replayed.num_files, version)
        assert result.size_bytes == sum(len(storage.read(key)) for key in result.keys)
        assert json.loads(storage.read("_delta_log/_last_checkpoint"))["size"] == result.actions
        if step == "foreign":
            forget_facts(storage, result)
        reused += result.reused_sidecars
    return reused


def forget_facts(storage: MemoryStorage, result: CheckpointResult) -> None:
    """Make a checkpoint that of another writer, who knows nothing of our tags."""
    top = result.keys[0]
    if not top.endswith(".json"):
        storage.delete([top])
        return
    actions = decode_actions(storage.read(top), top)
    for action in actions:
        if action.sidecar is not None:
            action.sidecar.tags = None
    storage.put(top, encode_actions(actions))
