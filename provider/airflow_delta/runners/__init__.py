"""Where a maintenance job runs, and how a task hears from it: one seam, a local process and spark-submit behind it."""

from __future__ import annotations
