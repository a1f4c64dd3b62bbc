"""Credentials for Google Cloud Storage, made from storage options on each machine that uses them.

gcsfs understands the keys of service accounts by itself. This module makes what it does not: credentials of another kind, such as
workload identity federation, those that impersonate a service account, limited scopes, and another project for the bill.
All of them renew themselves.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from delta_log.errors import InvalidRequest, NoCredentials, StorageError

#: Storage options that ask for credentials of this module; gcsfs does not know them.
OPTIONS = ("impersonation_chain", "scopes", "quota_project_id")
#: What gcsfs asks for.
_SCOPES = ("https://www.googleapis.com/auth/devstorage.full_control",)
#: Without it an identity cannot ask for the credentials of another one.
_IMPERSONATING = ("https://www.googleapis.com/auth/cloud-platform",)
#: Types of credentials that gcsfs reads.
_KNOWN_TYPES = (None, "service_account", "authorized_user")
_AWS_TOKEN = "urn:ietf:params:aws:token-type:aws4_request"  # noqa: S105 - the name of a kind


def with_credentials(table_uri: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of gcsfs, with a credentials object as ``token`` where it could not make one.

    :raises InvalidRequest: an option is wrong.
    :raises NoCredentials: there are none, or none of use.
    """
    options = dict(storage_options)
    asked = {name: options.pop(name) for name in OPTIONS if options.get(name)}
    token = options.get("token")
    is_of_other_type = isinstance(token, Mapping) and token.get("type") not in _KNOWN_TYPES
    if not asked and not is_of_other_type:
        return options
    if token == "anon":  # noqa: S105 - a word of gcsfs
        raise InvalidRequest(
            f"The storage options have token 'anon' and {', '.join(asked)}. Leave one of them out."
        )
    chain, scopes = (_texts(name, asked.get(name, ())) for name in ("impersonation_chain", "scopes"))
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        options["token"] = _credentials(token, chain, scopes or _SCOPES, asked.get("quota_project_id"))
    except TransportError as error:
        raise StorageError(
            f"{table_uri}: the service that gives out identities does not answer ({error}). Run again when it does.",
            table_uri,
        ) from error
    except (GoogleAuthError, OSError, ValueError) as error:
        raise NoCredentials(table_uri, _said(error)) from error
    return options


def _credentials(token: Any, chain: Sequence[str], scopes: Sequence[str], quota_project: str | None) -> Any:
    found = _source(token, _IMPERSONATING if chain else scopes)
    if chain:
        from google.auth.impersonated_credentials import Credentials

        impersonated: Any = Credentials
        found = impersonated(found, chain[-1], list(scopes), delegates=list(chain[:-1]))
    return found.with_quota_project(quota_project) if quota_project else found


def _source(token: Any, scopes: Sequence[str]) -> Any:
    """Return the credentials of the option ``token`` itself."""
    import google.auth

    if token in (None, "google_default", "cloud"):
        return google.auth.default(scopes=scopes)[0]
    info = json.loads(_text(token)) if isinstance(token, str) else dict(token)
    if info.get("type") == "external_account":
        return _federated(info, scopes)
    load: Any = google.auth.load_credentials_from_dict
    # The warning is about configurations from others; this one was given like any credential.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return load(info, scopes=scopes)[0]


def _federated(info: Mapping[str, Any], scopes: Sequence[str]) -> Any:
    """Return the credentials of a workload identity. The general function would ask Google for their project first."""
    from google.auth import aws, identity_pool, pluggable

    kind: Any = identity_pool.Credentials
    if info.get("subject_token_type") == _AWS_TOKEN:
        kind = aws.Credentials
    elif "executable" in info.get("credential_source", {}):
        kind = pluggable.Credentials
    return kind.from_info(info, scopes=scopes)


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and item.strip() for item in value
    ):
        raise InvalidRequest(
            f"The storage option {name!r} is neither a list of texts nor a text with commas between them."
        )
    return tuple(item.strip() for item in value)


def _said(error: Exception) -> str:
    """Return what an error says, but for what was given as a key or as its path: that may be a secret."""
    if isinstance(error, OSError):
        return f"its file: {error.strerror}"
    return type(error).__name__ if isinstance(error, ValueError) else str(error).partition("\n")[0]
