"""From an Airflow connection to the storage options of a table, and to the table.

:mod:`airflow_delta.connections` reads the connection. Without a connection id a job uses the identity of its machine. A
connection that does not exist, is incomplete, or is for another store than the table's is refused here, before any job is
started.

The connection (``allowed_roots``) and Airflow's configuration say below which roots a table must lie, see
:mod:`airflow_delta.allowed_roots`. The hook refuses any other address before it opens anything. A table that is given by its name is
looked up first, with the identity of the connection; the roots hold for the place to which the name leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_delta.allowed_roots import require_allowed, roots_of_connection, roots_of_setting
from airflow_delta.connections.catalogs import catalog_options
from airflow_delta.connections.fields import ConnectionFields
from airflow_delta.connections.kinds import kind_of, require_store
from airflow_delta.connections.secrets import secrets_of
from delta_log.catalog.lookup import locate, opening_options
from delta_log.catalog.table_name import TableName
from delta_log.printable import printable
from delta_log.storage.table_uri import is_name

if TYPE_CHECKING:
    from delta_log import Table


class DeltaTableHook(BaseHook):
    """Opens Delta tables with the credentials of an Airflow connection.

    :param delta_conn_id: a connection to the store, such as one of type ``delta`` or ``aws``; ``None``: the ambient identity
        (an instance role, workload identity, or the environment of the worker).
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

        :raises AirflowFailException: there is no such connection, or it is of no use for table storage.
        """
        return dict(self._options)

    @cached_property
    def allowed_roots(self) -> dict[str, tuple[str, ...]]:
        """The roots, by what has set them: a table must lie below one root of each. Empty if there is no fence.

        :raises AirflowFailException: as above, or what is set are no roots.
        """
        of_connection: dict[str, tuple[str, ...]] = {}
        if self.delta_conn_id is not None:
            of_connection = roots_of_connection(self.delta_conn_id, self._extra("allowed_roots"))
        return {**roots_of_setting(), **of_connection}

    def require_allowed(self, *addresses: str) -> None:
        """Refuse addresses that this connection must not, or cannot, open.

        :raises AirflowFailException: one of the addresses lies outside of the allowed roots, or in another store.
        """
        require_allowed(addresses, self.allowed_roots)
        if self._fields is not None:
            for address in addresses:
                require_store(self._fields, self._options, address)

    def locate(self, table: str) -> str:
        """Return the address of a table's place, which this connection may open. For a name this asks the catalog, and blocks.

        :raises AirflowFailException: it lies outside of the allowed roots, or in another store than the connection's.
        :raises DeltaLogError: the catalog has no such Delta table, refuses, or does not answer.
        """
        if is_name(table):
            table = locate(table, self._options_with_catalog(table))
        self.require_allowed(table)
        return table

    def opening_options(self, table: str) -> dict[str, Any]:
        """The storage options that open the place of a table; for a name, with the credentials that its catalog gives out.

        :param table: address or name of the table, whose catalog is not asked.
        :raises AirflowFailException: there is no such connection, or it is of no use.
        """
        return opening_options(table, self._options_with_catalog(table))

    def _options_with_catalog(self, table: str) -> dict[str, Any]:
        name = TableName.parse(table)
        if name is None:
            return self.storage_options
        return {**self._options, **self._catalog_options(name)}

    def _catalog_options(self, name: TableName) -> dict[str, Any]:
        found = catalog_options(name, self._fields)
        for secret in secrets_of(found):
            mask_secret(secret)
        return found

    def options_for(self, addresses: Iterable[str]) -> dict[str, Any]:
        """The storage options for several tables, with the options of the catalogs that their names need.

        :param addresses: addresses, names in catalogs, and patterns of both.
        :raises AirflowFailException: an address lies in another store than the connection's, or the connection is of no use.
        """
        options = self.storage_options
        for address in addresses:
            if is_name(address):
                catalog, _, name = address.partition("://")
                database, _, table = name.partition(".")
                options |= self._catalog_options(TableName(catalog.lower(), database, table))
            elif self._fields is not None:
                require_store(self._fields, self._options, address)
        return options

    def get_conn(self) -> dict[str, Any]:
        return self.storage_options

    def get_table(self, table: str) -> Table:
        """The table at address `table`: a path, a URI, or a name in a catalog.

        :raises AirflowFailException: it lies outside of the allowed roots, or in another store than the connection's.
        :raises DeltaLogError: a catalog has no such Delta table, refuses, or does not answer.
        """
        location = self.locate(table)
        # Imported here, since it loads pyarrow, and a DAG file may import this module.
        from delta_log import Table

        return Table(location, self.opening_options(table) or None)

    def test_connection(self) -> tuple[bool, str]:
        """Do at the table that the connection names (`test_table`) what jobs do there, since credentials alone prove nothing.

        It makes the same checks as ``delta-maintenance doctor``: list, create under a condition, read, overwrite and delete.
        """
        try:
            address = self._extra("test_table")
            if not address:
                return True, (
                    "The storage options are well-formed, but nothing was tried: "
                    "name a table under 'Table to test with' to have its store examined."
                )
            options = self.opening_options(address)
            address = self.locate(address)
            # Imported here, since they load pyarrow, and a DAG file may import this module.
            from delta_log.runtime import Runtime
            from delta_maintenance.doctor.check import FAILURE, OK, WARNING, Examination
            from delta_maintenance.doctor.store import examine_store
            from delta_maintenance.text.doctor import remark

            examination = Examination()
            examine_store(examination, address, options, Runtime())
            *checks, table = examination.document(address, None)["checks"]
            found = [check for check in checks if check["status"] in (WARNING, FAILURE)]
            # The button shows one line.
            text = "; ".join(remark(check) for check in (*found, table))
            works = examination.status != FAILURE and table["status"] == OK
            return works, printable(f"{address}: {text}")
        except Exception as error:  # noqa: BLE001 - the button shows any error
            return False, printable(f"{type(error).__name__}: {error}")

    def _extra(self, name: str) -> Any:
        return None if self._fields is None else self._fields.extra.get(name)

    @cached_property
    def _fields(self) -> ConnectionFields | None:
        """The connection, read once, since the credentials and the fence of a table belong together."""
        if self.delta_conn_id is None:
            return None
        try:
            connection = self.get_connection(self.delta_conn_id)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"There is no Airflow connection {self.delta_conn_id!r}. Create it with type 'delta' or the type of its cloud, or "
                "leave delta_conn_id out to use the identity of the machine."
            ) from None
        fields = ConnectionFields.of(self.delta_conn_id, connection)
        kind_of(fields)
        connection.extra_dejson  # noqa: B018 - masks what Airflow knows to be sensitive
        return fields

    @cached_property
    def _options(self) -> dict[str, Any]:
        fields = self._fields
        if fields is None:
            return {}
        for secret in secrets_of(fields.extra):
            mask_secret(secret)
        options = kind_of(fields).storage_options(fields)
        for secret in secrets_of(options):
            mask_secret(secret)
        return options
