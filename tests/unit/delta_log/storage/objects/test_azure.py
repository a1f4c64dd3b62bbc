"""Tokens of Azure that are refused for good, busy or late; what a refusal of the store means; and which options there are."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.identity import CredentialUnavailableError

from delta_log.errors import AccessDenied, InvalidRequest, NoCredentials, ObjectArchived, StorageError
from delta_log.storage.ambient_options import ambient_options
from delta_log.storage.objects.azure import AzureStorage
from delta_log.storage.objects.backoff import Backoff
from delta_log.storage.objects.object_store import Action
from delta_log.storage.objects.store_answer import StoreAnswer

LAKE = "abfss://c@lake.dfs.core.windows.net/a/t"
REFUSED = ClientAuthenticationError("AADSTS7000215: Invalid client secret provided.\nTrace ID: 1")
NOT_FOUND = ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token\nAttempted: all")
UNAVAILABLE = CredentialUnavailableError("no response from the IMDS endpoint")
UNREACHED = ServiceRequestError("no route to login.microsoftonline.com")


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)


def answered(status: int) -> ClientAuthenticationError:
    response: Any = SimpleNamespace(status_code=status, reason="", headers={}, content_type="text/plain")
    return ClientAuthenticationError("AADSTS90033: busy", response=response)


class Credential:
    """Gives an answer for each time it is asked."""

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)

    def get_token(self, scope: str) -> Any:
        assert scope == "https://storage.azure.com/.default"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(token=answer)


def asked(storage: AzureStorage) -> Any:
    """What the store's client gets from the source of credentials."""
    storage.after_failure = Backoff(0.5, sleep=lambda _: None)
    source: Any = storage._credentials
    return source()


def with_token_of(*answers: Exception | str) -> tuple[AzureStorage, Credential]:
    credential = Credential(*answers)
    return AzureStorage(LAKE, {"credential": credential}), credential


def test_keys_and_tokens_are_handed_to_the_client() -> None:
    assert asked(AzureStorage(LAKE, {"account_key": "a2V5"}))["access_key"] == "a2V5"
    assert asked(AzureStorage(LAKE, {"sas_token": "?sig=1"}))["sas_token"] == "sig=1"
    assert asked(with_token_of("token")[0])["token"] == "token"
    assert AzureStorage(LAKE, {"anon": True})._credentials is None


@pytest.mark.parametrize("refusal", [REFUSED, answered(400), answered(401)])
def test_a_refused_token_ends_the_request(refusal: Exception) -> None:
    storage, credential = with_token_of(refusal, "token")
    with pytest.raises(AccessDenied, match="access was denied to") as caught:
        asked(storage)
    assert (caught.value.retryable, caught.value.__cause__) == (False, refusal)
    assert "Trace ID" not in str(caught.value)
    assert credential.answers == ["token"]


@pytest.mark.parametrize("outage", [answered(408), answered(429), answered(500), answered(503), UNREACHED])
def test_a_token_service_that_is_away_for_a_while_is_asked_again(outage: Exception) -> None:
    assert asked(with_token_of(outage, outage, "token")[0])["token"] == "token"
    with pytest.raises(StorageError, match="the service that gives out tokens failed") as caught:
        asked(with_token_of(*[outage] * 4, "token")[0])
    assert caught.value.retryable


def test_a_machine_without_an_identity_is_asked_twice() -> None:
    for missing in (UNAVAILABLE, NOT_FOUND):
        storage = AzureStorage(LAKE, {})
        for answers in ((missing, "token"), (missing, missing, "token")):
            object.__setattr__(storage._account, "credential", Credential(*answers))
            if len(answers) == 2:
                assert asked(storage)["token"] == "token"
            else:
                with pytest.raises(NoCredentials, match="there are no credentials") as caught:
                    asked(storage)
                assert not caught.value.retryable


def test_a_token_that_no_header_can_hold_is_refused() -> None:
    for token in ("a\nb", "ä"):
        with pytest.raises(NoCredentials, match="no header can hold"):
            asked(with_token_of(token)[0])


def refused(
    status: int, code: str, action: Action, options: dict[str, Any], detail: str = "", said: str = "said"
) -> StorageError:
    body = (
        f"<Error><Code>{code}</Code><Message>{said}\nRequestId:1\nTime:2</Message>"
        f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail></Error>"
    )
    answer = StoreAnswer("client's words", "GET", status, body)
    return AzureStorage(LAKE, options)._failure(answer, action, "k")


KEY = {"account_key": "a2V5"}
OLD = {"sas_token": "se=2026-01-02T03%3A04%3A05Z&sig=1"}


@pytest.mark.parametrize(
    ("action", "right"),
    [
        ("list", "Storage Blob Data Reader (SAS: r; l to list) on container c"),
        ("read", "Storage Blob Data Reader (SAS: r) on container c"),
        ("write", "Storage Blob Data Contributor (SAS: w) on container c"),
        ("delete", "Storage Blob Data Contributor (SAS: d) on container c"),
    ],
)
def test_a_missing_right_is_named(action: Action, right: str) -> None:
    error = refused(403, "AuthorizationPermissionMismatch", action, KEY)
    assert isinstance(error, AccessDenied)
    assert f"Grant the role {right} to it" in str(error)
    assert "(AuthorizationPermissionMismatch: said)" in str(error)
    assert not error.retryable


def test_a_deletion_among_several_is_refused_with_its_right_and_its_key() -> None:
    text = "Generic MicrosoftAzure error: Bulk delete request failed for key a/t/d/x: This request is not authorized. (code: {})"
    told = StoreAnswer.of(Exception(text.format(403)))
    error = AzureStorage(LAKE, KEY)._failure(told, "delete", "d/w")
    assert f"{LAKE}/d/x: access was denied" in str(error)
    assert "(SAS: d) on container c" in str(error)
    held = StoreAnswer.of(Exception(text.format(412)))
    assert f"{LAKE}/d/x was not deleted" in str(AzureStorage(LAKE, KEY)._failure(held, "delete", "d/w"))


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (401, "NoAuthenticationInformation", NoCredentials, "there are no credentials"),
        (409, "PublicAccessNotPermitted", NoCredentials, "there are no credentials"),
        (403, "AuthenticationFailed", AccessDenied, "Check the credentials"),
        (403, "AuthorizationFailure", AccessDenied, "Check the credentials"),
        (401, "InvalidAuthenticationInfo", AccessDenied, "Check the credentials"),
        (409, "BlobArchived", ObjectArchived, "has to be restored"),
        (409, "BlobBeingRehydrated", ObjectArchived, "is being restored"),
    ],
)
def test_what_azure_refuses_is_final(status: int, code: str, kind: type[StorageError], says: str) -> None:
    error = refused(status, code, "read", KEY)
    assert (type(error), error.retryable) == (kind, False)
    assert says in str(error)


@pytest.mark.parametrize(
    ("options", "detail", "says"),
    [
        (OLD, "", "which was valid until 2026-01-02 03:04 UTC"),
        (KEY, "Request date header too old: 'Fri, 02 Jan 2026'", "which has expired"),
        (
            {"sas_token": "sig=1"},
            "Signature not valid in the specified time frame: Start",
            "which has expired",
        ),
    ],
)
def test_what_has_expired_may_be_tried_again(options: dict[str, Any], detail: str, says: str) -> None:
    error = refused(403, "AuthenticationFailed", "read", options, detail)
    assert (type(error), error.retryable) == (AccessDenied, True)
    assert says in str(error)


def test_what_fails_otherwise_may_be_tried_again() -> None:
    busy = refused(503, "ServerBusy", "read", KEY)
    assert "the store failed (ServerBusy: said). Run again" in str(busy)
    unreached = AzureStorage(LAKE, KEY)._failure(StoreAnswer("error sending request", "GET"), "read", "k")
    assert "https://lake.blob.core.windows.net cannot be reached" in str(unreached)
    assert busy.retryable
    assert unreached.retryable


def test_each_setting_of_azure_that_travels_is_obeyed_there() -> None:
    settings: dict[str, Any] = {
        "account_name": "lake", "account_host": "lake.example.com", "location_mode": "primary", "blocksize": 1, "max_concurrency": 1,
        "timeout": 1, "connection_timeout": 1, "read_timeout": 1, "socket_timeout": 1, "default_fill_cache": False,
        "default_cache_type": "none", "version_aware": False, "assume_container_exists": True, "listings_expiry_time": 1, "max_paths": 1,
        "skip_instance_cache": True, "use_listings_cache": False,
    }  # fmt: skip
    identity = dict.fromkeys(
        (
            "account_key", "connection_string", "credential", "sas_token", "tenant_id", "client_id", "client_secret", "anon",
            "managed_identity_client_id", "workload_identity_tenant_id", "additionally_allowed_tenants",
        )
    )  # fmt: skip
    found = ambient_options(LAKE, {**settings, **identity})
    assert found.options == {**settings, "anon": False}
    assert set(found.withheld) == set(identity)
    storage = AzureStorage(LAKE, found.options)
    assert storage.endpoint == "https://lake.example.com"
    # None of these names is unknown there.
    AzureStorage(LAKE, {**settings, **identity})


@pytest.mark.parametrize(
    ("options", "seconds", "expected"),
    [
        ({}, 60, ("10s", "1m")),
        ({"connection_timeout": 3, "read_timeout": 30}, 60, ("3s", "30s")),
        ({"read_timeout": 30}, 900, ("10s", "7m 30s")),
        ({"timeout": "5", "read_timeout": 30}, 900, ("10s", "5s")),
    ],
)
def test_limits_of_time_are_those_of_the_options(
    options: dict[str, Any], seconds: int, expected: tuple[str, str]
) -> None:
    client: Any = AzureStorage(LAKE, {**KEY, **options})._connect(seconds).client_options
    assert (client["connect_timeout"], client["timeout"]) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"request_session": 1}, "storage option request_session cannot be obeyed"),
        ({"location_mode": "secondary"}, "storage option location_mode cannot be obeyed.*lags behind"),
        ({"read_timeout": "soon"}, "storage option read_timeout is 'soon'.*number of seconds"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        AzureStorage(LAKE, {**KEY, **options})


def test_tables_of_a_container_share_their_clients() -> None:
    storage = AzureStorage(LAKE, KEY)
    other = storage.beside("abfss://c@lake.dfs.core.windows.net/b")
    assert (other.bucket, other.object_key("k"), storage.object_key("k")) == ("c", "b/k", "a/t/k")
    assert other._clients is storage._clients


def test_a_listing_begins_behind_a_key_but_on_onelake() -> None:
    assert AzureStorage(LAKE, KEY).begins_behind_keys
    address = "abfss://workspace@onelake.dfs.fabric.microsoft.com/lake.Lakehouse/Tables/t"
    assert not AzureStorage(address, {"anon": False}).begins_behind_keys


def test_a_host_that_is_none_is_refused_by_name() -> None:
    storage = AzureStorage(LAKE, {**KEY, "account_host": "no host"})
    with pytest.raises(InvalidRequest, match="cannot be opened.*Check account_name, account_host"):
        storage.read("a")
