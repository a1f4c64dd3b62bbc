from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import identity_pool, impersonated_credentials
from google.oauth2 import service_account

from delta_log.errors import InvalidRequest, NoCredentials
from delta_log.storage.objects.google_credentials import with_credentials

URI = "gs://lake/t"


@cache
def key() -> dict[str, str]:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "client_email": "lake@p.iam.gserviceaccount.com",
        "token_uri": "http://127.0.0.1:1/token",
        "private_key": pem.decode(),
    }


@pytest.mark.parametrize(
    "token", [None, "anon", "/key.json", {"type": "service_account"}, {"refresh_token": "r"}]
)
def test_what_gcsfs_understands_is_left_to_it(token: Any) -> None:
    options = {"token": token, "endpoint_url": "http://gcs"}
    assert with_credentials(URI, options) == options


def test_an_account_is_impersonated_through_the_accounts_before_it() -> None:
    chain = ["first@p", "second@p", "last@p"]
    found = with_credentials(URI, {"token": key(), "impersonation_chain": chain})["token"]
    assert isinstance(found, impersonated_credentials.Credentials)
    assert found.service_account_email == "last@p"
    assert found._delegates == chain[:-1]


def test_scopes_and_the_project_for_the_bill_are_those_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key()))
    scope = "https://www.googleapis.com/auth/devstorage.read_only"
    options = with_credentials(URI, {"token": str(path), "scopes": scope, "quota_project_id": "bill"})
    found = options["token"]
    assert options.keys() == {"token"}
    assert isinstance(found, service_account.Credentials)
    assert found.scopes == (scope,)
    assert found.quota_project_id == "bill"


def test_a_workload_identity_is_made_into_credentials(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pod")
    config = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(tmp_path / "token")},
    }
    assert isinstance(with_credentials(URI, {"token": config})["token"], identity_pool.Credentials)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"token": {"type": "of the moon"}}, NoCredentials, "does not have a valid type"),
        ({"token": "/nowhere.json", "scopes": "s"}, NoCredentials, "No such file"),
        ({"token": "anon", "scopes": "s"}, InvalidRequest, "'anon' and scopes"),
        ({"impersonation_chain": 5}, InvalidRequest, "'impersonation_chain' is neither"),
    ],
)
def test_what_makes_no_credentials_is_refused(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        with_credentials(URI, options)


@pytest.mark.parametrize("token", [{"private_key": "hidden"}, "hidden-access-token", '{"hidden'])
def test_a_broken_key_is_not_quoted(token: Any) -> None:
    given = {**key(), **token} if isinstance(token, dict) else token
    with pytest.raises(NoCredentials) as raised:
        with_credentials(URI, {"token": given, "scopes": "s"})
    assert "hidden" not in str(raised.value)
