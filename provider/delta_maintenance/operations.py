"""The operations that there are, as the command line, the job and the operators know them.

:mod:`delta_maintenance.job` says which function carries each one out.
"""

from __future__ import annotations

from delta_maintenance.log_upkeep.options import CHECKPOINT, CLEANUP_LOG, COMPACT_LOG
from delta_maintenance.optimize.options import OPTIMIZE, PURGE
from delta_maintenance.options import Operation
from delta_maintenance.vacuum.options import RESTORE_QUARANTINE, VACUUM

#: In the order of ``--help``.
OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        OPTIMIZE,
        PURGE,
        CHECKPOINT,
        VACUUM,
        RESTORE_QUARANTINE,
        CLEANUP_LOG,
        COMPACT_LOG,
    )
}
