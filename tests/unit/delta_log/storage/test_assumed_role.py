from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delta_log.errors import AccessDenied, InvalidRequest
from delta_log.storage.assumed_role import AssumedRole, renewing_session
from delta_log.storage.lock.dynamodb_lock import LockOptions

ROLE = "arn:aws:iam::123456789012:role/lake"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (ROLE, "is no object"),
        ({}, "names no role"),
        ({"role_arn": ""}, '"role_arn" of "assume_role" is no text'),
        ({"role_arn": ROLE, "arn": ROLE}, "unknown keys: 'arn'"),
        ({"role_arn": ROLE, "duration_seconds": "an hour"}, "no number of seconds"),
        ({"role_arn": ROLE, "duration_seconds": True}, "no number of seconds"),
        ({"role_arn": ROLE, "renew_before_seconds": 0}, "no number of seconds"),
        ({"role_arn": ROLE, "parameters": []}, '"parameters" of "assume_role" is no object'),
    ],
)
def test_a_wrong_option_is_named(given: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        renewing_session(given, {})


def test_what_the_request_has_no_name_for_is_a_parameter() -> None:
    role = AssumedRole.from_mapping({"role_arn": ROLE, "session_name": "s", "parameters": {"Policy": "{}"}})
    assert role.operation == "assume_role"
    assert role.request() == {"RoleArn": ROLE, "RoleSessionName": "s", "Policy": "{}"}


def test_the_token_of_a_web_identity_is_read_for_each_session(tmp_path: Path) -> None:
    token = tmp_path / "token"
    role = AssumedRole.from_mapping({"role_arn": ROLE, "web_identity_token_file": str(token)})
    assert role.operation == "assume_role_with_web_identity"
    with pytest.raises(AccessDenied, match="must be on every machine") as raised:
        role.request()
    assert raised.value.retryable
    for content in ("first\n", "second\n"):
        token.write_text(content)
        assert role.request()["WebIdentityToken"] == content.strip()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, (900, 600)),
        ({"duration_seconds": 43_200}, (900, 600)),
        ({"duration_seconds": 900}, (300, 200)),
        ({"parameters": {"DurationSeconds": 900}}, (300, 200)),
        ({"renew_before_seconds": 60}, (60, 40)),
    ],
)
def test_a_session_is_renewed_while_some_of_it_is_left(
    given: dict[str, Any], seconds: tuple[int, int]
) -> None:
    assert AssumedRole.from_mapping({"role_arn": ROLE, **given}).renewal_seconds == seconds


def test_a_lock_without_credentials_of_its_own_takes_the_role_of_the_store() -> None:
    lock = {"provider": "dynamodb", "region": "eu-central-1"}
    store = {"key": "A", "secret": "S", "assume_role": {"role_arn": ROLE}}
    assert LockOptions.from_mapping(lock, store).assume_role == {"role_arn": ROLE}
    assert LockOptions.from_mapping({**lock, "key": "B", "secret": "S"}, store).assume_role is None
    with pytest.raises(InvalidRequest, match="unknown keys: 'assume_role'"):
        LockOptions.from_mapping({**lock, "assume_role": {"role_arn": ROLE}}, store)
