from __future__ import annotations

from importlib import import_module

import pytest

from delta_log.errors import InvalidRequest
from delta_log.storage.schemes import STORES, StoreKind, family_of, same_store, scheme_of, store_kind
from delta_log.storage.storage import Storage


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.family)
def test_every_kind_of_store_names_a_storage(kind: StoreKind) -> None:
    module, name = kind.implementation
    assert issubclass(getattr(import_module(module), name), Storage)
    assert all(store_kind(scheme) is kind for scheme in kind.schemes)
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
