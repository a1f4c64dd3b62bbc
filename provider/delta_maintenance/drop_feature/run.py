"""Runs a DROP FEATURE: plans on a fresh snapshot, does the first step, and plans again, until the protocol does not have the feature.

The commit that drops the feature rests on the whole table: a commit that changes rows meanwhile, schema, properties or protocol makes it fail, and
it is tried again. Before it comes a classic checkpoint, so that a reader that does not know the feature needs no older version; the commits since
that checkpoint must not need the feature either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import (
    CommitContention,
    ConcurrentAppend,
    ConcurrentDelete,
    MetadataChanged,
    ProtocolChanged,
    VersionNotFound,
)
from delta_log.log.actions import Remove
from delta_log.log.data_path import encode_path
from delta_log.log.log_segment import list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.conflict import RUN_TAG, WHOLE_RUN_TAG
from delta_log.transaction.file_actions import add_of_row
from delta_log.transaction.transaction import CommitResult, Transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.drop_feature.options import DropFeatureOptions
from delta_maintenance.drop_feature.plan.drop_plan import (
    CHECKPOINT,
    DROP,
    PROPERTIES,
    PURGE,
    REWRITE,
    ROW_IDS,
    VECTOR_FILES,
    DropPlan,
    Facts,
    Step,
    domains_after,
    is_protected,
    metadata_after,
    plan_drop,
    protocol_after,
    unnamed_vector_files,
)
from delta_maintenance.errors import FeatureKept
from delta_maintenance.job_context import JobContext
from delta_maintenance.optimize.dropped_columns import files_with_dropped_columns
from delta_maintenance.optimize.run import run as run_rewrite

#: How often a step is done before the run gives up, if other writers keep undoing it.
_MAX_ROUNDS = 3
#: Conflicts after which a step is planned again.
_CONFLICTS = (ConcurrentAppend, ConcurrentDelete, MetadataChanged, ProtocolChanged)


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Drop a feature from the protocol of a table.

    :raises FeatureKept: the feature cannot be dropped, or not while the table is as it is; the protocol was not changed.
    :raises CommitContention: other writers keep using the feature; what was done stays, and another run goes on.
    """
    feature = DropFeatureOptions.from_mapping(spec.options).feature
    assert feature is not None
    snapshot = context.table.snapshot()
    context.saw(snapshot)
    table_features.require(snapshot.protocol, Operation.DROP_FEATURE, snapshot.unused_features)
    first = plan_drop(snapshot, feature, _facts(context))
    if spec.dry_run:
        return context.report(spec, "planned", snapshot.version, plan=first.to_dict())
    if not first.steps:
        return context.report(spec, "nothing_to_do", snapshot.version, plan=first.to_dict())
    return _Run(spec, context, feature).finish(first, snapshot)


def _facts(context: JobContext, purged_version: int | None = None) -> Facts:
    listing = list_log(context.table.storage)
    versions = [*listing.commits, *(checkpoint.version for checkpoint in listing.checkpoints)]
    return Facts(min(versions, default=0), purged_version is not None)


class _Run(Struct):
    """One run, step by step.

    :ivar rounds: how often each kind of step was done.
    :ivar latest: the version of the last commit of this run.
    :ivar found_nothing: whether the last rewrite found nothing to do.
    :ivar purged_version: the version in which a PURGE found nothing to do; ``None``: none has.
    """

    spec: JobSpec
    context: JobContext
    feature: str
    rounds: Counter[str] = field(default_factory=Counter)
    latest: int | None = None
    found_nothing: bool = False
    purged_version: int | None = None

    def finish(self, plan: DropPlan, snapshot: Snapshot) -> JobReport:
        """Do all steps, beginning with a plan on a snapshot."""
        first, read_version = plan.to_dict(), snapshot.version
        while plan.steps:
            step = plan.steps[0]
            if self.rounds[step.kind] == _MAX_ROUNDS:
                raise CommitContention(
                    f"The step {step.kind!r} of dropping {self.feature} was done {_MAX_ROUNDS} times, and other writers undid it each time. "
                    "What was done stays in the log. Run again when they are quiet."
                )
            self.rounds[step.kind] += 1
            self.found_nothing = False
            self.context.progress.message(f"{step.kind}: {step.text}")
            ended = self._do(step, plan, snapshot)
            if ended is not None:
                return ended
            before, snapshot = snapshot.version, self.context.table.snapshot()
            plan = self._plan(snapshot)
            if self.found_nothing and snapshot.version == before and plan.steps[:1] == (step,):
                raise FeatureKept(
                    self.feature,
                    f"the step {step.kind!r} ({step.text}) found nothing that it can write anew",
                    "Copy the rows to a new table",
                )
        self.context.saw(snapshot)
        metrics = {"numSteps": sum(self.rounds.values())}
        return self.context.report(
            self.spec, "committed", read_version, version=self.latest, plan=first, metrics=metrics
        )

    def _plan(self, snapshot: Snapshot) -> DropPlan:
        return plan_drop(snapshot, self.feature, _facts(self.context, self.purged_version))

    def _do(self, step: Step, plan: DropPlan, snapshot: Snapshot) -> JobReport | None:
        """Do a step; return a report if the run ends with it."""
        if step.kind in (PURGE, REWRITE):
            return self._rewrite(step.kind)
        steps: Mapping[str, Callable[[Snapshot], None]] = {
            PROPERTIES: lambda read: self._set_properties(read, plan.properties),
            ROW_IDS: self._remove_row_ids,
            VECTOR_FILES: self._name_vector_files,
            CHECKPOINT: self._drop,
            DROP: self._drop,
        }
        steps[step.kind](snapshot)
        return None

    def _rewrite(self, kind: str) -> JobReport | None:
        operation, options = ("purge", {}) if kind == PURGE else ("optimize", {"full": True})
        spec = replace(
            self.spec,
            operation=operation,
            options=options,
            transaction=None,
            tags={**self.spec.tags, WHOLE_RUN_TAG: self.spec.run_id},
            # A run takes over what another try of it has done. Each round is a run of its own.
            run_id=f"{self.spec.run_id}-{kind}-{self.rounds[kind]}",
        )
        report = run_rewrite(spec, self.context)
        self.found_nothing = report.status == "nothing_to_do"
        if kind == PURGE and self.found_nothing:
            self.purged_version = report.read_version
        if report.status in ("committed", "nothing_to_do", "already_done"):
            self.latest = report.version if report.version is not None else self.latest
            return None
        return replace(report, operation=self.spec.operation, run_id=self.spec.run_id)

    # -- commits ---------------------------------------------------------------------------------------------------------

    def _commit(self, snapshot: Snapshot, operation: str, **facts: Any) -> CommitResult:
        change = Change(operation, tags={**self.spec.tags, RUN_TAG: self.spec.run_id}, **facts)
        transaction = Transaction(
            self.context.table.storage, snapshot, Operation.DROP_FEATURE, self.context.runtime
        )
        result = transaction.commit(change)
        self.latest = result.version
        return result

    def _set_properties(self, snapshot: Snapshot, properties: Mapping[str, str | None]) -> None:
        changed = {**snapshot.properties, **properties}
        left = {name: value for name, value in changed.items() if value is not None}
        self._commit(
            snapshot,
            "SET TBLPROPERTIES",
            parameters={"properties": dict(properties)},
            metadata=replace(snapshot.metadata, configuration=left),
        )

    def _remove_row_ids(self, snapshot: Snapshot) -> None:
        adds = [
            replace(add_of_row(row, data_change=False), baseRowId=None, defaultRowCommitVersion=None)
            for row in snapshot.files().to_pylist()
            if row["base_row_id"] is not None
        ]
        self._commit(
            snapshot,
            "ROW TRACKING UNBACKFILL",
            groups=[FileGroup([add]) for add in adds],
            parameters={"batchId": self.rounds[ROW_IDS] - 1},
        )

    def _name_vector_files(self, snapshot: Snapshot) -> None:
        now_ms = self.context.runtime.now_ms()
        removes = [
            Remove(path=encode_path(key), deletionTimestamp=now_ms, dataChange=False)
            for key in unnamed_vector_files(snapshot)
        ]
        self._commit(snapshot, "Deletion Vector Tombstones", groups=[FileGroup((), removes)])

    def _drop(self, read: Snapshot) -> None:
        """Write the checkpoint that is needed, and drop the feature on the version that is the latest then."""
        storage, latest = self.context.table.storage, read
        if is_protected(read.protocol, self.feature):
            written = write_checkpoint(storage, read, self.context.runtime, policy="classic")
            if written.policy != "classic":
                # V2 content has the name that the classic checkpoint of this version would have. The next version's name is free.
                self._commit(read, "EMPTY COMMIT")
                return
            latest = self.context.table.snapshot()
            if self._needs_feature_since(latest, read.version):
                return
        try:
            self._commit_drop(latest)
        except _CONFLICTS as error:
            self.context.progress.message(f"the protocol was not changed: {error}")

    def _needs_feature_since(self, latest: Snapshot, version: int) -> bool:
        changed = _changes_since(latest, version)
        return changed is None or any(
            files.column("deletion_vector").null_count < len(files) for files in changed
        )

    def _holds_dropped_columns(self, latest: Snapshot, version: int) -> bool:
        """Tell whether a file that was added since a version may hold columns that the table has dropped."""
        changed = _changes_since(latest, version)
        if changed is None:
            return True
        keys = changed[0].column("key").to_pylist()
        return any(True for _ in files_with_dropped_columns(self.context.table.storage, latest, keys))

    def _commit_drop(self, latest: Snapshot) -> None:
        if self.purged_version is not None and self._holds_dropped_columns(latest, self.purged_version):
            self.purged_version = None
        steps = self._plan(latest).steps
        if not steps or steps[0].kind not in (CHECKPOINT, DROP):
            return
        self._commit(
            latest,
            "DROP FEATURE",
            parameters={"featureName": self.feature, "truncateHistory": False},
            protocol=protocol_after(latest.protocol, self.feature),
            # Commits that change no rows may come between. The versions up to the drop need the feature, too.
            metadata=partial(metadata_after, latest, self.feature),
            domains=domains_after(latest, self.feature),
            whole_table=True,
        )


def _changes_since(latest: Snapshot, version: int) -> tuple[pa.Table, pa.Table] | None:
    """Return the files added and removed since a version; ``None``: a newer checkpoint stands for these commits."""
    try:
        return latest.changes_since(version)
    except VersionNotFound:
        return None
