"""The lock table: one entry in a DynamoDB table decides which writer owns a version.

The layout is not part of the Delta protocol. delta-spark's ``S3DynamoDBLogStore`` and delta-rs up to 1.6.0 share it. Each
commit has one item::

    tablePath   hash key     address of the Delta table, as its writers spell it
    fileName    range key    00000000000000000010.json
    tempPath    string       where the commit's content is until it is copied, relative to _delta_log
    complete    string       "true" once the content is at fileName
    expireTime  number       epoch seconds from which the item may be deleted; only where complete

The writer that creates the item has the version. Writers that spell ``tablePath`` differently do not see each other:
``s3://`` and ``s3a://`` are different keys, and so are ``a b`` and ``a%20b``. :meth:`DynamoDBLock.require_usable` refuses
where it finds another spelling in use. The steps of a commit are in :mod:`delta_log.storage.lock.locked`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import CREDENTIALS, AccessDenied, InvalidRequest, NoCredentials, StorageError
from delta_log.storage.assumed_role import renewing_session
from delta_log.storage.schemes import S3

#: Both other implementations keep a finished entry for a day.
EXPIRY_SECONDS = 24 * 60 * 60
#: Codes of a refusal that a repetition does not change.
_REFUSALS = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
)
_TEXT_KEYS = (
    "provider",
    "table",
    "table_path",
    "region",
    "endpoint_url",
    "key",
    "secret",
    "token",
    "profile",
)
_KEYS = (*_TEXT_KEYS, "conditional_put")


class LockEntry(Struct, frozen=True):
    """One commit in the lock table; ``temp_path`` is relative to ``_delta_log``."""

    file_name: str
    temp_path: str
    complete: bool = False
    expire_time_s: int | None = None

    def completed(self, expire_time_s: int) -> LockEntry:
        return replace(self, complete=True, expire_time_s=expire_time_s)


class LockTable(ABC):
    """The entries of one Delta table. A read sees every write that was acknowledged before it.

    :raises StorageError: by every method; it is then unknown whether a write took effect.
    """

    @abstractmethod
    def get(self, file_name: str) -> LockEntry | None: ...

    @abstractmethod
    def latest(self) -> LockEntry | None:
        """Return the entry with the greatest file name."""

    @abstractmethod
    def put_if_absent(self, entry: LockEntry) -> bool:
        """Create an entry; ``False``: the file has one. Exactly one of any number of callers gets ``True``."""

    @abstractmethod
    def complete(self, entry: LockEntry, expire_time_s: int) -> None:
        """Mark this entry as complete, unless it is complete already or another one took its place."""

    def require_usable(self) -> None:
        """Refuse a lock that cannot coordinate writers, before anything is written.

        :raises InvalidRequest: it cannot.
        """


@dataclass(frozen=True, slots=True)
class LockOptions:
    """The value of ``lock`` in the storage options.

    :param table: the DynamoDB table.
    :param table_path: this table's address as the other writers spell it; default: its URI, as it was given.
    :param key: access key id, with ``secret`` and perhaps ``token``; default: the credentials of the store.
    :param conditional_put: whether the store honours ``If-None-Match: *``. Without it the lock works, but a commit of a
        writer that does not use the lock goes unnoticed.
    :param assume_role: value of ``assume_role`` in the store's options, where the lock has no credentials of its own.
    """

    table: str = "delta_log"
    table_path: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    conditional_put: bool = True
    assume_role: Mapping[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def from_mapping(cls, given: Any, storage_options: Mapping[str, Any]) -> LockOptions:
        """Read the options, and take missing ones from the options of the store.

        :param given: the value of ``lock``.
        :param storage_options: options of the table on S3.
        :raises InvalidRequest: an option is wrong; the message names it.
        """
        if not isinstance(given, Mapping):
            raise InvalidRequest(f'The storage option "lock" is no object. Give one such as {_EXAMPLE}.')
        unknown = sorted(set(given) - set(_KEYS))
        if unknown:
            raise InvalidRequest(
                f'The storage option "lock" has unknown keys: {", ".join(map(repr, unknown))}. '
                f"There are {', '.join(_KEYS)}."
            )
        if given.get("provider") != "dynamodb":
            raise InvalidRequest(
                f"The lock provider {given.get('provider')!r} is unknown. There is one, dynamodb: {_EXAMPLE}."
            )
        for name in _TEXT_KEYS:
            if name in given and not (isinstance(given[name], str) and given[name]):
                raise InvalidRequest(
                    f'"{name}" of the lock is no text, or an empty one. Give one, or leave it out.'
                )
        if not isinstance(given.get("conditional_put", True), bool):
            raise InvalidRequest('"conditional_put" of the lock is neither true nor false.')
        if ("key" in given) != ("secret" in given):
            raise InvalidRequest('The lock needs "key" and "secret" together, or neither.')
        client = storage_options.get("client_kwargs") or {}
        inherited = {"region": client.get("region_name"), "profile": storage_options.get("profile")}
        if "key" not in given and "profile" not in given:
            inherited |= {
                name: storage_options.get(name) for name in ("key", "secret", "token", "assume_role")
            }
        own = {name: value for name, value in given.items() if name != "provider"}
        return cls(**{**inherited, **own})


_EXAMPLE = '{"provider": "dynamodb", "table": "delta_log", "region": "eu-central-1"}'


class DynamoDBLock(LockTable):
    """The entries of one Delta table in DynamoDB. Threads may share it; it connects when it is first used.

    :param table_uri: address of the Delta table; the hash key, unless the options say another.
    """

    def __init__(self, table_uri: str, options: LockOptions) -> None:
        self._options = options
        self.table_path = (options.table_path or table_uri).rstrip("/")
        self._made: Any = None
        self._making = threading.Lock()
        self._found_usable = False

    def get(self, file_name: str) -> LockEntry | None:
        found = self._call("get_item", Key=self._key(file_name), ConsistentRead=True)
        return entry_of(found["Item"]) if "Item" in found else None

    def latest(self) -> LockEntry | None:
        return self._latest_of(self.table_path)

    def _latest_of(self, table_path: str) -> LockEntry | None:
        found = self._call(
            "query",
            KeyConditionExpression="tablePath = :table",
            ExpressionAttributeValues={":table": {"S": table_path}},
            ConsistentRead=True,
            ScanIndexForward=False,
            Limit=1,
        )
        return entry_of(found["Items"][0]) if found["Items"] else None

    def put_if_absent(self, entry: LockEntry) -> bool:
        item = item_of(self.table_path, entry)
        return self._conditional("put_item", Item=item, ConditionExpression="attribute_not_exists(fileName)")

    def complete(self, entry: LockEntry, expire_time_s: int) -> None:
        # The condition names the entry that was read: delta-rs deletes an entry that it gives up, and another may replace it.
        self._conditional(
            "update_item",
            Key=self._key(entry.file_name),
            UpdateExpression="SET complete = :true, expireTime = :expiry",
            ConditionExpression="complete = :false AND tempPath = :temp",
            ExpressionAttributeValues={
                ":true": {"S": "true"},
                ":false": {"S": "false"},
                ":expiry": {"N": str(expire_time_s)},
                ":temp": {"S": entry.temp_path},
            },
        )

    def require_usable(self) -> None:
        """Refuse a missing or foreign DynamoDB table, and an address that other writers spell differently.

        Two spellings are two locks. If another spelling of this table's address has newer entries, another writer commits
        under it. With the option ``table_path`` the caller has chosen a spelling, and this check is left out.
        """
        if self._found_usable:
            return
        latest = self.latest()
        for spelling in other_spellings(self.table_path) if self._options.table_path is None else ():
            other = self._latest_of(spelling)
            if other is not None and (latest is None or other.file_name >= latest.file_name):
                raise InvalidRequest(
                    f"Other writers hold the lock of this table as {spelling} (newest entry {other.file_name}), and "
                    f"this job would as {self.table_path}: neither would see the other. Address the table as they "
                    f'do, or set "table_path" of the lock to {spelling}.'
                )
        self._found_usable = True

    def _key(self, file_name: str) -> dict[str, Any]:
        return {"tablePath": {"S": self.table_path}, "fileName": {"S": file_name}}

    def _conditional(self, method: str, **request: Any) -> bool:
        """Make a conditional request; ``False``: the condition did not hold.

        The client library repeats a request whose answer was lost. The repetition may meet its own effect and return
        ``False``, so callers compare ``tempPath``, which is unique.
        """
        try:
            self._call(method, **request)
        except _ConditionNotMet:
            return False
        return True

    def _call(self, method: str, **request: Any) -> Any:
        where = f"DynamoDB table {self._options.table}"
        client = self._client()
        import botocore.exceptions  # type: ignore[import-untyped]

        try:
            return getattr(client, method)(TableName=self._options.table, **request)
        except botocore.exceptions.ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code == "ConditionalCheckFailedException":
                raise _ConditionNotMet(f"{where}: {method} was refused.", self.table_path) from error
            if code == "ResourceNotFoundException":
                raise InvalidRequest(
                    f"The lock's {where} does not exist in {client.meta.region_name}. Create it with the hash key "
                    "tablePath and the range key fileName, both strings, or name the one that the other writers use."
                ) from error
            if code == "ValidationException":
                raise InvalidRequest(
                    f"The lock's {where} refused a request ({error}). Its hash key has to be tablePath and its range "
                    "key fileName, both strings."
                ) from error
            if code in _REFUSALS:
                raise AccessDenied(
                    f"{where}: {method} was denied ({code}). Check the credentials in {CREDENTIALS}, and their rights on "
                    "the lock table.",
                    self.table_path,
                ) from error
            raise StorageError(f"{where}: {method} failed ({error}).", self.table_path) from error
        except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError) as error:
            raise NoCredentials(self.table_path, f"{where}: {error}") from error
        except botocore.exceptions.BotoCoreError as error:
            raise StorageError(f"{where}: {method} failed ({error}).", self.table_path) from error

    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = _connect(self._options)
            return self._made


class _ConditionNotMet(StorageError):
    """The condition of a write did not hold; never leaves this module."""


def _connect(options: LockOptions) -> Any:
    try:
        import botocore.config  # type: ignore[import-untyped]
        import botocore.exceptions
        import botocore.session  # type: ignore[import-untyped]
    except ImportError as error:
        raise InvalidRequest(
            f"The DynamoDB lock needs a package that is not installed ({error}). Install airflow-provider-delta[s3]."
        ) from error
    try:
        credentials = {
            "aws_access_key_id": options.key,
            "aws_secret_access_key": options.secret,
            "aws_session_token": options.token,
        }
        session = botocore.session.Session(profile=options.profile)
        if options.assume_role is not None:
            session, credentials = renewing_session(options.assume_role, _source(options)), {}
        return session.create_client(
            "dynamodb",
            region_name=options.region,
            endpoint_url=options.endpoint_url,
            **credentials,
            config=botocore.config.Config(
                connect_timeout=10, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3}
            ),
        )
    except botocore.exceptions.NoRegionError as error:
        raise InvalidRequest('The lock has no AWS region. Set "region" of the lock.') from error
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise InvalidRequest(f"The lock's settings are of no use ({error}).") from error


def _source(options: LockOptions) -> dict[str, Any]:
    """Return the credentials that a role is assumed with, by the names of the store's options."""
    return {
        "key": options.key,
        "secret": options.secret,
        "token": options.token,
        "profile": options.profile,
        "client_kwargs": {"region_name": options.region},
    }


def item_of(table_path: str, entry: LockEntry) -> dict[str, dict[str, str]]:
    """Return an entry as DynamoDB's JSON."""
    item = {
        "tablePath": {"S": table_path},
        "fileName": {"S": entry.file_name},
        "tempPath": {"S": entry.temp_path},
        "complete": {"S": "true" if entry.complete else "false"},
    }
    if entry.expire_time_s is not None:
        item["expireTime"] = {"N": str(entry.expire_time_s)}
    return item


def entry_of(item: Mapping[str, Any]) -> LockEntry:
    """Read an entry of any writer from DynamoDB's JSON.

    :raises InvalidRequest: the table holds something else.
    """
    try:
        expiry = item.get("expireTime")
        return LockEntry(
            file_name=item["fileName"]["S"],
            temp_path=item["tempPath"]["S"],
            complete=item["complete"]["S"] == "true",
            expire_time_s=int(expiry["N"]) if expiry is not None else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"The lock's DynamoDB table holds an item that is no entry of a Delta commit ({error} in {dict(item)}). "
            "Name the table that the other writers use, or remove the item."
        ) from error


def other_spellings(table_path: str) -> list[str]:
    """Return other spellings of an address: Hadoop decodes it, delta-rs encodes it, both keep its scheme."""
    scheme, separator, rest = table_path.partition("://")
    rests = dict.fromkeys((rest, unquote(rest), quote(rest, safe="/%"), quote(unquote(rest))))
    schemes = dict.fromkeys((scheme, *S3.schemes))
    return [text for s in schemes for r in rests if (text := f"{s}{separator}{r}") != table_path]
