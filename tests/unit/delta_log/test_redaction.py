"""No credential of an address is shown, wherever the address came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.errors import CorruptLog, InvalidRequest, NotATable, StorageError
from delta_log.redaction import has_credentials, redact, redacted
from delta_log.storage.lock.dynamodb_lock import LockOptions
from delta_log.storage.opening import StoragePool, open_storage
from delta_log.table import Table

SECRET = "wJalrXUtnFEMI"
#: Addresses with a credential, and how they are shown.
WITH_CREDENTIALS = {
    f"s3://AKIAKEY:{SECRET}@lake/events": "s3://***@lake/events",
    f"s3://AKIAKEY:{SECRET}/K7+MDENG/b@lake/events": "s3://***@lake/events",
    f"s3a://{SECRET}@lake/events": "s3a://***@lake/events",
    f"gs://{SECRET}@lake/events": "gs://***@lake/events",
    f"https://user:{SECRET}@example.org/t": "https://***@example.org/t",
    f"sftp://user:{SECRET}@example.org:22/t": "sftp://***@example.org:22/t",
    f"abfss://files:{SECRET}@account.dfs.core.windows.net/t": "abfss://***@account.dfs.core.windows.net/t",
    f"https://a.blob.core.windows.net/c/t?sv=2024-01-01&sig={SECRET}%3D&se=2027": (
        "https://a.blob.core.windows.net/c/t?sv=2024-01-01&sig=***&se=2027"
    ),
    f"abfss://c@a.dfs.core.windows.net/t?SIG={SECRET}": "abfss://c@a.dfs.core.windows.net/t?SIG=***",
    f"https://b.s3.amazonaws.com/t?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}": (
        "https://b.s3.amazonaws.com/t?X-Amz-Credential=***&X-Amz-Signature=***"
    ),
    f"s3://lake/t?X-Amz-Security-Token={SECRET}": "s3://lake/t?X-Amz-Security-Token=***",
    f"gs://lake/t?X-Goog-Signature={SECRET}": "gs://lake/t?X-Goog-Signature=***",
    f"az://c/t?account_key={SECRET}": "az://c/t?account_key=***",
    f"az://c/t?AccountKey={SECRET}": "az://c/t?AccountKey=***",
    f"s3://lake/t?aws_secret_access_key={SECRET}": "s3://lake/t?aws_secret_access_key=***",
    f"https://example.org/t?access_token={SECRET}#end": "https://example.org/t?access_token=***#end",
    f"az://c/t%3Fsv=1%26sig%3D{SECRET}": "az://c/t%3Fsv=1%26sig%3D***",
}
WITHOUT = [
    "/data/events",
    "/data/day=1/token=5/signature=x",
    "relative/path",
    "s3://lake/events",
    "s3://lake/token=5/signature=x/account_key=7",
    "s3://arn:aws:s3:eu-central-1:123456789012:accesspoint/lake/events/user@example.org",
    "abfss://files@account.dfs.core.windows.net/events",
    "hdfs://namenode:8020/user/me@example.org/t",
    "sftp://user@example.org/t",
    "https://example.org/t?version=7",
    "file:///data/a@b:c",
]


@pytest.mark.parametrize(("address", "shown"), WITH_CREDENTIALS.items())
def test_a_credential_is_taken_out_of_an_address_and_of_a_sentence(address: str, shown: str) -> None:
    assert has_credentials(address)
    assert redact(address) == shown
    assert redact(f"{address} is denied, see '{address}'.") == f"{shown} is denied, see '{shown}'."
    assert redact(json.dumps({"path": address})) == json.dumps({"path": shown})
    assert redact(shown) == shown


@pytest.mark.parametrize("address", WITHOUT)
def test_an_address_without_credentials_is_shown_as_it_is(address: str) -> None:
    assert not has_credentials(address)
    assert redact(address) == address


@pytest.mark.parametrize(
    "address",
    [f"s3://AKIAKEY:{SECRET} '+x@lake/t", f's3://AKIAKEY:{SECRET}"x@lake/t', f"s3://K:@{SECRET}@lake/t"],
)
def test_a_secret_with_spaces_or_quotes_is_found_in_an_address_of_its_own(address: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Table(address)
    assert SECRET not in str(caught.value)
    assert "s3://***@lake/t" in str(caught.value)


@pytest.mark.parametrize("address", WITH_CREDENTIALS)
def test_no_door_opens_an_address_with_credentials(address: str) -> None:
    for door in (Table, open_storage, StoragePool().open):
        with pytest.raises(InvalidRequest, match="carries credentials.* into the storage options") as caught:
            door(address)
        assert SECRET not in json.dumps([str(caught.value), repr(caught.value), caught.value.facts()])


def test_a_place_beside_a_table_is_no_way_around() -> None:
    table = Table("memory://lake/events")
    with pytest.raises(InvalidRequest, match="carries credentials"):
        table.storage_at(f"memory://lake/events?sig={SECRET}")
    storage: Any = Table("s3://lake/events", {"key": "key", "secret": "secret"}).storage
    with pytest.raises(InvalidRequest, match="carries credentials"):
        storage.beside(f"s3://lake/events?sig={SECRET}")


def test_errors_show_no_credential_of_what_a_log_or_a_client_says() -> None:
    for address, shown in WITH_CREDENTIALS.items():
        errors = (
            NotATable(address),
            CorruptLog(address, "it holds a '%'"),
            StorageError(f"{address}: the store failed (ClientError: GET {address}).", address),
        )
        for error in errors:
            said = json.dumps([str(error), repr(error), error.facts()])
            assert SECRET not in said
            assert shown in said


def test_connection_strings_and_members_of_json_values_are_covered() -> None:
    text = f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}/x+y==;EndpointSuffix=core.windows.net"
    assert redact(text).endswith("AccountName=a;AccountKey=***;EndpointSuffix=core.windows.net")
    value = {"a": [f"s3://K:{SECRET}@b", 7, None], f"x?sig={SECRET}": ("plain",)}
    assert redacted(value) == {"a": ["s3://***@b", 7, None], "x?sig=***": ["plain"]}


def test_a_lock_shows_no_key() -> None:
    options = LockOptions.from_mapping(
        {"provider": "dynamodb", "key": SECRET, "secret": SECRET, "token": SECRET}, {}
    )
    assert SECRET not in repr(options)


@pytest.mark.parametrize(
    "piece", ["://a:", "?token", "?tokentoken", "AccountKey=", "s3://x", "&sig", "://", "%3f%26"]
)
def test_a_hostile_text_is_gone_through_once(piece: str) -> None:
    """The lengths that a pattern looks at have limits: this would take hours otherwise."""
    redact(piece * 100_000 + "=@")


_PIECES = st.sampled_from(
    [
        "s3://",
        "https://",
        "a",
        ":",
        "@",
        "/",
        "?",
        "&",
        "sig",
        "token",
        "=",
        " ",
        "'",
        "%3D",
        "%26",
        "key",
        "***",
        ";",
    ]
)


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)
