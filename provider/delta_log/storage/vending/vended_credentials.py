"""Credentials for a table's store that a catalog gives out for a while, and that each process gets for itself and renews.

The storage option ``vended`` says which table of which catalog they are for, and travels in their place: credentials that were got
elsewhere would expire in the midst of a long job. It is made from the name of a table
(:func:`~delta_log.catalog.lookup.opening_options`), and holds ``scheme``, ``name`` (a list of its parts) and ``catalog`` (the value of
the catalog's option).

Credentials are renewed 15 minutes before they expire, or after two thirds of a shorter life. While the catalog does not answer,
those that are still valid are used. If the catalog refuses, work ends at once: somebody has revoked the right.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from delta_log.errors import InvalidRequest, NoCredentials, NotInCatalog, StorageError
from delta_log.storage.schemes import family_of, scheme_of
from delta_log.storage.table_uri import one_spelling
from delta_log.storage.vending.catalogs import rest_catalog
from delta_log.storage.vending.rest_catalog import Grant, RestCatalog, RestTable
from delta_log.storage.vending.rest_client import NotFound

_RENEWED_BEFORE_MS = 900_000
#: Credentials of which the catalog does not say when they expire are renewed after two thirds of this time.
_ASSUMED_LIFE_MS = 600_000
#: The client of a store keeps credentials for ten seconds, so they are not handed to it later than this before they expire.
_KEPT_BY_CLIENT_MS = 10_500
#: While valid credentials are held, the catalog is asked anew so often after it did not answer.
_ASKED_AGAIN_MS = 5_000


class _Held(Struct, frozen=True):
    grant: Grant
    renew_at_ms: int
    ends_at_ms: int


class VendedCredentials:
    """The credentials of one table. Any thread may use it.

    :param name: name of the table.
    :param patient: catalog, which is asked several times if it does not answer.
    :param hasty: the same one, which is asked once: there are credentials to go on with.
    """

    def __init__(
        self,
        name: tuple[str, ...],
        patient: RestCatalog,
        hasty: RestCatalog,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._name, self._patient, self._hasty, self._now_ms = name, patient, hasty, now_ms
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._table = RestTable(None, None)

    def __str__(self) -> str:
        return f"{self._patient.scheme}://{'.'.join(self._name)}"

    def fetch(self, table_uri: str) -> Mapping[str, str]:
        """Return credentials that are valid now, by the names that the client of the store has for them.

        :param table_uri: address of the table, as it was opened.
        :raises StorageError: the catalog refuses, does not answer, has credentials for another store, or has moved the table meanwhile.
        """
        with self._lock:
            now_ms, held = self._now_ms(), self._held
            if held is None or now_ms >= held.renew_at_ms:
                self._held = held = self._renewed(held, now_ms)
        self._require_place(table_uri)
        if held.grant.family != family_of(scheme_of(table_uri)):
            raise NoCredentials(
                table_uri, f"{self._patient.client.place} gave credentials for another kind of store"
            )
        if not all(value.isascii() and value.isprintable() for value in held.grant.credentials.values()):
            # The client would end the process.
            raise NoCredentials(
                table_uri, "the catalog gave credentials with a character that no header can hold"
            )
        return held.grant.credentials

    def _renewed(self, held: _Held | None, now_ms: int) -> _Held:
        is_valid = held is not None and now_ms < held.ends_at_ms
        try:
            self._table, grant = (self._hasty if is_valid else self._patient).grant(self._name)
        except NotFound as error:
            raise NotInCatalog(str(self), f"{self._patient.client.place}: {error}") from error
        except StorageError as error:
            if held is None or not is_valid or not error.retryable:
                raise
            return _Held(held.grant, min(now_ms + _ASKED_AGAIN_MS, held.ends_at_ms), held.ends_at_ms)
        # The request may have taken long.
        now_ms = self._now_ms()
        expires_ms = now_ms + _ASSUMED_LIFE_MS if grant.expires_ms is None else grant.expires_ms
        ends_at_ms = expires_ms - _KEPT_BY_CLIENT_MS
        renew_at_ms = expires_ms - min(_RENEWED_BEFORE_MS, (expires_ms - now_ms) // 3)
        return _Held(grant, min(renew_at_ms, ends_at_ms), ends_at_ms)

    def _require_place(self, table_uri: str) -> None:
        location = self._table.location or ""
        if one_spelling(location) != one_spelling(table_uri):
            raise StorageError(
                f"{self} was at {table_uri} when this work began, and the catalog has it at {location} now, for which it gives "
                "credentials. What was committed stands. Run again.",
                table_uri,
            )


def vended_credentials(option: Any) -> VendedCredentials:
    """Return the only ones of this process for a value of the storage option ``vended``.

    :raises InvalidRequest: the value is wrong.
    """
    return _source(json.dumps(option, sort_keys=True))


@lru_cache(maxsize=1024)
def _source(encoded: str) -> VendedCredentials:
    option = json.loads(encoded)
    try:
        scheme, name, given = option["scheme"], tuple(option["name"]), option["catalog"]
        patient, hasty = rest_catalog(scheme, given), rest_catalog(scheme, given, most_attempts=1)
    except (KeyError, TypeError) as error:
        raise InvalidRequest(
            'The storage option "vended" is made by this package from the name of a table, and this one is not. Leave it out, and give the '
            "table's name."
        ) from error
    return VendedCredentials(name, patient, hasty)
