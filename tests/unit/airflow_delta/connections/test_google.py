from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.connections import options_of

from airflow_delta.connections.fields import UnusableConnection

TYPE = "google_cloud_platform"
KEY = {
    "type": "service_account",
    "client_email": "lake@p.iam.gserviceaccount.com",
    "token_uri": "https://oauth2.googleapis.com/token",
    "private_key": "-----BEGIN\nkey",
}
FEDERATED = {
    "type": "external_account",
    "audience": "//iam",
    "token_url": "https://sts.googleapis.com/v1/token",
}


def test_an_empty_connection_is_the_identity_of_the_machine() -> None:
    assert options_of(TYPE, {"project": "p", "num_retries": 5, "is_anonymous": False}) == {}


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ({"keyfile_dict": KEY}, {"token": KEY}),
        ({"keyfile_dict": json.dumps(KEY)}, {"token": KEY}),
        ({"extra__google_cloud_platform__keyfile_dict": json.dumps(KEY)}, {"token": KEY}),
        ({"keyfile_dict": {**KEY, "private_key": "-----BEGIN\\nkey"}}, {"token": KEY}),
        ({"is_anonymous": True}, {"token": "anon"}),
        ({"impersonation_chain": "a@p, b@p"}, {"impersonation_chain": ["a@p", "b@p"]}),
        ({"impersonation_chain": ["a@p"]}, {"impersonation_chain": ["a@p"]}),
        ({"scope": "https://a,https://b"}, {"scopes": ["https://a", "https://b"]}),
        ({"quota_project_id": "bill"}, {"quota_project_id": "bill"}),
        ({"credential_config_file": FEDERATED}, {"token": FEDERATED}),
        ({"credential_config_file": json.dumps(FEDERATED)}, {"token": FEDERATED}),
    ],
)
def test_each_field_has_its_option(extra: dict[str, Any], options: dict[str, Any]) -> None:
    assert options_of(TYPE, extra) == options


def test_the_content_of_a_file_travels_and_not_its_path(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(KEY))
    assert options_of(TYPE, {"key_path": str(path)}) == {"token": KEY}
    path.write_text(json.dumps(FEDERATED))
    assert options_of(TYPE, {"credential_config_file": str(path)}) == {"token": FEDERATED}


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"key_path": "/nowhere/key.json"}, "key_path cannot be read"),
        ({"key_path": "/k.json", "keyfile_dict": KEY}, "key_path and keyfile_dict"),
        ({"keyfile_dict": "{not json"}, "'keyfile_dict' is not a JSON object"),
        ({"keyfile_dict": {"type": "service_account"}}, "client_email, token_uri, private_key missing"),
        ({"credential_config_file": {"audience": "a"}}, "has no 'type'"),
        ({"key_secret_name": "lake"}, "in Secret Manager"),
        ({"idp_issuer_url": "https://idp"}, "comes from idp_issuer_url"),
        ({"impersonation_chain": 5}, "'impersonation_chain' is neither"),
        ({"is_anonymous": "perhaps"}, "neither true nor false"),
    ],
)
def test_a_connection_of_no_use_is_refused(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(UnusableConnection, match=says) as raised:
        options_of(TYPE, extra)
    assert "Nothing was started." in str(raised.value)
    assert "BEGIN" not in str(raised.value)
