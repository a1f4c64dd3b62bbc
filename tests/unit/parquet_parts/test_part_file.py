"""A file in memory: what was written in pieces is read, whatever becomes of the memory that it was written from."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parquet_parts.part_file import PartFile
from parquet_parts.thrift import CorruptThrift

SIZES = st.integers(0, 200) | st.sampled_from([0, 1 << 20])


@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=6), st.data())
def test_what_was_written_in_pieces_is_read(pieces: list[tuple[int, bool]], data: st.DataObject) -> None:
    file, expected = PartFile(), b""
    for number, (size, is_view) in enumerate(pieces):
        piece = bytearray([number + 1]) * size
        expected += piece
        assert file.write(memoryview(piece) if is_view else bytes(piece)) == size
        piece[:] = bytes(size)  # its owner uses the memory again
    assert file.tell() == len(expected)
    start = data.draw(st.integers(0, len(expected)))
    length = data.draw(st.integers(0, len(expected) - start))
    assert file.read(start, length) == expected[start : start + length]
    copied = BytesIO()
    file.copy_to(copied, start, length)
    assert copied.getvalue() == expected[start : start + length]
    file.release()
    assert (file.tell(), file.read(0, 1)) == (0, b"")


def test_a_file_that_ends_early_is_refused() -> None:
    file = PartFile()
    file.write(b"1234")
    with pytest.raises(CorruptThrift, match="the file ends before"):
        file.copy_to(BytesIO(), 2, 3)
    with pytest.raises(CorruptThrift, match="does not end with a plain footer"):
        file.footer()


def test_arrow_writes_a_file_that_others_read() -> None:
    table = pa.table({"number": range(300_000)})
    file = PartFile()
    with pq.ParquetWriter(pa.PythonFile(file, mode="w"), table.schema, compression="none") as writer:
        writer.write_table(table)
    assert file.tell() > 1 << 20
    assert file.footer().num_rows == 300_000
    assert pq.read_table(pa.BufferReader(file.read(0, file.tell()))).equals(table)
