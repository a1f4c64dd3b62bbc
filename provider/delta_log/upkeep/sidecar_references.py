"""The sidecars that the checkpoints of a log name.

Protocol section "Sidecar Files". Several checkpoints may name one sidecar, so it may be deleted only if no remaining
checkpoint names it. While one of them cannot be read, no sidecar may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from delta_log.log.checkpoint_reader import CheckpointReader
from delta_log.log.data_path import decode_path
from delta_log.log.log_segment import Checkpoint
from delta_log.storage.storage import Storage


def referenced_sidecars(storage: Storage, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """The names of the sidecars of some checkpoints.

    :raises UnreadableCheckpoint: one of them cannot be read.
    """
    names = set()
    for checkpoint in checkpoints:
        for sidecar in CheckpointReader(storage, checkpoint).other.sidecars:
            name = sidecar.path.rpartition("/")[2]
            names |= {name, decode_path(name)}
    return frozenset(names)
