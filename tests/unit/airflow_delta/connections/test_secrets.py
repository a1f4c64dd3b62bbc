from __future__ import annotations

import logging
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import redact
from tests.support.connections import hook_of

KEY = {
    "type": "service_account",
    "client_email": "lake@p",
    "token_uri": "https://t",
    "private_key": "-----BEGIN\nhidden-google-key\n-----END",
}


@pytest.mark.parametrize(
    ("conn_type", "fields", "secrets"),
    [
        ("aws", {"login": "A", "password": "hidden-aws-key"}, ["hidden-aws-key"]),
        (
            "aws",
            {
                "extra": {
                    "aws_access_key_id": "A",
                    "aws_secret_access_key": "hidden-extra",
                    "aws_session_token": "hidden-session",
                }
            },
            ["hidden-extra", "hidden-session"],
        ),
        (
            "aws",
            {
                "extra": {
                    "session_kwargs": {"aws_access_key_id": "A", "aws_secret_access_key": "hidden-older"}
                }
            },
            ["hidden-older"],
        ),
        (
            "google_cloud_platform",
            {"extra": {"keyfile_dict": KEY}},
            [KEY["private_key"], KEY["private_key"].replace("\n", "\\n")],
        ),
        ("wasb", {"login": "a", "password": "hidden-azure-key"}, ["hidden-azure-key"]),
        (
            "wasb",
            {"login": "a", "extra": {"sas_token": "sv=1&sig=hidden%2Bsas"}},
            ["hidden%2Bsas", "hidden+sas"],
        ),
        (
            "wasb",
            {"extra": {"connection_string": "AccountName=a;AccountKey=hidden-in-string=="}},
            ["hidden-in-string=="],
        ),
        (
            "azure",
            {"extra": {"key_json": {"clientId": "id", "clientSecret": "hidden-json", "tenantId": "t"}}},
            ["hidden-json"],
        ),
        ("delta", {"extra": {"key": "A", "secret": "hidden-delta"}}, ["hidden-delta"]),
        (
            "delta",
            {"extra": {"token": '{"private_key": "hidden-json-text"}'}},
            ["hidden-json-text"],
        ),
    ],
)
def test_every_secret_of_a_connection_is_masked(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, fields: dict[str, Any], secrets: list[str]
) -> None:
    assert hook_of(monkeypatch, conn_type, **fields).storage_options
    for secret in secrets:
        assert "hidden" not in str(redact(f"before {secret} after")), secret


def test_reading_a_connection_logs_no_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hook = hook_of(monkeypatch, "aws", login="A", password="hidden-in-the-log")
    assert hook.storage_options["secret"] == "hidden-in-the-log"
    assert "hidden-in-the-log" not in caplog.text + repr(hook._fields)
