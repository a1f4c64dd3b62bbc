"""Statistics whose texts differ in nothing but their values, read as columns.

Whoever writes a table's files writes the same keys in the same order, and then the quotation marks stand at the same
ordinal places of every text. From them follows where the values are, and a column is cut out of all texts in one go,
at a third of what a JSON parser takes. A text fits a layout only if all of its bytes outside of the values are the
layout's own, so what fits means what a parser would make of it. What does not fit is left to one, and so is any value
that is not plainly of its type.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_TOKEN = re.compile(rb'"[^"]*"|[{}:,]|[^\s{}:,"]+')
_ESCAPE = re.compile(rb"\\")
_QUOTE = ord('"')
_OF_NUMBERS = b"0123456789+-.eE"
_BOOLEANS = pa.array(["true", "false"])

Path = tuple[str, ...]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a layout; ``start`` and ``end`` are positions in its text, within the quotation marks if it has them."""

    path: Path
    quoted: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One text of statistics, taken apart.

    1. It is an object of objects and of at least one plain value, without arrays and without escapes.
    2. ``values`` are in the order of the text, and no key occurs twice in its object.
    """

    text: bytes
    values: tuple[Value, ...]
    #: Paths of the objects in it; the outermost is ``()``.
    objects: frozenset[Path]

    @classmethod
    def of(cls, text: bytes) -> Layout | None:
        """``None``: the text is not like that."""
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
        """What stands before, between and after the values."""
        starts = [0, *(value.end for value in self.values)]
        ends = [*(value.start for value in self.values), len(self.text)]
        return [self.text[start:end] for start, end in zip(starts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the values are in the texts of a column that fit a layout."""

    layout: Layout
    data: pa.Buffer
    #: Of all texts, which ones fit.
    fits: npt.NDArray[np.bool_]
    #: Of those: for each value, where it starts and ends in ``data``.
    starts: list[Positions]
    ends: list[Positions]

    @classmethod
    def of(cls, texts: pa.StringArray) -> Cut | None:
        """By the layout of a text of middling length; ``None`` where that would be of little help.

        :param texts: no nulls, and not empty.
        """
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(
            np.int64
        )
        middle = len(texts) // 2
        model = np.argpartition(np.diff(bounds), middle)[middle]
        content = np.frombuffer(data, np.uint8)[: bounds[-1]]
        layout = Layout.of(content[bounds[model] : bounds[model + 1]].tobytes())
        if layout is None or _ESCAPE.search(content[bounds[0] :].data):
            return None
        in_model = np.flatnonzero(np.frombuffer(layout.text, np.uint8) == _QUOTE)
        quotes = np.flatnonzero(content[bounds[0] :] == _QUOTE)
        quotes += bounds[0]
        first = np.searchsorted(quotes, bounds)
        counts = np.diff(first)
        candidates = counts == len(in_model)
        if 2 * np.count_nonzero(candidates) < len(texts):
            return None
        if not candidates.all():
            quotes = quotes[np.repeat(candidates, counts)]
        rows = np.flatnonzero(candidates)
        places = quotes.reshape(-1, len(in_model)).T
        starts, ends = [], []
        for value in layout.values:
            # A value always has its key's marks before it, and there may be none after it.
            after = int(np.searchsorted(in_model, value.end))
            before = int(np.searchsorted(in_model, value.start)) - 1
            starts.append(places[before] + (value.start - in_model[before]))
            if after < len(in_model):
                ends.append(places[after] - (in_model[after] - value.end))
            else:
                ends.append(bounds[rows + 1] - (len(layout.text) - value.end))
        alike = _alike(layout, content, [bounds[rows], *ends], [*starts, bounds[rows + 1]])
        fits = np.zeros(len(texts), np.bool_)
        fits[rows] = alike
        if not alike.all():
            starts, ends = [at[alike] for at in starts], [at[alike] for at in ends]
        return cls(layout, data, fits, starts, ends)

    def array(self, kind: pa.StructType) -> pa.StructArray:
        """The texts that fit, typed.

        :raises pa.ArrowInvalid: a value is not of its type.
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


def _alike(
    layout: Layout, content: npt.NDArray[np.uint8], starts: list[Positions], ends: list[Positions]
) -> npt.NDArray[np.bool_]:
    """Which texts hold what is fixed, and only that, between these positions: outside of the values."""
    alike = np.ones(len(starts[0]), np.bool_)
    for text, start, end in zip(layout.fixed, starts, ends, strict=True):
        alike &= end - start == len(text)
    for start, end in zip(ends[:-1], starts[1:], strict=True):
        alike &= start <= end
    # So far only lengths fit, but what is compared now is no longer than the texts are, and within them.
    for text, start in zip(layout.fixed, starts, strict=True):
        if text:
            # Each position of the content as the start of so many bytes.
            windows = np.ndarray((len(content) - len(text) + 1,), f"S{len(text)}", content, strides=(1,))
            alike[alike] = windows[start[alike]] == text
    return alike


def _between(data: pa.Buffer, starts: Positions, ends: Positions) -> pa.StringArray:
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    # Every other one is what lies between two values.
    alternating = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), data)
    return alternating.take(pa.array(np.arange(0, len(offsets), 2)))


def _converted(texts: pa.StringArray, quoted: bool, kind: pa.DataType) -> pa.Array:
    if quoted:
        plain = pa.types.is_string(kind) or pa.types.is_timestamp(kind)
    elif pa.types.is_boolean(kind):
        plain = pc.all(pc.is_in(texts, value_set=_BOOLEANS)).as_py()
    else:
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        # Arrow also reads infinities, NaN and hexadecimal numbers, which JSON has not.
        plain = number and not texts.buffers()[2].to_pybytes().translate(None, _OF_NUMBERS)
    if not plain:
        raise pa.ArrowInvalid(f"not a plain {kind}")
    return texts.cast(kind)
