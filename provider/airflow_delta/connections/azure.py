"""Storage options of the Azure connections (``wasb``, ``adls``, ``azure_data_lake``, ``azure``), read as the Microsoft Azure provider's
hooks read them.

Credentials are made where they are used, by azure-identity, and renew themselves there. The account is named by the connection,
or, for a connection without an account, by the table's address.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from airflow_delta.connections.fields import ConnectionFields

_BLOB, _DFS = ".blob.", ".dfs."
_PUBLIC = ".blob.core.windows.net"
_PUBLIC_CLOUD = "AzurePublicCloud"
_SERVICE_PRINCIPAL = ("tenant_id", "client_id", "client_secret")


class Account(Struct, frozen=True):
    """A storage account.

    :param host: host of its Blob endpoint; ``None``: the usual host of the public cloud.
    :param url: URL of an endpoint that is more than a host with ``https``, such as the endpoint of an emulator.
    """

    name: str
    host: str | None = None
    url: str | None = None

    @classmethod
    def of(cls, text: str) -> Account:
        """Read a name, a host or a URL."""
        if "://" not in text and "." not in text:
            return cls(text)
        parts = urlsplit(text if "://" in text else f"https://{text}")
        path = parts.path.strip("/")
        is_of_azure = _BLOB in parts.netloc or _DFS in parts.netloc
        if parts.scheme != "https" or (path and not is_of_azure):
            name = path.partition("/")[0] or (parts.hostname or "").partition(".")[0]
            return cls(name, url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}")
        host = parts.netloc.replace(_DFS, _BLOB, 1)
        name = host.partition(".")[0]
        return cls(name, None if host == name + _PUBLIC else host)

    @property
    def options(self) -> dict[str, Any]:
        return {"account_name": self.name, **({"account_host": self.host} if self.host else {})}


def wasb(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the connection is incomplete.
    """
    connection_string = fields.text("connection_string")
    if connection_string is not None:
        return _of_connection_string(connection_string)
    tenant, sas = fields.text("tenant_id"), fields.text("sas_token")
    if sas is not None and sas.startswith("https"):
        url, _, sas = sas.partition("?")
        account = Account.of(url)
    else:
        # The login is the account's name, but of a service principal its id. A host without dots is a name, too.
        name = fields.login if tenant is None else None
        host = fields.host if fields.host and (_is_address(fields.host) or name is None) else None
        account = _account(fields, host or name)
    if tenant is not None:
        return _with_principal(fields, account, tenant)
    key = fields.text("shared_access_key")
    if key is None and sas is None:
        key = fields.password or fields.text("account_key")
    if key is None and sas is None:
        return _with_identity(fields, account)
    return _with_key(account, key) if key is not None else _with_sas(account, sas or "")


def adls(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the connection is incomplete.
    """
    connection_string = fields.text("connection_string")
    if connection_string is not None:
        return _of_connection_string(connection_string)
    account = _account(fields, fields.text("account_url") or fields.host)
    tenant = fields.text("tenant_id")
    if tenant is not None:
        return _with_principal(fields, account, tenant)
    if fields.password is not None:
        return _with_key(account, fields.password)
    return _with_identity(fields, account)


def azure_data_lake(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the connection is incomplete.
    """
    name = fields.text("account_name")
    account = None if name is None else Account.of(name)
    tenant = fields.text("tenant")
    return _with_identity(fields, account) if tenant is None else _with_principal(fields, account, tenant)


def azure(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the connection is incomplete, or is for another cloud.
    """
    cloud = fields.text("cloud_environment")
    if cloud not in (None, _PUBLIC_CLOUD):
        raise fields.unusable(
            f"its cloud_environment is {cloud!r}",
            "Leave it out, set AZURE_AUTHORITY_HOST where the job works, and use a connection of type 'wasb' with the "
            "account's URL as its host.",
        )
    if fields.text("key_path") is not None:
        raise fields.unusable(
            "it names a file of the retired SDK (key_path)",
            "Put client id, secret and tenantId into the connection.",
        )
    key = fields.mapping("key_json")
    tenant = key.get("tenantId") or fields.text("tenantId")
    client_id, secret = key.get("clientId") or fields.login, key.get("clientSecret") or fields.password
    if not (tenant or client_id or secret):
        return _with_identity(fields, None)
    return _principal(fields, None, tenant, client_id, secret)


def _account(fields: ConnectionFields, text: str | None) -> Account:
    if not text:
        raise fields.unusable(
            "it names no storage account",
            "Add the account's name or URL as the form of its type asks for it.",
        )
    return Account.of(text)


def _is_address(text: str) -> bool:
    return "." in text or "://" in text


def _with_principal(fields: ConnectionFields, account: Account | None, tenant: str) -> dict[str, Any]:
    return _principal(fields, account, tenant, fields.login, fields.password)


def _principal(
    fields: ConnectionFields, account: Account | None, tenant: Any, client_id: Any, client_secret: Any
) -> dict[str, Any]:
    options = dict(zip(_SERVICE_PRINCIPAL, (tenant, client_id, client_secret), strict=True))
    missing = [name.replace("_", " ") for name, value in options.items() if not value]
    if missing:
        raise fields.unusable(
            f"a service principal needs tenant id, client id and client secret, and it has no {' and no '.join(missing)}",
            "Add them, or remove all three to use the identity of the machine.",
        )
    return {**_endpoint(fields, account), **options}


def _with_identity(fields: ConnectionFields, account: Account | None) -> dict[str, Any]:
    """The identity of the machine that works: a managed identity, a workload identity, or what azure-identity finds."""
    if fields.login and not fields.password and fields.conn_type != "wasb":
        raise fields.unusable(
            "it has a client id and no client secret",
            "Add secret and tenant id, or name a managed identity in managed_identity_client_id.",
        )
    options: dict[str, Any] = {**_endpoint(fields, account), "anon": False}
    client, tenant = (
        fields.text(name) for name in ("managed_identity_client_id", "workload_identity_tenant_id")
    )
    if client is not None:
        options["managed_identity_client_id"] = client
    if tenant is not None:
        options |= {"workload_identity_tenant_id": tenant, "additionally_allowed_tenants": [tenant]}
    return options


def _endpoint(fields: ConnectionFields, account: Account | None) -> dict[str, Any]:
    if account is None:
        return {}
    if account.url is not None:
        raise fields.unusable(
            f"tokens are sent over https to an account's host only, and not to {account.url}",
            "Use an account key, a SAS token or a connection string there.",
        )
    return account.options


def _with_key(account: Account, key: str) -> dict[str, Any]:
    if account.url is None:
        return {**account.options, "account_key": key}
    string = f"AccountName={account.name};AccountKey={key};BlobEndpoint={account.url};"
    return {"account_name": account.name, "connection_string": string}


def _with_sas(account: Account, sas: str) -> dict[str, Any]:
    sas = sas.removeprefix("?")
    if account.url is None:
        return {**account.options, "sas_token": sas}
    string = f"BlobEndpoint={account.url};SharedAccessSignature={sas};"
    return {"account_name": account.name, "connection_string": string}


def _of_connection_string(text: str) -> dict[str, Any]:
    members = dict(member.partition("=")[::2] for member in text.split(";") if member)
    name = members.get("AccountName")
    if name is None and "BlobEndpoint" in members:
        name = Account.of(members["BlobEndpoint"]).name
    return {"connection_string": text, **({"account_name": name} if name else {})}
