"""Runs a repair: lists the table, looks up what the listing does not show, plans, and commits on request.

The snapshot is read before the listing, and each file that the listing does not show is asked for by its name. The commit names the
files that it removes, so it fails where another writer has changed one of them meanwhile.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import InvalidRequest
from delta_log.log.data_path import are_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.properties import flag
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.conflict import RUN_TAG
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.errors import PlanChanged, RepairRefused
from delta_maintenance.job_context import JobContext
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import list_key_hashes
from delta_maintenance.listing.sorted_keys import KeyHashes
from delta_maintenance.plan_file import PlanFile
from delta_maintenance.repair.options import RepairOptions
from delta_maintenance.repair.plan import RepairPlan, plan_repair
from delta_maintenance.vacuum.plan.protected_files import keys_with_vectors


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Report missing files, and take them out of the log if the spec asks for it.

    :raises RepairRefused: no live file at all is there; this seems to be another place than the table's.
    :raises InvalidRequest: the table only allows appends.
    :raises PlanChanged: the plan is not the approved one.
    :raises CommitFailed: another writer changed one of the files meanwhile; nothing was committed.
    """
    options = RepairOptions.from_mapping(spec.options)
    table = context.table
    snapshot = table.snapshot()
    table_features.require(snapshot.protocol, Operation.REPAIR, snapshot.unused_features)
    done = None if spec.dry_run else context.version_of_an_earlier_try(spec, snapshot)
    if done is not None:
        return context.report(
            spec, "already_done", snapshot.version, version=done, transaction=spec.transaction
        )
    plan_file = None if options.output is None else PlanFile.of(options.output, table.storage_at)
    plan = _plan(table.storage, snapshot, options, context)
    if plan_file is not None:
        plan_file.write(plan.lines())
    context.saw(snapshot)
    facts = {"transaction": spec.transaction, "plan": plan.to_dict()}
    if not plan.damaged:
        return context.report(spec, "nothing_to_do", snapshot.version, **facts)
    _require_allowed(snapshot, plan, options)
    if spec.dry_run or not options.remove_missing or plan.is_empty:
        return context.report(spec, "planned", snapshot.version, **facts)
    table.storage.require_writable()
    result = Transaction(table.storage, snapshot, Operation.REPAIR, context.runtime).commit(
        _change(plan, spec)
    )
    context.saw(result.snapshot, result.checkpointed)
    status = "already_done" if result.already_done else "committed"
    return context.report(
        spec, status, snapshot.version, version=result.version, metrics=plan.metrics, **facts
    )


def _plan(storage: Storage, snapshot: Snapshot, options: RepairOptions, context: JobContext) -> RepairPlan:
    listed = list_key_hashes(storage, HiddenNames.of(snapshot), context.progress)
    unlisted, num_external = _unlisted(snapshot, listed)
    infos = storage.head_many(unlisted)
    absent = {key for key, info in zip(unlisted, infos, strict=True) if info is None}
    return plan_repair(snapshot, absent, num_external, options.lost_vectors, context.runtime.now_ms())


def _unlisted(snapshot: Snapshot, listed: KeyHashes) -> tuple[list[str], int]:
    """Return the keys of live files and deletion vectors below the root that are not listed, and the number of data files outside.

    The files are streamed: a table may have millions, and few are missing.
    """
    unlisted: set[str] = set()
    num_external = 0
    for batch in snapshot.file_batches(["key", "deletion_vector"]):
        files = pa.Table.from_batches([batch])
        num_external += int(pc.sum(are_external(files.column("key"))).as_py())
        keys = keys_with_vectors(files, snapshot.table_uri)
        keys = keys.filter(pc.invert(are_external(keys)))
        unlisted.update(keys.filter(listed.absent(keys)).to_pylist())
    return sorted(unlisted), num_external


def _require_allowed(snapshot: Snapshot, plan: RepairPlan, options: RepairOptions) -> None:
    """
    :raises RepairRefused: no live file at all is there.
    :raises InvalidRequest: the table only allows appends.
    :raises PlanChanged: the plan is not the approved one.
    """
    if plan.num_missing == plan.num_files:
        raise RepairRefused(plan.version, plan.num_files, plan.damaged[0].row["path"])
    if plan.removes and options.remove_missing and flag(snapshot.properties, "delta.appendOnly"):
        raise InvalidRequest(
            f"A repair would remove {len(plan.removes)} files, and delta.appendOnly allows no commit to remove rows. Set delta.appendOnly to "
            "false first."
        )
    approved = options.approved_digest
    if approved is not None and not plan.digest.startswith(approved):
        raise PlanChanged(approved, plan.digest)


def _change(plan: RepairPlan, spec: JobSpec) -> Change:
    return Change(
        # The name that Databricks gives to this statement.
        operation="FSCK",
        groups=[FileGroup(plan.adds, plan.removes)],
        parameters={"dryRun": False},
        metrics=plan.metrics,
        transaction=spec.piece_of_work,
        tags={**spec.tags, RUN_TAG: spec.run_id},
    )
