"""Plans GENERATE: the content of each manifest, and the manifests that no partition has any more. Pure.

As delta-spark writes them: one file ``_symlink_format_manifest/<partition>/manifest`` for each partition, with the address of a data file a
line. Addresses are not escaped, and addresses of local files begin with ``file:``. A table without partition columns has
one manifest, which may be empty.

Readers of manifests know neither deletion vectors nor column mapping, so both are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.log.data_path import hive_directory, is_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.schema import MODE

DIRECTORY = "_symlink_format_manifest"
NAME = "manifest"
#: Hadoop's checksum of a manifest on a local disk. It does not fit the new content, and Spark would refuse to read that.
CHECKSUM = f".{NAME}.crc"


class ManifestPlan(Struct, frozen=True):
    """The manifests of one version.

    :param writes: content of each manifest to write, by key.
    :param deletes: keys of manifests whose partition has no file any more.
    :param num_unchanged: number of manifests that are right already, and ``num_files`` the number of data files in all of them.
    """

    version: int
    writes: Mapping[str, bytes]
    deletes: tuple[str, ...]
    num_unchanged: int
    num_files: int

    @property
    def is_empty(self) -> bool:
        return not (self.writes or self.deletes)

    @property
    def metrics(self) -> dict[str, int]:
        return {"numManifestsWritten": len(self.writes), "numManifestsDeleted": len(self.deletes)}

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "readVersion": self.version,
            "numManifestsToWrite": len(self.writes),
            "numManifestsToDelete": len(self.deletes),
            "numUnchangedManifests": self.num_unchanged,
            "numFiles": self.num_files,
        }


def manifests(snapshot: Snapshot, where: pc.Expression | None) -> dict[str, list[str]]:
    """Compute the addresses in each manifest, by the key of the manifest, both in their order.

    :param where: predicate on partition columns; ``None``: every partition.
    :raises InvalidRequest: readers of manifests could not read the table rightly.
    """
    if snapshot.mapping_mode != "none":
        raise InvalidRequest(
            f"{MODE} is {snapshot.mapping_mode}, and readers of manifests look for columns by their names in the table, which differ from the "
            "names in the files. Nothing was written. Use a reader that knows Delta tables."
        )
    files = snapshot.files(["key", "partition_values", "deletion_vector"], where)
    _refuse_vectors(files, snapshot.version)
    names = [column.physical_name for column in snapshot.partition_schema]
    found: dict[str, list[str]] = {} if names else {f"{DIRECTORY}/{NAME}": []}
    # Null, an empty text and an absent value are one partition of Hive.
    for key, addresses in _by_partition(files, names, snapshot.table_uri):
        found.setdefault(key, []).extend(addresses)
    return {key: sorted(addresses) for key, addresses in found.items()}


def plan_manifests(
    version: int, wanted: Mapping[str, Collection[str]], existing: Mapping[str, bytes]
) -> ManifestPlan:
    """Compare the manifests of a version with those that exist.

    :param wanted: result of :func:`manifests`.
    :param existing: content of the manifests in scope that the store has, by key.
    """
    contents = {key: _content(addresses) for key, addresses in wanted.items()}
    writes = {key: content for key, content in contents.items() if existing.get(key) != content}
    return ManifestPlan(
        version,
        writes,
        tuple(sorted(existing.keys() - wanted.keys())),
        len(contents) - len(writes),
        sum(map(len, wanted.values())),
    )


def _refuse_vectors(files: pa.Table, version: int) -> None:
    with_vectors = len(files) - files.column("deletion_vector").null_count
    if with_vectors:
        raise InvalidRequest(
            f"{with_vectors} files of version {version} have deletion vectors, which readers of manifests do not know: deleted rows would come "
            "back. Nothing was written. Purge the table first (delta-maintenance purge), then generate."
        )


def _by_partition(files: pa.Table, names: list[str], table_uri: str) -> Iterator[tuple[str, list[str]]]:
    values = files.column("partition_values")
    columns = {f"value_{number}": pc.map_lookup(values, name, "first") for number, name in enumerate(names)}
    rows = pa.table({**columns, "key": files.column("key")})
    for row in (
        rows.group_by([*columns]).aggregate([("key", "list")]).to_pylist() if names else _one_group(rows)
    ):
        directories = [hive_directory(name, row[column]) for name, column in zip(names, columns, strict=True)]
        addresses = [_address(key, table_uri) for key in row["key_list"]]
        yield "/".join([DIRECTORY, *directories, NAME]), addresses


def _one_group(rows: pa.Table) -> list[dict[str, Any]]:
    return [{"key_list": rows.column("key").to_pylist()}] if rows.num_rows else []


def _address(key: str, table_uri: str) -> str:
    """Spell the address of a data file as Hadoop does.

    :raises InvalidRequest: a line of a manifest cannot hold it.
    """
    address = key if is_external(key) else f"{table_uri.rstrip('/')}/{key}"
    if "\n" in address or "\r" in address:
        raise InvalidRequest(
            f"The name of the data file {key!r} holds the end of a line, so no manifest can hold it. Nothing was written. Rewrite the file "
            "(delta-maintenance optimize --full), then generate."
        )
    return f"file:{address}" if address.startswith("/") else address


def _content(addresses: Collection[str]) -> bytes:
    return "".join(f"{address}\n" for address in addresses).encode()
