"""What the footer of a file says of its writer, and what this provider writes there of itself."""

from __future__ import annotations

import re

from msgspec import Struct

from delta_log.data.legacy_calendar import may_be_julian
from delta_log.parquet.footer import Footer

#: In the footer of each file that this provider writes: chunks of floats with a NaN have no bounds, and those with a zero make
#: no claim about the values in their dictionaries and Bloom filters.
FLOATS_KEY, FLOATS_ARE_TRUE = "delta-maintenance.floats", "1"
#: There, too: the codec of the columns that it makes smaller (:mod:`delta_maintenance.rewrite.compression`).
CODEC_KEY = "delta-maintenance.codec"

_JAVA = re.compile(r"parquet-mr version 1\.(\d+)\.")
_FIRST_JAVA = 10
#: Other writers whose statistics follow the present rules.
_WRITERS = re.compile(
    r"parquet-mr compatible Photon|parquet-cpp-arrow version|parquet-rs version|delta-rs|DuckDB|Polars|Trino version"
)


class WriterNotes(Struct, frozen=True):
    """What matters of the writer of a file.

    :param is_known: its statistics follow the present rules of the format.
    :param may_be_julian: the file may hold dates of the Julian calendar.
    :param is_ours: this provider wrote the file.
    :param has_true_floats: bounds of floats are right where there is a NaN: this provider and parquet-java then give none.
    :param codec: what this provider compressed the columns with that it makes smaller; ``None``: the file does not say so.
    """

    is_known: bool
    may_be_julian: bool
    is_ours: bool
    has_true_floats: bool
    codec: str | None

    @classmethod
    def of(cls, footer: Footer) -> WriterNotes:
        notes, created_by = footer.key_values, footer.created_by
        is_ours = notes.get(FLOATS_KEY.encode()) == FLOATS_ARE_TRUE.encode()
        is_java = _is_new_java(created_by)
        codec = notes.get(CODEC_KEY.encode())
        return cls(
            is_known=is_java or _WRITERS.match(created_by) is not None,
            may_be_julian=may_be_julian(notes, created_by)[0],
            is_ours=is_ours,
            has_true_floats=is_ours or is_java,
            codec=None if codec is None else codec.decode("utf-8", "replace"),
        )


def _is_new_java(created_by: str) -> bool:
    """Tell whether a parquet-java wrote a file whose statistics follow the present rules."""
    found = _JAVA.match(created_by)
    return found is not None and int(found[1]) >= _FIRST_JAVA


def own_notes(codec: str) -> dict[str, str]:
    """Return what the footer of each new file says of this provider.

    :param codec: of the columns that it makes smaller.
    """
    return {FLOATS_KEY: FLOATS_ARE_TRUE, CODEC_KEY: codec}
