"""Parquet files with an encrypted column, whose footer is plain, signed, and readable without a key."""

from __future__ import annotations

import base64
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import encryption


class _Keys(encryption.KmsClient):  # type: ignore[misc]
    """Takes the name of a key for the key."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)


def with_encrypted_column(table: pa.Table, column: str) -> bytes:
    settings = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"key": [column]}, plaintext_footer=True
    )
    properties = encryption.CryptoFactory(_Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), settings
    )
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return sink.getvalue()
