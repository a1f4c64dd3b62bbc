"""A credential of Azure that gets no token: refused for good, busy, or not answered in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import CredentialUnavailableError

from delta_log.storage.objects.azure import _end_at_refused_tokens, _TokenRefused

REFUSED = ClientAuthenticationError("AADSTS7000215: Invalid client secret provided.")
NO_ANSWER = CredentialUnavailableError("Attempted credentials: no response from the IMDS endpoint.")


def answered(status: int) -> ClientAuthenticationError:
    response = SimpleNamespace(status_code=status, reason="", headers={}, content_type="text/plain")
    return ClientAuthenticationError("AADSTS90033: busy", response=response)


class Credential:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def get_token(self, scope: str, **_: Any) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return f"{answer} for {scope}"


def token_of(credential: Any) -> str:
    # A store is opened again with the same client.
    for _ in range(2):
        _end_at_refused_tokens(credential)
    return asyncio.run(credential.get_token("store"))  # type: ignore[no-any-return]


def test_a_token_is_passed_on() -> None:
    assert token_of(Credential("token")) == "token for store"


@pytest.mark.parametrize("refusal", [REFUSED, answered(400), answered(401)])
def test_a_refusal_ends_the_request(refusal: Exception) -> None:
    credential = Credential(refusal, "token")
    with pytest.raises(_TokenRefused) as caught:
        token_of(credential)
    assert caught.value.__cause__ is refusal
    assert credential.answers == ["token"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_outage_is_left_to_the_client_which_asks_again(status: int) -> None:
    with pytest.raises(ClientAuthenticationError):
        token_of(Credential(answered(status)))


def test_a_machine_whose_identity_service_is_slow_is_asked_twice() -> None:
    assert token_of(Credential(NO_ANSWER, "token")) == "token for store"
    with pytest.raises(_TokenRefused) as caught:
        token_of(Credential(NO_ANSWER, NO_ANSWER))
    assert caught.value.__cause__ is NO_ANSWER


def test_a_client_without_a_credential_is_left_alone() -> None:
    _end_at_refused_tokens(None)
