"""Operators: one for each kind of maintenance."""

from __future__ import annotations

from airflow_delta.operators.optimize import DeltaOptimizeOperator

__all__ = ["DeltaOptimizeOperator"]
