"""Finds expired rows where statistics do not decide: reads one column of the files that may hold some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.prefetch import map_ordered
from delta_log.data.data_file import DataFile
from delta_log.data.row_bitmap import RowBitmap
from delta_log.data.scan import vector_of
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructField
from delta_maintenance.expire.plan.expiry_plan import FileRow, PartlyExpired

_FILES_AT_ONCE = 4


class ExpiredRows(Struct, frozen=True):
    """The expired rows of a file.

    :param partly: the file without them; ``num_live``: its live rows, expired ones included.
    """

    partly: PartlyExpired
    num_live: int

    @property
    def are_all(self) -> bool:
        return self.partly.num_expired == self.num_live


class ExpiredRowReader(Struct, frozen=True):
    """Reads the column of an EXPIRE.

    :param cutoff: the least value that has not expired.
    """

    storage: Storage
    column: StructField
    cutoff: pa.Scalar
    mapping_mode: str

    def read(self, files: Sequence[FileRow]) -> Iterator[ExpiredRows]:
        """Yield the files that hold expired rows, in their order.

        :raises CorruptLog: a file is missing or broken.
        """
        for found in map_ordered(self._read_file, files, min(_FILES_AT_ONCE, self.storage.concurrency)):
            if found.partly.num_expired:
                yield found

    def count_live(self, file: FileRow, num_records: int | None) -> int:
        """Count the live rows of a file, by its footer if its statistics do not count them."""
        if num_records is None:
            num_records = DataFile(self.storage, file["key"], self.mapping_mode).num_rows
        vector = file["deletion_vector"]
        return num_records - (0 if vector is None else int(vector["cardinality"]))

    def _read_file(self, file: FileRow) -> ExpiredRows:
        data_file = DataFile(self.storage, file["key"], self.mapping_mode)
        hidden = vector_of(file, self.storage) or RowBitmap(())
        expired, num_live = [hidden.rows()], 0
        for rows in data_file.read([self.column], hidden, positions=True):
            num_live += rows.count
            is_expired = pc.fill_null(pc.less(rows.arrays[0], self.cutoff), False)
            assert rows.positions is not None
            expired.append(rows.positions.filter(is_expired).to_numpy(zero_copy_only=False))
        bitmap = RowBitmap(np.concatenate(expired).astype(np.int64))
        return ExpiredRows(
            PartlyExpired(file, bitmap, len(bitmap) - len(hidden), data_file.num_rows), num_live
        )
