"""The options of OPTIMIZE and of REORG PURGE: what a caller may ask for, checked before any file is looked at.

Options travel in a :class:`~delta_maintenance.contract.JobSpec` under the names of these fields, which are
those of the command line with underscores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from delta_log.errors import InvalidRequest
from delta_maintenance.contract import BROKEN_SOURCES, HOT_PARTITIONS, VERIFICATIONS

#: No file comes near it, and sums of it fit into 64 bits.
_MAX_BYTES = 1 << 50
_MAX_FILES = 1 << 40
_MAX_SECONDS = 10 * 366 * 86_400
_MAX_MINUTES = 10 * 366 * 24 * 60
_DEFAULT_RATIO = 0.05

#: Of each option that is a number: the lowest and the highest value, and what it counts.
_RANGES: dict[str, tuple[int, int, str]] = {
    "target_size_bytes": (1, _MAX_BYTES, "bytes from 1 to 1 PiB"),
    "min_file_size_bytes": (0, _MAX_BYTES, "bytes from 0 to 1 PiB"),
    "max_file_size_bytes": (1, _MAX_BYTES, "bytes from 1 to 1 PiB"),
    "max_bytes": (1, _MAX_BYTES, "bytes from 1 to 1 PiB"),
    "max_files": (2, _MAX_FILES, "files, at least 2"),
    "batch_size_bytes": (1, _MAX_BYTES, "bytes from 1 to 1 PiB"),
    "max_duration_seconds": (1, _MAX_SECONDS, "seconds, at least 1"),
    "quiet_minutes": (1, _MAX_MINUTES, "minutes, at least 1"),
}
_CHOICES = {
    "hot_partitions": HOT_PARTITIONS,
    "verify": VERIFICATIONS,
    "on_broken_source": BROKEN_SOURCES,
}
#: What REORG PURGE does not take: it chooses files by what is in them, not by their size.
_NOT_OF_PURGE = frozenset({"min_file_size_bytes", "max_file_size_bytes", "full"})


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """What to rewrite, how far, and with how much care.

    :param where: a predicate on partition columns, see :mod:`delta_maintenance.partitions.predicate`.
    :param target_size_bytes: of the files to write; else the table's ``delta.targetFileSize``, else 1 GiB.
    :param min_file_size_bytes: smaller files are compacted; else three quarters of the target. A minimum
        equal to the target would rewrite nearly full files again and again.
    :param max_file_size_bytes: larger files are split into files of at most the target; else no file is.
    :param max_deleted_rows_ratio: files of which more than this part is deleted are rewritten, even alone; else
        :attr:`deleted_rows_ratio`. With a purge it also means: look for nothing else.
    :param full: rewrite every file, but those that an earlier run wrote in just this way.
    :param max_bytes: read at most so much in this run, ``max_files`` at most so many files; what pays off most goes
        first.
    :param max_duration_seconds: begin no bin after so long; what was begun is finished and committed.
    :param batch_size_bytes: commit whenever bins of so many bytes are finished; else once, at the end.
    :param quiet_minutes: partitions that somebody wrote to so recently are *hot*.
    :param hot_partitions: hot partitions come ``last``, or ``wait`` for another run.
    :param verify: ``counts``: as many rows go out as came in alive; ``full``: the new files are read back, too, and a
        checksum of all columns of all rows is compared.
    :param on_broken_source: where a source is missing or cannot be read: ``fail``, or ``skip`` its bin and report it.
    :param remap: where somebody deletes rows of a source meanwhile, commit its bin with deletion vectors for those rows;
        else it is left out.
    :param approved_digest: of the plan that somebody agreed to; another one is not carried out.
    :param output: URI of a new file for the whole plan, one JSON object a line.
    :param purge: REORG PURGE: deleted rows and dropped columns are taken out, whatever the size of a file.
    """

    where: str | None = None
    target_size_bytes: int | None = None
    min_file_size_bytes: int | None = None
    max_file_size_bytes: int | None = None
    max_deleted_rows_ratio: float | None = None
    full: bool = False
    max_bytes: int | None = None
    max_files: int | None = None
    max_duration_seconds: int | None = None
    batch_size_bytes: int | None = None
    quiet_minutes: int | None = None
    hot_partitions: str = "last"
    verify: str = "counts"
    on_broken_source: str = "fail"
    remap: bool = False
    approved_digest: str | None = None
    output: str | None = None
    purge: bool = False

    def __post_init__(self) -> None:
        for name, (lowest, highest, what) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not lowest <= value <= highest:
                raise InvalidRequest(f"{name} is {value}; it must be a number of {what}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidRequest(f"{name} is {getattr(self, name)!r}; it must be {' or '.join(choices)}.")
        ratio = self.max_deleted_rows_ratio
        if ratio is not None and not (math.isfinite(ratio) and 0 <= ratio <= 1):
            raise InvalidRequest(
                f"max_deleted_rows_ratio is {ratio}; it must be from 0 (purge every "
                "deletion) to 1 (purge none)."
            )

    @property
    def deleted_rows_ratio(self) -> float:
        """What was asked for; else a twentieth, and for a purge nothing."""
        if self.max_deleted_rows_ratio is not None:
            return self.max_deleted_rows_ratio
        return 0.0 if self.purge else _DEFAULT_RATIO

    @property
    def looks_for_dropped_columns(self) -> bool:
        """Footers have to be read for it, one for each file."""
        return self.purge and self.max_deleted_rows_ratio is None

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any], *, purge: bool = False) -> OptimizeOptions:
        """From the options of a job spec; ``None`` means not given.

        :raises InvalidRequest: an option that there is not, or of a wrong kind.
        """
        known = tuple(
            f.name for f in fields(cls) if f.name != "purge" and not (purge and f.name in _NOT_OF_PURGE)
        )
        unknown = sorted(set(raw) - set(known))
        if unknown:
            raise InvalidRequest(
                f"{'PURGE' if purge else 'OPTIMIZE'} has no option {', '.join(unknown)}. Its options are "
                f"{', '.join(known)}; is the job's release older than the one that asks?"
            )
        given = {name: _READERS[name](name, value) for name, value in raw.items() if value is not None}
        return cls(**given, purge=purge)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{name} is {value!r}; it must be a text. Give one, or leave the option out.")
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} is {value!r}; it must be an integer number of {_RANGES[name][2]}.")
    return value


def _ratio(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequest(f"{name} is {value!r}; it must be a number from 0 to 1.")
    # An integer may be larger than any float.
    return float(value) if abs(value) <= 1 else math.inf


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is {value!r}; it must be true or false.")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "where": _text,
    **dict.fromkeys(_RANGES, _integer),
    "max_deleted_rows_ratio": _ratio,
    "full": _flag,
    "remap": _flag,
    **dict.fromkeys(_CHOICES, _text),
    "approved_digest": _text,
    "output": _text,
}
