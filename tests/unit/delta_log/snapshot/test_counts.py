import pyarrow as pa
import pytest

from delta_log.errors import CorruptLog
from delta_log.log.actions import Add, DeletionVector
from delta_log.log.file_columns import action_batch
from delta_log.snapshot.counts import COUNTED_COLUMNS, Counts

LARGEST = (1 << 63) - 1


def batch(*sizes: int) -> pa.RecordBatch:
    vector = DeletionVector("u", "ab", 1, 2, 1)
    files = [Add(f"f{number}", size, deletionVector=vector) for number, size in enumerate(sizes)]
    return action_batch("add", files, COUNTED_COLUMNS)


def test_counts_add_up_and_are_taken_away_again() -> None:
    both = Counts.of(batch(1, 2)).plus(Counts.of(batch(5)))
    assert (both.files, both.size_bytes, both.deletion_vectors, both.deleted_rows) == (3, 8, 3, 6)
    left = both.plus(Counts.of(batch(5)), -1)
    assert (left.files, left.size_bytes) == (2, 3)
    assert left.histogram.size_bytes.sum() == 3


def test_totals_beyond_64_bits_are_exact_and_refused() -> None:
    one = Counts.of(batch(LARGEST))
    assert one.checked() is one
    for two in (one.plus(one), Counts.of(batch(LARGEST, LARGEST))):
        assert two.size_bytes == 2 * LARGEST
        with pytest.raises(CorruptLog, match="cannot be true"):
            two.checked()
    assert two.plus(one, -1).size_bytes == LARGEST


def test_counts_of_no_files_are_zero() -> None:
    none = Counts.of(batch())
    assert (none.files, none.size_bytes, none.deletion_vectors, none.deleted_rows) == (0, 0, 0, 0)
