"""Row tracking in the log: the row ids that a commit gives to the files that it adds.

Protocol section "Row Tracking". Each new file gets a range of row ids that begins at its ``baseRowId`` and is as long as
its number of physical rows. A metadata domain of the table holds the greatest id given so far. A commit that has to
follow concurrent commits takes new ranges above theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from delta_log.errors import InvalidMetadata, InvalidRequest
from delta_log.log.actions import MAX_ROW_ID, Add, DomainMetadata, Metadata, Protocol
from delta_log.table_config import features as table_features
from delta_log.table_config.properties import flag

DOMAIN = "delta.rowTracking"
ENABLED = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
#: A tag in ``commitInfo.tags`` of a commit that rearranged rows and kept their ids.
PRESERVED_TAG = "delta.rowTracking.preserved"
#: The high-water mark of a table that has given no ids yet.
NO_ROW_ID = -1


def assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether new files must get row ids."""
    return table_features.supports(protocol, "rowTracking") and not flag(metadata.properties, SUSPENDED)


def preserving_tags(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a commit that tell readers of the log that rows kept their ids; none if the table does not track rows."""
    return {PRESERVED_TAG: "true"} if flag(properties, ENABLED) else {}


def high_water_mark(configuration: str | None) -> int:
    """The greatest row id given so far, from the configuration of :data:`DOMAIN`; -1: none."""
    if configuration is None:
        return NO_ROW_ID
    try:
        mark = json.loads(configuration)["rowIdHighWaterMark"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidMetadata(
            f"domainMetadata {DOMAIN}", f"it is {configuration!r}, which has no rowIdHighWaterMark"
        ) from error
    if isinstance(mark, bool) or not isinstance(mark, int) or not NO_ROW_ID <= mark <= MAX_ROW_ID:
        raise InvalidMetadata(
            f"domainMetadata {DOMAIN}", f"its high-water mark is {mark!r}, which is no row id"
        )
    return mark


def with_row_ids(adds: Sequence[Add], mark: int, version: int) -> tuple[list[Add], DomainMetadata | None]:
    """Give row ids to the files of a commit; also returns the domain to write with them, where ids were given.

    Files that already have a ``baseRowId`` (they get a new deletion vector, or are restored) keep it.

    :param mark: the high-water mark before the commit.
    :raises InvalidRequest: a new file does not state its number of rows.
    """
    given, numbered = mark, []
    for add in adds:
        if add.baseRowId is not None:
            numbered.append(add)
            continue
        numbered.append(msgspec.structs.replace(add, baseRowId=given + 1, defaultRowCommitVersion=version))
        given += _num_records(add)
    if given == mark:
        return numbered, None
    return numbered, DomainMetadata(DOMAIN, json.dumps({"rowIdHighWaterMark": given}))


def _num_records(add: Add) -> int:
    try:
        stats: Mapping[str, object] = json.loads(add.stats or "{}")
        count = stats.get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        count = None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_ROW_ID:
        raise InvalidRequest(
            f"{add.path} does not state numRecords, and this table tracks rows by it. Nothing was committed; "
            "write the file with statistics."
        )
    return count
