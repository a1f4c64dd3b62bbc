"""The memory of encoded parts: what was written is read, and it is used again."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.parquet.thrift_compact import CorruptThrift
from delta_maintenance.rewrite.part_memory import BLOCK_BYTES, PartFile, PartMemory

SIZES = st.integers(0, 200) | st.sampled_from(
    [BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES + 7]
)


@given(st.lists(SIZES, max_size=6), st.data())
def test_what_was_written_in_pieces_is_read(sizes: list[int], data: st.DataObject) -> None:
    memory = PartMemory()
    for _ in range(2):  # the second time in memory that holds other bytes
        file, expected = PartFile(memory), b""
        for number, size in enumerate(sizes):
            piece = bytes([number + 1]) * size
            assert file.write(piece) == size
            expected += piece
        assert file.tell() == len(expected)
        start = data.draw(st.integers(0, len(expected)))
        length = data.draw(st.integers(0, len(expected) - start))
        assert file.read(start, length) == expected[start : start + length]
        copied = BytesIO()
        file.copy_to(copied, start, length)
        assert copied.getvalue() == expected[start : start + length]
        file.release()


def test_a_file_that_ends_early_is_refused() -> None:
    file = PartFile(PartMemory())
    file.write(b"1234")
    with pytest.raises(CorruptThrift, match="the file ends before"):
        file.copy_to(BytesIO(), 2, 3)
    with pytest.raises(CorruptThrift, match="does not end with a plain footer"):
        file.footer()


def test_memory_of_a_part_is_used_by_the_next() -> None:
    memory = PartMemory()
    first, second = PartFile(memory), PartFile(memory)
    first.write(b"a" * (2 * BLOCK_BYTES))
    second.write(b"b")
    blocks = {id(block) for block in first._blocks}
    first.release()
    third = PartFile(memory)
    third.write(b"c" * (2 * BLOCK_BYTES))
    assert {id(block) for block in third._blocks} == blocks
    assert (second.read(0, 1), third.read(0, 1)) == (b"b", b"c")


def test_arrow_writes_a_file_that_others_read() -> None:
    table = pa.table({"number": range(300_000)})
    file = PartFile(PartMemory())
    with pq.ParquetWriter(pa.PythonFile(file, mode="w"), table.schema, compression="none") as writer:
        writer.write_table(table)
    assert file.tell() > BLOCK_BYTES
    assert file.footer().num_rows == 300_000
    assert pq.read_table(pa.BufferReader(file.read(0, file.tell()))).equals(table)
