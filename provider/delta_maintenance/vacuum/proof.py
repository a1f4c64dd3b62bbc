"""Proving a plan: what it deletes is compared with a second, independent reading of the log.

How much the agreement of the two readings is worth depends on what the log still holds:

* ``commits``: every commit since version 0 is there, and nothing else was read;
* ``checkpoint_and_checksum``: the reading began with a checkpoint, and the counts of the version's ``.crc`` confirm it;
* ``checkpoint``: the reading began with a checkpoint alone. If the checkpoint lost files, both readings miss them.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.log.file_names import checksum_key
from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.vacuum.independent_replay import SecondReading, read_log_again
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.planner import VacuumBasis

STRENGTHS = ("commits", "checkpoint_and_checksum", "checkpoint")


class Proof(Struct, frozen=True):
    """The agreement of both readings.

    :param strength: one of :data:`STRENGTHS`.
    """

    strength: str
    num_live: int

    @property
    def is_weak(self) -> bool:
        return self.strength == STRENGTHS[-1]


def prove(storage: Storage, basis: VacuumBasis, plan: VacuumPlan) -> Proof:
    """Read the log a second time, and compare it with a plan and its basis.

    :raises VacuumRefused: the readings disagree, or the options demand a stronger proof than the log allows.
    """
    reading = read_log_again(storage, plan.read_version, basis.retention.cutoff_ms)
    strength = "checkpoint" if reading.has_checkpoint else "commits"
    if reading.has_checkpoint and _counts_agree(storage, plan.read_version, reading):
        strength = "checkpoint_and_checksum"
    live = reading.live_keys()
    _require_same_live_files(plan, basis.protected.live, live)
    _require_no_candidate(plan, pa.chunked_array([live, pa.array(list(reading.recent), pa.string())]))
    proof = Proof(strength, len(live))
    if proof.is_weak and basis.options.require_proof:
        raise VacuumRefused(
            f"The protected files of version {plan.read_version} cannot be proved: the log begins with a checkpoint, and "
            "no version checksum (.crc) says what it should hold. Nothing was deleted. Leave out the demand for a proof, "
            "or commit once with a writer of checksums."
        )
    return proof


def _require_same_live_files(plan: VacuumPlan, first: pa.ChunkedArray, second: pa.Array) -> None:
    if (
        len(second) == len(pc.unique(first))
        and pc.all(pc.is_in(first, value_set=second), min_count=0).as_py()
    ):
        return
    missing = first.filter(pc.invert(pc.is_in(first, value_set=second)))
    unknown = second.filter(pc.invert(pc.is_in(second, value_set=first)))
    example = next((column[0].as_py() for column in (missing, unknown) if len(column)), "")
    raise VacuumRefused(
        f"Two ways of reading the log disagree about the live files of version {plan.read_version}: "
        f"{len(missing)} are in the first alone, {len(unknown)} in the second alone, for example {example!r}. Nothing "
        "was deleted. A checkpoint may be damaged; please report this."
    )


def _require_no_candidate(plan: VacuumPlan, needed: pa.ChunkedArray) -> None:
    keys = plan.candidates.column("key")
    wrong = keys.filter(pc.is_in(keys, value_set=needed))
    if len(wrong):
        raise VacuumRefused(
            f"{len(wrong)} files would be deleted that a second reading of the log protects, for example "
            f"{wrong[0].as_py()!r}. Nothing was deleted. Please report this."
        )


def _counts_agree(storage: Storage, version: int, reading: SecondReading) -> bool:
    """Compare the counts with the version's checksum file.

    :return: ``False`` if there is no readable checksum file.
    :raises VacuumRefused: the counts differ.
    """
    try:
        expected = json.loads(storage.read(checksum_key(version)))
        num_files, size_bytes = expected["numFiles"], expected["tableSizeBytes"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return False
    if (num_files, size_bytes) != (reading.num_files, reading.size_bytes):
        raise VacuumRefused(
            f"The checksum of version {version} says {num_files} files of {size_bytes} bytes, and the log comes to "
            f"{reading.num_files} files of {reading.size_bytes} bytes. Nothing was deleted. A checkpoint may have lost files: "
            "compare it with an older one, and do not clean the log before."
        )
    return True
