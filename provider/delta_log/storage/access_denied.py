"""What the refusal of a store says: which identity sent the request, which right is missing, and whether another try can help.

Who asked is told by names and never by secrets: of an access key only the last characters are shown.

Standard library only, and no store: each storage finds out what its own errors mean.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from delta_log.errors import CREDENTIALS, AccessDenied
from delta_log.storage.schemes import AZURE, GCS, S3, kind_of, scheme_of

_SHOWN_CHARACTERS = 4
#: Even the end of a shorter key would tell too much.
_SHORTEST_KEY = 12


def denied(
    uri: str,
    said: str,
    identity: str,
    *,
    right: str = "",
    remedy: str = "",
    hint: str = "",
    may_pass: bool = False,
) -> AccessDenied:
    """Make the error for a refusal.

    :param said: words of the store, and what they mean.
    :param identity: identity that sent the request, see :func:`identity_of`.
    :param right: missing right and its resource, as far as they are known.
    :param remedy: advice on what to do; default: to grant the right, or to correct the credentials.
    :param hint: another possible reason.
    :param may_pass: ``True`` if another try may succeed.
    """
    if not remedy:
        grant = f"Grant {right} to it, or correct" if right else "Check"
        remedy = f"{grant} the credentials in {CREDENTIALS}."
    retry = "Another try may help." if may_pass else "Another try cannot help before that."
    message = f"{uri}: access was denied to {identity} ({said}). {remedy}{f' {hint}' if hint else ''} {retry}"
    return AccessDenied(message, uri, may_pass=may_pass, identity=identity, right=right or None)


def this_machine() -> str:
    return f"the identity of machine {os.uname().nodename}"


def identity_of(table_uri: str, storage_options: Mapping[str, Any]) -> str:
    """Name the identity that opens a table: the words fit behind "denied to"."""
    scheme = scheme_of(table_uri)
    if scheme in ("", "file"):
        return "the user of this process"
    kind, vended = kind_of(scheme), storage_options.get("vended")
    if vended is not None:
        return f"the credentials that a catalog gave for {vended['scheme']}://{'.'.join(vended['name'])}"
    named = _BY_FAMILY.get("" if kind is None else kind.family, _other)(storage_options)
    return named or this_machine()


def _of_s3(options: Mapping[str, Any]) -> str:
    role = options.get("assume_role")
    if isinstance(role, Mapping) and role.get("role_arn"):
        return f"role {role['role_arn']}"
    if options.get("anon"):
        return "requests without a signature (anon)"
    client = options.get("client_kwargs") or {}
    key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
    if key:
        session = " with a session token" if options.get("token") or client.get("aws_session_token") else ""
        return f"{_shortened('access key', str(key))}{session}"
    profile = options.get("profile")
    return f"profile {profile} of machine {os.uname().nodename}" if profile else ""


def _of_gcs(options: Mapping[str, Any]) -> str:
    chain, token = options.get("impersonation_chain"), options.get("token")
    if chain:
        return f"service account {chain if isinstance(chain, str) else chain[-1]} (impersonated)"
    if isinstance(token, Mapping):
        account = token.get("client_email") or token.get("type")
        return f"service account {account}" if token.get("client_email") else f"credentials of type {account}"
    if token == "anon":  # noqa: S105 - a word
        return "requests without credentials (anon)"
    if token in (None, "google_default", "cloud"):
        return ""
    return (
        f"the key file {token}"
        if isinstance(token, str) and "/" in token
        else "the token of the storage options"
    )


def _of_azure(options: Mapping[str, Any]) -> str:
    account = options.get("account_name")
    of_account = f" of account {account}" if account else ""
    if options.get("connection_string"):
        return f"the connection string{of_account}"
    if options.get("account_key"):
        return f"the account key{of_account}"
    if options.get("sas_token"):
        return f"the SAS token{of_account}"
    if options.get("client_id"):
        return f"service principal {options['client_id']}"
    if options.get("managed_identity_client_id"):
        return f"managed identity {options['managed_identity_client_id']} of machine {os.uname().nodename}"
    return ""


def _other(options: Mapping[str, Any]) -> str:
    return f"the storage options {', '.join(sorted(options))}" if options else ""


_BY_FAMILY = {S3.family: _of_s3, GCS.family: _of_gcs, AZURE.family: _of_azure}


def _shortened(what: str, key: str) -> str:
    return f"{what} …{key[-_SHOWN_CHARACTERS:]}" if len(key) >= _SHORTEST_KEY else f"the {what}"
