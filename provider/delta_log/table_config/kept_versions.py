"""The versions of a table that stay readable, however old they are: its own properties name them.

No part of the Delta protocol: VACUUM and log cleanup of this provider obey these properties, and other engines do not know them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from delta_log.errors import InvalidProperty
from delta_log.table_config.properties import positive_number, whole_number

#: Versions with commas between them, each with or without a name: ``17, year-end=42``.
KEEP_VERSIONS = "delta-maintenance.keepVersions"
#: How many of the newest versions stay readable.
KEEP_LAST = "delta-maintenance.keepLast"


class KeptVersions(Struct, frozen=True):
    """Versions that stay readable.

    :param named: version numbers.
    :param num_last: how many of the newest versions; at least 1, since the latest version always stays.
    """

    named: frozenset[int] = frozenset()
    num_last: int = 1

    @classmethod
    def of(cls, properties: Mapping[str, str | None]) -> KeptVersions:
        """Read the properties of a table.

        :raises InvalidProperty: one of them names no versions.
        """
        named = _named(properties.get(KEEP_VERSIONS) or "")
        return cls(named, positive_number(properties, KEEP_LAST, 1))

    def __or__(self, other: KeptVersions) -> KeptVersions:
        return KeptVersions(self.named | other.named, max(self.num_last, other.num_last))

    def first_of_last(self, latest: int) -> int:
        """Return the oldest of the newest versions that stay.

        :param latest: latest version of the table.
        """
        return max(0, latest - self.num_last + 1)

    def oldest(self, latest: int) -> int:
        """Return the oldest version that stays; files that were removed by this version or before are needed by none."""
        return min([self.first_of_last(latest), *self.named])


def _named(text: str) -> frozenset[int]:
    entries = [entry.rpartition("=")[2] for entry in text.split(",") if entry.strip()]
    found = [whole_number(entry) for entry in entries]
    if None in found:
        wanted = "version numbers with commas between them, each with or without a name before it"
        raise InvalidProperty(KEEP_VERSIONS, text, wanted, "17, year-end=42")
    return frozenset(number for number in found if number is not None)
