"""Keys of a session that the Amazon provider's hook has opened: for SAML, identities of Google, and a session factory of one's own.

Such a session ends at a time that nothing here can move. A job that works longer fails with ``ExpiredToken``, and its next try
gets another session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow_delta.connections.fields import ConnectionFields


#: Errors of Amazon's client library that mean nothing but a lost connection.
_UNREACHABLE = ("ConnectTimeoutError", "EndpointConnectionError", "ReadTimeoutError", "ConnectionClosedError")


def has_session_factory() -> bool:
    """Tell whether Airflow's configuration has the hook open sessions in a way of one's own."""
    return bool(conf.get("aws", "session_factory", fallback=None))


def keys_of_session(fields: ConnectionFields) -> dict[str, Any]:
    """
    :raises UnusableConnection: the provider is missing, or the hook opens no session.
    """
    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
    except ImportError as error:
        raise fields.unusable(
            f"only the Amazon provider knows how to open a session with it, and that is not installed ({error})",
            "Install apache-airflow-providers-amazon, or use assume_role, or assume_role_with_web_identity with a file.",
        ) from None
    try:
        session = AwsGenericHook(aws_conn_id=fields.conn_id, client_type="s3").get_session()
        found = session.get_credentials()
        keys = None if found is None else found.get_frozen_credentials()
    except OSError as error:  # errors of requests, too
        raise _unreachable(fields, error) from error
    except Exception as error:
        if type(error).__name__ in _UNREACHABLE:
            raise _unreachable(fields, error) from error
        raise fields.unusable(
            f"the Amazon provider's hook opens no session with it ({type(error).__name__}: {error})",
            "Correct the connection; its Test button says more.",
        ) from error
    if keys is None:
        raise fields.unusable(
            "the Amazon provider's hook finds no credentials with it", "Add some to the connection."
        )
    options = {"key": keys.access_key, "secret": keys.secret_key}
    return {**options, "token": keys.token} if keys.token else options


def _unreachable(fields: ConnectionFields, error: Exception) -> AirflowException:
    """An error that a retry may get over."""
    return AirflowException(
        f"The service that opens sessions for connection {fields.conn_id!r} does not answer ({type(error).__name__}: {error}). "
        "Nothing was started. Run again when it does."
    )
