"""The storage of tables on Google Cloud Storage, through the XML API.

``put_if_absent`` is a PutObject with ``x-goog-if-generation-match: 0``, of any size. New files are multipart uploads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import GCSStore

from delta_log.errors import CREDENTIALS, BucketNotFound, InvalidRequest, StorageError
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.objects import traits
from delta_log.storage.objects.credential_source import CredentialSource
from delta_log.storage.objects.google_credentials import GoogleCredentials, checked_token
from delta_log.storage.objects.object_store import SECONDS, Action, ObjectStorage
from delta_log.storage.objects.store_answer import StoreAnswer
from delta_log.version import VERSION

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSCredential

_ENDPOINT = "https://storage.googleapis.com"
#: Variable of the environment with the address of an emulator, as Google's own libraries read it.
_EMULATOR = "STORAGE_EMULATOR_HOST"
_OPTIONS = frozenset(
    {
        "access", "endpoint_url", "impersonation_chain", "project", "quota_project_id", "requester_pays", "requests_timeout", "scopes",
        "timeout", "token",
    }
)  # fmt: skip
#: Options of gcsfs and fsspec that tune caches, buffers and checks, or concern the creation of buckets.
_WITHOUT_EFFECT = frozenset(
    {
        "block_size", "cache_timeout", "check_connection", "consistency", "default_location", "listings_expiry_time", "max_paths",
        "secure_serialize", "skip_instance_cache", "use_listings_cache", "version_aware",
    }
)  # fmt: skip
_REMEDIES = {
    "session_kwargs": "Set a proxy and certificates in the environment: HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE.",
}
_MAX_RETRIES = 4
_CONNECT_SECONDS = 10
_RIGHT = re.compile(r"storage\.(?:objects|buckets|multipartUploads)\.\w+")
#: By kind of request, the right that it needs, where the store does not name it.
_RIGHTS: Mapping[Action, str] = {
    "list": "storage.objects.list",
    "read": "storage.objects.get",
    "write": "storage.objects.create",
    "copy": "storage.objects.get and storage.objects.create",
    "delete": "storage.objects.delete",
}
_NO_PAYER = "UserProjectMissing"


class GcsStorage(ObjectStorage):
    """A bucket. A listing starts at any key, so a long log costs no more than its new part.

    :raises InvalidRequest: an option is wrong, or has no counterpart.
    """

    traits = traits.GCS

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        given = {name: value for name, value in storage_options.items() if value is not None}
        for name in given.keys() - _OPTIONS - _WITHOUT_EFFECT:
            remedy = _REMEDIES.get(
                name, "Leave it out; docs/reference/stores.md has the options that are known."
            )
            raise InvalidRequest(
                f"The storage option {name} cannot be obeyed: the client of Google Cloud Storage has nothing that corresponds to it. "
                f"Nothing was opened. {remedy}"
            )
        token = checked_token(given.get("token"))
        super().__init__(table_uri, identity_of(table_uri, {**given, "token": token}))
        self._options = given
        self._seconds = _seconds(given)
        self._google = GoogleCredentials(self.uri, given, token, self._identity)
        emulator = _emulator()
        self.endpoint = _endpoint(given.get("endpoint_url") or emulator or _ENDPOINT)
        # An emulator checks nothing, and its users have no credentials.
        is_unsigned = self._google.are_absent or (emulator is not None and not self._google.are_named)
        if not is_unsigned:
            self._credentials = CredentialSource(self._google.fetch)

    def _connect(self, seconds: int) -> GCSStore:
        seconds = seconds if self._seconds is None else max(1, round(self._seconds * seconds / SECONDS))
        client: ClientConfig = {
            "allow_http": self.endpoint.startswith("http:"),
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(seconds=seconds),
            "user_agent": f"delta-maintenance/{VERSION}",
        }
        payer = self._payer()
        if payer:
            client["default_headers"] = {"x-goog-user-project": payer}
        try:
            return GCSStore(
                self.bucket,
                base_url=self.endpoint,
                # Otherwise a variable of the environment would say it.
                skip_signature=self._credentials is None,
                client_options=client,
                retry_config={"max_retries": _MAX_RETRIES},
                # The client asks for a token before it writes, even if it signs nothing.
                credential_provider=self._credentials or _no_token,
            )
        except (BaseError, OSError) as error:
            raise InvalidRequest(
                f"{self.uri} cannot be opened ({StoreAnswer.of(error).said}). Check endpoint_url in {CREDENTIALS}, and variables of the "
                "environment that begin with GOOGLE_SERVICE_ACCOUNT."
            ) from error

    def _payer(self) -> str:
        """Return the project that pays for the requests; empty: the bucket's project.

        :raises InvalidRequest: the options do not say which.
        """
        asked, quota_project = self._options.get("requester_pays"), self._options.get("quota_project_id")
        if isinstance(asked, str) and asked.lower() not in ("true", "false"):
            return asked
        if not asked or str(asked).lower() == "false":
            return str(quota_project or "")
        project = self._options.get("project") or quota_project
        if not project and self._credentials is not None:
            project = self._google.load()[1]
        if not project:
            raise InvalidRequest(
                f"The storage option requester_pays does not say which project pays, and the credentials belong to none. Set project in "
                f"{CREDENTIALS}."
            )
        return str(project)

    def _no_bucket(self, uri: str) -> BucketNotFound:
        return BucketNotFound(uri, f"bucket {self.bucket}", "in Google Cloud Storage")

    def _failure(self, answer: StoreAnswer, action: Action, key: str) -> StorageError:
        uri = self._uri_of(key)
        # Google's details name the right, and mostly the identity that sent the request.
        said = " ".join(filter(None, (answer.message, " ".join(answer.field("Details").split()))))
        if answer.code == _NO_PAYER:
            return denied(
                uri,
                said,
                self._identity,
                remedy=f"Set requester_pays (true) and project in {CREDENTIALS}: the project pays.",
            )
        if answer.is_refusal:
            right = _RIGHT.search(said)
            named = right[0] if right is not None else _RIGHTS[action]
            return denied(uri, said, self._identity, right=f"{named} on bucket {self.bucket}")
        if not answer.status and answer.method:
            return StorageError(
                f"{uri}: {self.endpoint} cannot be reached ({answer.said}). If it never could, correct endpoint_url in {CREDENTIALS}; "
                "otherwise run again when it answers.",
                uri,
            )
        return StorageError(
            f"{uri}: the store failed ({answer.code or answer.status or type(self).__name__}: {said}). Run again when it answers.",
            uri,
        )


def _no_token() -> GCSCredential:
    return {"token": "", "expires_at": None}


def _emulator() -> str | None:
    """Return the URL of the emulator that the environment names."""
    host = os.environ.get(_EMULATOR, "")
    if host in ("", "default"):
        return None
    return host if host.startswith(("http://", "https://")) else f"http://{host}"


def _endpoint(url: Any) -> str:
    if not isinstance(url, str) or not re.fullmatch(r"https?://[^/?#\s]+/?", url):
        raise InvalidRequest(
            f"The address of Google Cloud Storage is {url!r} (storage option endpoint_url, or variable {_EMULATOR}), which is no URL of a "
            "server. Give one such as http://127.0.0.1:4443."
        )
    return url.rstrip("/")


def _seconds(options: Mapping[str, Any]) -> float | None:
    """Return how long a short request may take; ``None``: the options do not say it."""
    for name in ("requests_timeout", "timeout"):
        value = options.get(name)
        if value is None:
            continue
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = 0.0
        if not seconds > 0:
            raise InvalidRequest(f"The storage option {name} is {value!r}. Give seconds, more than 0.")
        return seconds
    return None
