"""Asks a catalog by HTTP and JSON, as somebody with a token.

The token is given, or comes from a token service for the id and secret of an OAuth client; then it is renewed before it expires, and
once more when the catalog does not take it. Redirections are not followed: they would carry the token to another server.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from delta_log.errors import CREDENTIALS, AccessDenied, InvalidRequest, StorageError, brief
from delta_log.redaction import redact_uri
from delta_log.storage.objects.backoff import Backoff
from delta_log.version import VERSION

_SECONDS = 30.0
#: How often a request is made that finds no server or a busy one. The last of these attempts comes at least 30 seconds after the first.
_MOST_ATTEMPTS = 10
_WAITS = Backoff(1.0, 10.0)
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
#: A token is renewed this long before it expires, or after two thirds of a shorter life.
_RENEWED_BEFORE_SECONDS = 60.0
_ASSUMED_LIFE_SECONDS = 300.0
#: The members of the option that are no texts.
_FLAGS = ("vended_credentials", "owner_permits_maintenance")
_Answer = TypeVar("_Answer")


class NotFound(Exception):
    """The catalog has nothing of that name; the text is what it says."""


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The value of the storage option of a catalog.

    :param uri: base of the catalog's addresses, without a slash at its end.
    :param token: bearer token.
    :param client_id: id of an OAuth client, which gets its tokens from `token_uri`.
    :param scope: scope that the client asks for.
    :param ca_bundle: file of authorities in PEM form that vouch for the server; default: the authorities of the system.
    :param metalake: metalake of a Gravitino server.
    :param vended_credentials: ``False``: the store is opened with the identity of the other storage options.
    :param owner_permits_maintenance: ``True``: the owner of the tables permits all maintenance of tables that Unity Catalog manages.
    """

    uri: str
    token: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_uri: str | None = None
    scope: str | None = None
    ca_bundle: str | None = None
    metalake: str | None = None
    vended_credentials: bool = True
    owner_permits_maintenance: bool = False

    @classmethod
    def from_option(cls, option: str, given: Any) -> RestSettings:
        """
        :param option: name of the storage option.
        :raises InvalidRequest: the option is missing or wrong.
        """
        example = f'{{"{option}": {{"uri": "https://catalog.example.org", "token": "…"}}}}'
        if not isinstance(given, Mapping):
            raise InvalidRequest(
                f'The storage option "{option}" says which catalog is asked, and it is {"missing" if given is None else "no object"}. '
                f"Give one such as {example} (in Airflow: {option} in the extra of the connection, or a connection of the catalog's type)."
            )
        known = [one.name for one in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise InvalidRequest(
                    f'The storage option "{option}" has an unknown key {brief(str(name))!r}. There are {", ".join(known)}.'
                )
            kind, words = (bool, "neither true nor false") if name in _FLAGS else (str, "no text, or empty")
            if not isinstance(value, kind) or value == "":
                raise InvalidRequest(
                    f'"{name}" of the storage option "{option}" is {words}. Correct it, or leave it out.'
                )
        if not _is_header_value(given.get("token", "")):
            raise InvalidRequest(
                f'"token" of the storage option "{option}" has a line break, or another character that no token has. It is not shown. Correct it.'
            )
        for name in ("uri", "token_uri"):
            if name in given or name == "uri":
                _require_address(option, name, given.get(name))
        if "client_id" in given and not {"client_secret", "token_uri"} <= given.keys():
            raise InvalidRequest(
                f'The storage option "{option}" has a client_id, and needs client_secret and token_uri beside it. Give them.'
            )
        return cls(**{**given, "uri": given["uri"].rstrip("/")})


def _is_header_value(token: str) -> bool:
    """Whether a header of HTTP can hold it; else the error of the client library would show it."""
    return token.isascii() and (token.isprintable() or not token)


def _require_address(option: str, name: str, value: Any) -> None:
    try:
        parts = urlsplit(value or "")
        is_address = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and not (parts.query or parts.fragment or "@" in parts.netloc)
        )
    except (TypeError, ValueError):
        is_address = False
    if not is_address:
        raise InvalidRequest(
            f'"{name}" of the storage option "{option}" is {redact_uri(brief(str(value)))!r}, which is no address of a server. Give one such as '
            "https://catalog.example.org."
        )


class Declined(Exception):
    """The catalog answered a request with a status that its caller handles; the text is what it says.

    :ivar reason: type of the error in the catalog's words; empty: it does not say it.
    """

    def __init__(self, status: int, reason: str, said: str) -> None:
        super().__init__(said)
        self.status, self.reason = status, reason


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class RestClient:
    """Makes requests to one catalog. Any thread may use it.

    :param catalog: words for the catalog in messages, such as ``Unity Catalog``.
    :param waits: waits before a request is made again.
    :param most_attempts: number of times that a request is made that finds no server or a busy one.
    """

    def __init__(
        self,
        catalog: str,
        settings: RestSettings,
        *,
        waits: Backoff = _WAITS,
        most_attempts: int = _MOST_ATTEMPTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._catalog, self._waits, self._most_attempts, self._clock = catalog, waits, most_attempts, clock
        self._lock = threading.Lock()
        self._token, self._renewed_at = settings.token, 0.0

    @property
    def place(self) -> str:
        """The catalog in words."""
        return f"{self._catalog} at {self.settings.uri}"

    def get(
        self,
        kind: type[_Answer],
        path: str,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Answer:
        """Return the answer to a GET, as a value of a type of msgspec.

        :param path: path below the address of the catalog; see :func:`path_of`.
        :param query: parameters; those without a value are left out.
        :raises NotFound: there is no such thing.
        :raises StorageError: the catalog refuses (:class:`~delta_log.errors.AccessDenied`), or does not answer.
        """
        given = {name: value for name, value in (query or {}).items() if value}
        address = f"{self.settings.uri}{path}{f'?{urlencode(given)}' if given else ''}"
        return self._decoded(kind, self._asked(address, None, headers or {}))

    def post(
        self, kind: type[_Answer], path: str, body: Mapping[str, Any], handled: Collection[int] = ()
    ) -> _Answer:
        """Return the answer to a POST of JSON, which may be made several times; errors are as with :meth:`get`.

        :param handled: statuses that the caller handles.
        :raises Declined: the answer has one of these statuses.
        """
        headers = {"Content-Type": "application/json"}
        content = self._asked(f"{self.settings.uri}{path}", json.dumps(body).encode(), headers, handled)
        return self._decoded(kind, content)

    def _decoded(self, kind: type[_Answer], content: bytes) -> _Answer:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError(
                f"{self.place} answers with something that is no answer of such a catalog ({brief(str(error))}). Check the address.",
                self.settings.uri,
                is_final=True,
            ) from error

    def _asked(
        self, address: str, body: bytes | None, headers: Mapping[str, str], handled: Collection[int] = ()
    ) -> bytes:
        """Make a request, with another token if the catalog does not take this one and a new one can be had."""
        for is_last in (self.settings.client_id is None, True):
            token = self._valid_token()
            signed = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
            try:
                return self._sent(address, body, signed, handled)
            except _Refused as refused:
                if refused.status == _UNAUTHORIZED and not is_last:
                    self._forget(token)
                    continue
                raise self._denied(refused) from refused
        raise AssertionError("the second attempt returns or raises")

    def _sent(
        self, address: str, body: bytes | None, headers: Mapping[str, str], handled: Collection[int] = ()
    ) -> bytes:
        """
        :raises Declined: the answer has a status that the caller handles.
        :raises NotFound: the answer is 404.
        :raises _Refused: the answer is 401 or 403.
        :raises StorageError: the request failed otherwise, several times if that may pass.
        """
        request = urllib.request.Request(  # noqa: S310 - addresses are checked to be http or https
            address,
            body,
            {"User-Agent": f"delta-maintenance/{VERSION}", "Accept": "application/json", **headers},
        )
        attempt = 0
        while True:
            try:
                with self._opener.open(request, timeout=_SECONDS) as answer:
                    content: bytes = answer.read()
                    return content
            except urllib.error.HTTPError as error:
                reason, said = _said(error)
                if error.code in handled:
                    raise Declined(error.code, reason, said) from error
                if error.code == _NOT_FOUND:
                    raise NotFound(said) from error
                if error.code in (_UNAUTHORIZED, _FORBIDDEN):
                    raise _Refused(error.code, said) from error
                failure = StorageError(
                    f"{self.place} failed ({said}). Run again.",
                    self.settings.uri,
                    is_final=error.code not in _BUSY,
                )
                cause: Exception = error
            except (OSError, HTTPException) as error:
                failure = StorageError(
                    f"{self.place} does not answer ({brief(str(getattr(error, 'reason', error)))}). Check the address; if it is right, run again "
                    "when it answers.",
                    self.settings.uri,
                )
                cause = error
            attempt += 1
            if not failure.retryable or attempt >= self._most_attempts:
                raise failure from cause
            self._waits.wait(attempt - 1)

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        try:
            context = ssl.create_default_context(cafile=self.settings.ca_bundle)
        except OSError as error:
            raise InvalidRequest(
                f"The authorities for {self.place} cannot be read ({error.strerror or error}). Correct ca_bundle, which is a path on each "
                "machine that works on the table."
            ) from error
        return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))

    def _denied(self, refused: _Refused) -> AccessDenied:
        who = f"OAuth client {self.settings.client_id}" if self.settings.client_id else "the given token"
        if not self.settings.client_id and not self.settings.token:
            who = "a client without a token"
        return AccessDenied(
            f"{self.place} denied access to {who} ({refused}). Grant it the rights on the table, or correct the catalog's option in "
            f"{CREDENTIALS}. Another try cannot help before that.",
            self.settings.uri,
            identity=who,
        )

    # -- tokens ------------------------------------------------------------------------------------------

    def _valid_token(self) -> str | None:
        if self.settings.client_id is None:
            return self.settings.token
        with self._lock:
            if self._token is None or self._clock() >= self._renewed_at:
                self._token, life_seconds = self._new_token()
                self._renewed_at = self._clock() + max(
                    life_seconds - _RENEWED_BEFORE_SECONDS, life_seconds * 2 / 3
                )
            return self._token

    def _forget(self, token: str | None) -> None:
        with self._lock:
            if self._token == token:
                self._token = None

    def _new_token(self) -> tuple[str, float]:
        """Return a token of the OAuth client and its life in seconds.

        :raises AccessDenied: the token service does not know the client.
        :raises StorageError: it does not answer.
        """
        settings = self.settings
        asked = {
            "grant_type": "client_credentials",
            "client_id": settings.client_id,
            "client_secret": settings.client_secret,
            "scope": settings.scope,
        }
        body = urlencode({name: value for name, value in asked.items() if value}).encode()
        try:
            content = self._sent(
                str(settings.token_uri), body, {"Content-Type": "application/x-www-form-urlencoded"}
            )
        except (_Refused, NotFound) as refused:
            raise AccessDenied(
                f"The token service {settings.token_uri} gives OAuth client {settings.client_id} no token ({refused}). Correct client_id, "
                f"client_secret, scope and token_uri in {CREDENTIALS}. Another try cannot help before that.",
                str(settings.token_uri),
                identity=f"OAuth client {settings.client_id}",
            ) from refused
        answer = self._decoded(_Token, content)
        if not _is_header_value(answer.access_token):
            raise StorageError(
                f"The token service {settings.token_uri} gives a token with a line break, or another character that no token has. Check the "
                "address.",
                str(settings.token_uri),
                is_final=True,
            )
        return answer.access_token, answer.expires_in


class _Token(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = _ASSUMED_LIFE_SECONDS


class _Refused(Exception):
    """The answer was 401 or 403."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


def path_of(*segments: str) -> str:
    """Return a path, in which each segment is escaped."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _said(error: urllib.error.HTTPError) -> tuple[str, str]:
    """Return the type of an error, and the status with what the catalog says, which is in one of three forms."""
    reason, message = None, None
    try:
        found = json.loads(error.read())
        found = found.get("error", found) if isinstance(found, Mapping) else {}
        message = found.get("message") if isinstance(found, Mapping) else found
        reason = found.get("type") if isinstance(found, Mapping) else None
    except (OSError, ValueError, HTTPException):
        pass
    return str(reason or ""), brief(" ".join(f"{error.code}: {message or error.reason}".split()))
