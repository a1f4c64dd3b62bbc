"""Which options of a table say all about the way to its bucket, so that s3fs need not be asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delta_log.storage.objects.s3_endpoint import plain_way
from delta_log.storage.opening import open_storage
from delta_log.storage.remote import FileSystemOnDemand

OPTIONS: dict[str, Any] = {
    "key": "key",
    "secret": "secret",
    "endpoint_url": "http://minio:9000",
    "client_kwargs": {"region_name": "eu-west-1"},
}


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.upper().startswith(("AWS_", "FSSPEC_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def way(**more: Any) -> Any:
    options = {**OPTIONS, **more}
    return plain_way("bucket-1", {name: value for name, value in options.items() if value is not None})


def test_a_server_of_its_own_is_reached_by_paths() -> None:
    found = way(token="session")
    assert (found.endpoint, found.is_virtual, found.region) == ("http://minio:9000", False, "eu-west-1")
    assert found.credentials() == ("key", "secret", "session")
    nested = {"region_name": "eu-west-1", "endpoint_url": "https://minio:9000/"}
    assert way(endpoint_url=None, client_kwargs=nested).endpoint == "https://minio:9000"


def test_amazon_is_reached_by_the_name_of_the_bucket() -> None:
    found = way(endpoint_url=None)
    assert (found.endpoint, found.is_virtual) == ("https://bucket-1.s3.eu-west-1.amazonaws.com", True)


@pytest.mark.parametrize(
    "more",
    [
        {"key": None},
        {"secret": ""},
        {"anon": True},
        {"profile": "lake"},
        {"requester_pays": True},
        {"config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {"assume_role": {"role_arn": "arn:aws:iam::1:role/a"}},
        {"client_kwargs": {}},
        {"client_kwargs": {"region_name": "eu-west-1", "verify": False}},
        {"endpoint_url": "http://minio:9000/behind/a/path"},
        {"endpoint_url": "minio:9000"},
        {"endpoint_url": None, "client_kwargs": {"region_name": "cn-north-1"}},
        {"endpoint_url": None, "client_kwargs": {"region_name": "us-iso-east-1"}},
    ],
    ids=repr,
)
def test_what_other_options_mean_s3fs_knows(more: dict[str, Any]) -> None:
    assert way(**more) is None


@pytest.mark.parametrize("bucket", ["arn:aws:s3:eu-west-1:1:accesspoint/a", "Bucket", "bucket_1", ""])
def test_what_other_names_mean_s3fs_knows(bucket: str) -> None:
    assert plain_way(bucket, OPTIONS) is None


def test_a_bucket_with_dots_has_no_certificate_at_amazon() -> None:
    assert plain_way("a.b", OPTIONS) is not None
    assert plain_way("a.b", {**OPTIONS, "endpoint_url": None}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_PROFILE", "lake"),
        ("AWS_ENDPOINT_URL_S3", "http://other"),
        ("FSSPEC_S3_ENDPOINT_URL", "http://other"),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
        ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required"),
        ("http_proxy", "http://proxy"),
        ("HTTPS_PROXY", "http://proxy"),
    ],
)
def test_the_environment_may_say_more(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert way() is None
    monkeypatch.setenv(name, "")
    assert way() is not None


def test_the_environment_may_name_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert way().credentials() == ("key", "secret", None)
    assert way().region == "eu-west-1"


@pytest.mark.parametrize(
    "name",
    ["AWS_SERVER_SIDE_ENCRYPTION", "AWS_SKIP_SIGNATURE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"],
)
def test_obstore_is_not_asked_where_it_would_obey_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found = way()
    assert found.open("bucket-1", "key", "secret", None) is not None
    monkeypatch.setenv(name, "x")
    assert found.open("bucket-1", "key", "secret", None) is None
    with_token = found.open("bucket-1", "key", "secret", "token")
    assert (with_token is not None) == (name == "AWS_SESSION_TOKEN")


def test_certificates_of_the_environment_matter_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/ca.pem")
    assert way() is not None
    assert way(endpoint_url="https://minio:9000") is None
    assert way(endpoint_url=None) is None


def test_texts_that_are_no_headers_are_left_to_s3fs() -> None:
    assert way().open("bucket-1", "key\n", "secret", None) is None
    assert way().open("bucket-1", "key", "secret", "t\xf6ken") is None


@pytest.mark.parametrize(
    "endpoint", ["http://h:99999", "http://", "http://h\xf6st", "http://host ", "http://h:x"]
)
def test_addresses_that_are_none_are_left_to_s3fs(endpoint: str) -> None:
    assert way(endpoint_url=endpoint) is None


@pytest.mark.parametrize("name", [".aws/config", ".aws/credentials", ".boto", ".config/fsspec"])
def test_files_may_say_more(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).write_text("")
    assert way() is None


def test_a_file_elsewhere_may_say_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert way() is None


def test_s3fs_is_opened_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()
    original = FileSystemOnDemand._open

    def noted(self: FileSystemOnDemand) -> Any:
        opened.append(self._uri)
        return original(self)

    monkeypatch.setattr(FileSystemOnDemand, "_open", noted)
    storage: Any = open_storage("s3://bucket-1/lake/t/", OPTIONS)
    twin = storage.beside("s3://bucket-1/lake/other")
    assert (storage.uri, storage.object_key("a"), twin.object_key("a")) == (
        "s3://bucket-1/lake/t",
        "lake/t/a",
        "lake/other/a",
    )
    assert opened == []
    assert storage._fs is twin._fs
    assert opened == ["s3://bucket-1/lake/t"]
    open_storage("s3://bucket-1/lake/t/", {**OPTIONS, "requester_pays": True})
    assert len(opened) == 2
