"""What each table feature means for maintenance, in a sentence for the page *Delta tables*.

Why an operation refuses a feature stands in :mod:`delta_log.table_config.features`, and is not repeated here.
"""

from __future__ import annotations

from typing import Any

from delta_log.printable import printable
from delta_log.table_config.features import FEATURES, Operation

_OF_ROWS = "Rules for rows that writers check. Maintenance changes no row."
_WIDER = "Old files hold narrower types. OPTIMIZE widens the values of the files that it rewrites."
_BOOKKEEPING = "Bookkeeping of the protocol, which costs maintenance nothing."
NOTES = {
    "appendOnly": "Rows are only added. OPTIMIZE and VACUUM work as usual.",
    "invariants": _OF_ROWS,
    "checkConstraints": _OF_ROWS,
    "generatedColumns": _OF_ROWS,
    "allowColumnDefaults": _OF_ROWS,
    "identityColumns": _OF_ROWS,
    "changeDataFeed": "Changes of rows are kept in files of their own, which VACUUM deletes after the retention.",
    "columnMapping": "Files keep physical names of columns. A purge takes out columns that were dropped.",
    "deletionVectors": "Deleted rows stay in their files until OPTIMIZE or a purge rewrites these. Watch the share of deleted rows.",
    "domainMetadata": _BOOKKEEPING,
    "v2Checkpoint": "Checkpoints may be in parts, of which a new one can use some again.",
    "timestampNtz": "Timestamps without a time zone. It changes nothing for maintenance.",
    "vacuumProtocolCheck": "VACUUM looks at the protocol of the newest version before it deletes, as this one always does.",
    "typeWidening": _WIDER,
    "typeWidening-preview": _WIDER,
    "inCommitTimestamp": "Each commit states its time, so retentions do not depend on the clock of the store.",
    "checkpointProtection": "A log cleanup may not delete checkpoints before a version that the table names.",
    "columnMappingUsageTracking": _BOOKKEEPING,
    "rowTracking": "Rows have ids. OPTIMIZE keeps them, which takes two more columns in the new files.",
    "clustering": "OPTIMIZE orders rows by the clustering columns, and rewrites more than small files.",
}
_UNKNOWN = "This release does not know the feature."


def feature_note(name: str) -> dict[str, Any]:
    """
    :param name: of a feature, as a reading has it.
    """
    feature = FEATURES.get(name)
    if feature is None:
        return {"name": printable(name), "note": _UNKNOWN, "refused": [one.value for one in Operation]}
    why = next(iter((feature.refused or {}).values()), "")
    note = NOTES.get(name) or f"{why[:1].upper()}{why[1:]}."
    return {"name": name, "note": note, "refused": [one.value for one in feature.refused or {}]}
