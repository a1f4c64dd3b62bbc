"""Hands the credentials of a store to obstore, which asks for them again while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

#: obstore asks again five minutes before the time at which credentials expire. So it asks every ten seconds, and the identity library,
#: which knows the real time, decides whether to renew them.
_ASKED_AGAIN_AFTER = timedelta(minutes=5, seconds=10)


class CredentialSource:
    """A credential provider of obstore. Any thread may call it.

    :param fetch: function that returns the credentials that are valid now, in the form that the store's client takes, but for the time at
        which they expire.
    :ivar error: what the last call of the function raised; obstore tells only its text.
    """

    def __init__(self, fetch: Callable[[], Mapping[str, Any]]) -> None:
        self._fetch = fetch
        self.error: Exception | None = None

    def __call__(self) -> Any:
        try:
            found = self._fetch()
        except Exception as error:
            self.error = error
            raise
        self.error = None
        return {**found, "expires_at": datetime.now(timezone.utc) + _ASKED_AGAIN_AFTER}
