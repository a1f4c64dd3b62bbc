"""What of the storage options travels to a machine with an identity of its own."""

from __future__ import annotations

from typing import Any

import pytest

from delta_log.errors import InvalidRequest
from delta_log.storage.ambient_options import ambient_options


@pytest.mark.parametrize(
    ("address", "settings", "identity"),
    [
        (
            "s3a://lake/t",
            {
                "endpoint_url": "https://s3.example.com",
                "client_kwargs": {"region_name": "eu-central-1"},
                "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/lake"},
                "config_kwargs": {"retries": {"max_attempts": 9}},
            },
            {"key": "K", "secret": "S", "token": "T", "assume_role": {"role_arn": "r"}, "anon": False},
        ),
        ("s3://lake/t", {"lock": {"provider": "dynamodb", "table": "delta_log"}}, {"profile": "lake"}),
        ("gs://lake/t", {"project": "p"}, {"token": {"private_key": "K"}, "impersonation_chain": ["a"]}),
        ("/data/t", {}, {"auto_mkdir": True}),
    ],
)
def test_settings_travel_and_identities_stay(
    address: str, settings: dict[str, Any], identity: dict[str, Any]
) -> None:
    found = ambient_options(address, {**settings, **identity})
    assert found.options == settings
    assert set(found.withheld) == set(identity)
    assert ambient_options(address, found.options).options == settings


def test_members_that_are_part_of_an_identity_stay() -> None:
    given = {
        "client_kwargs": {"aws_secret_access_key": "S", "region_name": "r"},
        "lock": {"provider": "dynamodb", "secret": "S"},
    }
    found = ambient_options("s3://lake/t", given)
    assert found.options == {"client_kwargs": {"region_name": "r"}, "lock": {"provider": "dynamodb"}}
    assert found.withheld == ("client_kwargs.aws_secret_access_key", "lock.secret")


def test_a_client_of_azure_is_told_to_look_for_an_identity() -> None:
    given = {"account_name": "lake", "account_key": "K", "anon": True}
    found = ambient_options("abfss://c@lake.dfs.core.windows.net/t", given)
    assert found.options == {"account_name": "lake", "anon": False}
    assert found.withheld == ("account_key", "anon")
    assert ambient_options("abfss://c@lake.dfs.core.windows.net/t", {}).options == {}


@pytest.mark.parametrize(
    ("address", "options", "named"),
    [
        (
            "s3://lake/t",
            {"s3_additional_kwargs": {"SSECustomerKey": "K"}},
            "s3_additional_kwargs.SSECustomerKey",
        ),
        ("s3://lake/t", {"config_kwargs": {"proxies": {"https": "p"}}}, "config_kwargs.proxies"),
        ("s3://lake/t", {"endpoint_url": "https://me:K@s3.example.com"}, "endpoint_url"),
        ("s3://lake/t", {"client_kwargs": "K"}, "client_kwargs"),
        ("abfs://c@lake/t", {"something": "K"}, "something"),
        ("hdfs://lake/t", {"user": "K"}, "user"),
    ],
)
def test_an_option_that_may_be_secret_is_refused_without_its_value(
    address: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRequest, match="may be secret") as raised:
        ambient_options(address, options)
    assert f"storage option {named} " in str(raised.value)
    assert "K@" not in str(raised.value)
