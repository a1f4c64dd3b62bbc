"""What a catalog says of a table, in the form that Glue and the Hive metastore share, and where that puts the table.

Engines register a Delta table in two ways. Spark writes the provider ``delta`` and the location as ``path`` among the properties of
the storage; the location of the storage itself is then a placeholder. Athena, Trino and Glue's crawlers write ``table_type=DELTA``,
and the location where Hive has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from delta_log.catalog.table_name import TableName
from delta_log.errors import NotDelta

_VIEWS = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")
#: Spark's property comes first: a table that other engines read as Iceberg, too, says DELTA there and ICEBERG in the other.
_FORMATS = ("spark.sql.sources.provider", "table_type")
_PLACEHOLDER = "-__PLACEHOLDER__"
_SYMLINKS = "SymlinkTextInputFormat"


class CatalogEntry(Struct, frozen=True):
    """A table as a catalog has it.

    :param table_type: such as ``EXTERNAL_TABLE`` or ``VIRTUAL_VIEW``.
    :param location: of the storage; ``None`` or empty: there is none.
    :param storage_properties: of the serialisation library, in Hive's words.
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
