"""The end of a Parquet file, held back until it says nothing that a reader could be led astray by.

Arrow's writer knows one setting for a whole file, and whether the bounds of a leaf can be told depends on the values of each
row group. So what the writer sends when it is closed (Bloom filters, page index, footer) is kept in memory, the footer is
edited, and then it is sent. What was sent before is never touched, so a store may have it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from delta_log.parquet.metadata import edited, footer_bytes, split_footer, without_bounds, without_membership
from delta_log.parquet.thrift_compact import ThriftStruct
from delta_maintenance.rewrite.float_leaves import OddValues


class HeldTail:
    """A file for Arrow's writer: what is written goes on to the file, until :meth:`hold`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held: bytearray | None = None

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> int:
        if self._held is None:
            return self._file.write(data)
        self._held += data
        return len(data)

    def flush(self) -> None:
        if self._held is None:
            self._file.flush()

    def hold(self) -> None:
        """Keep what comes from now on."""
        self._held = bytearray()

    def release(self, found: Sequence[OddValues]) -> None:
        """Send what was kept, with a footer that fits the values.

        :param found: in each row group.
        """
        assert self._held is not None
        tail, self._held = bytes(self._held), None
        before, footer = split_footer(tail)
        self._file.write(before + footer_bytes(truthful(footer, found)))


def truthful(footer: ThriftStruct, found: Sequence[OddValues]) -> ThriftStruct:
    """The footer without what does not hold for such values, see :mod:`delta_maintenance.rewrite.float_leaves`."""

    def edit(group: int, leaf: int, chunk: ThriftStruct) -> ThriftStruct:
        if leaf in found[group].nan:
            chunk = without_bounds(chunk)
        if leaf in found[group].nan | found[group].zero:
            chunk = without_membership(chunk)
        return chunk

    return edited(footer, edit)
