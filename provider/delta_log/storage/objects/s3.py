"""The storage of tables on S3 and compatible servers.

``put_if_absent`` is a PutObject with ``If-None-Match: *``. Amazon's endpoints honour it. Other servers may ignore it, and then commits
would overwrite each other. So a process tries it out before its first commit in a bucket of such a server
(:meth:`S3Storage.require_writable`).

Directory buckets are refused: their listings have no order and no StartAfter.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlsplit

from obstore.store import S3Store

from delta_log.errors import (
    CREDENTIALS,
    BucketNotFound,
    DeltaLogError,
    InvalidRequest,
    KeyUnusable,
    NoCredentials,
    ObjectArchived,
    StorageError,
    WrongRegion,
)
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.assumed_role import REFUSALS, renewing_session
from delta_log.storage.objects import traits
from delta_log.storage.objects.credential_source import CredentialSource
from delta_log.storage.objects.object_store import SECONDS, Action, ObjectStorage
from delta_log.storage.objects.s3_settings import S3Settings, settings_of
from delta_log.storage.objects.store_answer import StoreAnswer

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
#: Errors of the library that finds no credentials to sign with.
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "NoAuthTokenError",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
    }
)
#: By kind of request, the right that it needs, and whether on the bucket.
_RIGHTS: Mapping[Action, tuple[str, bool]] = {
    "list": ("s3:ListBucket", True),
    "read": ("s3:GetObject", False),
    "write": ("s3:PutObject", False),
    "copy": ("s3:GetObject of the source and s3:PutObject", False),
    "delete": ("s3:DeleteObject", False),
}
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired"})
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_WRONG_REGION = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_REDIRECTS = frozenset({301, 302, 307, 308})
_NOT_FOUND, _NOT_IMPLEMENTED = 404, 501
#: How many times as long as a short request a long one may take.
_PATIENCE = 15
#: Readers of the table and VACUUM do not see this directory.
_PROBE_DIRECTORY = "_maintenance"
_PROBE_WRITERS = 4
#: Where Amazon's tools have their configuration, and the variables of the environment that name other files or settings.
_CONFIG_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_VARIABLES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "ca_bundle": ("AWS_CA_BUNDLE",),
}


class ProvedBuckets:
    """Endpoints and buckets whose conditional put was tried out; one trial runs at a time."""

    def __init__(self) -> None:
        self._proved: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def prove(self, endpoint: str, bucket: str, trial: Callable[[], None]) -> None:
        """Run the trial of a bucket, if it was not tried out yet."""
        with self._lock:
            if (endpoint, bucket) not in self._proved:
                trial()
                self._proved.add((endpoint, bucket))


_proved_buckets = ProvedBuckets()


class S3Storage(ObjectStorage):
    """A bucket. A listing starts at any key, so a long log costs no more than its new part.

    :raises InvalidRequest: an option is wrong, or the bucket is a directory bucket.
    """

    traits = traits.S3

    def __init__(
        self,
        table_uri: str,
        storage_options: Mapping[str, Any],
        proved_buckets: ProvedBuckets = _proved_buckets,
    ) -> None:
        super().__init__(table_uri, identity_of(table_uri, storage_options))
        self._options, self._proved_buckets = storage_options, proved_buckets
        if self.bucket.endswith("--x-s3"):
            raise InvalidRequest(
                f"{self.uri} is in a directory bucket. Its listings have no order, and reading a Delta log rests on "
                "that order. Keep the table in a general purpose bucket."
            )
        self._settings: S3Settings = settings_of(self.bucket, storage_options, self._configured)
        if storage_options.get("anon"):
            if storage_options.get("assume_role") is not None:
                raise InvalidRequest(
                    'The storage options have "anon" and "assume_role". Leave one of them out.'
                )
        else:
            self._credentials = CredentialSource(self._fetch_credentials)

    @property
    def endpoint(self) -> str:
        return self._settings.endpoint

    def _connect(self, seconds: int) -> S3Store:
        settings = self._settings
        if settings.read_seconds is not None:
            seconds = settings.read_seconds * (1 if seconds == SECONDS else _PATIENCE)
        return S3Store(
            self.bucket,
            endpoint=settings.endpoint,
            region=settings.region,
            virtual_hosted_style_request=settings.is_virtual,
            # Otherwise variables of the environment would say it.
            conditional_put="etag",
            skip_signature=self._credentials is None,
            config=settings.config,
            client_options={**settings.client, "timeout": timedelta(seconds=seconds)},
            retry_config={"max_retries": settings.max_retries},
            credential_provider=self._credentials,
        )

    # -- options and credentials -------------------------------------------------------------------------

    def _configured(self, name: str) -> str | None:
        """Find a setting that the options do not have, as Amazon's tools do."""
        found = next((os.environ[key] for key in _VARIABLES[name] if os.environ.get(key)), None)
        if found is not None or not self._has_config_files():
            return found
        with self._library_errors():
            if name != "endpoint_url":
                value = self._session.get_config_variable(name)
            else:
                scoped = self._session.get_scoped_config()
                services = self._session.full_config.get("services", {}).get(scoped.get("services"), {})
                value = services.get("s3", {}).get("endpoint_url") or scoped.get("endpoint_url")
        return None if value is None else str(value)

    @staticmethod
    def _has_config_files() -> bool:
        return any(
            os.path.exists(os.path.expanduser(os.environ.get(variable) or path))
            for variable, path in _CONFIG_FILES.items()
        )

    @cached_property
    def _session(self) -> Any:
        """The session of botocore that finds credentials and the configuration of Amazon's tools."""
        role = self._options.get("assume_role")
        if role is not None:
            if self._options.get("anon"):
                raise InvalidRequest(
                    'The storage options have "anon" and "assume_role". Leave one of them out.'
                )
            return renewing_session(role, self._options)
        try:
            from botocore.session import Session  # type: ignore[import-untyped]
        except ImportError as error:
            raise InvalidRequest(
                f"{self.uri} needs a package that is not installed ({error}), which finds the credentials. Install "
                "airflow-provider-delta[s3], or give key and secret."
            ) from error
        return Session(profile=self._options.get("profile"))

    def _fetch_credentials(self) -> dict[str, str | None]:
        options, client = self._options, self._options.get("client_kwargs") or {}
        key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
        secret = options.get("secret") or options.get("password") or client.get("aws_secret_access_key")
        token = options.get("token") or client.get("aws_session_token")
        if options.get("assume_role") is None and (key or secret):
            if not (key and secret):
                raise NoCredentials(
                    self.uri, "the options have a key without a secret, or a secret without a key"
                )
            return _printable(self.uri, str(key), str(secret), token)
        with self._library_errors():
            found = self._session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        if frozen is None:
            raise NoCredentials(self.uri, "Unable to locate credentials")
        return _printable(self.uri, frozen.access_key, frozen.secret_key, frozen.token)

    @contextmanager
    def _library_errors(self) -> Iterator[None]:
        """Turn an error of botocore into an error of this package."""
        try:
            yield
        except DeltaLogError:
            raise
        except Exception as error:  # the library has one for each source of credentials
            if type(error).__name__ in _NO_CREDENTIALS:
                raise NoCredentials(self.uri, str(error)) from error
            raise StorageError(
                f"{self.uri}: the service that gives out credentials failed ({type(error).__name__}: {error}). Run again when it "
                "answers.",
                self.uri,
            ) from error

    # -- errors ------------------------------------------------------------------------------------------

    def _no_bucket(self, uri: str) -> BucketNotFound:
        return BucketNotFound(uri, f"bucket {self.bucket}", f"at {self.endpoint}")

    def _failure(self, answer: StoreAnswer, action: Action, key: str) -> StorageError:
        uri, code = self._uri_of(key), answer.code
        if answer.status in _REDIRECTS:
            return WrongRegion(uri, self.bucket, self.endpoint, answer.field("Region") or None)
        meaning, may_pass = REFUSALS.get(code, ("", False))
        if meaning:
            return denied(
                uri,
                f"{code}: {meaning}{_skew(answer) if code in _SKEWED else ''}",
                self._identity,
                remedy=_remedy(answer),
                may_pass=may_pass,
            )
        if code == "InvalidObjectState":
            return ObjectArchived(uri, answer.field("StorageClass") or "an archive")
        if code.startswith("KMS.") or (code == "AccessDenied" and "kms:Decrypt" in answer.message):
            return KeyUnusable(uri, self._identity, f"{code}: {answer.message}")
        if action == "delete" and answer.key:
            uri = f"s3://{self.bucket}/{answer.key}"
        if answer.is_refusal or code == "AccessDenied":
            return self._denied(uri, code or answer.message, action)
        if answer.key:
            return StorageError(
                f"{uri} was not deleted, and perhaps others: {answer.said}. Check locks on the objects, and run again.",
                uri,
            )
        if not answer.status and answer.method:
            return StorageError(
                f"{uri}: {self.endpoint} cannot be reached ({answer.said}). If it never could, correct endpoint_url or region_name "
                f"in {CREDENTIALS}; otherwise run again when it answers.",
                uri,
            )
        if answer.status == _NOT_FOUND and not code:  # S3 has words for what is missing
            return StorageError(
                f"{uri}: {self.endpoint} does not answer as S3 does ({answer.status}: {answer.said}). If it never did, correct "
                f"endpoint_url in {CREDENTIALS}; otherwise run again when it answers.",
                uri,
            )
        return StorageError(
            f"{uri}: the store failed ({code or answer.status}: {answer.message}). Run again when it answers.",
            uri,
        )

    def _denied(self, uri: str, said: str, action: Action) -> StorageError:
        """Return the error for a request that the store's policies do not allow."""
        right, is_of_bucket = _RIGHTS[action]
        bucket = f"arn:aws:s3:::{self.bucket}"
        right = f"{right} on {bucket if is_of_bucket else f'{bucket}/{self._prefix}*'}"
        if action == "read":
            # Without the latter S3 says the same of an object that is not there.
            right += f" and s3:ListBucket on {bucket}"
        hint = (
            ""
            if self._settings.pays
            else "A bucket whose requesters pay needs the storage option requester_pays (true)."
        )
        return denied(uri, said, self._identity, right=right, hint=hint)

    # -- writing -----------------------------------------------------------------------------------------

    def _put_options(self, metadata: Mapping[str, str] | None = None) -> dict[str, Any]:
        attributes = {**self._settings.attributes, **(metadata or {})}
        options: dict[str, Any] = {"attributes": attributes} if attributes else {}
        if self._settings.tags:
            options["tags"] = dict(self._settings.tags)
        return options

    def require_writable(self) -> None:
        """Try out conditional puts, once for each bucket and process; not on Amazon, which documents them."""
        if not (urlsplit(self.endpoint).hostname or "").endswith(_AMAZON):
            self._proved_buckets.prove(self.endpoint, self.bucket, self._try_conditional_put)

    def _try_conditional_put(self) -> None:
        """Let several writers create one object at once, and then another writer: exactly one may win."""
        key = f"{_PROBE_DIRECTORY}/probe-{uuid.uuid4()}"
        try:
            with ThreadPoolExecutor(_PROBE_WRITERS) as pool:
                won = sum(pool.map(partial(self.put_if_absent, key), [b"1", b"2", b"3", b"4"]))
            won += self.put_if_absent(key, b"5")
        except StorageError as error:
            if StoreAnswer.of(error.__cause__ or error).status != _NOT_IMPLEMENTED:
                raise
            raise self._refusal("it says that If-None-Match is not implemented") from error
        finally:
            # Without the right to delete, a hidden object of one byte stays.
            with suppress(StorageError):
                self.delete([key])
        if won != 1:
            raise self._refusal(f"of 5 writers of one object, {won} were told that they had created it")

    def _refusal(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.uri}: the server at {self.endpoint} does not honour conditional writes ({why}), so a commit "
            "there could destroy another writer's. Nothing was committed. Upgrade the server, or have all writers "
            "coordinate through a lock table: storage option 'lock'."
        )


def _printable(uri: str, key: str, secret: str, token: str | None) -> dict[str, str | None]:
    """Return credentials as obstore takes them.

    :raises NoCredentials: one is no text that a header can hold. The client would end the process.
    """
    if not all(text.isascii() and text.isprintable() for text in (key, secret, token or "")):
        raise NoCredentials(uri, "a key, secret or token holds a character that no header can hold")
    return {"access_key_id": key, "secret_access_key": secret, "token": token or None}


def _remedy(answer: StoreAnswer) -> str:
    """What to do about a refusal with a meaning of its own; empty: to correct the credentials."""
    code = answer.code
    if code in _EXPIRED:
        return f"Put new ones into {CREDENTIALS}, or use credentials that renew themselves: a role, or the identity of the machine."
    if code in _SKEWED:
        return f"Correct the clock of machine {os.uname().nodename}, for example with NTP."
    if code in _WRONG_REGION:
        region = f" (the store says {answer.field('Region')})" if answer.field("Region") else ""
        return f"Correct region_name{region}, endpoint_url or the access key in {CREDENTIALS}."
    return ""


def _skew(answer: StoreAnswer) -> str:
    """Tell how far this machine's clock is from the store's clock, whose time Amazon's answer has."""
    try:
        store = datetime.fromisoformat(answer.field("ServerTime").replace("Z", "+00:00"))
    except ValueError:
        return ""
    minutes = round((datetime.now(timezone.utc) - store).total_seconds() / 60)
    side = "ahead of" if minutes > 0 else "behind"
    return f", {abs(minutes)} minutes {side} the store's" if minutes else ""
