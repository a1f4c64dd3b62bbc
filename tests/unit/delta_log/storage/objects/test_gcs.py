from __future__ import annotations

from typing import Any

import pytest

from delta_log.errors import AccessDenied, BucketNotFound, InvalidRequest, StorageError
from delta_log.storage.ambient_options import ambient_options
from delta_log.storage.objects.gcs import GcsStorage
from delta_log.storage.objects.object_store import Action
from delta_log.storage.objects.store_answer import StoreAnswer

URI = "gs://lake/t"
ANONYMOUS: dict[str, Any] = {"token": "anon"}


@pytest.fixture(autouse=True)
def without_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)


def client_of(options: dict[str, Any], seconds: int = 60) -> Any:
    """The store of obstore that makes the requests."""
    return GcsStorage(URI, options)._connect(seconds)


@pytest.mark.parametrize(
    ("options", "variable", "endpoint"),
    [
        ({}, None, "https://storage.googleapis.com"),
        ({"endpoint_url": "https://private.example/"}, None, "https://private.example"),
        ({"endpoint_url": "http://127.0.0.1:4443"}, "127.0.0.1:1", "http://127.0.0.1:4443"),
        ({}, "127.0.0.1:4443", "http://127.0.0.1:4443"),
        ({}, "https://emulator", "https://emulator"),
        ({}, "default", "https://storage.googleapis.com"),
    ],
)
def test_the_endpoint_comes_from_the_options_or_names_an_emulator(
    options: dict[str, Any], variable: str | None, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", variable)
    found = client_of({**ANONYMOUS, **options})
    assert found.config["base_url"] == endpoint
    assert (found.client_options["allow_http"] == "true") == endpoint.startswith("http:")


def test_an_emulator_is_asked_without_credentials_unless_options_name_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
    assert client_of({}).config["skip_signature"] == "true"
    assert client_of({"token": "ya29.token"}).config["skip_signature"] == "false"
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    assert client_of({}).config["skip_signature"] == "false"


@pytest.mark.parametrize(
    ("options", "short", "long"),
    [
        ({}, "1m", "15m"),
        ({"requests_timeout": 20}, "20s", "5m"),
        ({"timeout": "5"}, "5s", "1m 15s"),
    ],
)
def test_a_request_ends_after_the_time_of_the_options(options: dict[str, Any], short: str, long: str) -> None:
    given = {**ANONYMOUS, **options}
    times = [client_of(given, seconds).client_options["timeout"] for seconds in (60, 900)]
    assert times == [short, long]


@pytest.mark.parametrize(
    ("options", "payer"),
    [
        ({"requester_pays": True, "project": "p"}, "p"),
        ({"requester_pays": "true", "project": "p"}, "p"),
        ({"requester_pays": "other", "project": "p"}, "other"),
        ({"requester_pays": False, "project": "p"}, None),
        ({"quota_project_id": "q", "project": "p"}, "q"),
        ({"project": "p"}, None),
    ],
)
def test_the_project_that_pays_is_told_where_it_is_asked_for(
    options: dict[str, Any], payer: str | None
) -> None:
    headers = client_of({**ANONYMOUS, **options}).client_options.get("default_headers", {})
    assert headers.get("x-goog-user-project") == (None if payer is None else payer.encode())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"session_kwargs": {"trust_env": True}}, "session_kwargs cannot be obeyed.*HTTPS_PROXY"),
        ({"user_project": "p"}, "user_project cannot be obeyed.*docs/reference/stores.md"),
        ({"endpoint_url": "storage.example"}, "'storage.example'.*no URL of a server"),
        ({"endpoint_url": "http://storage.example/path"}, "no URL of a server"),
        ({"timeout": "soon"}, "timeout is 'soon'"),
        ({"requests_timeout": 0}, "requests_timeout is 0"),
        ({"requester_pays": True}, "does not say which project pays"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_refused_by_its_name(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        client_of({**ANONYMOUS, **options})


def test_options_that_tune_caches_of_gcsfs_are_accepted() -> None:
    client_of(
        {**ANONYMOUS, "block_size": 1, "cache_timeout": 0, "consistency": "md5", "use_listings_cache": False}
    )


def test_each_setting_that_travels_without_an_identity_is_obeyed_there() -> None:
    settings: dict[str, Any] = {
        "endpoint_url": "https://private.example",
        "project": "p",
        "access": "read_only",
        "requests_timeout": 1,
        "timeout": 1,
        "requester_pays": True,
        "quota_project_id": "q",
        "block_size": 1,
        "cache_timeout": 1,
        "check_connection": False,
        "consistency": "none",
        "default_location": "EU",
        "listings_expiry_time": 1,
        "max_paths": 1,
        "secure_serialize": True,
        "skip_instance_cache": True,
        "use_listings_cache": False,
        "version_aware": False,
    }
    given = {**settings, "token": "ya29.token", "impersonation_chain": "a@p", "scopes": "s"}
    found = ambient_options(URI, given)
    assert found.options == settings
    assert found.withheld == ("impersonation_chain", "scopes", "token")
    assert client_of({**found.options, **ANONYMOUS}).config["base_url"] == "https://private.example"


def test_a_variable_of_the_environment_that_the_client_cannot_read_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/nowhere.json")
    with pytest.raises(InvalidRequest, match="/nowhere.json.*GOOGLE_SERVICE_ACCOUNT"):
        client_of(ANONYMOUS)


def answer(status: int, code: str, details: str = "") -> StoreAnswer:
    body = f"<Error><Code>{code}</Code><Message>said</Message><Details>{details}</Details></Error>"
    return StoreAnswer(said="said", method="GET", status=status, body=body)


@pytest.mark.parametrize(
    ("given", "action", "kind", "says"),
    [
        (answer(403, "AccessDenied"), "list", AccessDenied, "Grant storage.objects.list on bucket lake"),
        (answer(403, "AccessDenied"), "read", AccessDenied, "Grant storage.objects.get on bucket lake"),
        (answer(403, "AccessDenied"), "write", AccessDenied, "Grant storage.objects.create on bucket lake"),
        (answer(403, "AccessDenied"), "delete", AccessDenied, "Grant storage.objects.delete on bucket lake"),
        (
            answer(403, "AccessDenied", "p does not have storage.multipartUploads.create access"),
            "write",
            AccessDenied,
            "p does not have.*Grant storage.multipartUploads.create on bucket lake",
        ),
        (answer(400, "UserProjectMissing"), "read", AccessDenied, "Set requester_pays"),
        (
            answer(503, "ServiceUnavailable"),
            "read",
            StorageError,
            "the store failed .ServiceUnavailable: said.",
        ),
        (
            StoreAnswer("no route", "GET"),
            "read",
            StorageError,
            "storage.googleapis.com cannot be reached .no route.",
        ),
    ],
)
def test_a_refusal_says_who_asked_and_which_right_is_missing(
    given: StoreAnswer, action: Action, kind: type[StorageError], says: str
) -> None:
    error = GcsStorage(URI, ANONYMOUS)._failure(given, action, "k")
    with pytest.raises(StorageError, match=says):
        raise error
    assert (type(error), error.retryable) == (kind, kind is StorageError)
    assert kind is StorageError or "denied to requests without credentials (anon)" in str(error)


def test_a_missing_bucket_is_named() -> None:
    assert isinstance(GcsStorage(URI, ANONYMOUS)._no_bucket(URI), BucketNotFound)
