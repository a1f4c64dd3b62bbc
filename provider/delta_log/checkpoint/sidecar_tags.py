"""The ``tags`` of a sidecar that this package wrote. They describe its content, so that it need not be read again.

Protocol section "Sidecar File Information". A sidecar never changes, so what was true when it was written and read back
stays true for every checkpoint that names it. Readers that do not know the tag ignore it; a sidecar of another writer
has no such tag and has to be read.

The :class:`~delta_log.checkpoint.key_filter.KeyFilter` of a sidecar lies in its file between the rows and the Parquet
footer, where readers do not look (other writers put bloom filters there). A sidecar with absolute paths has no filter:
which of these paths lie inside the table depends on the table's address.
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
#: Has to grow with every change of the tags, of a hash in them, or of how actions are written.
_FORMAT = 1
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:)"


class SidecarTags(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the tags say.

    :param action: the kind of all its rows.
    :param rows: the number of rows.
    :param form: form of the sidecar, see :func:`form_of`.
    :param content: digest of the content, see :class:`~delta_log.arrow.content_digest.ContentDigest`.
    :param deletions_ms: the earliest and the latest time of deletion, for tombstones.
    :param filter: offset and length in bytes of the key filter in the file.
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
        """The counts of its live files, without their histogram, which the tags do not hold."""
        if self.action == "remove":
            return Counts()
        return Counts(self.rows, self.size_bytes, self.deletion_vectors, self.deleted_rows)

    def encode(self) -> dict[str, str | None]:
        """The ``tags`` of a sidecar action."""
        return {TAG: msgspec.json.encode(msgspec.structs.replace(self, format=_FORMAT)).decode()}


_DECODER = msgspec.json.Decoder(SidecarTags)


def tags_of(sidecar: Sidecar) -> SidecarTags | None:
    """The tags of a sidecar; ``None``: another writer wrote it, or another release of this package."""
    text = (sidecar.tags or {}).get(TAG)
    if text is None:
        return None
    try:
        tags = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return tags if tags.format == _FORMAT else None


def form_of(columns: pa.Schema, *, texts: bool) -> str:
    """A digest that is equal for sidecars that hold an action in the same way.

    :param columns: the columns of the sidecar.
    :param texts: whether statistics are written as texts, unchanged. Without texts, a reader turns the struct into
        texts with Arrow, so its version counts.
    """
    spelling = f"{columns} {'' if texts else pa.__version__}"
    return hashlib.blake2b(spelling.encode(), digest_size=8).hexdigest()


def has_absolute(paths: pa.Array) -> bool:
    """Whether any of these paths of the log is absolute, and so independent of the table's address."""
    return bool(pc.any(pc.match_substring_regex(paths, _ABSOLUTE)).as_py())


def read_filter(storage: Storage, key: str, tags: SidecarTags) -> KeyFilter | None:
    """Read the key filter of a sidecar; ``None``: it has none, or its bytes are damaged."""
    if tags.filter is None:
        return None
    return KeyFilter.decode(storage.read(key, *tags.filter))
