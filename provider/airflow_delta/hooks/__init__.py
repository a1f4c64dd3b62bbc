"""Hooks: from an Airflow connection to an open table."""

from __future__ import annotations

from airflow_delta.hooks.delta_table import DeltaTableHook

__all__ = ["DeltaTableHook"]
