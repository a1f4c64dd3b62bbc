"""Paths of the log become keys of the store, and keys become paths, without ever naming another file."""

from __future__ import annotations

import posixpath

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delta_log.errors import CorruptLog, InvalidRequest
from delta_log.log.data_path import (
    HIVE_NULL,
    ExternalFile,
    address_of,
    decode_path,
    decode_paths,
    encode_path,
    escape_hive,
    hive_directory,
    is_external,
    resolve,
)

ROOT = "/lake/my table"

segments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\x00"), min_size=1).filter(
    lambda text: text not in (".", "..")
)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(keys)
@example("p=a%3Ab/part 1+2#3?.parquet")
@example("100%/ü/日本/🚀")
@example("a:b/c")
def test_every_key_survives_the_log(key: str) -> None:
    path = encode_path(key)
    assert path.isascii()
    assert decode_path(path) == key
    assert resolve(path, ROOT) == key
    assert address_of(path, "s3://bucket/t") == key


@given(keys)
def test_an_absolute_path_below_the_root_is_the_same_key(key: str) -> None:
    path = encode_path(key)
    for table_uri, absolute in (
        (ROOT, f"file:/lake/my%20table/{path}"),
        (ROOT, f"file:///lake/my%20table/{path}"),
        (ROOT, f"/lake/my%20table/{path}"),
        ("file:///lake/my%20table", f"file://localhost/lake/my%20table/{path}"),
        ("s3://bucket/t", f"s3a://bucket/t/{path}"),
        ("s3://bucket/t/", f"/t/{path}"),
        ("gs://bucket/t", f"gs://bucket/t/{path}"),
        ("abfs://container/t", f"abfss://container@account.dfs.core.windows.net/t/{path}"),
        ("hdfs://namenode/t", f"hdfs:/t/{path}"),
    ):
        assert resolve(absolute, table_uri) == key


@given(
    st.lists(
        st.one_of(
            keys.map(encode_path), st.sampled_from(["x", "/out/x", "file:/out/y", "a/../b", "..%2Fz", None])
        )
    )
)
def test_a_column_of_paths_decodes_like_each_path(paths: list[str | None]) -> None:
    expected = [None if path is None else address_of(path, ROOT) for path in paths]
    assert decode_paths(pa.array(paths, pa.string()), ROOT).to_pylist() == expected
    chunked = pa.chunked_array([paths, paths], pa.large_string())
    decoded = decode_paths(chunked, ROOT)
    assert decoded.type == pa.large_string()
    assert decoded.to_pylist() == expected * 2


def test_files_of_one_directory_decode_it_alike() -> None:
    paths = [f"d=%25{i % 2}/part-{i}" for i in range(5)] + ["d=%250/.", "d=%250/..", "%2e", "d=%250/%41"]
    with pytest.raises(CorruptLog):
        decode_paths(pa.array(paths), ROOT)
    kept = [path for path in paths if path not in ("%2e", "d=%250/..")]
    assert decode_paths(pa.array(kept), ROOT).to_pylist() == [
        *("d=%0/part-0", "d=%1/part-1", "d=%0/part-2", "d=%1/part-3", "d=%0/part-4"),
        *("d=%0", "d=%0/A"),
    ]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("p=a%253Ab/f", "p=a%3Ab/f"),  # Hive's escape stays, the URI's goes
        ("x=A%252FA/f", "x=A%2FA/f"),
        ("bar+%252521/f", "bar+%2521/f"),
        ("bar%2Dbar.snappy.parquet", "bar-bar.snappy.parquet"),
        ("special%20p@%23h", "special p@#h"),
        ("a%2fb", "a/b"),
        ("100%", "100%"),
        ("a%2", "a%2"),
        ("a%zz", "a%zz"),
        ("a//b/./c/../d", "a/b/d"),
        ("ünescaped name", "ünescaped name"),
        ("a=b:c/d", "a=b:c/d"),
    ],
)
def test_a_path_is_decoded_once(path: str, key: str) -> None:
    assert decode_path(path) == key
    assert resolve(path, ROOT) == key


@pytest.mark.parametrize(
    "path",
    [
        "%ff",
        "%C3x",
        "a#b",
        "a?b",
        "",
        ".",
        "a/..",
        "a%00",
        "..",
        "scheme:opaque",
        "//host/x",
        "file:/",
    ],
)
def test_a_path_without_one_meaning_is_refused(path: str) -> None:
    for decode in (decode_path, lambda it: resolve(it, "/t"), lambda it: decode_paths(pa.array([it]), "/t")):
        with pytest.raises(CorruptLog):
            decode(path)


@pytest.mark.parametrize("path", ["/a", "file:/a", "s3://b/a", "../a", "a/../../b", "%2E%2E/a"])
def test_a_relative_path_is_insisted_on(path: str) -> None:
    with pytest.raises(CorruptLog):
        decode_path(path)


@pytest.mark.parametrize(
    ("path", "table_uri", "uri", "same_store"),
    [
        ("/other/f%20g", ROOT, "/other/f g", True),
        ("file:/lake/my%20table2/f", ROOT, "/lake/my table2/f", True),
        ("../sibling/f", ROOT, "/lake/sibling/f", True),
        ("%2e%2e/sibling/f", "s3://bucket/lake/t", "s3://bucket/lake/sibling/f", True),
        ("s3a://bucket/else/f", "s3://bucket/t", "s3://bucket/else/f", True),
        ("s3://elsewhere/t/f", "s3://bucket/t", "s3://elsewhere/t/f", False),
        ("dbfs:/mnt/t/f", "s3://bucket/t", "dbfs:///mnt/t/f", False),
        ("s3://bucket/t/f", ROOT, "s3://bucket/t/f", False),
        ("abfss://c@one.dfs.core.windows.net/t/f", "abfss://c@two.blob.core.windows.net/t", None, False),
    ],
)
def test_a_file_outside_the_root_is_external(
    path: str, table_uri: str, uri: str | None, same_store: bool
) -> None:
    location = resolve(path, table_uri)
    assert location == ExternalFile(uri or path, same_store)
    assert is_external(address_of(path, table_uri))


@given(keys, st.text())
def test_whatever_the_path_the_result_is_a_key_below_the_root_or_external(key: str, noise: str) -> None:
    try:
        address = address_of(noise + key, ROOT)
    except CorruptLog:
        return
    if not is_external(address):
        assert posixpath.normpath(f"/r/{address}") == f"/r/{address}"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/./b", "a\x00", "\ud800"])
def test_only_keys_are_encoded(key: str) -> None:
    with pytest.raises(InvalidRequest):
        encode_path(key)


def test_a_relative_table_address_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        resolve("/a", "relative/table")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
@example("a:b/c", "100%")
def test_a_hive_directory_is_one_level_and_survives_the_log(column: str, value: str) -> None:
    directory = hive_directory(column, value)
    assert "/" not in directory
    assert decode_path(encode_path(f"{directory}/f")) == f"{directory}/f"


def test_hive_directories_are_those_of_spark() -> None:
    assert hive_directory("p", "a:b") == "p=a%3Ab"
    assert encode_path(hive_directory("p", "a:b")) == "p=a%253Ab"
    assert hive_directory("p", None) == hive_directory("p", "") == f"p={HIVE_NULL}"
    assert escape_hive("\x01\x1f\x7f\"#%'*/:=?\\{[]^") == (
        "%01%1F%7F%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E"
    )
    assert escape_hive("plain text }ü+,;&") == "plain text }ü+,;&"
