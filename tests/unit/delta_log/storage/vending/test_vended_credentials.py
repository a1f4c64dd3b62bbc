"""Credentials that a catalog gives out: when they are renewed, and what becomes of work while the catalog does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delta_log.catalog.lookup import opening_options
from delta_log.errors import AccessDenied, InvalidRequest, NoCredentials, NotInCatalog, StorageError
from delta_log.storage.access_denied import identity_of
from delta_log.storage.ambient_options import ambient_options, without_identity
from delta_log.storage.objects.backoff import Backoff
from delta_log.storage.opening import open_storage
from delta_log.storage.schemes import CATALOGS
from delta_log.storage.vending.catalogs import rest_catalog
from delta_log.storage.vending.rest_catalog import Grant, RestTable
from delta_log.storage.vending.vended_credentials import VendedCredentials, vended_credentials
from delta_log.testing.fake_catalogs import FakeCatalog, FakeLakekeeper, FakeTable, FakeUnityCatalog

NAME, AT = ("prod", "sales", "events"), "s3://lake/events"
VENDING = (FakeUnityCatalog, FakeLakekeeper)


@pytest.fixture(params=VENDING, ids=lambda kind: kind.scheme)
def fake(request: pytest.FixtureRequest) -> Iterator[FakeCatalog]:
    with request.param.running() as running:
        running.register(".".join(NAME), AT)
        yield running


class Clock:
    """A clock that a test sets, in seconds from now on, for the catalog, too: so it does not matter how long requests take."""

    def __init__(self, fake: FakeCatalog) -> None:
        self.start_ms, self.seconds = int(fake.now_seconds() * 1000), 0.0
        fake.now_seconds = lambda: self.now_ms() / 1000

    def now_ms(self) -> int:
        return self.start_ms + int(self.seconds * 1000)


def credentials_of(fake: FakeCatalog, clock: Clock) -> VendedCredentials:
    waits = Backoff(0.0, 0.0, lambda: 1.0, lambda _: None)
    patient, hasty = (
        rest_catalog(fake.scheme, fake.option, waits=waits, most_attempts=attempts) for attempts in (3, 1)
    )
    return VendedCredentials(NAME, patient, hasty, clock.now_ms)


@pytest.mark.parametrize(("life", "kept", "renewed"), [(3600.0, 2690.0, 2710.0), (60.0, 38.0, 41.0)])
def test_credentials_are_renewed_before_they_expire(
    fake: FakeCatalog, life: float, kept: float, renewed: float
) -> None:
    fake.life_seconds, clock = life, Clock(fake)
    credentials = credentials_of(fake, clock)
    first = credentials.fetch(AT)
    assert set(first) == {"access_key_id", "secret_access_key", "token"}
    clock.seconds = kept
    assert credentials.fetch(f"{AT}/") == first
    clock.seconds = renewed
    assert credentials.fetch(AT) != first


def test_work_goes_on_with_valid_credentials_while_the_catalog_is_down(fake: FakeCatalog) -> None:
    fake.life_seconds, clock = 60.0, Clock(fake)
    credentials = credentials_of(fake, clock)
    first = credentials.fetch(AT)
    fake.is_down = True
    fake.requests.clear()
    for clock.seconds in (42.0, 43.0, 48.0):
        assert credentials.fetch(AT) == first
    # One request each time, and not at every call.
    assert len(fake.requests) == 2
    # The client of the store keeps what it gets for ten seconds.
    clock.seconds = 51.0
    fake.requests.clear()
    with pytest.raises(StorageError, match="does not answer") as failed:
        credentials.fetch(AT)
    assert failed.value.retryable
    assert len(fake.requests) == 3
    fake.is_down = False
    assert credentials.fetch(AT) != first


def test_a_revoked_right_ends_work_at_the_next_renewal(fake: FakeCatalog) -> None:
    fake.life_seconds, clock = 60.0, Clock(fake)
    credentials = credentials_of(fake, clock)
    credentials.fetch(AT)
    fake.revoked.add(".".join(NAME))
    clock.seconds = 45.0
    with pytest.raises(AccessDenied, match="denied access") as denied:
        credentials.fetch(AT)
    assert not denied.value.retryable


def test_a_table_that_was_moved_or_dropped_meanwhile_is_told(fake: FakeCatalog) -> None:
    fake.life_seconds, clock = 60.0, Clock(fake)
    credentials = credentials_of(fake, clock)
    credentials.fetch(AT)
    clock.seconds = 45.0
    fake.register(".".join(NAME), "s3://lake/moved")
    with pytest.raises(
        StorageError, match=r"was at s3://lake/events .* has it at s3://lake/moved now"
    ) as moved:
        credentials.fetch(AT)
    assert moved.value.retryable
    fake.tables.clear()
    clock.seconds = 100.0
    with pytest.raises(NotInCatalog):
        credentials.fetch(AT)


def test_credentials_of_another_store_or_that_no_header_can_hold_are_refused(fake: FakeCatalog) -> None:
    fake.register(".".join(NAME), "gs://lake/events")
    with pytest.raises(NoCredentials, match="another kind of store"):
        credentials_of(fake, Clock(fake)).fetch("gs://lake/events")
    fake.register(".".join(NAME), AT)
    fake.grants = lambda _: {"access_key_id": "a\nb", "secret_access_key": "c", "session_token": "d"}
    with pytest.raises(NoCredentials, match="no header can hold"):
        credentials_of(fake, Clock(fake)).fetch(AT)


AZURE = "abfss://c@a.dfs.core.windows.net"


class Answering(FakeLakekeeper):
    """A Lakekeeper that gives out what a test says, beside credentials for other places."""

    config: dict[str, str]

    def storage_credentials(self, table: FakeTable) -> list[Any]:
        others = [{"prefix": prefix, "config": {}} for prefix in ("", f"{AZURE}/other")]
        return [*others, {"prefix": AZURE, "config": self.config}]


def granted(config: dict[str, str]) -> tuple[RestTable, Grant]:
    with Answering.running() as fake:
        assert isinstance(fake, Answering)
        fake.config = config
        fake.register(".".join(NAME), f"{AZURE}/t")
        return rest_catalog("lakekeeper", fake.option).grant(NAME)


@pytest.mark.parametrize(
    ("config", "grant"),
    [
        ({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "7"}, Grant("gs", {"token": "t"}, 7)),
        (
            {
                "adls.sas-token.a.dfs.core.windows.net": "s",
                "adls.sas-token-expires-at-ms.a.dfs.core.windows.net": "8",
            },
            Grant("abfs", {"sas_token": "s"}, 8),
        ),
    ],
)
def test_credentials_of_each_store_are_understood(config: dict[str, str], grant: Grant) -> None:
    assert granted(config) == (RestTable("delta", f"{AZURE}/t"), grant)


def test_an_answer_without_credentials_says_what_to_do() -> None:
    with pytest.raises(
        StorageError, match='set vended_credentials of the storage option "lakekeeper" to false'
    ) as none:
        granted({})
    assert not none.value.retryable


@pytest.mark.parametrize("uri", ["s3://lake/t", "gs://lake/t", "abfss://c@a.dfs.core.windows.net/t"])
def test_the_identity_of_the_options_stays_behind_and_settings_are_kept(uri: str) -> None:
    own = {"token": "secret"} if uri.startswith("gs") else {}
    given = {"uri": "http://127.0.0.1:9", "token": "of-the-catalog"}
    options = opening_options("uc://prod.sales.t", {"unity": given, **own})
    table = {"scheme": "uc", "name": ["prod", "sales", "t"], "catalog": given}
    assert options == {**own, "vended": table, "managed_by": table}
    assert identity_of(uri, options) == "the credentials that a catalog gave for uc://prod.sales.t"
    assert "vended" in ambient_options(uri, options).withheld
    assert open_storage(uri, options).uri == uri


def test_an_option_that_is_no_identity_is_obeyed_or_refused_by_the_store() -> None:
    given = {"uri": "http://127.0.0.1:9", "token": "of-the-catalog"}
    own = {
        "key": "k",
        "client_kwargs": {"region_name": "us-east-1", "aws_access_key_id": "k"},
        "config_kwargs": {"proxies": {"https": "http://user:password@proxy:8080"}},
    }
    options = opening_options("uc://prod.sales.t", {"unity": given, **own})
    assert without_identity(AT, options) == {
        "client_kwargs": {"region_name": "us-east-1"},
        "config_kwargs": own["config_kwargs"],
    }
    assert open_storage(AT, options).uri == AT
    with pytest.raises(InvalidRequest, match="storage option unknown cannot be obeyed"):
        open_storage(AT, {**options, "unknown": "x"})


def test_own_credentials_are_used_if_the_option_says_so() -> None:
    for scheme, parts in (("uc", "a.b.c"), ("lakekeeper", "a.b.c"), ("polaris", "a.b.c")):
        given = {"uri": "http://127.0.0.1:9", "vended_credentials": False}
        options = opening_options(f"{scheme}://{parts}", {CATALOGS[scheme].option: given, "key": "k"})
        options.pop("managed_by", None)
        assert options == {"key": "k"}


def test_one_process_asks_once_for_all_that_work_on_a_table(fake: FakeCatalog) -> None:
    option = opening_options(
        f"{fake.scheme}://{'.'.join(NAME)}", {CATALOGS[fake.scheme].option: fake.option}
    )["vended"]
    first, second = vended_credentials(option), vended_credentials(dict(reversed(option.items())))
    assert first.fetch(AT) == second.fetch(AT)
    with pytest.raises(InvalidRequest, match="made by this package"):
        vended_credentials({"scheme": "uc"})
