"""The figures of a table, of which the facts of a survey are made without a table."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from delta_log.snapshot.deletion_ratio import DeletedRows
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.health.facts import (
    CommitFact,
    FileFacts,
    FileTotal,
    HealthFacts,
    LastRun,
    LogFacts,
    PlannedRewrite,
    Refusal,
    RemovedFiles,
)
from delta_maintenance.log_upkeep.plan.checkpoint import ReplayCost, plan_checkpoint

TARGET_BYTES = 1 << 30
#: Files below three quarters of the target are small.
SMALL_BYTES = TARGET_BYTES * 3 // 4
#: Greatest part of deleted rows.
MAX_DELETED = 0.1
RETENTION_MS = 7 * 86_400_000


class TableFigures(Struct, frozen=True):
    """
    :param num_small: small files, of ``small_bytes``; the others are ``num_large`` files of ``large_bytes``.
    :param deleted: part of the rows of the large files that deletion vectors hide.
    :param tail_commits: commits after the newest checkpoint.
    :param expired: files of the log that a cleanup would delete.
    :param reclaimable: removed files, and their bytes, that VACUUM would delete; ``held_bytes`` are those of the retention.
    :param looks: looks at the store; ``None``: the store denied them.
    """

    num_small: int = 0
    small_bytes: int = 0
    num_large: int = 0
    large_bytes: int = 0
    deleted: float = 0.0
    tail_commits: int = 0
    expired: int = 0
    reclaimable: tuple[int, int] = (0, 0)
    held_bytes: int = 0
    looks: int | None = 1
    version: int = 1
    commits: tuple[CommitFact, ...] = ()
    last_runs: Mapping[str, LastRun] = {}
    refusals: Mapping[str, Refusal] = {}

    @property
    def _is_over(self) -> bool:
        return self.deleted > MAX_DELETED and self.num_large > 0

    def optimize(self) -> PlannedRewrite:
        num_files = self.num_small if self.num_small > 1 else 0
        num_bytes = self.small_bytes if self.num_small > 1 else 0
        live = num_bytes
        if self._is_over:
            num_files, num_bytes = num_files + self.num_large, num_bytes + self.large_bytes
            live += int(self.large_bytes * (1 - self.deleted))
        return _planned(num_files, self.num_small if self.num_small > 1 else 0, num_bytes, live)

    def purge(self) -> PlannedRewrite | None:
        if not self._is_over:
            return None
        return _planned(self.num_large, 0, self.large_bytes, int(self.large_bytes * (1 - self.deleted)))

    def surveyed(
        self,
        table: str,
        measured_ms: int,
        *,
        properties: Mapping[str, str] | None = None,
        partition_columns: tuple[str, ...] = (),
    ) -> SurveyedTable:
        """The table as a survey finds it."""
        rows = DeletedRows(1_000_000, int(1_000_000 * self.deleted), self.num_large, 0, 0, {})
        deleted = rows if rows.num_deleted_rows else None
        is_unsupported = "optimize" in self.refusals
        files = FileFacts(
            self.num_small + self.num_large,
            self.small_bytes + self.large_bytes,
            optimize=None if is_unsupported else self.optimize(),
            purge=None if is_unsupported else self.purge(),
            deleted=deleted,
            worst=deleted,
        )
        tail = ReplayCost(self.version, None, self.tail_commits, self.tail_commits * 1000)
        facts = HealthFacts(
            version=self.version,
            measured_ms=measured_ms,
            files=files,
            checkpoint=plan_checkpoint(tail, 10),
            compaction=None,
            log=LogFacts(0, self.expired + self.tail_commits, FileTotal(self.expired, self.expired * 1000)),
            removed=RemovedFiles(
                FileTotal(*self.reclaimable),
                FileTotal(*self.reclaimable),
                FileTotal(1, self.held_bytes),
                self.looks,
                measured_ms - RETENTION_MS,
            ),
            features=(),
            refusals=self.refusals,
            last_runs=self.last_runs,
            num_commits_read=len(self.commits),
            commits=self.commits,
        )
        return SurveyedTable(table, measured_ms, facts, properties or {}, partition_columns)


def _planned(num_files: int, num_merged: int, bytes_in: int, live_bytes: int) -> PlannedRewrite:
    num_outputs = -(-live_bytes // TARGET_BYTES)
    num_bins = 1 if num_files else 0
    return PlannedRewrite(
        num_bins, num_files, num_merged, bytes_in, num_outputs, live_bytes, TARGET_BYTES, SMALL_BYTES, 1
    )
