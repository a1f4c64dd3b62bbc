"""Column chunks that are compared with a known form: the same values as by reading them field by field."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.thrift_struct import ThriftList, ThriftStruct, Typed
from tests.support.repetition import examples

from parquet_parts.chunk_template import ChunkTemplate
from parquet_parts.footer import ColumnChunk
from parquet_parts.thrift import BINARY, BOOLEAN, I32, I64, LIST, STRUCT, CorruptThrift

_NUMBERS = st.integers(-(1 << 62), 1 << 62) | st.integers(0, 200)
_TEXTS = st.binary(max_size=140)


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def _chunks(draw: st.DrawFn) -> ThriftStruct:
    """A column chunk with any of the fields that the format knows, and with unknown ones."""

    def struct(**fields: Any) -> dict[int, Typed]:
        found = {int(name[1:]): Typed(kind, draw(values)) for name, (kind, values) in fields.items()}
        return {number: field for number, field in found.items() if field.value is not None}

    bounds = st.binary(min_size=8, max_size=8) if draw(st.booleans()) else _TEXTS
    statistics = struct(
        _1=(BINARY, _maybe(bounds)),
        _2=(BINARY, _maybe(bounds)),
        _3=(I64, _maybe(_NUMBERS)),
        _4=(I64, _maybe(_NUMBERS)),
        _5=(BINARY, _maybe(bounds)),
        _6=(BINARY, _maybe(bounds)),
        _7=(BOOLEAN, _maybe(st.booleans())),
        _9=(BINARY, _maybe(_TEXTS)),
    )
    counts = st.lists(_NUMBERS, max_size=20).map(lambda items: ThriftList(I64, tuple(items)))
    stats = st.lists(
        st.builds(
            lambda page, encoding, count: ThriftStruct(
                {1: Typed(I32, page), 2: Typed(I32, encoding), 3: Typed(I32, count)}
            ),
            st.integers(0, 3),
            st.integers(0, 9),
            st.integers(0, 1 << 30),
        ),
        max_size=3,
    ).map(lambda items: ThriftList(STRUCT, tuple(items)))
    meta = {
        1: Typed(I32, draw(st.sampled_from([1, 2, 5, 6]))),
        2: Typed(LIST, ThriftList(I32, tuple(draw(st.lists(st.sampled_from([0, 2, 3]), max_size=3))))),
        3: Typed(LIST, ThriftList(BINARY, (b"a", b"b"))),
        4: Typed(I32, draw(st.integers(0, 7))),
        **struct(
            _5=(I64, _NUMBERS),
            _6=(I64, _NUMBERS),
            _7=(I64, _NUMBERS),
            _9=(I64, _NUMBERS),
            _10=(I64, _maybe(_NUMBERS)),
            _11=(I64, _maybe(_NUMBERS)),
        ),
    }
    if statistics:
        meta[12] = Typed(STRUCT, ThriftStruct(statistics))
    meta |= struct(
        _13=(LIST, _maybe(stats)), _14=(I64, _maybe(_NUMBERS)), _15=(I32, _maybe(st.integers(0, 99)))
    )
    sizes = struct(_1=(I64, _maybe(_NUMBERS)), _2=(LIST, _maybe(counts)), _3=(LIST, _maybe(counts)))
    meta |= {16: Typed(STRUCT, ThriftStruct(sizes))}
    meta |= struct(_99=(BINARY, _maybe(_TEXTS)))
    top = struct(
        _2=(I64, _NUMBERS),
        _4=(I64, _maybe(_NUMBERS)),
        _5=(I32, _maybe(st.integers(0, 999))),
        _6=(I64, _maybe(_NUMBERS)),
        _7=(I32, _maybe(st.integers(0, 999))),
        _77=(BINARY, _maybe(_TEXTS)),
    )
    return ThriftStruct(dict(sorted({**top, 3: Typed(STRUCT, ThriftStruct(meta))}.items())))


def _read(data: bytes) -> tuple[list[bytes], int] | None:
    try:
        _, values, end = ChunkTemplate.read(data, 0)
    except (CorruptThrift, IndexError):
        return None
    return values, end


@examples(100)
@given(chunk=_chunks(), other=_chunks(), data=st.data())
def test_a_chunk_of_a_known_form_has_the_values_of_its_fields(
    chunk: ThriftStruct, other: ThriftStruct, data: st.DataObject
) -> None:
    content = chunk.to_bytes()
    form, values, end = ChunkTemplate.read(content + b"next", 0)
    assert end == len(content)
    assert form.to_bytes(values) == content
    assert form.match(content + b"next", 0) == (values, end)
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for candidate in (bytes(changed), other.to_bytes(), content[: data.draw(st.integers(0, len(content)))]):
        try:
            found = form.match(candidate + b"\0\0", 0)
        except (CorruptThrift, IndexError):
            continue
        if found is not None:
            assert found == _read(candidate + b"\0\0")
            assert form.to_bytes(found[0]) == (candidate + b"\0\0")[: found[1]]


def _meta(chunk: ColumnChunk) -> ThriftStruct:
    found = ThriftStruct.from_bytes(chunk.to_bytes()).get(3)
    assert isinstance(found, ThriftStruct)
    return found


@examples(100)
@given(chunk=_chunks())
def test_an_edited_chunk_lacks_the_claims_and_keeps_the_rest(chunk: ThriftStruct) -> None:
    form, values, _ = ChunkTemplate.read(chunk.to_bytes(), 0)
    before = chunk.get(3)
    for _ in range(2):
        edited = ColumnChunk(form, values).without_bounds()
        statistics = before.get(12)
        if statistics is not None:
            statistics = statistics.without(1, 2, 5, 6, 7, 8)
        assert _meta(edited).get(12) == statistics
        assert _meta(edited).without(12) == before.without(12)
        assert ThriftStruct.from_bytes(edited.to_bytes()).without(3) == chunk.without(3, 6, 7)

        edited = ColumnChunk(form, values).without_membership()
        assert _meta(edited).without(2) == before.without(2, 13, 14, 15)
        encodings = _meta(edited).get(2).items
        # parquet-java would take the encodings' word for it that each page has a dictionary.
        assert encodings == before.get(2).items or (encodings[-1] == 0 and 2 in encodings)
        assert 2 not in encodings or 0 in encodings

        edited = ColumnChunk(form, values).without_old_bounds()
        assert edited.bounds == ColumnChunk(form, values).bounds


@examples(100)
@given(chunk=_chunks(), by=st.integers(-(1 << 40), 1 << 40))
def test_a_moved_chunk_names_the_new_places_of_its_pages(chunk: ThriftStruct, by: int) -> None:
    form, values, _ = ChunkTemplate.read(chunk.to_bytes(), 0)
    moved = ThriftStruct.from_bytes(ColumnChunk(form, values).moved(by).to_bytes())
    assert moved.get(2) == 0
    assert moved.without(2, 3) == chunk.without(2, 3)
    for number, (_, value) in chunk.get(3).fields.items():
        expected = value + by if number in (9, 10, 11) and value else value
        assert moved.get(3).get(number) == expected
