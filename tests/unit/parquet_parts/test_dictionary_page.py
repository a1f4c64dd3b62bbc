"""What the header of a dictionary page tells: how many values there are, and how wide they may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parquet_parts.dictionary_page import Dictionary, dictionary_of_header
from parquet_parts.thrift_compact import BOOLEAN, I32, STRUCT, ThriftStruct, Typed


@given(
    kind=st.sampled_from([0, 2, 3]),
    num_bytes=st.integers(-5, 2**31 - 1) | st.integers(0, 1 << 20),
    compressed=st.integers(-5, 2**31 - 1),
    checksum=st.none() | st.integers(-(2**31), 2**31 - 1),
    num_values=st.integers(-5, 2**31 - 1) | st.integers(0, 1 << 17),
    is_sorted=st.none() | st.booleans(),
    later=st.booleans(),
    behind=st.binary(max_size=8),
)
def test_any_header_of_a_page_tells_its_dictionary(
    kind: int,
    num_bytes: int,
    compressed: int,
    checksum: int | None,
    num_values: int,
    is_sorted: bool | None,
    later: bool,
    behind: bytes,
) -> None:
    values = {1: Typed(I32, num_values), 2: Typed(I32, 0)}
    if is_sorted is not None:
        values[3] = Typed(BOOLEAN, is_sorted)
    fields = {1: Typed(I32, kind), 2: Typed(I32, num_bytes), 3: Typed(I32, compressed)}
    if checksum is not None:
        fields[4] = Typed(I32, checksum)
    fields[7] = Typed(STRUCT, ThriftStruct(values))
    if later:
        fields[9] = Typed(I32, 5)
    dictionary = dictionary_of_header(ThriftStruct(fields).to_bytes() + behind)
    if kind != 2:
        assert dictionary is None
    else:
        assert dictionary is not None
        assert (dictionary.num_values, dictionary.num_bytes) == (max(1, num_values), max(0, num_bytes))


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5, unique=True), st.data())
def test_texts_have_no_more_bytes_than_the_widest_may_have(texts: list[bytes], data: st.DataObject) -> None:
    dictionary = Dictionary(len(texts), sum(4 + len(text) for text in texts))
    rows = [*texts, *data.draw(st.lists(st.sampled_from(texts), max_size=9))]

    assert sum(map(len, rows)) <= dictionary.most_bytes(len(rows))
    assert max(map(len, texts)) <= dictionary.widest_bytes
