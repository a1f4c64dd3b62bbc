"""No footer ends the process: pyarrow would, where it is asked for a column chunk that contradicts the schema."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Reads a table again and again, each time with another byte of a footer changed. Says which one before it reads.
PROGRAM = """
import json, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from delta_log.data.data_file import ColumnMemory, DataFile
from delta_log.errors import DeltaLogError
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table import Table

MASKS = (0x01, 0x02, 0x07, 0x20)

def damages(path):
    content = path.read_bytes()
    for at in range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content) - 8):
        for mask in MASKS:
            print(f"byte {at}, mask {mask:#x}", flush=True)
            path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
            yield

def data_file(directory):
    from delta_log.table_config.schema import parse_schema
    table = pa.table({"n": [1, None, 3], "t": ["a", "b", None], "l": pa.array([[1], None, []], pa.list_(pa.int64()))})
    pq.write_table(table, directory / "f.parquet", row_group_size=2, store_schema=False)
    listed = {"type": "array", "elementType": "long", "containsNull": True}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("n", "long"), ("t", "string"), ("l", listed))]
    columns = parse_schema(json.dumps({"type": "struct", "fields": fields}), mapped=False).fields
    storage = LocalStorage(str(directory))
    read = 0
    for _ in damages(directory / "f.parquet"):
        for attempt in (lambda file: sum(rows.count for rows in file.read(columns)),
                        lambda file: file.read_at_once(columns, memory=ColumnMemory(), dictionaries=["t"]),
                        lambda file: (file.bloom_filters, file.row_group_bytes)):
            try:
                attempt(DataFile(storage, "f.parquet"))
                read += 1
            except DeltaLogError:
                pass
    return read

def checkpoint(directory):
    log = directory / "_delta_log"
    log.mkdir()
    schema = json.dumps({"type": "struct", "fields": []})
    rows = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": {"id": "m", "schemaString": schema}}]
    rows += [{"add": {"path": f"{n}", "size": 1, "modificationTime": 1, "dataChange": True}} for n in range(3)]
    rows += [{"txn": {"appId": "a", "version": 1}}]
    names = ("protocol", "metaData", "add", "txn")
    path = log / f"{7:020}.checkpoint.parquet"
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path, store_schema=False)
    (log / f"{7:020}.json").write_text(json.dumps({"commitInfo": {}}))
    read = 0
    for _ in damages(path):
        try:
            read += Table(str(directory)).snapshot(7).files(["path"]).num_rows
        except DeltaLogError:
            pass
    return read

print("read:", globals()[sys.argv[1]](Path(sys.argv[2])))
"""


@pytest.mark.parametrize("kind", ["data_file", "checkpoint"])
def test_a_changed_byte_gives_rows_or_one_error(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", PROGRAM, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-100:] + done.stderr[-3000:]
    assert int(done.stdout.rpartition("read: ")[2]) > 0
