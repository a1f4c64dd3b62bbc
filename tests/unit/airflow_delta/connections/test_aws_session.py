from __future__ import annotations

import sys
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from airflow.providers.amazon.aws.hooks import base_aws
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.connections import hook_of, options_of

from airflow_delta.connections.fields import UnusableConnection

ROLE = "arn:aws:iam::123456789012:role/lake"
SAML = {"role_arn": ROLE, "assume_role_method": "assume_role_with_saml"}


class OwnSessions(base_aws.BaseSessionFactory):
    """A team's own way to a session."""

    def create_session(self, deferrable: bool = False) -> Any:
        return boto3.session.Session("own key", "own secret", "own token", region_name=self.region_name)


def test_a_session_factory_of_ones_own_opens_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__AWS__SESSION_FACTORY", f"{__name__}.OwnSessions")
    monkeypatch.setattr(base_aws, "SessionFactory", OwnSessions)
    hook = hook_of(
        monkeypatch, "aws", {"role_arn": ROLE, "region_name": "eu-central-1"}, login="A", password="S"
    )
    assert hook.storage_options == {
        "key": "own key",
        "secret": "own secret",
        "token": "own token",
        "client_kwargs": {"region_name": "eu-central-1"},
    }


def test_what_the_hook_says_is_what_the_task_says(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = hook_of(monkeypatch, "aws", SAML)
    with pytest.raises(
        UnusableConnection, match="opens no session with it \\(KeyError: 'assume_role_with_saml'\\)"
    ):
        _ = hook.storage_options


def test_a_service_that_does_not_answer_is_no_fault_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    role = {
        "role_arn": ROLE,
        "region_name": "eu-central-1",
        "config_kwargs": {"retries": {"total_max_attempts": 1}},
        "service_config": {"sts": {"endpoint_url": "http://127.0.0.1:1"}},
    }
    monkeypatch.setenv(
        "AIRFLOW__AWS__SESSION_FACTORY", "airflow.providers.amazon.aws.hooks.base_aws.BaseSessionFactory"
    )
    hook = hook_of(monkeypatch, "aws", role, login="A", password="S")
    with pytest.raises(AirflowException, match="does not answer \\(EndpointConnectionError") as raised:
        _ = hook.storage_options
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize(
    "extra",
    [
        SAML,
        {
            "role_arn": ROLE,
            "assume_role_method": "assume_role_with_web_identity",
            "assume_role_with_web_identity_federation": "google",
        },
    ],
)
def test_without_the_provider_its_own_ways_are_refused(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, base_aws.__name__, None)
    with pytest.raises(UnusableConnection, match="Install apache-airflow-providers-amazon"):
        options_of("aws", extra)


def test_without_the_provider_a_role_is_assumed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, base_aws.__name__, None)
    assert options_of("aws", {"role_arn": ROLE})["assume_role"]["role_arn"] == ROLE
