"""Credentials of a role, which every process gets for itself and renews while it works.

The storage option ``assume_role`` says how to get the credentials, and travels in their place: a session that was opened
elsewhere would end in the midst of a long job, and the job could not renew it. A process assumes the role with the
credentials of the other options (``key``, ``secret``, ``token``, ``profile``), else with the identity of the machine. With
``web_identity_token_file`` it uses the token in that file, which it reads anew for each session.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delta_log.errors import CREDENTIALS, AccessDenied, DeltaLogError, InvalidRequest, StorageError

#: What the codes of a refusal mean, and whether the refusal may pass. Another code of a refusal does not pass.
REFUSALS = {
    "InvalidAccessKeyId": ("the store does not know the access key", False),
    "InvalidClientTokenId": ("the token service does not know the access key", False),
    "SignatureDoesNotMatch": ("the secret key does not belong to the access key", False),
    "AuthorizationHeaderMalformed": ("the region is wrong, or the access key is malformed", False),
    "IllegalLocationConstraintException": ("the bucket is in another region", False),
    "InvalidToken": ("the session token is wrong", False),
    "InvalidTokenId": ("the session token is wrong", False),
    "InvalidIdentityToken": ("the web identity token is wrong", False),
    "ExpiredToken": ("the credentials have expired", True),
    "ExpiredTokenException": ("the web identity token has expired", True),
    "TokenRefreshRequired": ("the credentials have expired", True),
    "RequestExpired": ("the request is too old by the store's clock", True),
    "RequestTimeTooSkewed": ("this machine's clock is wrong", True),
}
#: A session that is about to end is renewed this long before, or earlier in proportion if it is a short one.
_MAX_RENEWAL_SECONDS = 900
_DEFAULT_DURATION_SECONDS = 3600
_SESSION_NAME = "delta-maintenance"
#: The options of the store's client that hold for any client.
_CLIENT_CONFIG = ("connect_timeout", "read_timeout", "proxies", "proxies_config", "retries")
_TEXTS = ("role_arn", "session_name", "external_id", "web_identity_token_file", "sts_endpoint_url")
_SECONDS = ("duration_seconds", "renew_before_seconds")
_EXAMPLE = '{"role_arn": "arn:aws:iam::123456789012:role/lake"}'


@dataclass(frozen=True, slots=True)
class AssumedRole:
    """The value of ``assume_role`` in the storage options.

    :param role_arn: the role.
    :param session_name: name that the store's own logs show.
    :param duration_seconds: length of a session; default: an hour.
    :param renew_before_seconds: time before the end of a session at which the session is renewed.
    :param web_identity_token_file: a path on each machine that works on the table.
    :param sts_endpoint_url: address of the token service; default: Amazon's.
    :param parameters: further parameters of AssumeRole or AssumeRoleWithWebIdentity, such as ``Policy``.
    """

    role_arn: str
    session_name: str = _SESSION_NAME
    external_id: str | None = field(default=None, repr=False)
    duration_seconds: int | None = None
    renew_before_seconds: int | None = None
    web_identity_token_file: str | None = None
    sts_endpoint_url: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_mapping(cls, given: Any) -> AssumedRole:
        """
        :raises InvalidRequest: an option is wrong; the message names it.
        """
        if not isinstance(given, Mapping):
            raise InvalidRequest(
                f'The storage option "assume_role" is no object. Give one such as {_EXAMPLE}.'
            )
        unknown = sorted(map(str, set(given) - {*_TEXTS, *_SECONDS, "parameters"}))
        if unknown:
            raise InvalidRequest(
                f'The storage option "assume_role" has unknown keys: {", ".join(map(repr, unknown))}. '
                f"There are {', '.join((*_TEXTS, *_SECONDS, 'parameters'))}."
            )
        for name in _TEXTS:
            if name in given and not (isinstance(given[name], str) and given[name]):
                raise InvalidRequest(
                    f'"{name}" of "assume_role" is no text, or an empty one. Give one, or leave it out.'
                )
        for name in _SECONDS:
            value = given.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidRequest(
                    f'"{name}" of "assume_role" is no number of seconds. Give one such as 3600.'
                )
        if not isinstance(given.get("parameters", {}), Mapping):
            raise InvalidRequest('"parameters" of "assume_role" is no object. Give the names of the STS API.')
        if "role_arn" not in given:
            raise InvalidRequest(
                f'The storage option "assume_role" names no role. Give one, as in {_EXAMPLE}.'
            )
        return cls(**given)

    @property
    def operation(self) -> str:
        """The request to the token service."""
        return "assume_role" if self.web_identity_token_file is None else "assume_role_with_web_identity"

    def request(self) -> dict[str, Any]:
        """Return the parameters of the request.

        :raises AccessDenied: there is no token in the file; another try may find one.
        """
        asked = {**self.parameters, "RoleArn": self.role_arn, "RoleSessionName": self.session_name}
        if self.external_id is not None:
            asked["ExternalId"] = self.external_id
        if self.duration_seconds is not None:
            asked["DurationSeconds"] = self.duration_seconds
        if self.web_identity_token_file is not None:
            asked["WebIdentityToken"] = self._web_identity_token(self.web_identity_token_file)
        return asked

    def _web_identity_token(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise AccessDenied(
                f"The web identity token of role {self.role_arn} cannot be read ({error}), so the role cannot be assumed. "
                "The file must be on every machine that works on the table: this one, and Spark's executors.",
                path,
                may_pass=True,
            ) from error

    @property
    def renewal_seconds(self) -> tuple[int, int]:
        """How long before its end a session should be renewed, and must be."""
        duration = (
            self.duration_seconds or self.parameters.get("DurationSeconds") or _DEFAULT_DURATION_SECONDS
        )
        should = self.renew_before_seconds or min(_MAX_RENEWAL_SECONDS, max(1, duration // 3))
        return should, max(1, should * 2 // 3)


def renewing_session(given: Any, options: Mapping[str, Any]) -> Any:
    """Return a session of botocore with the credentials of a role.

    :param given: the value of ``assume_role``.
    :param options: options of the store, with which the role is assumed.
    :raises InvalidRequest: the option is wrong, or a package is missing.
    """
    try:
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.credentials import (  # type: ignore[import-untyped]
            CredentialProvider,
            RefreshableCredentials,
        )
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError as error:
        raise _missing(error) from error
    role = AssumedRole.from_mapping(given)

    def renew() -> dict[str, Any]:
        try:
            source = Session(profile=options.get("profile"))
            client = source.create_client("sts", **_client(role, options, Config))
            return _metadata(getattr(client, role.operation)(**role.request()))
        except Exception as error:
            raise _failure(role, error) from error

    class RoleProvider(CredentialProvider):  # type: ignore[misc]
        METHOD = "assume-role"

        def load(self) -> Any:
            # botocore's own times suit sessions of an hour, and renew shorter ones at each request.
            should_seconds, must_seconds = role.renewal_seconds
            return RefreshableCredentials.create_from_metadata(
                renew(), renew, self.METHOD, advisory_timeout=should_seconds, mandatory_timeout=must_seconds
            )

    _tell_in_one_line()
    session = Session()
    session.get_component("credential_provider").providers.insert(0, RoleProvider())
    return session


def _metadata(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the token service in the form that botocore's renewal takes."""
    found = answer["Credentials"]
    return {
        "access_key": found["AccessKeyId"],
        "secret_key": found["SecretAccessKey"],
        "token": found["SessionToken"],
        "expiry_time": found["Expiration"].isoformat(),
    }


class _InOneLine(logging.Filter):
    """Leaves the traceback out of what botocore logs when a renewal fails: the error says enough, and is raised where it counts."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, DeltaLogError):
            record.msg, record.args = f"{record.getMessage()} {error}", None
            record.exc_info = record.exc_text = None
        return True


def _tell_in_one_line() -> None:
    logger = logging.getLogger("botocore.credentials")
    if not any(isinstance(known, _InOneLine) for known in logger.filters):
        logger.addFilter(_InOneLine())


def _client(role: AssumedRole, options: Mapping[str, Any], config_class: Any) -> dict[str, Any]:
    """Return the arguments of the token service's client."""
    store = options.get("client_kwargs") or {}
    config = {
        name: value for name, value in (options.get("config_kwargs") or {}).items() if name in _CLIENT_CONFIG
    }
    asked = {
        "region_name": store.get("region_name"),
        "verify": store.get("verify"),
        "endpoint_url": role.sts_endpoint_url,
    }
    if role.web_identity_token_file is None:
        asked |= {
            "aws_access_key_id": options.get("key"),
            "aws_secret_access_key": options.get("secret"),
            "aws_session_token": options.get("token"),
        }
    else:
        from botocore import UNSIGNED  # type: ignore[import-untyped]

        config["signature_version"] = UNSIGNED
    return {name: value for name, value in asked.items() if value is not None} | {
        "config": config_class(**config)
    }


def _failure(role: AssumedRole, error: Exception) -> DeltaLogError:
    """Return the error for a role that was not given."""
    if isinstance(error, DeltaLogError):
        return error
    if type(error).__name__ == "ParamValidationError":
        said = " ".join(str(error).split())
        return InvalidRequest(f'The storage option "assume_role" is not what the token service takes: {said}')
    answer = getattr(error, "response", None) or {}
    code = answer.get("Error", {}).get("Code", "")
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    meaning, may_pass = REFUSALS.get(code, ("", False))
    said = f"{code}: {meaning or answer.get('Error', {}).get('Message', '')}" if code else str(error)
    if meaning or (400 <= status < 500 and "Throttl" not in code):
        return AccessDenied(
            f"Role {role.role_arn} cannot be assumed ({said}). Check the credentials in {CREDENTIALS}, their right "
            "sts:AssumeRole on the role, and that the role trusts them, with the external id where it asks for one.",
            role.role_arn,
            may_pass=may_pass,
        )
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"):
        return AccessDenied(
            f"Role {role.role_arn} cannot be assumed: there are no credentials to assume it with ({said}). Put them into "
            f"{CREDENTIALS}, or give the machine an identity that the role trusts.",
            role.role_arn,
        )
    return StorageError(
        f"Role {role.role_arn} cannot be assumed: the token service failed ({type(error).__name__}: {said}). Check "
        "sts_endpoint_url, and run again when it answers.",
        role.role_arn,
    )


def _missing(error: ImportError) -> InvalidRequest:
    return InvalidRequest(
        f"Assuming a role needs a package that is not installed ({error}). Install airflow-provider-delta[s3]."
    )
