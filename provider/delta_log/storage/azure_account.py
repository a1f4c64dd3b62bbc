"""Where a container of Azure is and what signs its requests: read from the address, the storage options and the environment.

Storage options and variables of the environment (:data:`_VARIABLES`) have the names that adlfs gave them. Of several credentials one is
used: the options' before the environment's, and then the first of :data:`_CREDENTIALS`. Without any, requests carry tokens of the
machine's identity, or with ``anon`` no signature.
"""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

from delta_log.errors import InvalidRequest

_VARIABLES = {
    name: f"AZURE_STORAGE_{name.upper()}"
    for name in (
        "account_name", "account_key", "connection_string", "sas_token", "client_id", "client_secret", "tenant_id", "anon",
    )
}  # fmt: skip
#: Credentials in the order in which they are preferred.
_CREDENTIALS = ("connection_string", "credential", "account_key", "sas_token", "client_id")
_PRINCIPAL = ("tenant_id", "client_id", "client_secret")
#: Options of azure-identity that say which identity of the machine asks.
_OF_MACHINE = ("managed_identity_client_id", "workload_identity_tenant_id", "additionally_allowed_tenants")
_NO = ("", "0", "f", "false")
_SUFFIX = "core.windows.net"
#: Every emulator has this account and key.
_EMULATOR = (
    "AccountName=devstoreaccount1;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class ContainerAddress:
    """The address of a table.

    :param account: name of the storage account; empty: the address does not say.
    :param host: host of the account's Blob endpoint; empty: the address does not say.
    """

    container: str
    path: str
    account: str = ""
    host: str = ""

    @classmethod
    def parse(cls, table_uri: str) -> ContainerAddress:
        """
        :raises InvalidRequest: the address names no container.
        """
        authority, _, path = table_uri.partition("://")[2].partition("/")
        container, _, account = authority.partition("@")
        if not container or "." in container:
            raise InvalidRequest(
                f"{table_uri} names no container before its account. Write abfss://container@account.dfs.core.windows.net/table."
            )
        labels = account.lower().split(".")
        host = ".".join([labels[0], *("blob" if label == "dfs" else label for label in labels[1:])])
        return cls(container, path, labels[0], host if len(labels) > 1 else "")


@dataclass(frozen=True)
class AzureAccount:
    """A storage account, and what signs requests to it: one of the last three, or nothing.

    :param endpoint: URL of the Blob endpoint, without a slash at its end.
    :param credential: object of azure-identity, or any other with ``get_token``.
    :param is_of_machine: ``True``: the credential looks for an identity of this machine.
    """

    name: str
    endpoint: str
    key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)
    credential: Any = field(default=None, repr=False)
    is_of_machine: bool = False

    @property
    def sas_end(self) -> datetime | None:
        """When the SAS token expires, which it says itself."""
        end = parse_qs(self.sas_token).get("se", [""])[0]
        try:
            found = datetime.fromisoformat(end.replace("Z", "+00:00"))
        except ValueError:
            return None
        return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def account_of(
    table_uri: str, storage_options: Mapping[str, Any], environment: Mapping[str, str]
) -> AzureAccount:
    """
    :raises InvalidRequest: there is no account, or an option is wrong.
    :raises ImportError: azure-identity is not installed, and a token is needed.
    """
    place = ContainerAddress.parse(table_uri)
    options = {name: value for name, value in storage_options.items() if value not in (None, "")}
    of_environment = {name: environment[key] for name, key in _VARIABLES.items() if environment.get(key)}
    is_anonymous = of_environment.pop("anon", "").lower() not in _NO
    given: dict[str, Any] = {"anon": is_anonymous, **of_environment, **options}
    # What the options leave open is read from the environment, but no credential there takes the place of the options' one.
    chosen = next((name for name in _CREDENTIALS if name in options), "")
    if not chosen and not options.get("anon"):
        chosen = next((name for name in _CREDENTIALS if name in given), "")
    if chosen == "connection_string":
        found = _of_connection_string(str(given["connection_string"]))
        _require_same(table_uri, place, found.name)
        return found
    name = str(options.get("account_name") or place.account or given.get("account_name") or "")
    if not name:
        raise InvalidRequest(
            f"{table_uri} names no storage account. Write abfss://container@account.dfs.core.windows.net/table, or set the storage "
            "option account_name or connection_string."
        )
    _require_same(table_uri, place, name)
    endpoint = f"https://{_host(given) or place.host or f'{name}.blob.{_SUFFIX}'}"
    if chosen == "account_key":
        return AzureAccount(name, endpoint, key=_key(given["account_key"]))
    if chosen == "sas_token":
        return AzureAccount(name, endpoint, sas_token=_sas(given["sas_token"]))
    if not chosen and given["anon"]:
        return AzureAccount(name, endpoint)
    return AzureAccount(name, endpoint, credential=_credential(chosen, given), is_of_machine=not chosen)


def _require_same(table_uri: str, place: ContainerAddress, name: str) -> None:
    if place.account and name and place.account != name.lower():
        raise InvalidRequest(
            f"{table_uri} is in the storage account {place.account}, and the storage options are of the account {name}. Nothing was "
            "opened. Correct one of them."
        )


def _host(given: Mapping[str, Any]) -> str:
    host = str(given.get("account_host") or "")
    if "/" in host:
        raise InvalidRequest(
            f"The storage option account_host is {host!r}. Give a host such as account.blob.core.windows.net; for a server without "
            "https set connection_string with BlobEndpoint."
        )
    return host


def _of_connection_string(text: str) -> AzureAccount:
    """Read a connection string, whose names count in any case."""
    pairs = [member.partition("=") for member in text.split(";") if member]
    found = {name.strip().upper(): value for name, _, value in pairs}
    if found.get("USEDEVELOPMENTSTORAGE", "").lower() == "true":
        return _of_connection_string(_EMULATOR)
    name, given = found.get("ACCOUNTNAME", ""), found.get("BLOBENDPOINT", "")
    if not given:
        if not name or not all(separator for _, separator, _ in pairs):
            raise InvalidRequest(
                "The storage option connection_string is malformed: it has neither AccountName nor BlobEndpoint. Copy it anew, from "
                "the access keys of the storage account."
            )
        protocol, suffix = (
            found.get("DEFAULTENDPOINTSPROTOCOL", "https"),
            found.get("ENDPOINTSUFFIX", _SUFFIX),
        )
        given = f"{protocol}://{name}.blob.{suffix}"
    url = urlsplit(given)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidRequest(
            "BlobEndpoint in the storage option connection_string is no URL. Give one such as https://account.blob.core.windows.net."
        )
    path = url.path.rstrip("/")
    return AzureAccount(
        name or path.rpartition("/")[2] or url.hostname.partition(".")[0],
        f"{url.scheme}://{url.netloc}{path}",
        key=_key(found["ACCOUNTKEY"]) if found.get("ACCOUNTKEY") else "",
        sas_token=""
        if found.get("ACCOUNTKEY")
        else _sas(found.get("SHAREDACCESSSIGNATURE", "") or url.query),
    )


def _key(given: Any) -> str:
    key = str(given).strip()
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            "The account key in the storage options is no text in Base64. Copy it anew, from the access keys of the storage account."
        ) from None
    return key


def _sas(given: Any) -> str:
    token = str(given).strip().removeprefix("?")
    is_query = all("=" in pair for pair in token.split("&")) if token else True
    if not (is_query and token.isascii() and token.isprintable()):
        raise InvalidRequest(
            "The SAS token in the storage options is malformed: it is no query such as sv=…&se=…&sig=…. Copy it anew, without a URL "
            "before it."
        )
    return token


def _credential(chosen: str, given: Mapping[str, Any]) -> Any:
    """Return the object that gives tokens."""
    if chosen == "credential":
        credential = given["credential"]
        asks = getattr(credential, "get_token", None)
        if asks is None or inspect.iscoroutinefunction(asks):
            raise InvalidRequest(
                f"The storage option credential is a {type(credential).__name__}, whose get_token cannot be called. Give a credential of "
                "azure.identity (not of azure.identity.aio), or a key or token in account_key or sas_token."
            )
        return credential
    if chosen == "client_id":
        missing = [name for name in _PRINCIPAL if not given.get(name)]
        if missing:
            raise InvalidRequest(
                f"The storage options have a client_id, and no {' and no '.join(missing)}. Set all of them for a service principal; for "
                "the identity of the machine set managed_identity_client_id alone."
            )
        from azure.identity import ClientSecretCredential

        return ClientSecretCredential(*(str(given[name]) for name in _PRINCIPAL))
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(**{name: given[name] for name in _OF_MACHINE if name in given})
