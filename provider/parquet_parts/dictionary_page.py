"""Reads what the header of a dictionary page tells of the values in it (``PageHeader`` of ``parquet.thrift``)."""

from __future__ import annotations

import re

from msgspec import Struct

from parquet_parts.page_index import number_of
from parquet_parts.thrift_compact import CorruptThrift, ThriftStruct
from parquet_parts.thrift_fields import integer

# Fields of PageHeader and of DictionaryPageHeader.
_PAGE_TYPE, _UNCOMPRESSED_BYTES, _DICTIONARY_HEADER, _NUM_VALUES = 1, 2, 7, 1
_DICTIONARY_PAGE = 2
_NUMBER = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
#: A header as most writers write it: the page's type, its bytes without and with compression, perhaps a checksum, the number of
#: values, their encoding, which is that of plain values by its present or its old name, perhaps whether they are sorted. It is not
#: decoded field by field, since a table has very many of them.
USUAL_HEADER = re.compile(
    rb"\x15\x04\x15(?P<bytes>%b)\x15(?P<compressed>%b)(?:\x15(?P<checksum>%b)\x3c|\x4c)\x15(?P<values>%b)\x15[\x00\x04][\x11\x12]?\x00\x00"
    % ((_NUMBER,) * 4)
)
#: A header of a dictionary page is shorter than this.
HEADER_BYTES = 64
#: The length before each text.
_LENGTH_BYTES = 4


class Dictionary(Struct, frozen=True):
    """The number of values in a column chunk's dictionary, and the bytes of all of them."""

    num_values: int
    num_bytes: int

    @property
    def widest_bytes(self) -> int:
        """The most bytes that one text may have: the others have four for their length."""
        return self.num_bytes - _LENGTH_BYTES * (self.num_values - 1)

    def most_bytes(self, num_texts: int) -> int:
        """Return the most bytes that so many texts may have, if each one of the dictionary is among them."""
        return self.num_bytes + max(0, num_texts - self.num_values) * max(0, self.widest_bytes)


def dictionary_of_header(content: bytes) -> Dictionary | None:
    """Read the header of a page; ``None`` if it is not that of a dictionary.

    :param content: begins with the header.
    """
    usual = USUAL_HEADER.match(content)
    if usual is not None:
        return Dictionary(max(1, integer(usual["values"])), max(0, integer(usual["bytes"])))
    try:
        page, _ = ThriftStruct.first_of(content)
        if page.get(_PAGE_TYPE) != _DICTIONARY_PAGE:
            return None
        header = page.get(_DICTIONARY_HEADER)
        num_values = number_of(header, _NUM_VALUES) if isinstance(header, ThriftStruct) else 0
        return Dictionary(max(1, num_values), max(0, number_of(page, _UNCOMPRESSED_BYTES)))
    except CorruptThrift:
        return None  # it is asked for estimates; reading the rows tells what is broken
