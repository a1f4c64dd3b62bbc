"""The operations and readings that there are, as the command line, the job and the operators know them.

:mod:`delta_maintenance.job` says which function carries out each operation. A reading runs in the process of its caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from delta_maintenance.options import Operation


class Operations(Mapping[str, Operation]):
    """Operations by their names. A command needs one of them, so each is loaded when it is asked for.

    :param places: the module of each operation, and its name there.
    """

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self.places = dict(places)

    def __getitem__(self, name: str) -> Operation:
        module, constant = self.places[name]
        found: Operation = getattr(import_module(module), constant)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


#: In the order of ``--help``.
OPERATIONS = Operations(
    {
        "optimize": ("delta_maintenance.optimize.options", "OPTIMIZE"),
        "purge": ("delta_maintenance.optimize.options", "PURGE"),
        "checkpoint": ("delta_maintenance.log_upkeep.options", "CHECKPOINT"),
        "vacuum": ("delta_maintenance.vacuum.options", "VACUUM"),
        "restore-quarantine": ("delta_maintenance.vacuum.options", "RESTORE_QUARANTINE"),
        "cleanup-log": ("delta_maintenance.log_upkeep.options", "CLEANUP_LOG"),
        "compact-log": ("delta_maintenance.log_upkeep.options", "COMPACT_LOG"),
    }
)

#: Commands with options of their own that write nothing: they need no job, and their result is not a report.
READINGS = Operations({"health": ("delta_maintenance.health.options", "HEALTH")})
