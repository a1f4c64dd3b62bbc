"""Runs an EXPIRE: chooses files, reads what statistics leave open, commits.

Each file is a group of the commit by itself. If another writer changes or removes a file meanwhile, that file is left out of the commit, and a
later run looks at it again. Rows that other writers append meanwhile are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from delta_log.errors import DeltaLogError
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation, writes_deletion_vectors
from delta_log.table_config.row_tracking import preserving_tags
from delta_log.transaction.commit_body import Change
from delta_log.transaction.conflict import RUN_TAG
from delta_log.transaction.transaction import CommitResult, Transaction, find_transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.errors import ExpiryRefused
from delta_maintenance.expire.expired_rows import ExpiredRowReader
from delta_maintenance.expire.options import ExpireOptions
from delta_maintenance.expire.plan.expiry_plan import (
    ExpiryPlan,
    WhollyExpired,
    age_column,
    choose_files,
    cutoff_value,
    require_expirable,
    require_feed,
)
from delta_maintenance.expire.removal import Removal, metrics_of, rewritten, whole_file, with_vectors
from delta_maintenance.job_context import JobContext
from delta_maintenance.optimize.commit.orphans import remove_orphans
from delta_maintenance.optimize.tasks import require_rewritable
from delta_maintenance.rewrite.bin import forget


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Remove the rows of a table that have expired.

    :raises InvalidRequest: the column cannot say how old a row is, or the table's properties do not let rows be removed in this way.
    :raises ExpiryRefused: more rows have expired than the options allow.
    :raises CommitFailed: another writer changed the schema, or every file concerned; nothing was removed.
    """
    options = ExpireOptions.from_mapping(spec.options)
    table = context.table
    snapshot = table.snapshot()
    context.saw(snapshot)
    table_features.require(snapshot.protocol, Operation.EXPIRE, snapshot.unused_features)
    identity = None if spec.transaction is None else (spec.transaction.app_id, spec.transaction.version)
    if identity is not None and not spec.dry_run:
        done = find_transaction(snapshot, table.storage, *identity)
        if done is not None:
            return context.report(
                spec, "already_done", snapshot.version, version=done, transaction=spec.transaction
            )
    plan = _plan(context, snapshot, options)
    facts = {"plan": plan.to_dict(), "transaction": spec.transaction}
    if spec.dry_run:
        return context.report(spec, "planned", snapshot.version, **facts)
    if plan.is_empty:
        return context.report(spec, "nothing_to_do", snapshot.version, **facts)
    result, metrics = _commit(spec, context, snapshot, plan, identity)
    if result.already_done:
        return context.report(spec, "already_done", snapshot.version, version=result.version, **facts)
    context.saw(result.snapshot, result.checkpointed)
    return context.report(
        spec, "committed", snapshot.version, version=result.version, metrics=metrics, **facts
    )


def _plan(context: JobContext, snapshot: Snapshot, options: ExpireOptions) -> ExpiryPlan:
    require_expirable(snapshot)
    column = age_column(snapshot, options.column or "")
    cutoff_ms = options.cutoff_ms(context.started_ms)
    choice = choose_files(snapshot, column, cutoff_ms)
    storage = context.table.storage
    reader = ExpiredRowReader(storage, column, cutoff_value(column, cutoff_ms), snapshot.mapping_mode)
    whole = [
        WhollyExpired(file, reader.count_live(file, num_records))
        for file, num_records in zip(choice.whole, choice.num_records, strict=True)
    ]
    read = [] if options.whole_files else list(reader.read(choice.read))
    plan = ExpiryPlan(
        column=column.name,
        cutoff_ms=cutoff_ms,
        whole=[
            *whole,
            *(WhollyExpired(found.partly.file, found.num_live) for found in read if found.are_all),
        ],
        partly=[found.partly for found in read if not found.are_all],
        num_files_not_read=len(choice.read) if options.whole_files else 0,
        by_vectors=writes_deletion_vectors(snapshot.protocol, snapshot.properties),
    )
    require_feed(snapshot, plan)
    if plan.partly and not plan.by_vectors:
        require_rewritable(snapshot, Operation.EXPIRE)
    if options.max_rows is not None and plan.num_expired_rows > options.max_rows:
        raise ExpiryRefused(plan.num_expired_rows, options.max_rows)
    return plan


# -- the commit --------------------------------------------------------------------------------------------------------


def _commit(
    spec: JobSpec,
    context: JobContext,
    snapshot: Snapshot,
    plan: ExpiryPlan,
    identity: tuple[str, int] | None,
) -> tuple[CommitResult, Mapping[str, int]]:
    storage = context.table.storage
    transaction = Transaction(storage, snapshot, Operation.EXPIRE, context.runtime)
    context.progress.message(
        f"removing {plan.num_expired_rows:,} rows: {len(plan.whole):,} files as a whole, rows of {len(plan.partly):,} others"
    )
    now_ms = context.runtime.now_ms()
    others = (
        with_vectors(context, plan.partly, now_ms)
        if plan.by_vectors
        else rewritten(context, snapshot, spec.run_id, plan.partly, now_ms)
    )
    removals = [*(whole_file(gone, now_ms) for gone in plan.whole), *others]
    change = Change(
        operation="DELETE",
        groups=[removal.group for removal in removals],
        parameters={"predicate": json.dumps([f"({plan.column} < '{plan.before}')"])},
        metrics=lambda kept: metrics_of([removals[number] for number in kept]),
        transaction=identity,
        writes_vectors=plan.by_vectors,
        tags={**spec.tags, **preserving_tags(snapshot.properties), RUN_TAG: spec.run_id},
    )
    result = transaction.commit(change)
    for number, conflict in result.dropped.items():
        path = removals[number].group.removes[0].path
        context.progress.message(f"left out {path}: {conflict}")
    _clean_up(context, removals, result)
    return result, metrics_of([made for number, made in enumerate(removals) if number not in result.dropped])


def _clean_up(context: JobContext, removals: Sequence[Removal], result: CommitResult) -> None:
    """Remove the manifests, and the new files of groups that were left out. The commit stands even if this fails."""
    storage = context.table.storage
    written = {number: made.manifest for number, made in enumerate(removals) if made.manifest is not None}
    lost = [made for number, made in written.items() if result.already_done or number in result.dropped]
    if not written:
        return
    try:
        forget(list(written.values()), storage)
        if lost:
            remove_orphans(lost, context.table.snapshot(), storage)
    except (DeltaLogError, OSError) as error:
        context.progress.message(f"left for another run or for VACUUM: {error}")
