from __future__ import annotations

import pytest

from delta_log.log.file_names import LogFileKind, parse_log_file
from delta_log.storage.storage import FileInfo

V = "00000000000000000010"
ARABIC = "".join(chr(0x660 + int(digit)) for digit in V)
U = "80a083e8-7026-4e79-81be-64bd76c43a11"


def parse(name: str, size: int = 1) -> tuple[LogFileKind, int, int, int, int] | None:
    file = parse_log_file(FileInfo(f"_delta_log/{name}", name, size, 0))
    return None if file is None else (file.kind, file.version, file.end, file.part, file.parts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{V}.json", (LogFileKind.COMMIT, 10, 10, 1, 1)),
        (f"{V}.crc", (LogFileKind.CHECKSUM, 10, 10, 1, 1)),
        (f"{V}.checkpoint.parquet", (LogFileKind.CLASSIC_CHECKPOINT, 10, 10, 1, 1)),
        (f"{V}.checkpoint.0000000002.0000000003.parquet", (LogFileKind.MULTI_PART_CHECKPOINT, 10, 10, 2, 3)),
        (f"{V}.checkpoint.{U}.parquet", (LogFileKind.UUID_CHECKPOINT, 10, 10, 1, 1)),
        (f"{V}.checkpoint.{U}.json", (LogFileKind.UUID_CHECKPOINT, 10, 10, 1, 1)),
        (f"{V}.00000000000000000012.compacted.json", (LogFileKind.COMPACTION, 10, 12, 1, 1)),
    ],
)
def test_each_kind_of_log_file_is_known_by_its_name(
    name: str, expected: tuple[LogFileKind, int, int, int, int]
) -> None:
    assert parse(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "10.json",
        f"{V}.json.tmp",
        f".{V}.json",
        f"{V}.json\n",
        f"{V}.checkpoint.0000000004.0000000003.parquet",
        f"{V}.checkpoint.0000000000.0000000003.parquet",
        f"{V}.{V}.compacted.json",
        # Python takes digits of other scripts for digits; other readers of a log do not.
        f"{ARABIC}.json",
        f"{ARABIC}.checkpoint.parquet",
    ],
)
def test_any_other_name_means_nothing(name: str) -> None:
    assert parse(name) is None


def test_only_what_has_a_substitute_may_be_empty_and_is_then_passed_over() -> None:
    assert parse(f"{V}.json", 0) is not None
    assert parse(f"{V}.checkpoint.parquet", 0) is None
    assert parse(f"{V}.00000000000000000012.compacted.json", 0) is None
