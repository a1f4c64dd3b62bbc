"""The storage of tables on Azure Blob Storage and ADLS Gen2, through the Blob API.

``put_if_absent`` is one Put Blob with ``If-None-Match: *``, of any size. New files are written in blocks with names of their own, which
become a blob at once and otherwise disappear after a week.

Directories of a hierarchical namespace do not count as files, and neither do the marks that Hadoop's client leaves for directories
elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore

from delta_log.errors import (
    CREDENTIALS,
    BucketNotFound,
    InvalidRequest,
    NoCredentials,
    ObjectArchived,
    StorageError,
)
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.azure_account import ContainerAddress, account_of
from delta_log.storage.objects import traits
from delta_log.storage.objects.credential_source import CredentialSource
from delta_log.storage.objects.object_store import SECONDS, Action, ObjectStorage
from delta_log.storage.objects.store_answer import StoreAnswer
from delta_log.version import VERSION

_OLDEST_CLIENT = (0, 12)
_OPTIONS = frozenset(
    {
        "account_host", "account_key", "account_name", "additionally_allowed_tenants", "anon", "client_id", "client_secret",
        "connection_string", "connection_timeout", "credential", "location_mode", "managed_identity_client_id", "read_timeout",
        "sas_token", "tenant_id", "timeout", "workload_identity_tenant_id",
    }
)  # fmt: skip
#: Options of adlfs and fsspec that tune caches, buffers and checks.
_WITHOUT_EFFECT = frozenset(
    {
        "assume_container_exists", "blocksize", "default_cache_type", "default_fill_cache", "listings_expiry_time", "max_concurrency",
        "max_paths", "skip_instance_cache", "socket_timeout", "use_listings_cache", "version_aware",
    }
)  # fmt: skip
_SCOPE = "https://storage.azure.com/.default"
_MAX_RETRIES = 4
_CONNECT_SECONDS = 10
#: The service of OneLake, whose listings do not begin behind a key where a workspace has its name in the address.
_ONELAKE = ".fabric.microsoft.com"
_ARCHIVED = ("BlobArchived", "BlobBeingRehydrated")
#: The codes for a request without a signature, of which the store takes none.
_NO_CREDENTIALS = ("NoAuthenticationInformation", "PublicAccessNotPermitted")
_MISSING_RIGHT = "AuthorizationPermissionMismatch"
#: Words in the details of a refusal for the time of a token or a request, which has no code of its own.
_EXPIRED = ("not valid in the specified time frame", "Request date header too old")
#: By kind of request, the role that allows it, and the letters of a SAS token.
_RIGHTS: Mapping[Action, str] = {
    "list": "the role Storage Blob Data Reader (SAS: r; l to list)",
    "read": "the role Storage Blob Data Reader (SAS: r)",
    "write": "the role Storage Blob Data Contributor (SAS: w)",
    "copy": "the role Storage Blob Data Contributor (SAS: r and w)",
    "delete": "the role Storage Blob Data Contributor (SAS: d)",
}
_FORBIDDEN, _BUSY, _SERVER_ERROR = 403, (408, 429), 500
#: Errors of Azure's libraries for a service that did not answer.
_UNREACHED = frozenset({"ServiceRequestError", "ServiceResponseError"})
#: How often an identity service of this machine is asked that is slow at first.
_ASKED_OF_MACHINE = 2


class AzureStorage(ObjectStorage):
    """A container of a storage account, with or without hierarchical namespace.

    :raises InvalidRequest: an option is wrong, or has no counterpart.
    """

    traits = traits.AZURE

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        given = {name: value for name, value in storage_options.items() if value is not None}
        for name in given.keys() - _OPTIONS - _WITHOUT_EFFECT:
            raise _refused(name, "Leave it out; docs/reference/stores.md has the options that are known.")
        if given.get("location_mode", "primary") != "primary":
            raise _refused("location_mode", "A secondary endpoint lags behind. Leave it out.")
        if tuple(map(int, re.findall(r"\d+", obstore.__version__)[:2])) < _OLDEST_CLIENT:
            raise InvalidRequest(
                f"{table_uri} needs obstore 0.12 or later, and {obstore.__version__} is installed, whose errors show SAS tokens. Nothing was "
                "opened. Install airflow-provider-delta[azure] for Python 3.11 or later."
            )
        super().__init__(table_uri, identity_of(table_uri, given))
        try:
            self._account = account_of(self.uri, given, os.environ)
        except ImportError as error:
            raise InvalidRequest(
                f"{self.uri} needs a package that is not installed ({error}), which gets tokens. Install "
                "airflow-provider-delta[azure], or give account_key, sas_token or connection_string."
            ) from error
        self._connect_seconds = _seconds(given, "connection_timeout") or _CONNECT_SECONDS
        self._read_seconds, self._most_seconds = _seconds(given, "read_timeout"), _seconds(given, "timeout")
        self.begins_behind_keys = not (urlsplit(self.endpoint).hostname or "").endswith(_ONELAKE)
        if self._account.key or self._account.sas_token or self._account.credential is not None:
            self._credentials = CredentialSource(self._fetch_credentials)

    @property
    def endpoint(self) -> str:
        return self._account.endpoint

    def _locate(self, table_uri: str) -> None:
        super()._locate(table_uri)
        self.bucket = ContainerAddress.parse(self.uri).container

    def _connect(self, seconds: int) -> AzureStore:
        if self._read_seconds is not None:
            seconds = round(self._read_seconds * seconds / SECONDS)
        try:
            return AzureStore(
                self.bucket,
                account_name=self._account.name,
                endpoint=self.endpoint,
                # Otherwise variables of the environment would say it.
                skip_signature=self._credentials is None,
                use_emulator=False,
                use_fabric_endpoint=False,
                client_options={
                    "allow_http": self.endpoint.startswith("http:"),
                    "connect_timeout": timedelta(seconds=self._connect_seconds),
                    "timeout": timedelta(seconds=self._most_seconds or seconds),
                    "user_agent": f"delta-maintenance/{VERSION}",
                },
                retry_config={"max_retries": _MAX_RETRIES},
                credential_provider=self._credentials,
            )
        except (BaseError, OSError, ValueError) as error:
            raise InvalidRequest(
                f"{self.uri} cannot be opened ({StoreAnswer.of(error).said}). Check account_name, account_host and BlobEndpoint in "
                f"{CREDENTIALS}."
            ) from error

    # -- credentials -------------------------------------------------------------------------------------

    def _fetch_credentials(self) -> dict[str, str]:
        """
        :raises StorageError: the token service refuses, or has failed several times.
        """
        if self._account.key:
            return {"access_key": self._account.key}
        if self._account.sas_token:
            return {"sas_token": self._account.sas_token}
        attempt = 0
        while True:
            try:
                token = str(self._account.credential.get_token(_SCOPE).token)
                break
            except Exception as error:  # a credential has errors of its own for each service
                attempt += 1
                is_slow = self._account.is_of_machine and attempt < _ASKED_OF_MACHINE
                if not (is_slow or (_is_outage(error) and attempt < self.max_attempts)):
                    raise self._no_token(error) from error
            self.after_failure.wait(attempt - 1)
        if not (token.isascii() and token.isprintable()):  # the client would end the process
            raise NoCredentials(self.uri, "the token holds a character that no header can hold")
        return {"token": token}

    def _no_token(self, error: Exception) -> StorageError:
        """Return the error for a token service that gave no token."""
        said = str(getattr(error, "message", None) or error).partition("\n")[0]
        kinds = {kind.__name__ for kind in type(error).__mro__}
        status = getattr(error, "status_code", None)
        if "ClientAuthenticationError" in kinds and not _is_outage(error):
            # An identity of the machine that was not found has no answer of a service.
            if "CredentialUnavailableError" in kinds or (self._account.is_of_machine and status is None):
                return NoCredentials(self.uri, said)
            return denied(self.uri, f"{type(error).__name__}: {said}", self._identity)
        return StorageError(
            f"{self.uri}: the service that gives out tokens failed ({type(error).__name__}: {said}). Run again when it answers.",
            self.uri,
        )

    # -- errors ------------------------------------------------------------------------------------------

    def _no_bucket(self, uri: str) -> BucketNotFound:
        return BucketNotFound(uri, f"container {self.bucket}", f"in account {self._account.name}")

    def _failure(self, answer: StoreAnswer, action: Action, key: str) -> StorageError:
        uri, code = self._uri_of(key), answer.code
        if action == "delete" and answer.key:
            uri = self._uri_of(answer.key[len(self._prefix) :])
        # Two lines with the request's id and time follow.
        message = answer.field("Message").partition("\n")[0] or answer.said
        if code in _NO_CREDENTIALS:
            return NoCredentials(uri, f"{code}: {message}")
        if code in _ARCHIVED:
            return ObjectArchived(uri, "the archive tier", is_being_restored=code == "BlobBeingRehydrated")
        if answer.is_refusal:
            return self._denied(uri, answer, message, action)
        if answer.key:
            return StorageError(
                f"{uri} was not deleted, and perhaps others: {answer.said}. Check leases and policies of the container, and run again.",
                uri,
            )
        if not answer.status and answer.method:
            return StorageError(
                f"{uri}: {self.endpoint} cannot be reached ({answer.said}). If it never could, correct account_name or account_host in "
                f"{CREDENTIALS}; otherwise run again when it answers.",
                uri,
            )
        return StorageError(
            f"{uri}: the store failed ({code or answer.status}: {message}). Run again when it answers.", uri
        )

    def _denied(self, uri: str, answer: StoreAnswer, message: str, action: Action) -> StorageError:
        said = f"{answer.code}: {message}" if answer.code and not answer.key else answer.said
        end = self._account.sas_end
        expired = end is not None and end < datetime.now(timezone.utc)
        if expired or any(words in answer.field("AuthenticationErrorDetail") for words in _EXPIRED):
            remedy = (
                f"Put a new token into {CREDENTIALS}, or correct the clock of this machine; or use credentials that renew "
                "themselves: a principal, or the identity of the machine."
            )
            when = f", which was valid until {end:%Y-%m-%d %H:%M} UTC" if expired else ", which has expired"
            return denied(uri, said, f"{self._identity}{when}", remedy=remedy, may_pass=True)
        right = ""
        # One of several deletions has a status and no code.
        if answer.code == _MISSING_RIGHT or (answer.key and answer.status == _FORBIDDEN):
            right = f"{_RIGHTS[action]} on container {self.bucket}"
        return denied(uri, said, self._identity, right=right)


def _refused(name: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(
        f"The storage option {name} cannot be obeyed: the client of Azure Storage has nothing that corresponds to it. Nothing was opened. "
        f"{remedy}"
    )


def _seconds(options: Mapping[str, Any], name: str) -> int | None:
    if name not in options:
        return None
    try:
        return max(1, round(float(options[name])))
    except (TypeError, ValueError):
        raise InvalidRequest(
            f"The storage option {name} is {options[name]!r}. Give a number of seconds."
        ) from None


def _is_outage(error: Exception) -> bool:
    """Whether a token service is only busy, fails, or was not reached."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in _BUSY or status >= _SERVER_ERROR
    return not _UNREACHED.isdisjoint(kind.__name__ for kind in type(error).__mro__)
