from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
from tests.support.connections import connection, options_of

from airflow_delta.connections.fields import UnusableConnection
from delta_log.storage.assumed_role import AssumedRole

ROLE = "arn:aws:iam::123456789012:role/lake"
KEYS = {"login": "AKIA", "password": "S/+="}


def test_an_empty_connection_is_the_identity_of_the_machine() -> None:
    assert options_of("aws") == {}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        (KEYS, {"key": "AKIA", "secret": "S/+="}),
        (
            {"extra": {"aws_access_key_id": "A", "aws_secret_access_key": "S", "aws_session_token": "T"}},
            {"key": "A", "secret": "S", "token": "T"},
        ),
        (
            {"extra": {"session_kwargs": {"aws_access_key_id": "A", "aws_secret_access_key": "S"}}},
            {"key": "A", "secret": "S"},
        ),
        ({"extra": {"profile_name": "lake"}}, {"profile": "lake"}),
        (
            {"extra": {"region_name": "eu-central-1", "verify": False}},
            {"client_kwargs": {"region_name": "eu-central-1", "verify": False}},
        ),
        ({"extra": {"endpoint_url": "http://minio:9000"}}, {"endpoint_url": "http://minio:9000"}),
        (
            {
                "extra": {
                    "endpoint_url": "http://all",
                    "service_config": {"s3": {"endpoint_url": "http://s3"}},
                }
            },
            {"endpoint_url": "http://s3"},
        ),
        ({"extra": {"config_kwargs": {"signature_version": "unsigned"}}}, {"anon": True}),
        (
            {"extra": {"config_kwargs": {"retries": {"max_attempts": 9}}}},
            {"config_kwargs": {"retries": {"max_attempts": 9}}},
        ),
        ({"extra": {"lock": {"provider": "dynamodb"}}}, {"lock": {"provider": "dynamodb"}}),
    ],
)
def test_each_field_has_its_option(fields: dict[str, Any], options: dict[str, Any]) -> None:
    assert options_of("aws", **fields) == options


def test_a_role_is_described_and_not_assumed() -> None:
    options = options_of(
        "aws",
        {
            "role_arn": ROLE,
            "region_name": "eu-central-1",
            "service_config": {"sts": {"endpoint_url": "http://sts"}},
            "assume_role_kwargs": {"ExternalId": "x1", "DurationSeconds": 900, "Policy": "{}"},
        },
        **KEYS,
    )
    assert options == {
        "key": "AKIA",
        "secret": "S/+=",
        "client_kwargs": {"region_name": "eu-central-1"},
        "assume_role": {
            "role_arn": ROLE,
            "session_name": "Airflow_lake",
            "external_id": "x1",
            "duration_seconds": 900,
            "parameters": {"Policy": "{}"},
            "sts_endpoint_url": "http://sts",
        },
    }
    role = AssumedRole.from_mapping(options["assume_role"])
    assert role.request() == {
        "RoleArn": ROLE,
        "RoleSessionName": "Airflow_lake",
        "ExternalId": "x1",
        "DurationSeconds": 900,
        "Policy": "{}",
    }


def test_a_web_identity_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "role_arn": ROLE,
        "assume_role_method": "assume_role_with_web_identity",
        "assume_role_with_web_identity_federation": "file",
    }
    with pytest.raises(UnusableConnection, match="no web identity token file"):
        options_of("aws", extra)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    assert options_of("aws", extra)["assume_role"]["web_identity_token_file"] == "/var/run/token"
    extra["assume_role_with_web_identity_token_file"] = "/run/other"
    assert options_of("aws", extra)["assume_role"]["web_identity_token_file"] == "/run/other"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"login": "AKIA"}, "no secret access key"),
        ({"password": "S"}, "no access key id"),
        ({"extra": {"aws_access_key_id": "A"}}, "no secret access key"),
        ({"extra": {"aws_session_token": "T"}}, "a session token and no keys"),
        ({"extra": {"role_arn": ROLE, "assume_role_method": "by_post"}}, "assume_role_method is 'by_post'"),
        ({"extra": {"role_arn": 5}}, "'role_arn' is not a text"),
        ({"extra": {"config_kwargs": "fast"}}, "'config_kwargs' is not a JSON object"),
    ],
)
def test_a_connection_that_is_incomplete_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UnusableConnection, match=says) as raised:
        options_of("aws", **fields)
    assert "Nothing was started." in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        KEYS,
        {**KEYS, "extra": {"aws_access_key_id": "other", "aws_secret_access_key": "other"}},
        {**KEYS, "extra": {"aws_session_token": "T", "region_name": "eu-central-1"}},
        {"extra": {"aws_access_key_id": "A", "aws_secret_access_key": "S"}},
        {"extra": {"session_kwargs": {"aws_access_key_id": "A", "aws_secret_access_key": "S"}}},
        {"extra": {"profile_name": "lake", "verify": "/etc/ca.pem"}},
        {"extra": {"endpoint_url": "http://all", "service_config": {"s3": {"endpoint_url": "http://s3"}}}},
        {"extra": {"role_arn": ROLE, "assume_role_kwargs": {"ExternalId": "x", "DurationSeconds": 900}}},
        {
            "extra": {
                "role_arn": ROLE,
                "endpoint_url": "http://all",
                "service_config": {"sts": {"endpoint_url": "http://sts"}},
            }
        },
    ],
)
def test_the_amazon_providers_hook_reads_the_same(fields: dict[str, Any]) -> None:
    read = AwsConnectionWrapper(connection("aws", **fields))
    options = options_of("aws", **fields)
    client = options.get("client_kwargs", {})
    role = options.get("assume_role", {})
    assert read.session_kwargs == {
        name: value
        for name, value in {
            "aws_access_key_id": options.get("key"),
            "aws_secret_access_key": options.get("secret"),
            "aws_session_token": options.get("token"),
            "region_name": client.get("region_name"),
            "profile_name": options.get("profile"),
        }.items()
        if value is not None
    }
    assert read.verify == client.get("verify")
    assert read.get_service_endpoint_url("s3") == options.get("endpoint_url")
    assert read.role_arn == role.get("role_arn")
    assert read.get_service_endpoint_url("sts", sts_connection_assume=True) == role.get("sts_endpoint_url")
    if role:
        request = AssumedRole.from_mapping(role).request()
        assert read.assume_role_kwargs.items() <= request.items()
