"""Inventories: listings that the store or the user made, for tables that are too large to list again.

There are two layouts, each in Parquet or CSV (also ``.gz``). Case and underscores in column names do not matter:

* ``path, length, isDir, modificationTime``: an absolute URI, bytes, and milliseconds since the epoch. One file with a
  header, or a directory of such files.
* An S3 Inventory: its ``manifest.json``, whose files lie in ``../data``. Columns ``Bucket, Key, Size, LastModifiedDate``
  and, for a bucket with versions, ``IsLatest`` and ``IsDeleteMarker``.

Rows outside of the table's root are skipped. An inventory without a single row below the root is refused, since it is one
of another table. An old inventory is safe, because the snapshot that protects files is read after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote_plus, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from delta_log.errors import CorruptLog, InvalidRequest
from delta_log.log.data_path import decode_paths
from delta_log.storage.storage import Storage
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import LISTING_SCHEMA, Listing, listing_from_rows

#: Opens the storage at a URI.
OpenStorage = Callable[[str], Storage]

_BATCH_ROWS = 1 << 16
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"
_MILLISECONDS = pa.timestamp("ms", "UTC")


def read_inventory(uri: str, open_storage: OpenStorage, table_uri: str, hidden: HiddenNames) -> Listing:
    """Read an inventory as a listing.

    :param open_storage: function that opens the directory of the inventory.
    :raises InvalidRequest: it is no inventory, or one of another table.
    """
    read = _manifest_rows if uri.endswith("/manifest.json") else _plain_rows
    rows = below = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows, below
        for total, batch in read(uri, open_storage, table_uri):
            rows, below = rows + total, below + batch.num_rows
            yield batch

    try:
        listing = listing_from_rows(counted(), hidden)
    except (pa.ArrowException, OSError, KeyError, CorruptLog, UnicodeDecodeError) as error:
        raise _refusal(uri, f"it cannot be read ({error})") from error
    if not below:
        found = f"none of its {rows:,} rows lies below {table_uri}" if rows else "it has no rows"
        raise _refusal(uri, f"{found}; is it one of another table?")
    return listing


def _refusal(uri: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{uri} is no inventory for this table: {why}. Nothing was deleted.")


_Rows = Iterator[tuple[int, pa.RecordBatch]]


def _plain_rows(uri: str, open_storage: OpenStorage, table_uri: str) -> _Rows:
    """Yield the number of rows read, and the rows below the root."""
    directory, _, name = uri.rstrip("/").rpartition("/")
    storage = open_storage(directory or "/")
    names = [name] if storage.head(name) is not None else []
    names = names or [
        info.key for info in storage.list_from(name) if info.size and info.name[:1] not in ("_", ".")
    ]
    if not names:
        raise _refusal(uri, "there is no file, and no directory with files")
    for key in names:
        for batch in _batches(storage, key, None):
            files = batch.filter(pc.invert(pc.fill_null(_column(batch, "isdir").cast(pa.bool_()), False)))
            paths = _column(files, "path").cast(pa.string())
            if pc.all(pc.match_substring_regex(paths, _ABSOLUTE)).as_py() is False:
                raise _refusal(uri, "it holds paths that are not absolute")
            keys = decode_paths(paths, table_uri)
            inside = pc.invert(pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://")))
            times = _column(files, "modificationtime").cast(pa.int64())
            yield batch.num_rows, _batch(keys, _column(files, "length"), times).filter(inside)


def _manifest_rows(uri: str, open_storage: OpenStorage, table_uri: str) -> _Rows:
    root, date, name = uri.rsplit("/", 2)
    storage = open_storage(root)
    try:
        manifest = json.loads(storage.read(f"{date}/{name}"))
        source = str(manifest["sourceBucket"])
        files = [f"data/{entry['key'].rpartition('/')[2]}" for entry in manifest["files"]]
        columns = [column.strip() for column in manifest["fileSchema"].split(",")]
        form = str(manifest["fileFormat"]).upper()
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refusal(uri, f"it is not the manifest of an S3 Inventory ({error!r})") from error
    if form not in ("CSV", "PARQUET"):
        raise _refusal(uri, f"its files are {form}; let S3 write the inventory as Parquet or CSV")
    is_csv = form == "CSV"
    place = urlsplit(table_uri)
    prefix = place.path.strip("/")
    prefix = f"{prefix}/" if prefix else ""
    for file in files:
        for batch in _batches(storage, file, columns if is_csv else None):
            total = batch.num_rows
            if source != place.netloc:
                yield total, pa.RecordBatch.from_pylist([], LISTING_SCHEMA)
                continue
            current = _current(batch)
            keys = _column(current, "key").cast(pa.string())
            if is_csv:  # only CSV files have encoded keys
                keys = pa.array([unquote_plus(key) for key in keys.to_pylist()], pa.string())
            inside = pc.starts_with(keys, prefix) if prefix else pa.array([True] * len(keys))
            keys = pc.utf8_slice_codeunits(keys, len(prefix))
            times = _column(current, "lastmodifieddate").cast(_MILLISECONDS).cast(pa.int64())
            yield total, _batch(keys, _column(current, "size"), times).filter(inside)


def _current(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Select the objects that exist now, if the bucket has versions."""
    found = batch
    for member, wanted in (("islatest", True), ("isdeletemarker", False)):
        if member in found.schema.names:
            found = found.filter(pc.equal(_column(found, member).cast(pa.bool_()), wanted))
    return found


def _batch(keys: pa.Array, sizes: pa.Array, times: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([keys, pc.fill_null(sizes.cast(pa.int64()), 0), times], schema=LISTING_SCHEMA)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.names.index(name)) if name in batch.schema.names else _missing(name)


def _missing(name: str) -> pa.Array:
    raise KeyError(f"there is no column {name}")


def _batches(storage: Storage, key: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Read the rows of one file; column names become lower case without underscores.

    :param columns: the columns of a CSV file without a header.
    """
    if key.endswith((".csv", ".csv.gz")):
        # Without these types, a key like 0012 would be read as a number.
        types = dict.fromkeys(("path", "Path", "Key", "key", "Bucket", "bucket"), pa.string())
        file = pa.BufferReader(storage.read(key))
        stream = csv.open_csv(
            pa.CompressedInputStream(file, "gzip") if key.endswith(".gz") else file,
            read_options=csv.ReadOptions(column_names=list(columns) if columns is not None else None),
            convert_options=csv.ConvertOptions(column_types=types),
        )
        batches: Iterator[pa.RecordBatch] = iter(stream)
    else:
        batches = pq.ParquetFile(storage.open_read(key)).iter_batches(_BATCH_ROWS)
    for batch in batches:
        yield batch.rename_columns([name.lower().replace("_", "") for name in batch.schema.names])
