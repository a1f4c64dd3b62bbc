from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google.auth.exceptions
import pytest
from google.auth import compute_engine, identity_pool, impersonated_credentials
from google.oauth2 import credentials as of_persons
from google.oauth2 import service_account
from tests.support.servers.google_identity import GoogleIdentity, private_key, running_google_identity

from delta_log.errors import AccessDenied, InvalidRequest, NoCredentials, StorageError
from delta_log.storage.objects.google_credentials import GoogleCredentials, checked_token

URI = "gs://lake/t"
GOOGLE_AUTH: Any = google.auth.exceptions  # which has no types
FULL_CONTROL = "https://www.googleapis.com/auth/devstorage.full_control"
READ_ONLY = "https://www.googleapis.com/auth/devstorage.read_only"
OF_A_PERSON = {"refresh_token": "r", "client_id": "c", "client_secret": "s"}


@pytest.fixture
def identity() -> Iterator[GoogleIdentity]:
    with running_google_identity() as service:
        yield service


def key(token_uri: str = "http://127.0.0.1:1/token") -> dict[str, str]:
    return {
        "type": "service_account",
        "project_id": "p",
        "client_email": "lake@p.iam.gserviceaccount.com",
        "token_uri": token_uri,
        "private_key": private_key(),
    }


def of(options: dict[str, Any]) -> GoogleCredentials:
    return GoogleCredentials(URI, options, checked_token(options.get("token")), "the identity of the tests")


def loaded(options: dict[str, Any]) -> Any:
    return of(options).load()[0]


@pytest.mark.parametrize("form", ["object", "text", "path", "object without its type"])
def test_a_key_of_a_service_account_is_taken_in_each_form(form: str, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(json.dumps(key()))
    untyped = {name: value for name, value in key().items() if name != "type"}
    token = {"object": key(), "text": json.dumps(key()), "path": str(tmp_path / "key.json")}.get(
        form, untyped
    )
    found, project = of({"token": token}).load()
    assert isinstance(found, service_account.Credentials)
    assert found.service_account_email == "lake@p.iam.gserviceaccount.com"
    assert list(found.scopes) == [FULL_CONTROL]
    assert project == "p"


@pytest.mark.parametrize("options", [{"access": "read_only"}, {"scopes": READ_ONLY}, {"scopes": [READ_ONLY]}])
def test_scopes_are_those_of_the_options(options: dict[str, Any]) -> None:
    assert list(loaded({"token": key(), **options}).scopes) == [READ_ONLY]


def test_a_token_of_a_person_keeps_its_scopes() -> None:
    found = loaded({"token": OF_A_PERSON})
    assert isinstance(found, of_persons.Credentials)
    assert (found.refresh_token, found.scopes) == ("r", None)
    assert loaded({"token": OF_A_PERSON, "scopes": READ_ONLY}).scopes == (READ_ONLY,)


def test_an_access_token_is_sent_as_it_is() -> None:
    assert of({"token": "ya29.of-the-tests"}).fetch() == {"token": "ya29.of-the-tests"}


def test_the_word_cloud_is_the_identity_of_the_machine() -> None:
    assert isinstance(loaded({"token": "cloud"}), compute_engine.Credentials)


@pytest.mark.parametrize("token", [None, "google_default"])
def test_the_default_credentials_are_found(
    token: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.json").write_text(json.dumps(key()))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    assert loaded({"token": token}).service_account_email == "lake@p.iam.gserviceaccount.com"


def test_an_account_is_impersonated_through_the_accounts_before_it() -> None:
    chain = ["first@p", "second@p", "last@p"]
    for given in (chain, "first@p, second@p,last@p"):
        found = loaded({"token": key(), "impersonation_chain": given})
        assert isinstance(found, impersonated_credentials.Credentials)
        assert found.service_account_email == "last@p"
        assert found._delegates == chain[:-1]


def test_a_workload_identity_is_made_into_credentials(identity: GoogleIdentity, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pod")
    credentials = of({"token": identity.federation(tmp_path / "token")})
    assert isinstance(credentials.load()[0], identity_pool.Credentials)
    assert credentials.fetch() == {"token": "of the tests"}
    assert identity.asked == ["/federation"]


def test_an_access_token_is_asked_for_again_when_it_ends(identity: GoogleIdentity) -> None:
    credentials = of({"token": identity.key})
    assert [credentials.fetch()["token"] for _ in range(3)] == ["of the tests"] * 3
    assert identity.asked == ["/token"]
    credentials.load()[0].expiry = None
    credentials.load()[0].token = None
    credentials.fetch()
    assert identity.asked == ["/token"] * 2


def test_a_revoked_key_is_refused_for_good(identity: GoogleIdentity) -> None:
    identity.refuse()
    with pytest.raises(
        AccessDenied, match="denied to the identity of the tests.*Invalid JWT Signature"
    ) as raised:
        of({"token": identity.key}).fetch()
    assert not raised.value.retryable


def test_a_refusal_because_of_the_clock_may_pass(identity: GoogleIdentity) -> None:
    identity.refuse("Invalid JWT: the token is old. Check your iat and exp values.")
    with pytest.raises(AccessDenied, match="Correct the clock") as raised:
        of({"token": identity.key}).fetch()
    assert raised.value.retryable


def test_a_service_of_identities_that_is_not_reached_is_no_refusal() -> None:
    with pytest.raises(StorageError, match="does not answer") as raised:
        of({"token": key()}).fetch()
    assert (type(raised.value), raised.value.retryable) == (StorageError, True)


class Refreshing:
    """Credentials whose renewal fails with an error of google-auth."""

    valid = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def refresh(self, _: object) -> None:
        raise self.error


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (GOOGLE_AUTH.RefreshError("invalid_grant: account not found"), AccessDenied, False),
        (GOOGLE_AUTH.RefreshError("busy", retryable=True), StorageError, True),
        (
            caused_by(GOOGLE_AUTH.RefreshError("metadata server"), GOOGLE_AUTH.TransportError("no route")),
            StorageError,
            True,
        ),
        (GOOGLE_AUTH.TransportError("no route"), StorageError, True),
        (GOOGLE_AUTH.DefaultCredentialsError("none found"), NoCredentials, False),
    ],
)
def test_a_refused_token_is_final_unless_the_token_service_was_not_reached(
    error: Exception, kind: type[Exception], retryable: bool
) -> None:
    with pytest.raises(StorageError) as raised:
        of({"token": Refreshing(error)}).fetch()
    assert (type(raised.value), raised.value.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"token": {"type": "of the moon"}}, NoCredentials, "does not have a valid type"),
        ({"token": "/nowhere.json"}, InvalidRequest, "file that is not there: /nowhere.json"),
        ({"token": "anon", "scopes": "s"}, InvalidRequest, "'anon' and impersonation_chain or scopes"),
        ({"token": "ya29.token", "scopes": "s"}, InvalidRequest, "whose scopes are fixed"),
        ({"token": "browser"}, InvalidRequest, "'browser'.*gcloud auth application-default login"),
        ({"token": "cache"}, InvalidRequest, "'cache'"),
        ({"token": 5}, InvalidRequest, "neither a text nor an object"),
        ({"token": ""}, InvalidRequest, "neither a text nor an object"),
        ({"access": "all"}, InvalidRequest, "full_control, read_write, read_only"),
        ({"impersonation_chain": 5}, InvalidRequest, "'impersonation_chain' is neither"),
    ],
)
def test_what_makes_no_credentials_is_refused(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        loaded(options)


@pytest.mark.parametrize("token", [{"private_key": "hidden"}, '{"hidden', "file"])
def test_a_broken_key_is_not_quoted(token: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text('{"hidden')
    given = (
        {"file": str(tmp_path / "key")}.get(token, token) if isinstance(token, str) else {**key(), **token}
    )
    with pytest.raises((NoCredentials, InvalidRequest)) as raised:
        loaded({"token": given})
    assert "hidden" not in str(raised.value)
