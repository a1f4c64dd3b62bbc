"""Requests to a catalog: who asks, what is repeated, and what the errors say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delta_log.errors import AccessDenied, InvalidRequest, StorageError
from delta_log.storage.objects.backoff import Backoff
from delta_log.storage.vending.catalogs import rest_catalog
from delta_log.storage.vending.rest_catalog import RestCatalog
from delta_log.storage.vending.rest_client import RestSettings
from delta_log.testing.fake_catalogs import FakeCatalog, FakeUnityCatalog

NAME = ("prod", "sales", "events")


@pytest.fixture
def fake() -> Iterator[FakeCatalog]:
    with FakeUnityCatalog.running() as running:
        running.register("prod.sales.events", "s3://lake/events")
        yield running


def catalog_of(given: Any, waited: list[float] | None = None, **client: Any) -> RestCatalog:
    waits = Backoff(1.0, 10.0, lambda: 1.0, (waited if waited is not None else []).append)
    return rest_catalog("uc", given, waits=waits, **client)


def test_what_may_pass_is_tried_again_for_at_least_half_a_minute(fake: FakeCatalog) -> None:
    waited: list[float] = []
    fake.faults = [503, None, 429]
    assert catalog_of(fake.option, waited).table(NAME).location == "s3://lake/events"
    assert waited == [1.0, 2.0, 4.0]
    fake.is_down, waited[:] = True, []
    with pytest.raises(StorageError, match="Unity Catalog at http://127.0.0.1:.* does not answer") as failed:
        catalog_of(fake.option, waited).table(NAME)
    assert failed.value.retryable
    # The random part may halve each wait.
    assert sum(waited) / 2 > 30


def test_what_will_not_pass_is_told_at_once(fake: FakeCatalog) -> None:
    for status, words in ((400, "400: a fault"), (302, "302: a fault")):
        fake.requests.clear()
        fake.faults = [status]
        with pytest.raises(StorageError, match=words) as failed:
            catalog_of(fake.option).table(NAME)
        assert not failed.value.retryable
        assert len(fake.requests) == 1


def test_a_token_of_an_oauth_client_is_kept_renewed_in_time_and_replaced_when_it_is_refused(
    fake: FakeCatalog,
) -> None:
    now = [0.0]
    fake.life_seconds = 90.0
    catalog = catalog_of(fake.oauth_option, clock=lambda: now[0])

    def asked_for_tokens() -> int:
        return sum(request.segments == ("oauth", "token") for request in fake.requests)

    for at, tokens in ((0.0, 1), (59.0, 1), (60.0, 2)):
        now[0] = at
        catalog.table(NAME)
        assert asked_for_tokens() == tokens
    fake.forget_tokens()
    catalog.table(NAME)
    assert asked_for_tokens() == 3


def test_a_refusal_names_who_asked_and_no_secret(fake: FakeCatalog) -> None:
    fake.faults = [403]
    with pytest.raises(AccessDenied, match="denied access to the given token") as refused:
        catalog_of(fake.option).table(NAME)
    assert fake.token not in str(refused.value)
    with pytest.raises(AccessDenied, match="a client without a token"):
        catalog_of({"uri": fake.uri}).table(NAME)
    wrong = {**fake.oauth_option, "client_secret": "a-wrong-secret"}
    with pytest.raises(AccessDenied, match="gives OAuth client tests no token") as refused:
        catalog_of(wrong).table(NAME)
    assert "a-wrong-secret" not in str(refused.value)
    assert "a-wrong-secret" not in repr(catalog_of(wrong).client.settings)


def test_a_server_that_is_no_catalog_is_told(fake: FakeCatalog) -> None:
    with pytest.raises(StorageError, match="no answer of such a catalog"):
        rest_catalog(
            "lakekeeper", {"uri": f"{fake.uri}/api/2.1/unity-catalog/catalogs", "token": fake.token}
        ).client.post(int, "", {"name": "x"})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "it is missing"),
        ("https://catalog.example.org", "it is no object"),
        ({}, '"uri" of the storage option "unity"'),
        ({"uri": "catalog.example.org"}, "no address of a server"),
        ({"uri": "file:///etc/passwd"}, "no address of a server"),
        ({"uri": "https://u:p@catalog.example.org"}, "no address of a server"),
        ({"uri": "https://c.example.org", "tokn": "x"}, "unknown key 'tokn'"),
        ({"uri": "https://c.example.org", "token": ""}, '"token" of the storage option "unity" is no text'),
        ({"uri": "https://c.example.org", "token": "a\nb"}, "It is not shown"),
        ({"uri": "https://c.example.org", "vended_credentials": "no"}, "neither true nor false"),
        ({"uri": "https://c.example.org", "client_id": "me"}, "needs client_secret and token_uri"),
        (
            {"uri": "https://c.example.org", "client_id": "me", "client_secret": "s", "token_uri": "x"},
            '"token_uri"',
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(given: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        RestSettings.from_option("unity", given)


def test_authorities_that_cannot_be_read_are_told() -> None:
    with pytest.raises(InvalidRequest, match="Correct ca_bundle"):
        catalog_of({"uri": "https://127.0.0.1:9", "ca_bundle": "/none"}).table(NAME)
