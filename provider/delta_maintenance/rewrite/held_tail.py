"""Holds back the end of a Parquet file to remove bounds from its footer that would mislead readers.

Arrow's writer has one setting for a whole file, but whether a leaf may have bounds depends on the values of each row group. So
the bytes that the writer writes on close (Bloom filters, page index, footer) stay in memory until the footer is edited. Bytes
before them are never changed, so a store may have them already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from delta_log.parquet.metadata import edited, footer_bytes, split_footer, without_bounds, without_membership
from delta_log.parquet.thrift_compact import ThriftStruct
from delta_maintenance.rewrite.float_leaves import OddValues


class HeldTail:
    """A file for Arrow's writer. It passes writes on to the file until :meth:`hold`, and keeps them after it."""

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
        """Keep all further writes in memory."""
        self._held = bytearray()

    def release(self, found: Sequence[OddValues]) -> None:
        """Write the kept bytes with an edited footer.

        :param found: the odd values of each row group.
        """
        assert self._held is not None
        tail, self._held = bytes(self._held), None
        before, footer = split_footer(tail)
        self._file.write(before + footer_bytes(truthful(footer, found)))


def truthful(footer: ThriftStruct, found: Sequence[OddValues]) -> ThriftStruct:
    """Remove the statements that mislead readers about odd values; see :mod:`delta_maintenance.rewrite.float_leaves`."""

    def edit(group: int, leaf: int, chunk: ThriftStruct) -> ThriftStruct:
        if leaf in found[group].nan:
            chunk = without_bounds(chunk)
        if leaf in found[group].nan | found[group].zero:
            chunk = without_membership(chunk)
        return chunk

    return edited(footer, edit)
