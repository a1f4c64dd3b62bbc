"""One survey in a process of its own, for ``fleet.py``: arguments come as JSON on standard input, figures go to standard output."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from delta_log.runtime import Runtime
from delta_maintenance.fleet.discovery import FoundTable, discover
from delta_maintenance.fleet.survey import survey
from delta_maintenance.fleet.survey_memory import SurveyMemory, SurveyMemoryFile
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.progress import SilentProgress


def main() -> None:
    given = json.load(sys.stdin)
    started = time.perf_counter()
    if given["discover"]:
        facts = {"tables": len(discover([given["pattern"]], (), given["options"]).tables)}
    else:
        tables = [FoundTable(address, address) for address in given["tables"]]
        file = SurveyMemoryFile(given["memory"])
        memory = file.read(SilentProgress()) if given["remembers"] else SurveyMemory()
        runtime = Runtime(now_ms=lambda: given["now_ms"])
        found = survey(
            tables, lambda address, properties: HealthOptions(), memory, given["options"], runtime=runtime
        )
        file.write(found.memory)
        facts = {"tables": len(found.tables), "unread": len(found.unread), "read": found.num_read}
    # Unlike ru_maxrss, which a process has from the one that started it.
    peak_kb = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    figures = {
        "wall": time.perf_counter() - started,
        "cpu": time.process_time(),
        "peak_mb": int(peak_kb.split()[1]) / 1024,
    }
    print(json.dumps({**figures, **facts}))


if __name__ == "__main__":
    main()
