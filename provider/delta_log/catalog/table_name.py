"""A table's name in a catalog: ``glue://database.table`` and ``hms://database.table``.

The name holds no host and no account. Which catalog is asked, and as whom, is said by the storage options alone, so a name from
an untrusted form cannot send a request, or credentials, elsewhere.

Standard library only: operators check names while a DAG is parsed.
"""

from __future__ import annotations

import re

from msgspec import Struct

from delta_log.errors import InvalidRequest, brief
from delta_log.redaction import redact_uri
from delta_log.storage.table_uri import is_name

#: What both catalogs take for a database or table; a dot would leave open where the database ends.
_PART = r"[\w-]{1,255}"
_NAME = re.compile(rf"([A-Za-z]+)://({_PART})\.({_PART})/?")


class TableName(Struct, frozen=True):
    """A parsed name. Both catalogs keep names in lower case.

    :param catalog: ``glue`` or ``hms``.
    """

    catalog: str
    database: str
    table: str

    @classmethod
    def parse(cls, address: str) -> TableName | None:
        """Return the name, or ``None`` for the address of a place.

        :raises InvalidRequest: the address has the scheme of a catalog, and is not ``database.table``.
        """
        if not is_name(address):
            return None
        match = _NAME.fullmatch(address)
        if match is None:
            scheme = address.partition("://")[0].lower()
            raise InvalidRequest(
                f"{brief(redact_uri(address))!r} is not a name in a catalog. Write {scheme}://database.table, with letters, digits, "
                "underscores and hyphens. Which catalog is asked stands in the storage options (in Airflow: in the connection), not "
                "in the name."
            )
        catalog, database, table = match.groups()
        return cls(catalog.lower(), database.lower(), table.lower())

    def __str__(self) -> str:
        return f"{self.catalog}://{self.database}.{self.table}"
