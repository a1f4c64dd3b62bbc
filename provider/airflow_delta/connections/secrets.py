"""The secrets among storage options, for Airflow's masking of logs.

Airflow masks the password of a connection and members of its extra with telling names. Options that were made of these, or that
another provider's hook gave, are masked by what is found here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

#: Options whose value is a secret, at any depth.
_SECRETS = frozenset(
    {
        "account_key",
        "client_secret",
        "connection_string",
        "private_key",
        "refresh_token",
        "sas_token",
        "secret",
        "token",
        "aws_secret_access_key",
        "aws_session_token",
    }
)
#: Members of a connection string that are secrets.
_OF_CONNECTION_STRING = ("AccountKey", "SharedAccessSignature")
#: Words that stand in place of a credential.
_WORDS = frozenset({"anon", "google_default", "cloud", "cache", "browser"})


def secrets_of(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield each secret, in every form in which it may be written."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_of(value)
        elif name in _SECRETS and isinstance(value, str) and value and value not in _WORDS:
            yield from _forms(name, value)
            yield from secrets_of(_key_in(value))


def _key_in(text: str) -> Mapping[str, Any]:
    """The JSON of a key, where that is what a text holds."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _forms(name: str, value: str) -> Iterator[str]:
    yield value
    escaped = json.dumps(value)[1:-1]
    if escaped != value:
        yield escaped
    if name == "connection_string":
        for member in value.split(";"):
            kind, _, content = member.partition("=")
            if kind in _OF_CONNECTION_STRING and content:
                yield from _forms("sas_token" if kind != "AccountKey" else "account_key", content)
    if name == "sas_token":
        yield from parse_qs(value.removeprefix("?")).get("sig", ())
        yield from (part[4:] for part in value.removeprefix("?").split("&") if part.startswith("sig="))
