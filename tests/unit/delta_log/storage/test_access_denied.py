"""Who asked, in the words of an error: by a name, and never by a secret."""

from __future__ import annotations

import os
from typing import Any

import pytest

from delta_log.storage.access_denied import denied, identity_of

MACHINE = f"the identity of machine {os.uname().nodename}"
AZURE = "abfs://c@lake.dfs.core.windows.net/t"


@pytest.mark.parametrize(
    ("address", "options", "identity"),
    [
        ("s3://lake/t", {}, MACHINE),
        ("s3://lake/t", {"endpoint_url": "https://s3.example.com"}, MACHINE),
        ("s3a://lake/t", {"key": "AKIAIOSFODNN7EXAMPLE", "secret": "S3CRET"}, "access key …MPLE"),
        (
            "s3://lake/t",
            {"key": "AKIAIOSFODNN7EXAMPLE", "secret": "S3CRET", "token": "S3CRET"},
            "access key …MPLE with a session token",
        ),
        ("s3://lake/t", {"key": "short", "secret": "S3CRET"}, "the access key"),
        (
            "s3://lake/t",
            {"key": "K", "assume_role": {"role_arn": "arn:r", "external_id": "S3CRET"}},
            "role arn:r",
        ),
        ("s3://lake/t", {"anon": True}, "requests without a signature (anon)"),
        ("s3://lake/t", {"profile": "lake"}, f"profile lake of machine {os.uname().nodename}"),
        ("gs://lake/t", {}, MACHINE),
        ("gs://lake/t", {"token": {"client_email": "a@p", "private_key": "S3CRET"}}, "service account a@p"),
        ("gs://lake/t", {"token": {"type": "external_account"}}, "credentials of type external_account"),
        ("gs://lake/t", {"impersonation_chain": ["a", "b"]}, "service account b (impersonated)"),
        ("gs://lake/t", {"token": "/keys/lake.json"}, "the key file /keys/lake.json"),
        ("gs://lake/t", {"token": "S3CRET"}, "the token of the storage options"),
        (AZURE, {"account_name": "lake", "account_key": "S3CRET"}, "the account key of account lake"),
        (AZURE, {"sas_token": "S3CRET"}, "the SAS token"),
        (AZURE, {"connection_string": "S3CRET"}, "the connection string"),
        (AZURE, {"client_id": "id", "client_secret": "S3CRET", "tenant_id": "t"}, "service principal id"),
        (AZURE, {"account_name": "lake", "anon": False}, MACHINE),
        ("hdfs://lake/t", {"user": "S3CRET"}, "the storage options user"),
        ("/data/t", {}, "the user of this process"),
    ],
)
def test_an_identity_is_told_by_its_name(address: str, options: dict[str, Any], identity: str) -> None:
    assert identity_of(address, options) == identity


def test_a_refusal_says_whether_another_try_can_help() -> None:
    final = denied("s3://lake/t/k", "AccessDenied", "role r", right="s3:PutObject on arn:b/*")
    assert (final.retryable, final.identity, final.right) == (False, "role r", "s3:PutObject on arn:b/*")
    assert str(final).startswith(
        "s3://lake/t/k: access was denied to role r (AccessDenied). Grant s3:PutObject"
    )
    assert str(final).endswith("Another try cannot help before that.")
    passing = denied("s3://lake/t/k", "ExpiredToken", "role r", may_pass=True)
    assert passing.retryable
    assert str(passing).endswith("Another try may help.")
    assert "right" not in passing.facts()
