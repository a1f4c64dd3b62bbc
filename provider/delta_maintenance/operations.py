"""The operations and readings that there are, as the command line, the job and the operators know them.

:mod:`delta_maintenance.job` says which function carries out each operation. A reading runs in the process of its caller.
"""

from __future__ import annotations

from delta_maintenance.analyze.options import ANALYZE
from delta_maintenance.drop_feature.options import DROP_FEATURE
from delta_maintenance.expire.options import EXPIRE
from delta_maintenance.generate.options import GENERATE
from delta_maintenance.health.options import HEALTH
from delta_maintenance.log_upkeep.options import CHECKPOINT, CLEANUP_LOG, COMPACT_LOG
from delta_maintenance.optimize.options import OPTIMIZE, PURGE
from delta_maintenance.options import Operation
from delta_maintenance.repair.options import REPAIR
from delta_maintenance.restore.options import RESTORE
from delta_maintenance.vacuum.options import RESTORE_QUARANTINE, VACUUM

#: By name, in the order of ``--help``.
OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        OPTIMIZE,
        PURGE,
        CHECKPOINT,
        VACUUM,
        RESTORE,
        EXPIRE,
        DROP_FEATURE,
        RESTORE_QUARANTINE,
        ANALYZE,
        REPAIR,
        GENERATE,
        CLEANUP_LOG,
        COMPACT_LOG,
    )
}

#: Commands with options of their own that write nothing: they need no job, and their result is not a report.
READINGS: dict[str, Operation] = {HEALTH.name: HEALTH}
