"""The secrets of a Spark task, as they arrive: in the closure of the task, or in a file of its session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: The secrets themselves, or the name of the file.
Secrets = dict[str, Any] | str


def received(secrets: Secrets, find_file: Callable[[str], str]) -> dict[str, Any]:
    """
    :param find_file: ``pyspark.SparkFiles.get``.
    """
    if isinstance(secrets, dict):
        return secrets
    found: dict[str, Any] = json.loads(Path(find_file(secrets)).read_text(encoding="utf-8"))
    return found
