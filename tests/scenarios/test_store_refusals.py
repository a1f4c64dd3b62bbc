"""Which errors of a store's client library are a refusal, and which refusals may pass. The errors are those of the libraries."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest

from delta_log.errors import AccessDenied, BucketNotFound, NoCredentials, StorageError
from delta_log.storage.local.local_storage import local_failure


def s3_error(code: str, status: int = 403) -> Exception:
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]
    from s3fs.errors import translate_boto_error

    response = {"Error": {"Code": code, "Message": "said"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: Exception = translate_boto_error(ClientError(response, "GetObject"))
    return error


def failure(uri: str, options: dict[str, Any], error: Exception) -> StorageError:
    from delta_log.storage.opening import open_storage

    return open_storage(uri, options)._failure(error, "k")  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("code", "says", "retryable"),
    [
        ("AccessDenied", "s3:ListBucket", False),
        ("InvalidAccessKeyId", "does not know the access key", False),
        ("SignatureDoesNotMatch", "does not belong to the access key", False),
        ("AuthorizationHeaderMalformed", "region is wrong", False),
        ("IllegalLocationConstraintException", "Correct region_name", False),
        ("InvalidTokenId", "session token is wrong", False),
        ("ExpiredToken", "have expired", True),
        ("RequestTimeTooSkewed", "clock is wrong", True),
    ],
)
def test_a_refusal_of_s3_is_final_unless_credentials_or_clocks_change(
    code: str, says: str, retryable: bool
) -> None:
    error = failure("s3://lake/t", {}, s3_error(code))
    assert (type(error), error.retryable) == (AccessDenied, retryable)
    assert says in str(error)
    assert code in str(error)


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ServiceUnavailable"])
def test_a_store_that_is_busy_is_no_refusal(code: str) -> None:
    error = failure("s3://lake/t", {}, s3_error(code, 503))
    assert (type(error), error.retryable) == (StorageError, True)


def test_a_store_that_cannot_be_reached_is_no_refusal() -> None:
    from botocore.exceptions import EndpointConnectionError

    error = failure("s3://lake/t", {}, EndpointConnectionError(endpoint_url="http://127.0.0.1:9"))
    assert (type(error), error.retryable) == (StorageError, True)


def test_a_client_of_s3_without_credentials_says_so() -> None:
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError, ProfileNotFound

    for error in (
        NoCredentialsError(),
        PartialCredentialsError(provider="explicit", cred_var="aws_secret_access_key"),
        ProfileNotFound(profile="nope"),
    ):
        told = failure("s3://lake/t", {}, error)
        assert (type(told), told.retryable) == (NoCredentials, False)
        assert "delta_conn_id" in str(told)


def test_what_azure_refuses_is_final() -> None:
    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
    from azure.identity import CredentialUnavailableError

    def coded(code: str) -> Exception:
        error: Any = HttpResponseError("said")
        error.error_code = code
        return cast(Exception, error)

    none = "DefaultAzureCredential failed to retrieve a token from the included credentials.\nAttempted credentials:"
    for error, kind in (
        (CredentialUnavailableError("none"), NoCredentials),
        (ClientAuthenticationError(none), NoCredentials),
        (ClientAuthenticationError("invalid client secret"), AccessDenied),
        (coded("PublicAccessNotPermitted"), NoCredentials),
        (coded("ContainerNotFound"), BucketNotFound),
    ):
        options = {"account_name": "lake", "account_key": "a2V5"}
        told = failure("abfs://c@lake.dfs.core.windows.net/t", options, error)
        assert (type(told), told.retryable) == (kind, False), error


@pytest.mark.parametrize(
    ("number", "retryable"),
    [(errno.EACCES, False), (errno.EROFS, False), (errno.ENOSPC, True), (errno.EIO, True)],
)
def test_a_forbidden_system_call_is_final_and_a_full_disk_is_not(number: int, retryable: bool) -> None:
    error = local_failure(OSError(number, "said"), "/lake/t")
    assert (isinstance(error, AccessDenied), error.retryable) == (not retryable, retryable)
