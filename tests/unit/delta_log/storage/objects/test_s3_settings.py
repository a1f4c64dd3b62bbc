"""Names of s3fs and botocore as settings of obstore: each is obeyed, is without effect by its nature, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from obstore.store import S3Store

from delta_log.errors import InvalidRequest
from delta_log.storage.objects.s3_settings import S3Settings, settings_of

MINIO = "http://minio:9000"


def settings(bucket: str = "lake", configured: dict[str, str] | None = None, **options: Any) -> S3Settings:
    found = settings_of(bucket, options, (configured or {}).get)
    # obstore takes what was made of the options.
    S3Store(bucket, endpoint=found.endpoint, config=found.config, client_options=found.client)
    return found


def test_a_server_of_its_own_is_reached_by_paths() -> None:
    found = settings(endpoint_url=f"{MINIO}/", client_kwargs={"region_name": "eu-west-1"})
    assert (found.endpoint, found.is_virtual, found.region) == (MINIO, False, "eu-west-1")
    assert found.client["allow_http"]
    assert settings(client_kwargs={"endpoint_url": MINIO}).endpoint == MINIO
    found = settings(endpoint_url=MINIO, config_kwargs={"s3": {"addressing_style": "virtual"}})
    assert (found.endpoint, found.is_virtual) == ("http://lake.minio:9000", True)


@pytest.mark.parametrize(
    ("bucket", "options", "endpoint", "is_virtual"),
    [
        ("lake", {}, "https://lake.s3.us-east-1.amazonaws.com", True),
        ("lake", {"client_kwargs": {"region_name": "eu-west-1"}}, "https://lake.s3.eu-west-1.amazonaws.com", True),
        ("lake", {"config_kwargs": {"region_name": "cn-north-1"}}, "https://lake.s3.cn-north-1.amazonaws.com.cn", True),
        ("la.ke", {}, "https://s3.us-east-1.amazonaws.com", False),
        ("lake", {"config_kwargs": {"s3": {"addressing_style": "path"}}}, "https://s3.us-east-1.amazonaws.com", False),
        ("lake", {"use_ssl": False}, "http://lake.s3.us-east-1.amazonaws.com", True),
        ("lake", {"config_kwargs": {"use_fips_endpoint": True}}, "https://lake.s3-fips.us-east-1.amazonaws.com", True),
        ("lake", {"config_kwargs": {"use_dualstack_endpoint": True}}, "https://lake.s3.dualstack.us-east-1.amazonaws.com", True),
    ],
)  # fmt: skip
def test_amazon_is_reached_by_region_and_by_the_name_of_the_bucket(
    bucket: str, options: dict[str, Any], endpoint: str, is_virtual: bool
) -> None:
    found = settings(bucket, **options)
    assert (found.endpoint, found.is_virtual) == (endpoint, is_virtual)


def test_what_the_options_do_not_say_is_looked_for_in_the_configuration() -> None:
    configured = {"region": "eu-west-1", "endpoint_url": MINIO}
    found = settings(configured=configured)
    assert (found.region, found.endpoint) == ("eu-west-1", MINIO)
    options: dict[str, Any] = {"endpoint_url": "https://other", "client_kwargs": {"region_name": "us-west-2"}}
    found = settings(configured=configured, **options)
    assert (found.region, found.endpoint) == ("us-west-2", "https://other")


def test_new_objects_are_encrypted_classed_and_tagged() -> None:
    found = settings(
        s3_additional_kwargs={
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": "alias/lake",
            "BucketKeyEnabled": True,
            "StorageClass": "STANDARD_IA",
            "Tagging": "team=lake&cost centre=1%2C2",
        }
    )
    assert found.config["server_side_encryption"] == "aws:kms"
    assert found.config["sse_kms_key_id"] == "alias/lake"
    assert found.config["sse_bucket_key_enabled"] is True
    assert found.attributes == {"Storage-Class": "STANDARD_IA"}
    assert found.tags == {"team": "lake", "cost centre": "1,2"}
    key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0" * 32}
    found = settings(s3_additional_kwargs=key)
    assert found.config["server_side_encryption"] == "sse-c"
    assert found.config["sse_customer_key_base64"] == "MDAw" * 10 + "MDA="


def test_who_pays_is_told_by_either_name() -> None:
    assert settings(requester_pays=True).pays
    assert settings(s3_additional_kwargs={"RequestPayer": "requester"}).pays
    assert settings().config["request_payer"] is False


def test_times_retries_and_connections() -> None:
    config = {
        "connect_timeout": 3,
        "read_timeout": 7,
        "retries": {"max_attempts": 9, "mode": "adaptive"},
        "max_pool_connections": 50,
        "user_agent_extra": "team-lake",
        "proxies": {"https": "http://proxy:3128"},
        "tcp_keepalive": True,
    }
    found = settings(config_kwargs=config)
    assert (found.max_retries, found.read_seconds) == (9, 7)
    assert found.client["connect_timeout"] == "3s"
    assert found.client["pool_max_idle_per_host"] == "50"
    assert found.client["proxy_url"] == "http://proxy:3128"
    assert found.client["user_agent"].endswith(" team-lake")
    assert settings(config_kwargs={"retries": {"total_max_attempts": 1}}).max_retries == 0


def test_authorities_are_read_from_a_file(tmp_path: Path) -> None:
    assert settings(client_kwargs={"verify": False}).client["allow_invalid_certificates"] is True
    assert "root_certificate" not in settings(client_kwargs={"verify": True}).client
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(InvalidRequest, match=r"ca\.pem, cannot be read"):
        settings(client_kwargs={"verify": missing})
    with pytest.raises(InvalidRequest, match=r"ca\.pem, cannot be read"):
        settings(configured={"ca_bundle": missing})


@pytest.mark.parametrize(
    "options",
    [
        {"cache_regions": True},
        {"session": object()},
        {"client_kwargs": {"api_version": "2006-03-01"}},
        {"config_kwargs": {"signature_version": "s3"}},
        {"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}},
        {"config_kwargs": {"proxies_config": {"proxy_client_cert": "x"}}},
        {"s3_additional_kwargs": {"ACL": "bucket-owner-full-control"}},
        {"region": "eu-west-1"},
    ],
)
def test_an_option_without_a_counterpart_is_refused_by_its_name(options: dict[str, Any]) -> None:
    name = next(iter(options))
    value = options[name]
    while isinstance(value, dict):
        inner = next(iter(value))
        if not isinstance(value[inner], dict) or inner == "proxies_config":
            name = f"{name}.{inner}"
            break
        name, value = f"{name}.{inner}", value[inner]
    with pytest.raises(InvalidRequest, match=f"storage option {name}.* cannot be obeyed.*Nothing was opened"):
        settings(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endpoint_url": "minio:9000"}, "no URL of a server"),
        ({"endpoint_url": "http://minio:9000/behind/a/path"}, "no URL of a server"),
        ({"client_kwargs": "region"}, "client_kwargs is no object"),
        ({"config_kwargs": {"s3": {"addressing_style": "dns"}}}, "There are auto, path and virtual"),
        ({"s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256"}}, "belong together"),
    ],
)
def test_a_wrong_value_is_told(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        settings(**options)
