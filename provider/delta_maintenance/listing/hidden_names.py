"""Names below a table's root that VACUUM never touches.

A name that starts with ``_`` or ``.`` is hidden at every level, and so is everything below it. Three kinds of names are
visible all the same, since data of the table lies there: change data, the index of Bloom filters, and directories of
partitions whose column starts with ``_`` or ``.``. The directory ``metadata`` in the root is hidden if Iceberg readers use
the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.arrays import arrow_array
from delta_log.log.data_path import escape_hive
from delta_log.snapshot.snapshot import Snapshot
from delta_maintenance.listing.key_columns import may_begin, may_contain

CHANGE_DATA = "_change_data"
LOG_DIRECTORY = "_delta_log"
_VISIBLE = (CHANGE_DATA, "_delta_index")
ICEBERG_METADATA = "metadata"


@dataclass(frozen=True)
class HiddenNames:
    """The hidden names of one table.

    :param partition_prefixes: ``column=`` for each partition column, as directories spell it.
    :param hides_metadata: Iceberg readers use the table, too.
    """

    partition_prefixes: tuple[str, ...] = ()
    hides_metadata: bool = False
    _known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, snapshot: Snapshot) -> HiddenNames:
        columns = {
            spelt
            for column in snapshot.partition_schema
            for name in (column.name, column.physical_name)
            for spelt in (name, escape_hive(name))
        }
        formats = snapshot.properties.get("delta.universalFormat.enabledFormats", "")
        return cls(
            tuple(sorted(f"{name}=" for name in columns)),
            "iceberg" in [name.strip().lower() for name in formats.split(",")],
        )

    def hides(self, key: str) -> bool:
        """Whether a file or directory is hidden, or lies in a hidden directory."""
        directory, _, name = key.rpartition("/")
        if self._hides_name(name) or (self.hides_metadata and key == ICEBERG_METADATA):
            return True
        if not directory:
            return False
        known = self._known.get(directory)
        if known is None:
            known = self._known[directory] = self.hides(directory)
        return known

    def mask(self, keys: pa.Array) -> pa.BooleanArray:
        """Apply :meth:`hides` to a column of files."""
        starts = b"_.m" if self.hides_metadata else b"_."
        if not may_contain(keys, (b"/_", b"/.")) and not may_begin(keys, starts):
            return arrow_array(np.zeros(len(keys), bool))
        suspicious = pc.or_(pc.match_substring(keys, "/_"), pc.match_substring(keys, "/."))
        for start in ("_", ".", *([ICEBERG_METADATA] if self.hides_metadata else [])):
            suspicious = pc.or_(suspicious, pc.starts_with(keys, start))
        found = suspicious.to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(found)
        if len(rows):
            found = found.copy()
            found[rows] = [self.hides(key) for key in keys.take(arrow_array(rows)).to_pylist()]
        return pa.array(found, pa.bool_())

    def _hides_name(self, name: str) -> bool:
        return name[:1] in ("_", ".") and not name.startswith((*_VISIBLE, *self.partition_prefixes))
