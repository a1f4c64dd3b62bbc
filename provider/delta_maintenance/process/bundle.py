"""Builds the library as one zip file, for ``spark-submit --py-files`` and Spark's ``addArtifacts``.

The file holds the sources of :data:`PACKAGES` and nothing else. A cluster needs no Airflow; compiled
libraries (pyarrow, pyroaring, …) must be installed there (:mod:`delta_maintenance.engine.spark.cluster_check` checks).

1. Equal sources give equal bytes, on every machine and at any time.
2. The file's name holds its hash, so two releases on one machine never use each other's file.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("parquet_parts", "delta_log", "delta_maintenance")
#: The oldest date that a zip can hold.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_bundle(directory: Path) -> Path:
    """Write the bundle into a directory, unless it is there; return its path."""
    content = _bundle()
    path = Path(directory) / f"delta_maintenance_bundle-{_hash(content)}.zip"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
    return path


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _bundle() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, source in sorted(_sources()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, source)
    return buffer.getvalue()


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield the module files with their paths in the bundle."""
    home = Path(__file__).resolve().parents[2]
    if home.is_file():  # we run from a bundle ourselves
        with zipfile.ZipFile(home) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)
        return
    for package in PACKAGES:
        for path in (home / package).rglob("*.py"):
            yield path.relative_to(home).as_posix(), path.read_bytes()
