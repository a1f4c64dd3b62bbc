"""An Airflow and the tables that it looks after, for tests of the page Delta tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

    from live_airflow import LiveAirflow

#: Has logged in and has no permission.
STRANGER = "sam"
WIDE: ViewportSize = {"width": 1440, "height": 1000}
#: Opens a path of Airflow in a browser.
Visit = Callable[..., AbstractContextManager["Page"]]


@dataclass(frozen=True)
class Lakehouse:
    """An Airflow whose page shows `tables`: their paths by name."""

    airflow: LiveAirflow
    tables: dict[str, Path]
