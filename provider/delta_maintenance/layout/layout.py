"""A layout as a plain value: how the rows of a bin are divided between its new files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

#: The kinds of layouts. ``zorder`` and ``hilbert`` follow a space-filling curve; ``kd`` splits column by column.
KINDS = ZORDER, HILBERT, KD = "zorder", "hilbert", "kd"
#: More columns than these leave less than two bits of the curve for each.
MAX_COLUMNS = 32
#: As in Spark. With more, the curve turns so often that neighbours on it share no bounds, and a run gains nothing by it.
MAX_HILBERT_COLUMNS = 9


class Layout(Struct, frozen=True):
    """Rows are divided by these columns.

    :param columns: physical names from the top down.
    """

    kind: str
    columns: tuple[tuple[str, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        return dict(to_builtins(self))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Layout:
        return cls(raw["kind"], tuple(tuple(path) for path in raw["columns"]))

    @property
    def tag(self) -> str:
        """The value of the tag by which a later run knows the files of this layout."""
        return json.dumps([self.kind, *map(list, self.columns)], separators=(",", ":"), ensure_ascii=False)
