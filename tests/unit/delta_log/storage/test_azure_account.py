"""Which account and which credential an address, storage options and the environment mean."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from azure.identity import ClientSecretCredential, DefaultAzureCredential

from delta_log.errors import InvalidRequest
from delta_log.storage.azure_account import ContainerAddress, account_of

LAKE = "abfss://c@lake.dfs.core.windows.net/a/t"
KEY, OTHER_KEY = "a2V5", "b3RoZXI="
PUBLIC = "https://lake.blob.core.windows.net"
PRINCIPAL = {"tenant_id": "t", "client_id": "i", "client_secret": "s"}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("az://c/a/t", ContainerAddress("c", "a/t")),
        ("abfs://c@lake/t", ContainerAddress("c", "t", "lake")),
        (LAKE, ContainerAddress("c", "a/t", "lake", "lake.blob.core.windows.net")),
        (
            "abfss://c@Lake.blob.core.windows.net",
            ContainerAddress("c", "", "lake", "lake.blob.core.windows.net"),
        ),
        (
            "abfss://c@lake.z01.dfs.storage.azure.net/t",
            ContainerAddress("c", "t", "lake", "lake.z01.blob.storage.azure.net"),
        ),
        (
            "abfss://c@lake.dfs.core.chinacloudapi.cn/t",
            ContainerAddress("c", "t", "lake", "lake.blob.core.chinacloudapi.cn"),
        ),
        (
            "abfss://c@dfs.dfs.core.windows.net/t",
            ContainerAddress("c", "t", "dfs", "dfs.blob.core.windows.net"),
        ),
    ],
)
def test_an_address_names_a_container_and_perhaps_its_account(
    address: str, expected: ContainerAddress
) -> None:
    assert ContainerAddress.parse(address) == expected


def of(options: dict[str, Any], address: str = LAKE, **environment: str) -> tuple[str, str, str, str]:
    found = account_of(address, options, environment)
    return found.name, found.endpoint, found.key, found.sas_token


@pytest.mark.parametrize(
    ("address", "options", "expected"),
    [
        (LAKE, {"account_key": KEY}, ("lake", PUBLIC, KEY, "")),
        ("az://c/t", {"account_name": "lake", "account_key": KEY}, ("lake", PUBLIC, KEY, "")),
        ("abfs://c@lake/t", {"account_key": KEY, "sas_token": "sig=1"}, ("lake", PUBLIC, KEY, "")),
        (LAKE, {"sas_token": "?se=1&sig=a%3D"}, ("lake", PUBLIC, "", "se=1&sig=a%3D")),
        (LAKE, {"anon": True}, ("lake", PUBLIC, "", "")),
        (
            LAKE,
            {"account_host": "lake.example.com", "account_key": KEY},
            ("lake", "https://lake.example.com", KEY, ""),
        ),
        (
            "abfss://c@lake.dfs.core.usgovcloudapi.net/t",
            {"account_key": KEY},
            ("lake", "https://lake.blob.core.usgovcloudapi.net", KEY, ""),
        ),
        (
            "az://c/t",
            {"connection_string": f"DefaultEndpointsProtocol=https;AccountName=lake;AccountKey={KEY};"},
            ("lake", PUBLIC, KEY, ""),
        ),
        (
            "az://c/t",
            {"connection_string": f"accountname=lake;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn"},
            ("lake", "https://lake.blob.core.chinacloudapi.cn", KEY, ""),
        ),
        (
            "az://c/t",
            {"connection_string": "BlobEndpoint=http://azurite:10000/dev/;SharedAccessSignature=?sv=1&sig=2"},
            ("dev", "http://azurite:10000/dev", "", "sv=1&sig=2"),
        ),
        (
            LAKE,
            {"connection_string": f"BlobEndpoint={PUBLIC}/?sv=1&sig=2", "account_key": OTHER_KEY},
            ("lake", PUBLIC, "", "sv=1&sig=2"),
        ),
        ("az://c/t", {"connection_string": f"BlobEndpoint={PUBLIC}"}, ("lake", PUBLIC, "", "")),
    ],
)
def test_options_say_where_the_account_is_and_what_signs(
    address: str, options: dict[str, Any], expected: tuple[str, str, str, str]
) -> None:
    assert of(options, address) == expected


def test_the_emulator_has_a_name_of_its_own() -> None:
    name, endpoint, key, _ = of({"connection_string": "UseDevelopmentStorage=true"}, "az://c/t")
    assert (name, endpoint) == ("devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1")
    assert key.startswith("Eby8vdM0")


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ({"ACCOUNT_KEY": KEY}, {}, (KEY, "")),
        ({"ACCOUNT_KEY": KEY}, {"anon": False}, (KEY, "")),
        ({"ACCOUNT_KEY": KEY}, {"anon": True}, ("", "")),
        ({"SAS_TOKEN": "?sig=1"}, {}, ("", "sig=1")),
        ({"SAS_TOKEN": "sig=1", "ACCOUNT_KEY": KEY}, {}, (KEY, "")),
        (
            {"CONNECTION_STRING": f"AccountName=lake;AccountKey={KEY}", "ACCOUNT_KEY": OTHER_KEY},
            {},
            (KEY, ""),
        ),
        ({"CONNECTION_STRING": f"AccountName=other;AccountKey={KEY}"}, {"sas_token": "sig=1"}, ("", "sig=1")),
        ({"ANON": "true"}, {}, ("", "")),
        ({"ANON": "true"}, {"account_key": KEY}, (KEY, "")),
        ({"ACCOUNT_NAME": "other"}, {"account_key": KEY}, (KEY, "")),
    ],
)
def test_what_the_options_leave_open_is_read_from_the_environment(
    environment: dict[str, str], options: dict[str, Any], expected: tuple[str, str]
) -> None:
    name, endpoint, *signs = of(
        options, **{f"AZURE_STORAGE_{key}": value for key, value in environment.items()}
    )
    assert (name, endpoint) == ("lake", PUBLIC)
    assert tuple(signs) == expected


def test_an_account_may_be_named_by_the_environment_alone() -> None:
    assert of({"account_key": KEY}, "az://c/t", AZURE_STORAGE_ACCOUNT_NAME="lake")[:2] == ("lake", PUBLIC)


def test_tokens_are_of_a_principal_or_of_the_machine_or_from_an_object() -> None:
    assert isinstance(account_of(LAKE, PRINCIPAL, {}).credential, ClientSecretCredential)
    mixed = account_of(LAKE, {"client_id": "i", "tenant_id": "t"}, {"AZURE_STORAGE_CLIENT_SECRET": "s"})
    assert isinstance(mixed.credential, ClientSecretCredential)
    for options in ({}, {"anon": False}, {"anon": False, "managed_identity_client_id": "m"}):
        found = account_of(LAKE, options, {"AZURE_STORAGE_ANON": "0"})
        assert isinstance(found.credential, DefaultAzureCredential)
        assert found.is_of_machine
    given = SimpleNamespace(get_token=lambda _: None)
    found = account_of(LAKE, {"credential": given, "account_key": KEY}, {})
    assert (found.credential, found.key, found.is_of_machine) == (given, "", False)


def test_a_sas_token_says_until_when_it_is_valid() -> None:
    end = account_of(LAKE, {"sas_token": "se=2026-01-02T03%3A04%3A05Z&sig=1"}, {}).sas_end
    assert end == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert account_of(LAKE, {"sas_token": "se=2026-01-02&sig=1"}, {}).sas_end is not None
    assert account_of(LAKE, {"sas_token": "sig=1"}, {}).sas_end is None


def test_secrets_are_not_shown() -> None:
    assert KEY not in repr(account_of(LAKE, {"account_key": KEY}, {}))
    assert "sig" not in repr(account_of(LAKE, {"sas_token": "sig=1"}, {}))


async def get_token(_: str) -> str:
    return "token"


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        ("az://c/t", {"account_key": KEY}, "az://c/t names no storage account"),
        (
            "abfss://lake.dfs.core.windows.net/c/t",
            {"account_key": KEY},
            "names no container before its account",
        ),
        (LAKE, {"account_name": "other", "account_key": KEY}, "account lake, .* of the account other"),
        (LAKE, {"connection_string": f"AccountName=other;AccountKey={KEY}"}, "of the account other"),
        (LAKE, {"account_host": "https://lake.example.com", "account_key": KEY}, "account_host"),
        (LAKE, {"account_key": "sesame!"}, "no text in Base64"),
        (LAKE, {"sas_token": "https://lake.blob.core.windows.net/c"}, "SAS token .* malformed"),
        (LAKE, {"sas_token": "sv=1&sig=sesame\n2"}, "SAS token .* malformed"),
        (LAKE, {"connection_string": "sesame"}, "connection_string is malformed"),
        (LAKE, {"connection_string": "BlobEndpoint=azurite:10000"}, "BlobEndpoint .* is no URL"),
        (LAKE, {"client_id": "i", "tenant_id": "t"}, "no client_secret"),
        (LAKE, {"credential": "sesame"}, "credential is a str"),
        (LAKE, {"credential": SimpleNamespace(get_token=get_token)}, "not of azure.identity.aio"),
    ],
)
def test_what_is_wrong_is_refused_without_its_secret(
    address: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as raised:
        account_of(address, options, {})
    assert "sesame" not in str(raised.value)
