"""The example DAG of a fleet, as tests run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support import ROOT

#: What no night of a test waits for.
IMPATIENT = {
    "healthy": {"small_files": 2},
    "disruption": {"quiet": "0m"},
    "trust": {"after": 1},
}


def fleet_example(lake: Path, state: Path) -> str:
    """The text of the DAG file, with another lake, another memory, and a policy under which no night waits.

    :param lake: directory of the tables.
    """
    text = (ROOT / "dags_examples" / "keep_fleet_healthy.py").read_text()
    for before, after in (
        ("s3://lake/**", f"{lake}/**"),
        ("s3://lake-admin/fleet", str(state)),
        ("22:00-06:00 Europe/Berlin", "always"),
        ('"version": 1,', f'"version": 1, {json.dumps(IMPATIENT)[1:-1]},'),
    ):
        assert before in text
        text = text.replace(before, after)
    return re.sub(r'schedule="[^"]+"', "schedule=None", text)
