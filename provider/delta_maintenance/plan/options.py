"""The options of OPTIMIZE: what a caller may ask for, checked before any file is looked at.

Options travel in a :class:`~delta_maintenance.contract.JobSpec` under the names of these fields, which are
those of the command line with underscores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from delta_log.errors import InvalidRequest

#: No file comes near it, and sums of it fit into 64 bits.
_MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """What to compact, and how far.

    :param where: a predicate on partition columns, see :mod:`delta_maintenance.plan.predicate`.
    :param target_size_bytes: of the files to write; else the table's ``delta.targetFileSize``, else 1 GiB.
    :param min_file_size_bytes: smaller files are compacted; else three quarters of the target. A minimum
        equal to the target would rewrite nearly full files again and again.
    :param max_deleted_rows_ratio: files of which more than this part is deleted are rewritten, even alone.
    :param full: rewrite every file, but those that an earlier run wrote in just this way.
    :param max_bytes: read at most so much in this run; what pays off most goes first.
    """

    where: str | None = None
    target_size_bytes: int | None = None
    min_file_size_bytes: int | None = None
    max_deleted_rows_ratio: float = 0.05
    full: bool = False
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, lowest in (("target_size_bytes", 1), ("min_file_size_bytes", 0), ("max_bytes", 1)):
            value = getattr(self, name)
            if value is not None and not lowest <= value <= _MAX_BYTES:
                raise InvalidRequest(
                    f"{name} is {value}; it must be a number of bytes from {lowest} to 1 PiB."
                )
        if not 0 <= self.max_deleted_rows_ratio <= 1:
            raise InvalidRequest(
                f"max_deleted_rows_ratio is {self.max_deleted_rows_ratio}; it must be from 0 (purge every "
                "deletion) to 1 (purge none)."
            )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> OptimizeOptions:
        """From the options of a job spec; ``None`` means not given.

        :raises InvalidRequest: an option that there is not, or of a wrong kind.
        """
        known = tuple(f.name for f in fields(cls))
        unknown = sorted(set(raw) - set(known))
        if unknown:
            raise InvalidRequest(
                f"OPTIMIZE has no option {', '.join(unknown)}. Its options are {', '.join(known)}; "
                "is the job's release older than the one that asks?"
            )
        return cls(**{name: _READERS[name](name, value) for name, value in raw.items() if value is not None})


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} is {value!r}; it must be a text.")
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} is {value!r}; it must be an integer number of bytes.")
    return value


def _ratio(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequest(f"{name} is {value!r}; it must be a number from 0 to 1.")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is {value!r}; it must be true or false.")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "where": _text,
    "target_size_bytes": _integer,
    "min_file_size_bytes": _integer,
    "max_deleted_rows_ratio": _ratio,
    "full": _flag,
    "max_bytes": _integer,
}
