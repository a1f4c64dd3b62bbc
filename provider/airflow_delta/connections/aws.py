"""Storage options of an ``aws`` connection, read as the Amazon provider's hook reads it.

A role is not assumed here: the options say how, and each process of a job assumes it for itself and renews its session
(:mod:`delta_log.storage.assumed_role`). The hook could only hand out a session that ends after an hour. It is asked where the
connection names a way that Amazon's client library does not know (:mod:`airflow_delta.connections.aws_session`).
"""

from __future__ import annotations

import os
import re
from typing import Any

from airflow_delta.connections.aws_session import has_session_factory, keys_of_session
from airflow_delta.connections.fields import ConnectionFields

_SAML, _WEB_IDENTITY = "assume_role_with_saml", "assume_role_with_web_identity"
_METHODS = ("assume_role", _SAML, _WEB_IDENTITY)
#: Parameters of the request for a role that have a name of their own among our options.
_ROLE_PARAMETERS = {
    "RoleSessionName": "session_name",
    "ExternalId": "external_id",
    "DurationSeconds": "duration_seconds",
}
#: What a role is assumed with is of no use beside the keys of its session.
_SOURCES = ("key", "secret", "token", "profile", "assume_role")


def storage_options(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the connection is incomplete, or needs a package that is not installed.
    """
    options: dict[str, Any] = {**_keys(fields), **_client(fields)}
    profile = fields.text("profile_name")
    if profile is not None and "key" not in options:
        options["profile"] = profile
    needs_hook = has_session_factory()
    if fields.text("role_arn") is not None:
        role = _role(fields)
        needs_hook = needs_hook or role is None
        options["assume_role"] = role
    if needs_hook:
        options = {name: value for name, value in options.items() if name not in _SOURCES}
        options |= keys_of_session(fields)
    if fields.get("lock") is not None:
        options["lock"] = fields.get("lock")
    return options


def _keys(fields: ConnectionFields) -> dict[str, str]:
    """The keys, from the places where the hook looks for them, in its order."""
    older = fields.mapping("session_kwargs")
    names = ("aws_access_key_id", "aws_secret_access_key")
    places = (
        ("login and password", fields.login, fields.password),
        ("extra", *map(fields.text, names)),
        ("session_kwargs", *map(older.get, names)),
    )
    token = fields.text("aws_session_token") or older.get("aws_session_token")
    for place, key, secret in places:
        if key and secret:
            return {"key": key, "secret": secret, **({"token": token} if token else {})}
        if key or secret:
            missing = "secret access key" if key else "access key id"
            raise fields.unusable(
                f"it has no {missing} ({place})",
                f"Add the {missing}, or remove both to use the identity of the machine.",
            )
    if token:
        raise fields.unusable(
            "it has a session token and no keys",
            "Add the access key id and the secret access key of the session.",
        )
    return {}


def _client(fields: ConnectionFields) -> dict[str, Any]:
    """Where the store is, and how to talk to it."""
    options: dict[str, Any] = {}
    endpoint = _service(fields, "s3") or fields.text("endpoint_url")
    if endpoint is not None:
        options["endpoint_url"] = endpoint
    client = {"region_name": fields.text("region_name"), "verify": fields.get("verify")}
    client = {name: value for name, value in client.items() if value is not None}
    if client:
        options["client_kwargs"] = client
    config = dict(fields.mapping("config_kwargs"))
    if config.get("signature_version") == "unsigned":
        del config["signature_version"]
        options["anon"] = True
    if config:
        options["config_kwargs"] = config
    return options


def _service(fields: ConnectionFields, name: str) -> str | None:
    service = fields.mapping("service_config").get(name) or {}
    endpoint = service.get("endpoint_url") if isinstance(service, dict) else None
    return str(endpoint) if endpoint else None


def _role(fields: ConnectionFields) -> dict[str, Any] | None:
    """The option ``assume_role``; ``None`` where only the hook knows how."""
    method = fields.text("assume_role_method") or "assume_role"
    if method not in _METHODS:
        raise fields.unusable(
            f"its assume_role_method is {method!r}",
            f"There are {', '.join(_METHODS)}; leave it out for the first.",
        )
    federation = fields.text("assume_role_with_web_identity_federation")
    if method == _SAML or (method == _WEB_IDENTITY and federation != "file"):
        return None
    role: dict[str, Any] = {
        "role_arn": fields.text("role_arn"),
        "session_name": re.sub(r"[^\w+=,.@-]+", "-", f"Airflow_{fields.conn_id}", flags=re.ASCII),
    }
    parameters = dict(fields.mapping("assume_role_kwargs"))
    role |= {name: parameters.pop(given) for given, name in _ROLE_PARAMETERS.items() if given in parameters}
    if parameters:
        role["parameters"] = parameters
    endpoint = _service(fields, "sts")
    if endpoint is not None:
        role["sts_endpoint_url"] = endpoint
    if method == _WEB_IDENTITY:
        file = fields.text("assume_role_with_web_identity_token_file") or os.environ.get(
            "AWS_WEB_IDENTITY_TOKEN_FILE"
        )
        if not file:
            raise fields.unusable(
                "it names no web identity token file, and neither does AWS_WEB_IDENTITY_TOKEN_FILE",
                "Set assume_role_with_web_identity_token_file in its extra.",
            )
        role["web_identity_token_file"] = file
    return role
