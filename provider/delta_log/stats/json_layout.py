"""Reads JSON statistics that differ only in their values as columns, without parsing each text.

A writer puts the same keys in the same order into each text. So the n-th quotation mark of every text has the same meaning,
and the positions of the marks give the positions of the values. Each value is then cut out of all texts at once, in about half
of the time of Arrow's JSON parser (``benchmarks/stats_columns.py``).

A text fits a layout only if all of its bytes outside the values equal those of the layout, so the result is what a parser would
return. The caller parses the texts that do not fit. A value that is not a plain value of its type ends the attempt for all.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

if TYPE_CHECKING:
    import numpy.typing as npt

_TOKEN = re.compile(rb'"[^"]*"|[{}:,]|[^\s{}:,"]+')
_ESCAPE = re.compile(rb"\\")
_QUOTE = ord('"')
_OF_NUMBERS = b"0123456789+-.eE"
_BOOLEANS = pa.array(["true", "false"], pa.string())

Path = tuple[str, ...]
Positions: TypeAlias = "npt.NDArray[np.int64]"


class Value(Struct, frozen=True):
    """A value of a layout.

    :param start: its start in the layout's text, within the quotation marks if it has them; ``end`` likewise.
    """

    path: Path
    quoted: bool
    start: int
    end: int


class Layout(Struct, frozen=True):
    """The parts of one text of statistics.

    1. The text is an object of objects and at least one plain value, without arrays and without escapes.
    2. ``values`` are in the order of the text. No key occurs twice in an object.
    """

    text: bytes
    values: tuple[Value, ...]
    #: Paths of the objects in it; the outermost is ``()``.
    objects: frozenset[Path]

    @classmethod
    def of(cls, text: bytes) -> Layout | None:
        """Take a text apart; ``None`` if it is not such an object."""
        try:
            if b"\\" in text or b"[" in text or not isinstance(json.loads(text), dict):
                return None
        except (ValueError, RecursionError):
            return None
        values: list[Value] = []
        # The path of the innermost open object, after a placeholder for the outermost.
        opened: list[str] = []
        objects: list[Path] = []
        key: str | None = None
        for token in _TOKEN.finditer(text):
            mark = token[0]
            if mark == b"{":
                opened.append(key or "")
                objects.append(tuple(opened[1:]))
                key = None
            elif mark == b"}":
                opened.pop()
            elif mark == b",":
                key = None
            elif key is None:
                key = mark[1:-1].decode()
            elif mark != b":":
                quoted = mark.startswith(b'"')
                values.append(Value((*opened[1:], key), quoted, token.start() + quoted, token.end() - quoted))
        paths = [*objects, *(value.path for value in values)]
        return (
            cls(text, tuple(values), frozenset(objects)) if values and len(set(paths)) == len(paths) else None
        )

    @property
    def fixed(self) -> list[bytes]:
        """The bytes before, between and after the values."""
        starts = [0, *(value.end for value in self.values)]
        ends = [*(value.start for value in self.values), len(self.text)]
        return [self.text[start:end] for start, end in zip(starts, ends, strict=True)]


class Cut(Struct, frozen=True):
    """The positions of the values in those texts of a column that fit a layout.

    :param fits: tells for each text of the column whether it fits.
    :param starts: for each value of the layout, its start in ``data`` in each text that fits; ``ends`` likewise.
    """

    layout: Layout
    data: pa.Buffer
    fits: npt.NDArray[np.bool_]
    starts: list[Positions]
    ends: list[Positions]

    @classmethod
    def of(cls, texts: pa.StringArray) -> Cut | None:
        """Cut texts by the layout of one with the median length; ``None`` if less than half of them could fit it.

        :param texts: at least one, without nulls.
        """
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(
            np.int64
        )
        content = np.frombuffer(data, np.uint8)[: bounds[-1]]
        middle = len(texts) // 2
        median = np.argpartition(np.diff(bounds), middle)[middle]
        layout = Layout.of(content[bounds[median] : bounds[median + 1]].tobytes())
        if layout is None or _ESCAPE.search(content[bounds[0] :].data):
            return None
        marks = np.flatnonzero(np.frombuffer(layout.text, np.uint8) == _QUOTE)
        rows, places = _with_marks(content, bounds, len(marks))
        if 2 * len(rows) < len(texts):
            return None
        starts, ends = _positions(layout, marks, places, bounds[rows + 1])
        alike = _alike(layout, content, [bounds[rows], *ends], [*starts, bounds[rows + 1]])
        fits = np.zeros(len(texts), np.bool_)
        fits[rows] = alike
        if not alike.all():
            starts, ends = [at[alike] for at in starts], [at[alike] for at in ends]
        return cls(layout, data, fits, starts, ends)

    def array(self, kind: pa.StructType) -> pa.StructArray:
        """Return the texts that fit as structs.

        :raises pa.ArrowInvalid: a value is not a plain value of its type.
        """
        return self._member((), kind)

    def _member(self, path: Path, kind: pa.DataType) -> pa.Array:
        for value, starts, ends in zip(self.layout.values, self.starts, self.ends, strict=True):
            if value.path == path:
                return _converted(_between(self.data, starts, ends), value.quoted, kind)
        if path not in self.layout.objects:
            return pa.nulls(int(self.fits.sum()), kind)
        if not pa.types.is_struct(kind):
            raise pa.ArrowInvalid(f"{'.'.join(path)} is an object")
        members = [self._member((*path, field.name), field.type) for field in kind]
        if not members:
            return pa.array([{}] * int(self.fits.sum()), kind)
        return pa.StructArray.from_arrays(members, fields=list(kind))


def _with_marks(
    content: npt.NDArray[np.uint8], bounds: Positions, num_marks: int
) -> tuple[Positions, Positions]:
    """Find the texts with as many quotation marks as the layout.

    :param bounds: the start of each text in the content, and the end of the last one.
    :returns: the numbers of these texts, and the position of each mark (rows) in each of them (columns).
    """
    quotes = np.flatnonzero(content[bounds[0] :] == _QUOTE)
    quotes += bounds[0]
    counts = np.diff(np.searchsorted(quotes, bounds))
    candidates = counts == num_marks
    if not candidates.all():
        quotes = quotes[np.repeat(candidates, counts)]
    return np.flatnonzero(candidates), quotes.reshape(-1, num_marks).T


def _positions(
    layout: Layout, marks: Positions, places: Positions, text_ends: Positions
) -> tuple[list[Positions], list[Positions]]:
    """Find the start and the end of each value of the layout in each text, by the distance to the nearest mark.

    :param marks: positions of the marks in the layout's text.
    :param places: their positions in each text.
    """
    starts, ends = [], []
    for value in layout.values:
        # The marks of its key precede each value; no mark may follow it.
        after = int(np.searchsorted(marks, value.end))
        before = int(np.searchsorted(marks, value.start)) - 1
        starts.append(places[before] + (value.start - marks[before]))
        if after < len(marks):
            ends.append(places[after] - (marks[after] - value.end))
        else:
            ends.append(text_ends - (len(layout.text) - value.end))
    return starts, ends


def _alike(
    layout: Layout, content: npt.NDArray[np.uint8], starts: list[Positions], ends: list[Positions]
) -> npt.NDArray[np.bool_]:
    """Tell which texts hold the layout's fixed bytes, and nothing else, outside their values."""
    alike = np.ones(len(starts[0]), np.bool_)
    for text, start, end in zip(layout.fixed, starts, ends, strict=True):
        alike &= end - start == len(text)
    for start, end in zip(ends[:-1], starts[1:], strict=True):
        alike &= start <= end
    # All lengths fit now, so each comparison below stays within its text.
    for text, start in zip(layout.fixed, starts, strict=True):
        if text:
            # A view of the content as overlapping windows, one for each position.
            windows = np.ndarray((len(content) - len(text) + 1,), f"S{len(text)}", content, strides=(1,))
            alike[alike] = windows[start[alike]] == text
    return alike


def _between(data: pa.Buffer, starts: Positions, ends: Positions) -> pa.StringArray:
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    # Every second text is what lies between two values.
    alternating = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), data)
    return alternating.take(pa.array(np.arange(0, len(offsets), 2)))


def _converted(texts: pa.StringArray, quoted: bool, kind: pa.DataType) -> pa.Array:
    if quoted:
        plain = pa.types.is_string(kind) or pa.types.is_timestamp(kind)
    elif pa.types.is_boolean(kind):
        plain = pc.all(pc.is_in(texts, value_set=_BOOLEANS)).as_py()
    else:
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        # Arrow also parses infinities, NaN and hexadecimal numbers, which JSON does not have.
        plain = number and not texts.buffers()[2].to_pybytes().translate(None, _OF_NUMBERS)
    if not plain:
        raise pa.ArrowInvalid(f"not a plain {kind}")
    return texts.cast(kind)
