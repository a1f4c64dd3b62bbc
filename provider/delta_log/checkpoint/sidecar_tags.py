"""What we know of a sidecar that we wrote: said in the ``tags`` of its action, so that it need not be read again.

Protocol section "Sidecar File Information". A sidecar never changes, so what was true when it was written and read back
stays true for every checkpoint that names it. Whoever does not know the tag loses nothing, and what somebody else's
sidecar holds has to be read.

Behind the rows of a sidecar, and before the Parquet footer (where other writers have bloom filters, and where readers
do not look), lies its :class:`~delta_log.checkpoint.key_filter.KeyFilter`. A sidecar with absolute paths has none: which of them
lie inside the table depends on where the table is.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.checkpoint.key_filter import KeyFilter
from delta_log.log.actions import Sidecar
from delta_log.snapshot.counts import Counts
from delta_log.storage.storage import Storage

TAG = "delta-maintenance.sidecar"
#: Grows whenever what is said here, a hash, or the way in which actions are written is not what it was.
_FORMAT = 1
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:)"


class SidecarTags(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    :param action: all of its rows are of this kind.
    :param rows: how many they are.
    :param form: see :func:`form_of`.
    :param content: see :class:`~delta_log.arrow.content_digest.ContentDigest`.
    :param deletions_ms: of tombstones: the earliest and the latest time of deletion.
    :param filter: where in the file the filter of its keys starts, and its length in bytes.
    """

    action: Literal["add", "remove"]
    rows: int
    form: str
    content: str
    size_bytes: int = 0
    deletion_vectors: int = 0
    deleted_rows: int = 0
    deletions_ms: tuple[int, int] | None = None
    filter: tuple[int, int] | None = None
    format: int = 0

    @property
    def counts(self) -> Counts:
        """Of live files; how they are distributed (:attr:`Counts.histogram`) is not known."""
        if self.action == "remove":
            return Counts()
        return Counts(self.rows, self.size_bytes, self.deletion_vectors, self.deleted_rows)

    def encode(self) -> dict[str, str | None]:
        """The ``tags`` of a sidecar action."""
        return {TAG: msgspec.json.encode(msgspec.structs.replace(self, format=_FORMAT)).decode()}


_DECODER = msgspec.json.Decoder(SidecarTags)


def tags_of(sidecar: Sidecar) -> SidecarTags | None:
    """``None``: somebody else wrote it, or another release of ours."""
    text = (sidecar.tags or {}).get(TAG)
    if text is None:
        return None
    try:
        tags = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return tags if tags.format == _FORMAT else None


def form_of(columns: pa.Schema, *, texts: bool) -> str:
    """Equal for sidecars whose rows are spelt in the same way.

    :param columns: of the sidecar.
    :param texts: statistics are written as they were found. Otherwise they are made into a struct and back into texts,
        which is Arrow's work.
    """
    spelling = f"{columns} {'' if texts else pa.__version__}"
    return hashlib.blake2b(spelling.encode(), digest_size=8).hexdigest()


def has_absolute(paths: pa.Array) -> bool:
    """Does any of these paths of the log stand for itself, whatever the table's address?"""
    return bool(pc.any(pc.match_substring_regex(paths, _ABSOLUTE)).as_py())


def read_filter(storage: Storage, key: str, tags: SidecarTags) -> KeyFilter | None:
    """``None``: there is none, or not any more."""
    if tags.filter is None:
        return None
    return KeyFilter.decode(storage.read(key, *tags.filter))
