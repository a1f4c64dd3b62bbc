from __future__ import annotations

from typing import Any

import pytest
from tests.support.connections import options_of

from airflow_delta.connections.azure import Account
from airflow_delta.connections.fields import UnusableConnection

PRINCIPAL = {"login": "id", "password": "secret"}
OPTIONS = {"tenant_id": "tenant", "client_id": "id", "client_secret": "secret"}
STRING = "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey=a2V5;EndpointSuffix=core.windows.net"


@pytest.mark.parametrize(
    ("conn_type", "fields", "options"),
    [
        (
            "wasb",
            {"login": "lake", "password": "a2V5"},
            {"account_name": "lake", "account_key": "a2V5"},
        ),
        (
            "wasb",
            {"login": "lake", "extra": {"shared_access_key": "a2V5"}},
            {"account_name": "lake", "account_key": "a2V5"},
        ),
        (
            "wasb",
            {"login": "lake", "extra": {"account_key": "a2V5"}},
            {"account_name": "lake", "account_key": "a2V5"},
        ),
        (
            "wasb",
            {"login": "lake", "extra": {"sas_token": "?sv=1&sig=x"}},
            {"account_name": "lake", "sas_token": "sv=1&sig=x"},
        ),
        (
            "wasb",
            {"extra": {"sas_token": "https://lake.blob.core.windows.net/?sv=1&sig=x"}},
            {"account_name": "lake", "sas_token": "sv=1&sig=x"},
        ),
        (
            "wasb",
            {"extra": {"connection_string": STRING}},
            {"account_name": "lake", "connection_string": STRING},
        ),
        (
            "wasb",
            {**PRINCIPAL, "host": "https://lake.blob.core.windows.net", "extra": {"tenant_id": "tenant"}},
            {"account_name": "lake", **OPTIONS},
        ),
        (
            "wasb",
            {**PRINCIPAL, "host": "lake.blob.core.usgovcloudapi.net", "extra": {"tenant_id": "tenant"}},
            {"account_name": "lake", "account_host": "lake.blob.core.usgovcloudapi.net", **OPTIONS},
        ),
        ("wasb", {"login": "lake"}, {"account_name": "lake", "anon": False}),
        (
            "wasb",
            {
                "login": "lake",
                "extra": {"managed_identity_client_id": "mi", "workload_identity_tenant_id": "tenant"},
            },
            {
                "account_name": "lake",
                "anon": False,
                "managed_identity_client_id": "mi",
                "workload_identity_tenant_id": "tenant",
                "additionally_allowed_tenants": ["tenant"],
            },
        ),
        (
            "wasb",
            {"login": "dev", "password": "a2V5", "host": "http://127.0.0.1:10000/dev"},
            {
                "account_name": "dev",
                "connection_string": "AccountName=dev;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/dev;",
            },
        ),
        ("adls", {"host": "lake", "password": "a2V5"}, {"account_name": "lake", "account_key": "a2V5"}),
        (
            "adls",
            {**PRINCIPAL, "host": "lake", "extra": {"tenant_id": "tenant"}},
            {"account_name": "lake", **OPTIONS},
        ),
        ("adls", {"host": "lake"}, {"account_name": "lake", "anon": False}),
        (
            "adls",
            {"password": "a2V5", "extra": {"account_url": "https://lake.dfs.core.chinacloudapi.cn"}},
            {
                "account_name": "lake",
                "account_host": "lake.blob.core.chinacloudapi.cn",
                "account_key": "a2V5",
            },
        ),
        (
            "azure_data_lake",
            {**PRINCIPAL, "extra": {"tenant": "tenant", "account_name": "lake"}},
            {"account_name": "lake", **OPTIONS},
        ),
        (
            "azure_data_lake",
            {"extra": {"extra__azure_data_lake__account_name": "lake"}},
            {"account_name": "lake", "anon": False},
        ),
        ("azure", {**PRINCIPAL, "extra": {"tenantId": "tenant"}}, OPTIONS),
        (
            "azure",
            {"extra": {"key_json": {"clientId": "id", "clientSecret": "secret", "tenantId": "tenant"}}},
            OPTIONS,
        ),
        ("azure", {"extra": {"subscriptionId": "s"}}, {"anon": False}),
        (
            "azure",
            {"extra": {"managed_identity_client_id": "mi"}},
            {"anon": False, "managed_identity_client_id": "mi"},
        ),
    ],
)
def test_each_field_has_its_option(conn_type: str, fields: dict[str, Any], options: dict[str, Any]) -> None:
    assert options_of(conn_type, **fields) == options


@pytest.mark.parametrize(
    ("text", "account"),
    [
        ("lake", Account("lake")),
        ("lake.blob.core.windows.net", Account("lake")),
        ("https://lake.dfs.core.windows.net/", Account("lake")),
        ("https://lake.blob.core.windows.net/container", Account("lake")),
        ("https://lake.z6.blob.storage.azure.net", Account("lake", "lake.z6.blob.storage.azure.net")),
        ("http://azurite:10000/dev", Account("dev", url="http://azurite:10000/dev")),
        ("https://127.0.0.1:10000/dev/", Account("dev", url="https://127.0.0.1:10000/dev")),
    ],
)
def test_an_account_is_a_name_a_host_or_a_url(text: str, account: Account) -> None:
    assert Account.of(text) == account


@pytest.mark.parametrize(
    ("conn_type", "fields", "says"),
    [
        ("wasb", {}, "names no storage account"),
        ("wasb", {"login": "id", "extra": {"tenant_id": "t"}, "host": "lake"}, "no client secret"),
        ("wasb", {**PRINCIPAL, "extra": {"tenant_id": "tenant"}}, "names no storage account"),
        (
            "wasb",
            {**PRINCIPAL, "host": "http://127.0.0.1/dev", "extra": {"tenant_id": "tenant"}},
            "over https to an account's host only",
        ),
        ("adls", {"password": "key"}, "names no storage account"),
        ("adls", {"host": "lake", "login": "id"}, "a client id and no client secret"),
        ("azure_data_lake", {"login": "id", "extra": {"tenant": "t"}}, "no client secret"),
        ("azure", {"login": "id", "password": "secret"}, "no tenant id"),
        ("azure", {"extra": {"key_path": "/k.json"}}, "key_path"),
        ("azure", {"extra": {"cloud_environment": "AzureUSGovernment"}}, "cloud_environment"),
    ],
)
def test_a_connection_that_is_incomplete_is_refused(
    conn_type: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(UnusableConnection, match=says) as raised:
        options_of(conn_type, **fields)
    assert "Nothing was started." in str(raised.value)
