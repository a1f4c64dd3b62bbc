"""Access tokens for Google Cloud Storage, by google-auth, made from storage options in each process that uses them.

Credentials are found and loaded at the first request. They renew themselves.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from delta_log.errors import InvalidRequest, NoCredentials, StorageError
from delta_log.storage.access_denied import denied

_SCOPE = "https://www.googleapis.com/auth/devstorage."
#: Values of the option ``access``, each a scope.
_ACCESS = ("full_control", "read_write", "read_only")
#: Without it an identity cannot ask for the credentials of another one.
_IMPERSONATING = ("https://www.googleapis.com/auth/cloud-platform",)
#: The words that the option ``token`` may have.
_MACHINE = (None, "google_default", "cloud")
_UNSIGNED = "anon"
#: Words of gcsfs for credentials that only a person at a browser can give.
_OF_PERSONS = ("browser", "cache")
_AWS_TOKEN = "urn:ietf:params:aws:token-type:aws4_request"  # noqa: S105 - the name of a kind
#: In the words of Google's token service for a signed request that is too old or from the future.
_SKEWED = "iat and exp"
_CORRECT_CLOCK = "Correct the clock of this machine, for example with NTP."


def checked_token(token: Any) -> Any:
    """Check the option ``token``, and return the JSON of a key as an object.

    :raises InvalidRequest: it is neither a key, nor the path of a file, nor an access token, nor credentials of google-auth.
    """
    if isinstance(token, str) and token in _OF_PERSONS:
        raise InvalidRequest(
            f"The storage option token is {token!r}, credentials that somebody gives at a browser. Give the key of a service account, or "
            "leave the option out: gcloud auth application-default login makes credentials for a person."
        )
    if token is None or isinstance(token, Mapping) or hasattr(token, "refresh"):
        return token
    if not isinstance(token, str) or not token.strip():
        raise InvalidRequest(
            "The storage option token is neither a text nor an object. Give the content of a key's file, its path, an access token, "
            "google_default, cloud or anon."
        )
    if token.lstrip().startswith("{"):
        try:
            return json.loads(token)
        except ValueError:
            # The text itself is secret.
            raise InvalidRequest(
                "The storage option 'token' looks like the JSON of a service account key, and is not JSON. "
                "Give the content of the key's file, or its path."
            ) from None
    if "/" in token and not os.path.exists(token):
        raise InvalidRequest(
            f"The storage option 'token' names a file that is not there: {token}. Give the path of a service account "
            "key on the machine that does the work, or the key's content."
        )
    return token


class GoogleCredentials:
    """The identity that the storage options name. Any thread may use it.

    :param token: option ``token``, checked.
    :param identity: words for the identity, for errors.
    :raises InvalidRequest: an option is wrong.
    """

    def __init__(self, table_uri: str, options: Mapping[str, Any], token: Any, identity: str) -> None:
        self._uri, self._token, self._identity = table_uri, token, identity
        self._chain = _texts(options, "impersonation_chain")
        self._scopes = _texts(options, "scopes")
        access = options.get("access") or _ACCESS[0]
        if access not in _ACCESS:
            raise InvalidRequest(f"The storage option access is {access!r}. There are {', '.join(_ACCESS)}.")
        self._default_scopes = (f"{_SCOPE}{access}",)
        if self.are_absent and self._is_asked:
            raise InvalidRequest(
                "The storage options have token 'anon' and impersonation_chain or scopes. Leave one of them out."
            )
        self._lock = threading.Lock()
        self._loaded: tuple[Any, str | None] | None = None
        self._transport: Any = None

    @property
    def are_absent(self) -> bool:
        """Whether requests are not signed."""
        return bool(self._token == _UNSIGNED)

    @property
    def are_named(self) -> bool:
        """Whether an option says who asks."""
        return self._token is not None or self._is_asked

    @property
    def _is_asked(self) -> bool:
        return bool(self._chain or self._scopes)

    def fetch(self) -> Mapping[str, str]:
        """Return an access token that is valid now, for obstore.

        :raises StorageError: there are no credentials, or they are refused.
        """
        credentials, _ = self.load()
        with self._lock, self._errors():
            if not credentials.valid:
                credentials.refresh(self._request())
            return {"token": str(credentials.token)}

    def load(self) -> tuple[Any, str | None]:
        """Return the credentials of google-auth, and the project that they belong to, if they say it.

        :raises InvalidRequest: the options do not fit the credentials.
        :raises NoCredentials: there are none, or none of use.
        """
        with self._lock, self._errors():
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Any, str | None]:
        found, project = self._source(_IMPERSONATING if self._chain else self._scopes or self._default_scopes)
        if self._chain:
            from google.auth.impersonated_credentials import Credentials

            impersonated: Any = Credentials
            scopes = list(self._scopes or self._default_scopes)
            found = impersonated(found, self._chain[-1], scopes, delegates=list(self._chain[:-1]))
        return found, project

    def _source(self, scopes: Sequence[str]) -> tuple[Any, str | None]:
        """Return the credentials of the option ``token`` itself, and their project."""
        token = self._token
        if hasattr(token, "refresh"):
            return token, getattr(token, "project_id", None)
        if token == "cloud":  # noqa: S105 - a word
            from google.auth import compute_engine

            machine: Any = compute_engine.Credentials
            return machine(scopes=scopes), None
        if token in _MACHINE:
            import google.auth

            found, project = google.auth.default(scopes=scopes)
            return found, project
        if isinstance(token, str) and os.path.exists(token):
            with open(token, encoding="utf-8") as file:
                token = json.load(file)
        if isinstance(token, str):
            return self._of_access_token(token), None
        return _of_info(token, scopes, self._scopes)

    def _of_access_token(self, token: str) -> Any:
        if self._scopes and not self._chain:
            raise InvalidRequest(
                "The storage options have scopes and, as token, an access token, whose scopes are fixed. Leave one of them out."
            )
        from google.oauth2.credentials import Credentials

        made: Any = Credentials
        return made(token)

    def _request(self) -> Any:
        """Return what makes the requests of google-auth."""
        if self._transport is None:
            from google.auth.transport.requests import Request

            self._transport = Request()
        return self._transport

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            from google.auth.exceptions import (
                DefaultCredentialsError,
                GoogleAuthError,
                MalformedError,
                RefreshError,
            )
        except ImportError as error:
            raise InvalidRequest(
                f"{self._uri} needs a package that is not installed ({error}), which finds the credentials. Install "
                "airflow-provider-delta[gcs]."
            ) from error
        try:
            yield
        except (DefaultCredentialsError, MalformedError, OSError, ValueError) as error:
            if _is_unreachable(error):
                raise self._no_answer(error) from error
            raise NoCredentials(self._uri, _said(error)) from error
        except RefreshError as error:
            if _is_unreachable(error):
                raise self._no_answer(error) from error
            said = " ".join(str(error).split())
            remedy = _CORRECT_CLOCK if _SKEWED in said else ""
            raise denied(self._uri, said, self._identity, remedy=remedy, may_pass=bool(remedy)) from error
        except GoogleAuthError as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> StorageError:
        return StorageError(
            f"{self._uri}: the service that gives out identities does not answer ({_said(error)}). Run again when it does.",
            self._uri,
        )


def _of_info(info: Any, scopes: Sequence[str], asked: Sequence[str]) -> tuple[Any, str | None]:
    """Return the credentials that a JSON object describes, and their project.

    :param asked: scopes of the options. The credentials of a person have scopes already and get others only where these are asked for.
    """
    import google.auth

    info = dict(info)
    if info.get("type") is None:
        info["type"] = "authorized_user" if "refresh_token" in info else "service_account"
    if info["type"] == "external_account":
        return _federated(info, scopes), None
    if info["type"] == "authorized_user":
        scopes = asked
    load: Any = google.auth.load_credentials_from_dict
    # The warning is about configurations from others; this one was given like any credential.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found, project = load(info, scopes=scopes or None)
    return found, project


def _federated(info: Mapping[str, Any], scopes: Sequence[str]) -> Any:
    """Return the credentials of a workload identity. The general function would ask Google for their project first."""
    from google.auth import aws, identity_pool, pluggable

    kind: Any = identity_pool.Credentials
    if info.get("subject_token_type") == _AWS_TOKEN:
        kind = aws.Credentials
    elif "executable" in info.get("credential_source", {}):
        kind = pluggable.Credentials
    return kind.from_info(info, scopes=scopes)


def _texts(options: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = options.get(name) or ()
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and item.strip() for item in value
    ):
        raise InvalidRequest(
            f"The storage option {name!r} is neither a list of texts nor a text with commas between them."
        )
    return tuple(item.strip() for item in value)


def _is_unreachable(error: BaseException | None) -> bool:
    """Whether the service was not reached, or says that another try may help. google-auth has one error for that and for a refusal."""
    from google.auth.exceptions import TransportError

    while error is not None:
        if isinstance(error, TransportError) or getattr(error, "retryable", False):
            return True
        error = error.__cause__
    return False


def _said(error: Exception) -> str:
    """Return what an error says, but for what was given as a key or as its path: that may be a secret."""
    if isinstance(error, OSError):
        return f"its file: {error.strerror}"
    return type(error).__name__ if isinstance(error, ValueError) else str(error).partition("\n")[0]
