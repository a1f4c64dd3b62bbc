"""A table's name in a catalog: ``glue://database.table``, ``uc://catalog.schema.table``, ….

Glue and the Hive metastore have databases. Unity Catalog, Polaris, Lakekeeper and Gravitino have catalogs (Lakekeeper: warehouses) with
databases in them; in Polaris and Lakekeeper these may lie in others, so that such a name has three parts or more.

The name holds no host and no account. Which catalog is asked, and as whom, is said by the storage options alone, so a name from
an untrusted form cannot send a request, or credentials, elsewhere.

Operators check names while a DAG is parsed, so this module imports little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from delta_log.errors import InvalidRequest, NotDelta, brief
from delta_log.redaction import redact_uri
from delta_log.storage.schemes import CATALOGS
from delta_log.storage.table_uri import is_name, one_spelling

#: What catalogs take for a database or table; a dot would leave open where the database ends.
_PART = re.compile(r"[\w-]{1,255}")


class TableName(Struct, frozen=True):
    """A parsed name; of Glue and Hive in lower case, as they keep names.

    :param catalog: scheme of the catalog, such as ``glue``.
    :param database: database; with its catalog before it, and dots between the parts, where there are catalogs of databases.
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
        scheme, _, name = one_spelling(address).partition("://")
        kind, parts = CATALOGS[scheme], name.split(".")
        if not (kind.is_parted(len(parts)) and all(map(_PART.fullmatch, parts))) or address.endswith("//"):
            raise InvalidRequest(
                f"{brief(redact_uri(address))!r} is not a name in a catalog. Write {scheme}://{kind.form}, with letters, digits, "
                "underscores and hyphens. Which catalog is asked stands in the storage options (in Airflow: in the connection), not "
                "in the name."
            )
        return cls(scheme, ".".join(parts[:-1]), parts[-1])

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.database.split("."), self.table)

    def __str__(self) -> str:
        return f"{self.catalog}://{self.database}.{self.table}"


_VIEWS = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")
#: Spark's property comes first: a table that other engines read as Iceberg, too, says DELTA there and ICEBERG in the other.
_FORMATS = ("spark.sql.sources.provider", "table_type")
_PLACEHOLDER = "-__PLACEHOLDER__"
_SYMLINKS = "SymlinkTextInputFormat"


class CatalogEntry(Struct, frozen=True):
    """A table as Glue and the Hive metastore have it, in the form that both share.

    Engines register a Delta table in two ways. Spark writes the provider ``delta`` and the location as ``path`` among the properties
    of the storage; the location of the storage itself is then a placeholder. Athena, Trino and Glue's crawlers write
    ``table_type=DELTA``, and the location where Hive has it.

    :param table_type: type of the table, such as ``EXTERNAL_TABLE`` or ``VIRTUAL_VIEW``.
    :param location: location of the storage; ``None`` or empty: there is none.
    :param storage_properties: properties of the serialisation library, in Hive's words.
    """

    table_type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    input_format: str | None = None
    storage_properties: Mapping[str, str] = field(default_factory=dict)

    def location_as(self, name: TableName) -> str:
        """Return the address of the table.

        :raises NotDelta: it is no Delta table, or has no location.
        """
        if self.table_type.upper() in _VIEWS:
            raise NotDelta(str(name), "it is a view, which has no files of its own")
        found = self._format()
        if found is None:
            if _SYMLINKS in (self.input_format or ""):
                raise NotDelta(
                    str(name),
                    "it is a list of symbolic links for Athena or Presto (SymlinkTextInputFormat), which lies beside the table's log",
                )
            raise NotDelta(
                str(name), f"the catalog has it with none of the properties {' and '.join(_FORMATS)} = delta"
            )
        if found.lower() != "delta":
            raise NotDelta(str(name), f"the catalog says that it is of the format {found}")
        location = self.storage_properties.get("path") or self.location
        if not location or location.rstrip("/").endswith(_PLACEHOLDER):
            raise NotDelta(str(name), "the catalog has no location for it")
        return location

    def _format(self) -> str | None:
        found = {key.lower(): value for key, value in self.parameters.items()}
        return next((found[key] for key in _FORMATS if found.get(key)), None)
