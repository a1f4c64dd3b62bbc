"""Storage options of a ``google_cloud_platform`` connection, read as the Google provider's hook reads it.

Credentials are made where they are used, by google-auth (:mod:`delta_log.storage.objects.google_credentials`), and renew themselves there. The
content of a key's file is read here, since the path is one of the worker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_delta.connections.fields import ConnectionFields

#: At most one of them gives the identity of the connection.
_IDENTITIES = ("is_anonymous", "key_path", "keyfile_dict", "credential_config_file", "key_secret_name")
#: What only the Google provider's own client can do.
_NOT_HERE = {
    "key_secret_name": "the key is in Secret Manager under its key_secret_name",
    "idp_issuer_url": "its identity comes from idp_issuer_url",
}


def storage_options(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the connection is incomplete or contradicts itself, or a file is not there.
    """
    given = [name for name in _IDENTITIES if fields.get(name) not in (None, False)]
    if len(given) > 1:
        raise fields.unusable(f"it has {' and '.join(given)}", "Leave one of them.")
    for name, problem in _NOT_HERE.items():
        if fields.get(name) is not None:
            raise fields.unusable(
                f"{problem}, and a job could not renew what the Google provider makes of it",
                "Put the key into keyfile_dict of a connection in a secrets backend, or leave it out and name the service "
                "account in impersonation_chain.",
            )
    if fields.flag("is_anonymous"):
        return {"token": "anon"}
    options: dict[str, Any] = {}
    token = _token(fields)
    if token is not None:
        options["token"] = token
    for name, option in (("impersonation_chain", "impersonation_chain"), ("scope", "scopes")):
        texts = _texts(fields, name)
        if texts:
            options[option] = texts
    quota_project = fields.text("quota_project_id")
    if quota_project is not None:
        options["quota_project_id"] = quota_project
    return options


def _token(fields: ConnectionFields) -> dict[str, Any] | None:
    path = fields.text("key_path")
    if path is not None:
        return _key(fields, _from_file(fields, "key_path", path), "key_path")
    if fields.get("keyfile_dict") is not None:
        return _key(fields, dict(fields.mapping("keyfile_dict")), "keyfile_dict")
    config = fields.get("credential_config_file")
    if config is None:
        return None
    if isinstance(config, str) and not config.lstrip().startswith("{"):
        found = _from_file(fields, "credential_config_file", config)
    else:
        found = dict(fields.mapping("credential_config_file"))
    if "type" not in found:
        raise fields.unusable(
            "its credential_config_file has no 'type'",
            "Give a configuration that Google's tools have written.",
        )
    return found


def _key(fields: ConnectionFields, found: dict[str, Any], name: str) -> dict[str, Any]:
    missing = [member for member in ("client_email", "token_uri", "private_key") if not found.get(member)]
    if missing:
        raise fields.unusable(
            f"its {name} is no key of a service account: {', '.join(missing)} missing",
            "Give the JSON that Google issued for the key.",
        )
    # A key that went through a form or an environment variable may have its line ends written out.
    return {**found, "private_key": str(found["private_key"]).replace("\\n", "\n")}


def _from_file(fields: ConnectionFields, name: str, path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        problem = error if isinstance(error, OSError) else "it is not JSON"
        raise fields.unusable(
            f"the file of its {name} cannot be read ({problem})", "Put a JSON key there, on this worker."
        ) from None
    if not isinstance(found, Mapping):
        raise fields.unusable(f"the file of its {name} is not a JSON object", "Put a JSON key there.")
    return dict(found)


def _texts(fields: ConnectionFields, name: str) -> list[str]:
    value = fields.get(name)
    members = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
        raise fields.unusable(
            f"its {name!r} is neither a list of texts nor a text with commas between them",
            f"Correct {name!r}.",
        )
    return [member.strip() for member in members if member.strip()]
