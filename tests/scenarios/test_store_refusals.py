"""Which answers of a store are a refusal, and which refusals may pass. The errors are those of the libraries."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from obstore.exceptions import BaseError

from delta_log.errors import AccessDenied, StorageError
from delta_log.storage.local.local_storage import local_failure
from delta_log.storage.objects.store_answer import StoreAnswer

if TYPE_CHECKING:
    from delta_log.storage.objects.object_store import Action


def answered(status: int, code: str = "", method: str = "GET") -> Exception:
    """The error that obstore raises for an answer of S3 or a compatible interface."""
    body = f"<Error><Code>{code}</Code><Message>said</Message></Error>" if code else ""
    return BaseError(
        f"Error performing {method} http://h/b/k in 1ms - Server returned non-2xx status code: {status} Status: {body}"
    )


def failure(uri: str, options: dict[str, Any], error: Exception, action: Action = "read") -> StorageError:
    from delta_log.storage.opening import open_storage

    storage: Any = open_storage(uri, options)
    found: StorageError = storage._failure(StoreAnswer.of(error), action, "k")
    return found


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
    error = failure("s3://lake/t", {}, answered(403, code), "list")
    assert (type(error), error.retryable) == (AccessDenied, retryable)
    assert says in str(error)
    assert code in str(error)


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ServiceUnavailable"])
def test_a_store_that_is_busy_is_no_refusal(code: str) -> None:
    error = failure("s3://lake/t", {}, answered(503, code))
    assert (type(error), error.retryable) == (StorageError, True)


def test_a_store_that_cannot_be_reached_is_no_refusal() -> None:
    sent = BaseError("Error performing GET http://127.0.0.1:9/b/k in 1ms - HTTP error: error sending request")
    error = failure("s3://lake/t", {}, sent)
    assert (type(error), error.retryable) == (StorageError, True)


@pytest.mark.parametrize(
    ("number", "retryable"),
    [(errno.EACCES, False), (errno.EROFS, False), (errno.ENOSPC, True), (errno.EIO, True)],
)
def test_a_forbidden_system_call_is_final_and_a_full_disk_is_not(number: int, retryable: bool) -> None:
    error = local_failure(OSError(number, "said"), "/lake/t")
    assert (isinstance(error, AccessDenied), error.retryable) == (not retryable, retryable)
