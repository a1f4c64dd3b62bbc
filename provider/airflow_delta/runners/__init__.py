"""Runners start a maintenance job, in a local process or by spark-submit, and pass on what it reports."""

from __future__ import annotations
