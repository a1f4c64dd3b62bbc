"""From an Airflow connection of type ``delta`` to the storage options of a table, and to the table.

The connection's ``extra`` holds the storage options, named as fsspec's file systems name them; each field of the form is one of
its keys. Without a connection id a job uses the identity of its machine. A connection that does not exist, or has another type,
is refused here, before any job is started.

The connection (``allowed_roots``) and Airflow's configuration say below which roots a table must lie, see
:mod:`airflow_delta.allowed_roots`. The hook refuses any other address before it opens anything.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_delta.allowed_roots import require_allowed, roots_of_connection, roots_of_setting
from airflow_delta.provider_info import CONNECTION_FIELDS
from delta_log.printable import printable

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from delta_log import Table

#: Keys of ``extra`` that are for us, not for the file system.
_OWN_KEYS = frozenset({"test_table", "allowed_roots"})
_SECRET_KEYS = frozenset(
    name for name, definition in CONNECTION_FIELDS.items() if definition["schema"].get("format") == "password"
)
#: The form always sends these, and not every file system knows them.
_SWITCHES = frozenset(
    name for name, definition in CONNECTION_FIELDS.items() if definition["schema"]["type"] == "boolean"
)


class DeltaTableHook(BaseHook):
    """Opens Delta tables with the credentials of an Airflow connection.

    :param delta_conn_id: a connection of type ``delta``; ``None``: the ambient identity (an instance role, workload
        identity, or the environment of the worker).
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta Lake table storage"

    def __init__(self, delta_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.delta_conn_id = delta_conn_id

    @property
    def storage_options(self) -> dict[str, Any]:
        """The options for fsspec's file system; empty for the ambient identity.

        :raises AirflowFailException: there is no such connection, or it is no connection to table storage.
        """
        return {key: value for key, value in self._extra.items() if key not in _OWN_KEYS}

    @property
    def allowed_roots(self) -> dict[str, tuple[str, ...]]:
        """The roots, by what has set them: a table must lie below one root of each. Empty if there is no fence.

        :raises AirflowFailException: as above, or what is set are no roots.
        """
        of_connection: dict[str, tuple[str, ...]] = {}
        if self.delta_conn_id is not None:
            of_connection = roots_of_connection(self.delta_conn_id, self._extra.get("allowed_roots"))
        return {**roots_of_setting(), **of_connection}

    def require_allowed(self, *addresses: str) -> None:
        """
        :raises AirflowFailException: one of the addresses lies outside of the allowed roots.
        """
        require_allowed(addresses, self.allowed_roots)

    def get_conn(self) -> dict[str, Any]:
        return self.storage_options

    def get_table(self, table: str) -> Table:
        """The table at address `table`, a path or URI.

        :raises AirflowFailException: it lies outside of the allowed roots.
        """
        self.require_allowed(table)
        # Imported here, since it loads pyarrow, and a DAG file may import this module.
        from delta_log import Table

        return Table(table, self.storage_options or None)

    def test_connection(self) -> tuple[bool, str]:
        """Open the table named in the connection (`test_table`), since credentials alone prove nothing."""
        try:
            address = self._extra.get("test_table")
            if not address:
                return True, (
                    "The storage options are well-formed, but nothing was read: "
                    "name a table under 'Table to test with' to have it opened."
                )
            snapshot = self.get_table(address).snapshot()
            return (
                True,
                f"Opened {printable(address)}: version {snapshot.version}, {snapshot.num_files} files.",
            )
        except Exception as error:  # noqa: BLE001 - the button shows any error
            return False, printable(f"{type(error).__name__}: {error}")

    @cached_property
    def _extra(self) -> dict[str, Any]:
        """The connection's options, read once, since the credentials and the fence of a table belong together."""
        if self.delta_conn_id is None:
            return {}
        try:
            connection = self.get_connection(self.delta_conn_id)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"There is no Airflow connection {self.delta_conn_id!r}. Create it with type 'delta', or leave "
                "delta_conn_id out to use the identity of the machine."
            ) from None
        if connection.conn_type != self.conn_type:
            raise AirflowFailException(
                f"Connection {self.delta_conn_id!r} has type {connection.conn_type!r}, but storage credentials of "
                "Delta tables are read from a connection of type 'delta'. Create one with the options of the file "
                "system as its extra."
            )
        options = {
            key: value
            for key, value in self._parsed_extra(connection).items()
            if value not in (None, "") and not (key in _SWITCHES and value is False)
        }
        for key in _SECRET_KEYS & options.keys():
            mask_secret(options[key])
        return options

    def _parsed_extra(self, connection: Connection) -> dict[str, Any]:
        """The connection's extra. Airflow reads an extra that is not JSON as empty, which would mean another identity."""
        try:
            extra = json.loads(connection.extra or "{}")
        except ValueError:
            extra = None
        if not isinstance(extra, dict):
            raise AirflowFailException(
                f"The extra of connection {self.delta_conn_id!r} is not a JSON object, so its storage options "
                "cannot be read. Correct it in the connection's form."
            )
        connection.extra_dejson  # noqa: B018 - masks what Airflow knows to be sensitive
        return extra
