from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from delta_log.errors import InvalidRequest
from delta_log.log.data_path import ExternalFile, resolve
from delta_log.storage import schemes
from delta_log.storage.opening import open_storage
from delta_log.storage.schemes import STORES, StoreKind, family_of, opened_kind, same_store, scheme_of
from delta_log.storage.storage import Storage
from delta_log.storage.table_uri import TableUri, require_within
from delta_log.testing import MemoryStorage


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.family)
def test_every_kind_of_store_names_a_storage(kind: StoreKind) -> None:
    module, name = kind.implementation
    assert issubclass(getattr(import_module(module), name), Storage)
    assert all(opened_kind(scheme) is kind for scheme in kind.schemes)
    assert {family_of(scheme) for scheme in (*kind.schemes, *kind.aliases)} == {kind.family}


def test_no_scheme_belongs_to_two_kinds() -> None:
    schemes = [scheme for kind in STORES for scheme in (*kind.schemes, *kind.aliases)]
    assert len(schemes) == len(set(schemes))


@pytest.mark.parametrize(
    ("address", "scheme"),
    [("/a/b", ""), ("a:b", ""), ("FILE:/a", "file"), ("S3A://bucket/a", "s3a"), ("hdfs://host:1/a", "hdfs")],
)
def test_the_scheme_of_an_address_is_in_lower_case(address: str, scheme: str) -> None:
    assert scheme_of(address) == scheme


def test_what_is_no_uri_has_no_scheme() -> None:
    with pytest.raises(InvalidRequest, match="is not a URI"):
        scheme_of("s3://[bucket/a")


def test_aliases_of_one_bucket_are_one_store() -> None:
    assert same_store("s3://lake/a", "s3a://lake/b")
    assert not same_store("s3://lake/a", "s3://other/a")
    assert not same_store("s3://lake/a", "gs://lake/a")


class BucketsOfANewStore(MemoryStorage):
    def __init__(self, uri: str, options: Mapping[str, Any]) -> None:
        super().__init__(uri)
        self.options = options


NEW = StoreKind(
    "oci",
    ("oci",),
    ("oracle",),
    (__name__, "BucketsOfANewStore"),
    "oci",
    has_account=True,
    account_endpoints=("compat",),
)


@pytest.fixture
def new_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds an entry, as :data:`STORES` would have it."""
    for scheme in (*NEW.schemes, *NEW.aliases):
        monkeypatch.setitem(schemes._KINDS, scheme, NEW)


@pytest.mark.usefixtures("new_store")
def test_one_entry_opens_a_new_store_and_compares_its_addresses() -> None:
    opened = open_storage("oci://Lake@space/t", {"region": "r"})
    assert isinstance(opened, BucketsOfANewStore)
    assert opened.options == {"region": "r"}
    assert opened_kind("oracle") is None
    assert same_store("oracle://Lake@space/a", "oci://Lake@space/b")

    assert TableUri.parse("oci://Lake@Space.compat.example/t") == TableUri.parse(
        "oracle://Lake@space.example/t"
    )
    assert TableUri.parse("oci://Lake@space/t") != TableUri.parse("oci://lake@space/t")
    require_within("oci://Lake@space/a/t", {"the setting": ["oci://Lake@space/a"]})
    with pytest.raises(InvalidRequest, match="cannot be told apart"):
        TableUri.parse("oci://Lake@/t")

    assert resolve("oracle://Lake@SPACE.example/t/a.parquet", "oci://Lake@space/t") == "a.parquet"
    other = resolve("oci://lake@space/t/a.parquet", "oci://Lake@space/t")
    assert isinstance(other, ExternalFile)
    assert not other.same_store


def test_without_an_entry_what_stands_before_an_at_sign_is_a_user() -> None:
    with pytest.raises(InvalidRequest, match="it names a user"):
        TableUri.parse("oci://lake@space/t")


def test_a_kind_may_say_that_case_does_not_tell_names_apart() -> None:
    hosts = StoreKind("dav", ("dav",), (), (__name__, "BucketsOfANewStore"), "dav", case_sensitive=False)
    assert hosts.canonical_authority("Host:80") == "host:80"
    assert NEW.canonical_authority("Lake@Space") == "Lake@space"


@pytest.mark.parametrize(
    ("authority", "canonical"),
    [
        ("C@acc.z01.blob.storage.azure.net", "C@acc.z01.storage.azure.net"),
        ("C@Acc.DFS.core.windows.net", "C@acc.core.windows.net"),
        ("C@blob.core.windows.net", "C@blob.core.windows.net"),
        ("C@acc.blob", "C@acc.blob"),
        ("C", "C"),
    ],
)
def test_the_endpoints_of_an_account_have_one_spelling(authority: str, canonical: str) -> None:
    assert schemes.AZURE.canonical_authority(authority) == canonical
