"""Where an address lies, and the fence of allowed roots around it."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log import Table
from delta_log.errors import InvalidRequest, NotATable, OutsideAllowedRoots
from delta_log.storage.opening import StoragePool, open_storage
from delta_log.storage.table_uri import TableUri, one_spelling, require_absolute, require_within

WITHIN = [
    ("s3://lake/a", "s3://lake/a"),
    ("s3://lake/a/", "s3://lake/a"),
    ("s3://lake/a/t", "s3://lake/a/"),
    ("s3a://lake/a/t", "s3://lake/a"),
    ("S3://lake/a/t", "s3n://lake/a"),
    ("s3://lake/a", "s3://lake"),
    ("gcs://lake/a/t", "gs://lake/a"),
    ("abfs://c@acc.blob.core.windows.net/a/t", "abfss://c@ACC.dfs.core.windows.net/a"),
    ("az://c/a/t", "abfss://c/a"),
    ("hdfs://NameNode:8020/a/t", "hdfs://namenode:8020/a"),
    ("s3://lake/my%20dir/t", "s3://lake/my%20dir"),
    ("/data/a/t", "/data/a"),
    ("/data/a/t", "/"),
    ("//data//a/./t/", "/data/a"),
    ("file:///data/a/t", "/data/a"),
    ("FILE://localhost/data/a/t", "file:/data/a"),
    ("/data/my dir/t", "file:///data/my%20dir"),
]
OUTSIDE = [
    ("s3://lake/ab", "s3://lake/a"),
    ("s3://lake", "s3://lake/a"),
    ("s3://lake2/a", "s3://lake/a"),
    ("s3://Lake/a/t", "s3://lake/a"),
    ("gs://lake/a/t", "s3://lake/a"),
    ("s3://lake/my dir/t", "s3://lake/my%20dir"),
    ("abfss://d@acc.dfs.core.windows.net/a", "abfss://c@acc.dfs.core.windows.net/a"),
    ("abfss://c@other.dfs.core.windows.net/a", "abfss://c@acc.dfs.core.windows.net/a"),
    ("abfss://c@acc.dfs.evil.example/a", "abfss://c@acc.dfs.core.windows.net/a"),
    ("abfss://c/a", "abfss://c@acc.dfs.core.windows.net/a"),
    ("hdfs://namenode:9000/a", "hdfs://namenode:8020/a"),
    ("/", "/data"),
    ("/data/ab", "/data/a"),
    ("/data/A/t", "/data/a"),
]
#: What programs read in two ways is refused, whatever the root.
AMBIGUOUS = [
    "s3://lake/a/../b",
    "s3://lake/a/./t",
    "s3://lake/a//t",
    "s3://lake//a/t",
    "s3://lake/a/%2e%2e/b",
    "s3://lake/a/%252E%252e/b",
    "s3://lake/a%2f..%2f..%2fb",
    "s3://lake/a\\..\\b",
    "s3://lake/a/%5c../b",
    "s3://lake/a?versionId=7",
    "s3://lake/a#x",
    "s3://lake/a\n/t",
    "s3://",
    "s3:///lake/a",
    "local:///data/a/t",
    "s3://lake%2fa/t",
    "s3://user@lake/a",
    "hdfs://user@namenode/a",
    "abfss://c@d@acc.dfs.core.windows.net/a",
    "abfss://@acc.dfs.core.windows.net/a",
    "simplecache::s3://lake/a",
    "://lake/a",
    "file://elsewhere/data/a",
    "file:///data/a?x",
    "/data/a\x00/t",
    "/data/b/../a/t",
    "/data/a/../../etc",
    "file:///data/a/%2e%2e/b",
    "file:/data/a%2f..%2f..%2fetc",
    "relative/path",
    "./a",
    "../a",
    "~/a",
    "",
    " s3://lake/a",
    " /data/a",
    "file:relative",
    "s3:/lake/a",
    "s3://KEY:SECRET@lake/a",
    "glue://lake.a",
    "hms://lake.a",
]
#: Spellings of one place, and the one that stands for all.
SPELLINGS = {
    "s3://lake/a": ("s3://lake/a", "s3a://lake/a/", "S3N://lake/a"),
    "gs://lake/a": ("gs://lake/a", "gcs://lake/a/"),
    "abfss://c@acc.dfs.core.windows.net/a": (
        "abfss://c@acc.dfs.core.windows.net/a/",
        "abfs://c@ACC.blob.core.windows.net/a",
        "az://c@acc.dfs.core.windows.net/a",
        "wasbs://c@acc.blob.core.windows.net/a",
    ),
    "/data/a b": ("/data/a b", "/data/a b/", "file:///data/a%20b", "file:/data/a%20b/"),
    "hdfs://namenode:9000/a": ("hdfs://namenode:9000/a/",),
    "glue://sales.events": ("glue://Sales.Events", "GLUE://sales.events/"),
}


@pytest.mark.parametrize(
    ("spelling", "address"), [(text, one) for one, texts in SPELLINGS.items() for text in texts]
)
def test_one_spelling_stands_for_all_of_a_place(spelling: str, address: str) -> None:
    assert one_spelling(spelling) == address
    assert one_spelling(address) == address


@pytest.mark.parametrize(
    "address", ["s3://lake/A", "s3://Lake/a", "/data/A", "s3://lake/a/../b", "s3://lake/a?x", "", "relative"]
)
def test_what_may_be_another_place_keeps_its_spelling(address: str) -> None:
    assert one_spelling(address) == (address or "/")


@pytest.mark.parametrize(("address", "root"), WITHIN)
def test_a_place_below_a_root_is_within_it(address: str, root: str) -> None:
    require_within(address, {"the setting": [root]})


@pytest.mark.parametrize(("address", "root"), OUTSIDE)
def test_a_place_beside_or_above_a_root_is_not(address: str, root: str) -> None:
    with pytest.raises(OutsideAllowedRoots) as caught:
        require_within(address, {"the setting": ["s3://other/root", root]})
    message = str(caught.value)
    assert address in message
    assert f"the allowed roots of the setting: s3://other/root, {root}" in message
    assert "Nothing was opened" in message
    assert caught.value.allowed_roots == ("s3://other/root", root)


@pytest.mark.parametrize("address", AMBIGUOUS)
def test_an_address_with_two_meanings_is_within_nothing(address: str) -> None:
    for root in ("/", "s3://lake", "hdfs://namenode"):
        with pytest.raises(InvalidRequest) as caught:
            require_within(address, {"the setting": [root]})
        assert "SECRET" not in str(caught.value)
    # A root of that kind would let anything through, or nothing.
    with pytest.raises(InvalidRequest):
        require_within("s3://lake/a", {"the setting": [address]})


def test_without_roots_there_is_no_fence() -> None:
    require_within("s3://lake//a/../b", {})
    require_within("relative", {})


def test_each_who_has_set_roots_has_to_agree() -> None:
    fences = {"the setting": ["s3://lake"], "connection 'sales'": ["s3://lake/sales", "s3://elsewhere"]}
    require_within("s3://lake/sales/t", fences)
    with pytest.raises(OutsideAllowedRoots, match="connection 'sales'"):
        require_within("s3://lake/hr/t", fences)
    with pytest.raises(OutsideAllowedRoots, match="the setting"):
        require_within("s3://elsewhere/t", fences)


def test_a_link_that_leads_out_of_the_roots_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    (outside / "table").mkdir(parents=True)
    (root / "way_out").symlink_to(outside)
    (root / "table").symlink_to(root / "another")
    for address in (f"{root}/way_out/table", f"file://{root}/way_out/table/", f"{root}/way_out"):
        with pytest.raises(OutsideAllowedRoots, match=f"leads to {outside}.* by a symbolic link"):
            require_within(address, {"the setting": [str(root)]})
        # Both sides of the link are allowed.
        require_within(address, {"the setting": [str(root), str(outside)]})
    require_within(f"{root}/table", {"the setting": [str(root)]})
    require_within(f"{root}/absent/table", {"the setting": [str(root)]})


@pytest.mark.parametrize(
    "address",
    [
        "{root}/link/../t",
        "file://{root}/link/%2e%2E/t",
        "file://{root}/link%2f..%2Ft",
        "file://{root}/link/%252e%252e/t",
        "{root}/../lake/t",
    ],
)
def test_a_path_that_climbs_has_no_place_to_compare(tmp_path: Path, address: str) -> None:
    """Behind a link, ``..`` leads to where the link leads."""
    root, outside = tmp_path / "lake", tmp_path / "secret" / "directory"
    root.mkdir()
    outside.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    for roots in ([str(root)], [f"{root}/../lake"]):
        with pytest.raises(InvalidRequest):
            require_within(address.format(root=root), {"the setting": roots})


@pytest.mark.parametrize(
    "address", ["s3://", "gs:///", "abfs://", "az://", "hdfs://", "S3:///t", "memory://"]
)
def test_an_address_without_a_bucket_is_refused_in_words(address: str) -> None:
    with pytest.raises(InvalidRequest, match="names no bucket or container"):
        open_storage(address)


@pytest.mark.parametrize("address", ["dbfs:/mnt/t", "s3:/bucket/t", "hdfs:/t", "wasbs:/t"])
def test_a_scheme_with_one_slash_is_no_relative_path(address: str) -> None:
    for ask in (open_storage, require_absolute):
        with pytest.raises(InvalidRequest, match="followed by one slash"):
            ask(address)


def test_schemes_are_read_in_any_case() -> None:
    options = {"key": "a", "secret": "b", "client_kwargs": {"region_name": "eu-west-1"}}
    assert open_storage("S3://bucket/t", options).uri == "s3://bucket/t"


@pytest.mark.parametrize(
    ("address", "table"),
    [
        ("{root}/t/_delta_log", "{root}/t"),
        ("{root}/t/_delta_log/00000000000000000000.json", "{root}/t"),
        ("{root}/t/day=2026-01-01/hour=3", "{root}/t"),
        ("{root}/t/day=2026-01-01/a.parquet", "{root}/t"),
    ],
)
def test_an_address_within_a_table_names_the_table_above(tmp_path: Path, address: str, table: str) -> None:
    with pytest.raises(
        NotATable, match=f"The table is probably {table.format(root=tmp_path)}: give its address"
    ):
        Table(address.format(root=tmp_path)).snapshot()


def test_a_root_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "disk" / "t").mkdir(parents=True)
    (tmp_path / "lake").symlink_to(tmp_path / "disk")
    require_within(f"{tmp_path}/lake/t", {"the setting": [f"{tmp_path}/lake"]})


@pytest.mark.parametrize("address", ["", "a", "./a", "../a", "~/a", "file:a", "C:/a"])
def test_a_relative_path_is_told_from_an_absolute_one(address: str) -> None:
    with pytest.raises(InvalidRequest, match="relative path"):
        require_absolute(address)


@pytest.mark.parametrize(
    "address", ["/a", "//a", "s3://b/../c", "memory://x", "file:/a", "simplecache::s3://b/c"]
)
def test_what_is_absolute_is_let_through_where_there_is_no_fence(address: str) -> None:
    require_absolute(address)


def test_what_is_no_uri_at_all_is_refused_in_words() -> None:
    for door in (open_storage, StoragePool().open):
        with pytest.raises(InvalidRequest, match=r"s3://\[lake/t is not a URI"):
            door("s3://[lake/t")


_SEGMENT = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "",
        ".",
        "..",
        "%2e%2e",
        "%2E",
        "%252e%252e",
        "..%2f",
        "%2f",
        "a b",
        "a%20b",
        "\\..",
        "é",
        "~",
        "…",
    ]
)
_START = st.sampled_from(
    [
        "/",
        "//",
        "file:",
        "file:///",
        "file://localhost/",
        "s3://lake/",
        "S3A://lake/",
        "s3://lake",
        "az://c@acc.blob.x/",
    ]
)
_ADDRESS = st.builds(lambda start, parts: start + "/".join(parts), _START, st.lists(_SEGMENT, max_size=6))


@given(_ADDRESS)
def test_the_plain_spelling_of_a_place_names_that_place(address: str) -> None:
    try:
        place = TableUri.parse(address)
    except InvalidRequest:
        return
    assert TableUri.parse(str(place)) == place
    assert ".." not in place.segments
    assert place.is_within(place)


@given(_ADDRESS)
def test_no_trick_with_a_path_leads_out_of_the_root(address: str) -> None:
    """Judged by what would be opened: the directory of a disk, the literal key of a store."""
    for root in ("/a", "s3://lake/a"):
        try:
            require_within(address, {"the setting": [root]})
        except InvalidRequest:
            continue
        if root == "/a":
            opened = open_storage(address).uri
            assert posixpath.normpath(opened).lstrip("/").split("/")[0] == "a"
        else:
            scheme, _, rest = address.partition("://")
            assert scheme.lower() in ("s3", "s3a")
            assert rest.split("/")[:2] == ["lake", "a"]
            assert posixpath.normpath(f"/{rest}") == f"/{rest}".rstrip("/")
