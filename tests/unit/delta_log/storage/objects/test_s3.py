"""Who asks S3: keys of the options, a profile, the environment, a role; and which variables of the environment count."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delta_log.errors import InvalidRequest, NoCredentials
from delta_log.storage.objects.s3 import S3Storage
from delta_log.storage.opening import open_storage

KEYS: dict[str, Any] = {"key": "key", "secret": "secret"}


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.upper().startswith("AWS_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def opened(**options: Any) -> S3Storage:
    return S3Storage("s3://lake/t", options)


def credentials(**options: Any) -> tuple[str, str, str | None]:
    source: Any = opened(**options)._credentials
    found = source()
    return found["access_key_id"], found["secret_access_key"], found["token"]


def test_keys_of_the_options_need_no_library_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another")
    assert credentials(**KEYS) == ("key", "secret", None)
    assert credentials(**KEYS, token="session") == ("key", "secret", "session")
    client = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    assert credentials(client_kwargs=client) == ("k", "s", None)
    assert credentials(username="k", password="s") == ("k", "s", None)


def test_without_keys_the_environment_and_the_files_of_amazons_tools_have_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(NoCredentials, match="Unable to locate credentials"):
        credentials()
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = s\n"
        "[lake]\naws_access_key_id = l\naws_secret_access_key = s\n"
    )
    assert credentials()[0] == "d"
    assert credentials(profile="lake")[0] == "l"
    with pytest.raises(NoCredentials, match="nope"):
        credentials(profile="nope")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert credentials()[0] == "env"


def test_credentials_that_no_header_can_hold_are_refused() -> None:
    for wrong in ({"key": "key\n", "secret": "s"}, {"key": "k", "secret": "s", "token": "t\xf6ken"}):
        with pytest.raises(NoCredentials, match="no header can hold"):
            credentials(**wrong)
    with pytest.raises(NoCredentials, match="without a"):
        credentials(key="key")


def test_requests_without_a_signature_ask_for_no_credentials() -> None:
    assert opened(anon=True)._credentials is None
    with pytest.raises(InvalidRequest, match='"anon" and "assume_role"'):
        opened(anon=True, assume_role={"role_arn": "arn:aws:iam::123456789012:role/lake"})


def test_region_endpoint_and_authorities_may_stand_in_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\nservices = here\n[services here]\ns3 =\n  endpoint_url = http://minio:9000\n"
    )
    assert opened(**KEYS).endpoint == "http://minio:9000"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other:9000")
    assert opened(**KEYS).endpoint == "http://other:9000"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://third:9000")
    assert opened(**KEYS).endpoint == "http://third:9000"
    assert opened(**KEYS, endpoint_url="http://mine:9000").endpoint == "http://mine:9000"


def test_an_address_that_the_client_cannot_express_is_refused() -> None:
    for address in ("s3://lake//t", "s3://lake/a/../t", "s3://lake/a/./t"):
        with pytest.raises(InvalidRequest, match="empty segment"):
            S3Storage(address, KEYS)
    with pytest.raises(InvalidRequest, match="directory bucket"):
        S3Storage("s3://lake--x-s3/t", KEYS)


def test_a_table_beside_another_shares_its_clients() -> None:
    storage: Any = open_storage("s3://lake/a/t/", KEYS)
    twin = storage.beside("s3://lake/other")
    assert (storage.uri, storage.object_key("x"), twin.object_key("x")) == (
        "s3://lake/a/t",
        "a/t/x",
        "other/x",
    )
    assert storage._clients.get(0) is twin._clients.get(0)
    assert storage._clients.get(0) is not storage._clients.get(1 << 30)
