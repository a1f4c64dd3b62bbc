"""Reads column chunks by the form that they share with others.

One writer describes the chunks of a leaf in one form: the same fields in the same order, the same type, encodings and codec.
Only numbers and bounds differ. A form is found once, by reading each field of one chunk. Further chunks are compared with it,
which takes a tenth of the time, and that matters where a table has many small files.

1. A chunk has a form exactly if reading it field by field would find the same fields. Everything but the values that the
   module's tables name is compared byte by byte.
2. Reading any bytes ends with a value or with :class:`~parquet_parts.thrift.CorruptThrift`.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from parquet_parts.thrift import (
    BINARY,
    BOOLEAN,
    I16,
    I64,
    LIST,
    STRUCT,
    CorruptThrift,
    Fields,
    encoded_integer,
    end_of,
    integer,
    list_head,
    varint,
)

#: The numbers of fields from ``ColumnChunk`` down to a value.
Path = tuple[int, ...]

# Fields of ColumnChunk: a file, a deprecated offset, the metadata, and the places of the page indexes.
_FILE_PATH, FILE_OFFSET, _META, _CRYPTO, _ENCRYPTED_META = 1, (2,), 3, 8, 9
OFFSET_INDEX, COLUMN_INDEX = ((4,), (5,)), ((6,), (7,))
# Fields of ColumnMetaData.
_TYPE, _ENCODINGS, _PATH, _CODEC, _STATISTICS, _ENCODING_STATS, _SIZES = 1, 2, 3, 4, 12, 13, 16
#: The bytes of all texts, without the bytes of their lengths.
TEXT_BYTES = (_META, _SIZES, 1)
NUM_VALUES, UNCOMPRESSED_BYTES, COMPRESSED_BYTES = (_META, 5), (_META, 6), (_META, 7)
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = (_META, 9), (_META, 10), (_META, 11)
BLOOM_FILTER = ((_META, 14), (_META, 15))
# Fields of Statistics: the bounds in the present and in the deprecated form, and whether they are exact.
NULL_COUNT = (_META, _STATISTICS, 3)
LOW, HIGH = (_META, _STATISTICS, 6), (_META, _STATISTICS, 5)
#: Each bound of the deprecated form with its present one.
OLD_BOUNDS = (((_META, _STATISTICS, 2), LOW), ((_META, _STATISTICS, 1), HIGH))
_OLD_BOUNDS, _BOUNDS, _EXACT = (1, 2), (5, 6), (7, 8)

#: Values that differ from chunk to chunk.
_NUMBERS = frozenset(
    {
        *(FILE_OFFSET, *OFFSET_INDEX, *COLUMN_INDEX, NUM_VALUES, UNCOMPRESSED_BYTES, COMPRESSED_BYTES),
        *(DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, *BLOOM_FILTER, NULL_COUNT, (_META, _STATISTICS, 4)),
    }
)
_BYTES = frozenset((_META, _STATISTICS, number) for number in (*_OLD_BOUNDS, *_BOUNDS))
#: Structs whose fields are read, and lists of structs or numbers whose numbers differ.
_STRUCTS = frozenset({(_META,), (_META, _STATISTICS), (_META, _SIZES)})
_LISTS = frozenset({(_META, _ENCODING_STATS), (_META, _SIZES, 2), (_META, _SIZES, 3)})
#: A longer list is compared byte by byte.
_LONGEST_LIST = 64

_TEXTS = 6
# Numbers of Encoding.
_PLAIN, _OLD_DICTIONARY, DELTA_BYTE_ARRAY = 0, 2, 7
#: The encodings that use a dictionary, and those that store differences.
DICTIONARIES, DELTAS = frozenset({_OLD_DICTIONARY, 8}), frozenset({5, 6, DELTA_BYTE_ARRAY})
#: Constants from this length on are no part of a pattern: they hold the name of the leaf.
_LONG_BYTES = 12
#: One number, and a header of a field with the number.
_NUMBER = rb"([\x80-\xff]{0,9}[\x00-\x7f])"

ZERO = encoded_integer(0)

Values = list[bytes]
_Place = tuple[Path, int, int, int]


class ChunkTemplate(Struct, frozen=True, eq=False):
    """What a column chunk says but for the values that differ.

    :param places: the number of each value, by its path.
    :param leaf: the names of the leaf from the top down.
    :param encodings: numbers of ``Encoding``.
    """

    places: dict[Path, int]
    leaf: tuple[bytes, ...]
    physical_type: int
    codec: int
    encodings: tuple[int, ...]
    is_encrypted: bool
    is_elsewhere: bool
    #: Whether the upper and the lower bound are values of the chunk; ``None``: it does not say so.
    are_bounds_exact: tuple[bool | None, bool | None]
    #: Bytes before, between and behind the values; at odd places ``b""``.
    _parts: list[bytes]
    #: The patterns of the bytes between texts, which say their own length, and between long constants. Most forms are never met again,
    #: so they wait.
    _sources: tuple[bytes, ...]
    #: What stands between two patterns: a constant, which no other leaf has, or a text (``None``).
    _between: tuple[bytes | None, ...]
    #: The numbers of the values that say where pages are, and of those that :attr:`ColumnChunk.place` follows from: where the first
    #: data page is, where the dictionary is, and how long all pages are; ``None``: there is no such value.
    offsets: tuple[int, ...]
    extent: tuple[int | None, int | None, int | None]
    #: Whether it names page indexes or a Bloom filter, and whether it has bounds of the deprecated form.
    names_parts: bool
    has_old_bounds: bool
    _compiled: list[re.Pattern[bytes]] = field(default_factory=list)
    #: The form after each edit, and the numbers of the values that it has left.
    _edited: dict[str, tuple[ChunkTemplate, list[int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes, at: int) -> tuple[ChunkTemplate, Values, int]:
        """Read a chunk field by field. Return its form, its values, and where it ends.

        :raises CorruptThrift: the bytes are no column chunk.
        """
        found: list[_Place] = []
        end = _read_struct(data, at, (), found)
        content = data[at:end]
        top = Fields.from_bytes(content, {_META: {}})
        meta = top.struct(_META)
        if meta is None:
            is_encrypted = _CRYPTO in top or _ENCRYPTED_META in top
            raise CorruptThrift(at, f"a column chunk {'is encrypted' if is_encrypted else 'has no metadata'}")
        physical_type = meta.required_number(_TYPE)
        parts: list[bytes] = []
        patterns: list[bytes] = []
        between: list[bytes | None] = []
        pattern, last = b"", at
        for _, kind, start, stop in found:
            constant = data[last:start]
            parts += [constant, b""]
            if len(constant) < _LONG_BYTES:
                pattern += re.escape(constant)
            else:
                patterns.append(pattern)
                between.append(constant)
                pattern = b""
            if kind != BINARY:
                pattern += _NUMBER
            elif physical_type != _TEXTS:
                before, _ = _split(data, start)
                pattern += b"(" + re.escape(before) + b".{%d})" % (stop - start - len(before))
            else:
                patterns.append(pattern)
                between.append(None)
                pattern = b""
            last = stop
        parts.append(data[last:end])
        patterns.append(pattern + re.escape(data[last:end]))
        places = {path: number for number, (path, _, _, _) in enumerate(found)}
        form = cls(
            places,
            meta.binaries(_PATH),
            physical_type,
            meta.required_number(_CODEC),
            _encodings(meta),
            _CRYPTO in top or _ENCRYPTED_META in top,
            _FILE_PATH in top,
            _exactness(meta),
            parts,
            tuple(patterns),
            tuple(between),
            tuple(places[path] for path in (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE) if path in places),
            (places.get(DATA_PAGE), places.get(DICTIONARY_PAGE), places.get(COMPRESSED_BYTES)),
            any(part[0] in places for part in (OFFSET_INDEX, COLUMN_INDEX, BLOOM_FILTER)),
            any(old in places for old, _ in OLD_BOUNDS),
        )
        return form, [data[start:stop] for _, _, start, stop in found], end

    def match(self, data: bytes, at: int) -> tuple[Values, int] | None:
        """Read a chunk of this form. Return its values and where it ends; ``None`` if it has another form.

        :raises IndexError: the bytes end too early.
        """
        patterns = self._compiled
        if not patterns:
            # ``re`` remembers the patterns, which the leaves of a type share.
            patterns += [re.compile(source, re.DOTALL) for source in self._sources]
        found = patterns[0].match(data, at)
        if found is None:
            return None
        values, at = list(found.groups()), found.end()
        number = 1
        for constant in self._between:
            if constant is not None:
                if not data.startswith(constant, at):
                    return None
                at += len(constant)
            else:
                start = at
                length, at = varint(data, at)
                at += length
                values.append(data[start:at])
            found = patterns[number].match(data, at)
            if found is None:
                return None
            values += found.groups()
            at = found.end()
            number += 1
        return values, at

    def to_bytes(self, values: Values) -> bytes:
        parts = self._parts.copy()
        parts[1::2] = values
        return b"".join(parts)

    def pages_moved(self, values: Values, by: int) -> bytes:
        """Return the bytes of a chunk whose pages lie ``by`` bytes further on. They say what a reader of all pages needs, and no more.

        :param values: values of a chunk of this form. They are not changed.
        """
        form, kept = self.edited("pages only", values)
        form.move(kept, by)
        return form.to_bytes(kept)

    def move(self, values: Values, by: int) -> None:
        """Put the pages ``by`` bytes further on."""
        for offset in self.offsets:
            # Some writers say 0 where there is no dictionary.
            if values[offset] != ZERO:
                values[offset] = encoded_integer(integer(values[offset]) + by)
        # Deprecated: writers should say 0.
        place = self.places.get(FILE_OFFSET)
        if place is not None:
            values[place] = ZERO

    def edited(self, edit: str, values: Values) -> tuple[ChunkTemplate, Values]:
        """Return the form and the values of a chunk after one of the edits below. ``values`` have this form."""
        known = self._edited.get(edit)
        if known is None:
            chunk = Fields.from_bytes(self.to_bytes(values), {_META: {_STATISTICS: {}}})
            _EDITS[edit](chunk)
            form = ChunkTemplate.read(chunk.to_bytes(), 0)[0]
            known = self._edited[edit] = form, [self.places[path] for path in form.places]
        form, kept = known
        return form, [values[number] for number in kept]


def _without_indexes(chunk: Fields) -> None:
    chunk.drop(*(path[0] for path in (*OFFSET_INDEX, *COLUMN_INDEX)))


def _without_old_bounds(chunk: Fields) -> None:
    _drop_statistics(chunk, *_OLD_BOUNDS)


def _without_bounds(chunk: Fields) -> None:
    _drop_statistics(chunk, *_OLD_BOUNDS, *_BOUNDS, *_EXACT)
    _without_column_index(chunk)


def _without_column_index(chunk: Fields) -> None:
    chunk.drop(*(path[0] for path in COLUMN_INDEX))


def _without_membership(chunk: Fields) -> None:
    meta = chunk.struct(_META)
    assert meta is not None
    meta.drop(_ENCODING_STATS, *(path[1] for path in BLOOM_FILTER))
    # Without `encoding_stats` parquet-java takes the old name of the dictionary's encoding as the claim, if no other stands there.
    encodings = _encodings(meta)
    if _OLD_DICTIONARY in encodings and _PLAIN not in encodings:
        meta.put_numbers(_ENCODINGS, (*encodings, _PLAIN))


def _pages_only(chunk: Fields) -> None:
    meta = chunk.struct(_META)
    assert meta is not None
    _without_indexes(chunk)
    meta.drop(_STATISTICS, _ENCODING_STATS, _SIZES, *(path[1] for path in BLOOM_FILTER))


_EDITS = {
    "pages only": _pages_only,
    "without old bounds": _without_old_bounds,
    "without bounds": _without_bounds,
    "without column index": _without_column_index,
    "without membership": _without_membership,
}


def _drop_statistics(chunk: Fields, *numbers: int) -> None:
    meta = chunk.struct(_META)
    assert meta is not None
    statistics = meta.struct(_STATISTICS)
    if statistics is not None:
        statistics.drop(*numbers)


def _encodings(meta: Fields) -> tuple[int, ...]:
    return meta.numbers(_ENCODINGS)


def _exactness(meta: Fields) -> tuple[bool | None, bool | None]:
    kind, raw = meta.get(_STATISTICS, (STRUCT, b"\0"))
    if kind != STRUCT:
        raise CorruptThrift(0, "statistics are no struct")
    kinds = [Fields.from_bytes(raw, {}).get(number, (None, b""))[0] for number in _EXACT]
    high, low = (None if kind is None else kind == BOOLEAN for kind in kinds)
    return high, low


def _split(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes that tell the length of a binary value, and the length."""
    length, start = varint(data, at)
    return data[at:start], length


def _read_struct(data: bytes, at: int, path: Path, found: list[_Place]) -> int:
    number, seen = 0, set()
    while data[at]:
        number, kind, at = _field_head(data, at, number)
        if number in seen:
            raise CorruptThrift(at, f"field {number} stands here twice")
        seen.add(number)
        at = _read_value(data, at, kind, (*path, number), found)
    return at + 1


def _field_head(data: bytes, at: int, number: int) -> tuple[int, int, int]:
    """Return the number of a field, its kind, and where its value begins.

    :param number: number of the field before it.
    """
    head = data[at]
    if head >> 4:
        return number + (head >> 4), head & 15, at + 1
    raw, at = varint(data, at + 1)
    return (raw >> 1) ^ -(raw & 1), head & 15, at


def _read_value(data: bytes, at: int, kind: int, path: Path, found: list[_Place]) -> int:
    start = at
    if path in _NUMBERS or path == TEXT_BYTES:
        at = _number_end(data, at, kind, path)
        found.append((path, I64, start, at))
    elif path in _BYTES:
        if kind != BINARY:
            raise CorruptThrift(at, f"field {path[-1]} holds no bytes")
        at = end_of(data, at, kind)
        found.append((path, BINARY, start, at))
    elif path in _STRUCTS:
        if kind != STRUCT:
            raise CorruptThrift(at, f"field {path[-1]} holds no struct")
        at = _read_struct(data, at, path, found)
    elif path in _LISTS and kind == LIST:
        item_kind, count, first = list_head(data, at)
        if count > _LONGEST_LIST or not (item_kind == STRUCT or I16 <= item_kind <= I64):
            return end_of(data, at, kind)
        at = first
        for number in range(count):
            at = _read_item(data, at, item_kind, (*path, number), found)
    else:
        at = end_of(data, at, kind)
    return at


def _read_item(data: bytes, at: int, kind: int, path: Path, found: list[_Place]) -> int:
    if kind == STRUCT:
        return _read_encoding_stats(data, at, path, found)
    end = _number_end(data, at, kind, path)
    found.append((path, I64, at, end))
    return end


def _read_encoding_stats(data: bytes, at: int, path: Path, found: list[_Place]) -> int:
    """Read one ``PageEncodingStats``, of which the count of pages differs."""
    number, counted = 0, False
    while data[at]:
        number, kind, at = _field_head(data, at, number)
        end = end_of(data, at, kind)
        if number == 3 and not counted and I16 <= kind <= I64:
            found.append((path, I64, at, end))
            counted = True
        at = end
    return at + 1


def _number_end(data: bytes, at: int, kind: int, path: Path) -> int:
    if not I16 <= kind <= I64:
        raise CorruptThrift(at, f"field {path[-1]} holds no number")
    return varint(data, at)[1]
