"""An Airflow and the tables that it looks after, for tests of the page Delta tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_airflow import LiveAirflow


@dataclass(frozen=True)
class Lakehouse:
    """An Airflow whose page shows `tables`: their paths by name."""

    airflow: LiveAirflow
    tables: dict[str, Path]
