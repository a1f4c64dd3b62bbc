from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.connections.kinds import CATALOG_TYPES
from airflow_delta.connections.rest_catalog import MEMBERS, SCHEMES
from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.provider_info import CATALOG_FIELDS
from delta_log.storage.schemes import CATALOGS

NAME = "uc://prod.sales.events"


def hook_of(monkeypatch: pytest.MonkeyPatch, conn_type: str, **fields: Any) -> DeltaTableHook:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": conn_type, **fields}))
    return DeltaTableHook("lake")


@pytest.mark.parametrize(
    ("fields", "catalog"),
    [
        ({"host": "https://c.example.org", "password": "t"}, {"uri": "https://c.example.org", "token": "t"}),
        ({"host": "c.example.org"}, {"uri": "https://c.example.org"}),
        (
            {
                "host": "http://c:8080",
                "login": "me",
                "password": "s",
                "extra": {"token_uri": "http://c/oauth", "scope": "all"},
            },
            {
                "uri": "http://c:8080",
                "client_id": "me",
                "client_secret": "s",
                "token_uri": "http://c/oauth",
                "scope": "all",
            },
        ),
    ],
)
def test_each_field_has_its_member(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], catalog: dict[str, Any]
) -> None:
    extra = {**fields.pop("extra", {}), "endpoint_url": "http://minio:9000", "test_table": NAME}
    hook = hook_of(monkeypatch, "unity_catalog", extra=extra, **fields)
    assert hook.storage_options == {"endpoint_url": "http://minio:9000"}
    table = {"scheme": "uc", "name": ["prod", "sales", "events"], "catalog": catalog}
    assert hook.opening_options(NAME) == {
        "endpoint_url": "http://minio:9000",
        "vended": table,
        "managed_by": table,
    }
    assert hook.opening_options("s3://lake/events") == {"endpoint_url": "http://minio:9000"}
    assert hook.options_for(["uc://prod.*", "s3://lake/**"]) == {
        "endpoint_url": "http://minio:9000",
        "unity": catalog,
    }


def test_own_credentials_are_used_if_the_connection_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"vended_credentials": False, "key": "k", "secret": "s"}
    hook = hook_of(monkeypatch, "unity_catalog", host="https://c.example.org", extra=extra)
    options = hook.opening_options(NAME)
    assert options.pop("managed_by")["catalog"] == {
        "uri": "https://c.example.org",
        "vended_credentials": False,
    }
    assert options == {"key": "k", "secret": "s"}


def test_a_connection_of_another_type_has_the_option_in_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = {"uri": "https://c.example.org", "token": "t"}
    hook = hook_of(monkeypatch, "delta", extra={"unity": catalog, "key": "k"})
    assert hook.storage_options == {"key": "k"}
    assert hook.opening_options(NAME)["vended"]["catalog"] == catalog
    # A catalog that the connection does not name is missed by the lookup.
    assert hook.opening_options("lakekeeper://a.b.c") == {"key": "k"}
    assert DeltaTableHook(None).opening_options(NAME) == {}


def test_a_connection_without_a_host_or_to_another_catalog_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(AirflowFailException, match="it names no host"):
        hook_of(monkeypatch, "unity_catalog").opening_options(NAME)
    polaris = hook_of(monkeypatch, "polaris", host="https://p.example.org")
    with pytest.raises(AirflowFailException, match="it is for names that begin with polaris://"):
        polaris.opening_options(NAME)


def test_types_and_members_are_the_same_everywhere() -> None:
    assert tuple(SCHEMES) == CATALOG_TYPES
    assert {CATALOGS[scheme].module for scheme in SCHEMES.values()} == {"delta_log.catalog.rest"}
    assert {"token_uri", "scope", "ca_bundle"} <= CATALOG_FIELDS.keys() & set(MEMBERS)
