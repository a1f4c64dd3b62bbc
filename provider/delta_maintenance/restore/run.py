"""Runs a RESTORE: finds the version, plans, checks that its files are there, commits.

The commit rests on the whole table: a commit of another writer that changes rows, schema, properties or protocol meanwhile makes it fail,
and nothing is restored over it. Files that VACUUM has deleted are named before anything is written, and looked for once more after the
commit, since a VACUUM may have run beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from delta_log.errors import InvalidRequest
from delta_log.log.actions import Action, Add, Remove, decode_commit
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.clustering import CLUSTERING_DOMAIN
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.conflict import RUN_TAG, WHOLE_RUN_TAG
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.errors import LiveFilesMissing, RestoreRefused
from delta_maintenance.job_context import JobContext
from delta_maintenance.restore.options import RestoreTableOptions
from delta_maintenance.restore.plan.nearest_version import Step, nearest_whole_version
from delta_maintenance.restore.plan.restore_plan import RestorePlan, keys_of, plan_restore


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Restore an earlier version of a table.

    :raises InvalidRequest: the version cannot be restored, or the run to undo has made no commit or is not the last to change the table.
    :raises RestoreRefused: files of the version are gone.
    :raises CommitFailed: another writer changed the table meanwhile; nothing was restored.
    :raises LiveFilesMissing: the commit stands, and a VACUUM deleted files of it meanwhile.
    """
    options = RestoreTableOptions.from_mapping(spec.options)
    table = context.table
    latest = table.snapshot()
    table_features.require(latest.protocol, Operation.RESTORE, latest.unused_features)
    done = None if spec.dry_run else context.version_of_an_earlier_try(spec, latest)
    if done is not None:
        return context.report(
            spec, "already_done", latest.version, version=done, transaction=spec.transaction
        )
    target = _target(table, latest, options)
    plan = plan_restore(latest, target, context.runtime.now_ms())
    table_features.require(plan.protocol or latest.protocol, Operation.RESTORE, latest.unused_features)
    _require_files(table, plan)
    if spec.dry_run:
        return context.report(spec, "planned", latest.version, plan=plan.to_dict())
    if plan.is_empty:
        context.saw(latest)
        return context.report(spec, "nothing_to_do", latest.version, plan=plan.to_dict())
    table.storage.require_writable()
    context.progress.message(
        f"restoring version {plan.version}: {len(plan.adds)} files are added again, {len(plan.removes)} removed"
    )
    change = _change(plan, spec, options)
    result = Transaction(table.storage, latest, Operation.RESTORE, context.runtime).commit(change)
    context.saw(result.snapshot, result.checkpointed)
    missing = _missing(table.storage, _keys(plan.adds, table.uri))
    if missing:
        raise LiveFilesMissing(result.version, sorted(missing))
    return context.report(
        spec,
        "already_done" if result.already_done else "committed",
        latest.version,
        version=result.version,
        transaction=spec.transaction,
        metrics=plan.metrics,
        plan=plan.to_dict(),
    )


def _change(plan: RestorePlan, spec: JobSpec, options: RestoreTableOptions) -> Change:
    asked = {"version": plan.version} if options.to_timestamp is None else {"timestamp": options.to_timestamp}
    return Change(
        operation="RESTORE",
        groups=[FileGroup(plan.adds, plan.removes)] if plan.adds or plan.removes else [],
        parameters=asked,
        metrics=plan.metrics,
        transaction=spec.piece_of_work,
        tags={**spec.tags, RUN_TAG: spec.run_id},
        protocol=plan.protocol,
        metadata=plan.metadata,
        domains=plan.domains,
        whole_table=True,
        rests_on_domains=frozenset({CLUSTERING_DOMAIN}),
    )


# -- the version -----------------------------------------------------------------------------------------------------


def _target(table: Table, latest: Snapshot, options: RestoreTableOptions) -> Snapshot:
    if options.undo_run is not None:
        return table.snapshot(_version_before(table.storage, latest.version, options.undo_run))
    return table.snapshot(options.to_version, options.moment)


def _version_before(storage: Storage, latest: int, run_id: str) -> int:
    """Return the version before the first commit of a run.

    :raises InvalidRequest: the log holds no commit of the run, the run made the table, or others have changed the table since.
    """
    first: int | None = None
    others: list[int] = []
    changed_since: list[int] = []
    for version, actions in _commits(storage, sorted(list_log(storage).commits, reverse=True)):
        if version > latest:
            continue
        if _is_of_run(actions, run_id):
            first, changed_since = version, list(others)
        elif _changes_table(actions):
            others.append(version)
    if first is None:
        raise InvalidRequest(
            f"The log of this table holds no commit of a run {run_id}. The report of the run names it."
        )
    if changed_since:
        raise InvalidRequest(
            f"Run {run_id} cannot be undone alone: its first commit is version {first}, and version {changed_since[-1]} changed the table after "
            f"it, which would be undone as well. If that is meant, restore version {first - 1} by to_version."
        )
    if not first:
        raise InvalidRequest(f"Run {run_id} made the table: there is no version before version 0.")
    return first - 1


def _commits(storage: Storage, versions: Sequence[int]) -> Iterator[tuple[int, list[Action]]]:
    keys = [commit_key(version) for version in versions]
    for version, key, body in zip(versions, keys, storage.read_many(keys), strict=True):
        yield version, decode_commit(body, key)


def _is_of_run(actions: Sequence[Action], run_id: str) -> bool:
    infos = [action.commitInfo for action in actions if action.commitInfo is not None]
    tags = [info.get("tags") for info in infos]
    return any(
        isinstance(found, dict) and run_id in (found.get(RUN_TAG), found.get(WHOLE_RUN_TAG)) for found in tags
    )


def _changes_table(actions: Sequence[Action]) -> bool:
    return any(
        action.add or action.remove or action.metaData or action.protocol or action.domainMetadata
        for action in actions
    )


# -- the files -------------------------------------------------------------------------------------------------------


def _keys(files: Sequence[Add | Remove], table_uri: str) -> frozenset[str]:
    return frozenset(key for file in files for key in keys_of(file, table_uri))


def _missing(storage: Storage, keys: Collection[str]) -> set[str]:
    asked = sorted(keys)
    return {key for key, info in zip(asked, storage.head_many(asked), strict=True) if info is None}


def _require_files(table: Table, plan: RestorePlan) -> None:
    """
    :raises RestoreRefused: files to be added again are gone.
    """
    storage = table.storage
    missing = _missing(storage, _keys(plan.adds, table.uri))
    if not missing:
        return
    listing = list_log(storage)
    earliest = max(listing.earliest, min(listing.commits, default=0))
    before = _steps(storage, range(plan.version, earliest, -1), forwards=False)
    after = _steps(storage, range(plan.version + 1, plan.read_version), forwards=True)

    def find_missing(keys: Collection[str]) -> set[str]:
        return _missing(storage, keys)

    raise RestoreRefused(
        plan.version,
        sorted(missing),
        nearest_whole_version(missing, before, find_missing),
        nearest_whole_version(missing, after, find_missing),
    )


def _steps(storage: Storage, versions: range, *, forwards: bool) -> Iterator[Step]:
    """Yield a step for each commit.

    :param versions: versions of the commits; backwards, a step leads to the version before its commit.
    """
    for version, actions in _commits(storage, versions):
        added = _keys([action.add for action in actions if action.add is not None], storage.uri)
        removed = _keys([action.remove for action in actions if action.remove is not None], storage.uri)
        if forwards:
            yield Step(version, removed - added, added - removed)
        else:
            yield Step(version - 1, added - removed, removed - added)
