"""What of the storage options travels to a machine with an identity of its own."""

from __future__ import annotations

from typing import Any

import pytest

from delta_log.errors import InvalidRequest
from delta_log.storage.ambient_options import ambient_options
from delta_log.storage.objects.s3_settings import settings_of


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


def test_each_setting_of_s3_that_travels_is_obeyed_there() -> None:
    settings: dict[str, Any] = {
        "endpoint_url": "https://s3.example.com", "use_ssl": True, "requester_pays": True, "default_block_size": 1,
        "default_fill_cache": False, "default_cache_type": "none", "version_aware": False, "max_concurrency": 1,
        "fixed_upload_size": True, "local_expiry_check": True,
        "client_kwargs": {"region_name": "r", "verify": True, "use_ssl": True, "endpoint_url": "https://other"},
        "config_kwargs": {
            "region_name": "r", "signature_version": "s3v4", "user_agent": "a", "user_agent_extra": "b", "connect_timeout": 1,
            "read_timeout": 1, "parameter_validation": True, "max_pool_connections": 1, "s3": {"addressing_style": "path"},
            "retries": {"max_attempts": 1}, "tcp_keepalive": True, "inject_host_prefix": True, "use_dualstack_endpoint": True,
            "use_fips_endpoint": True, "defaults_mode": "legacy", "disable_request_compression": True,
            "request_min_compression_size_bytes": 1, "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
        "s3_additional_kwargs": {
            "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k", "BucketKeyEnabled": True, "StorageClass": "STANDARD",
            "RequestPayer": "requester", "ChecksumAlgorithm": "SHA256", "CacheControl": "c", "ContentType": "t", "Tagging": "a=b",
        },
    }  # fmt: skip
    found = ambient_options("s3://lake/t", settings)
    assert found.options == settings
    assert settings_of("lake", found.options, lambda _: None).pays
