"""Runs GENERATE: reads the manifests that exist, writes those that differ, and deletes those of partitions without files.

Each manifest is replaced as a whole, new ones before old ones go. A run that dies leaves some manifests of the earlier version; its
repetition writes the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from delta_log.storage.storage import KeySpan, Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.generate.options import GenerateOptions
from delta_maintenance.generate.plan import CHECKSUM, DIRECTORY, NAME, ManifestPlan, manifests, plan_manifests
from delta_maintenance.job_context import JobContext
from delta_maintenance.partitions.partition_scope import PartitionScope


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Write the manifests of the latest version.

    :raises InvalidRequest: readers of manifests could not read the table rightly, or the predicate cannot be used.
    """
    options = GenerateOptions.from_mapping(spec.options)
    storage, snapshot = context.table.storage, context.table.snapshot()
    table_features.require(snapshot.protocol, Operation.READ)
    scope = None if options.where is None else PartitionScope.of(snapshot, options.where)
    wanted = manifests(snapshot, None if scope is None else scope.predicate)
    keys = _listed(storage)
    existing = _in_scope([key for key in keys if _name(key) == NAME], scope)
    bodies = dict(zip(existing, storage.read_many(existing), strict=True))
    plan = plan_manifests(snapshot.version, wanted, bodies)
    context.saw(snapshot)
    if spec.dry_run:
        return context.report(spec, "planned", snapshot.version, plan=plan.to_dict())
    if plan.is_empty:
        return context.report(spec, "nothing_to_do", snapshot.version, plan=plan.to_dict())
    storage.require_writable()
    _execute(storage, plan, keys)
    return context.report(spec, "written", snapshot.version, metrics=plan.metrics, plan=plan.to_dict())


def _listed(storage: Storage) -> list[str]:
    """List the keys of all files below the directory of manifests."""

    def enter(directories: Sequence[str]) -> Collection[str]:
        return directories

    pages = storage.list_part(KeySpan(f"{DIRECTORY}/", deep=True), enter)
    return sorted(key for page in pages for key in page.names())


def _in_scope(keys: Sequence[str], scope: PartitionScope | None) -> list[str]:
    if scope is None:
        return list(keys)
    directories = [key.removeprefix(f"{DIRECTORY}/").rpartition("/")[0] for key in keys]
    return [key for key, answer in zip(keys, scope.contains(directories), strict=True) if answer]


def _execute(storage: Storage, plan: ManifestPlan, listed: Sequence[str]) -> None:
    changed = {_directory(key) for key in (*plan.writes, *plan.deletes)}
    storage.delete([key for key in listed if _name(key) == CHECKSUM and _directory(key) in changed])
    for key, content in plan.writes.items():
        storage.put(key, content)
    storage.delete(plan.deletes)
    if storage.has_directories:
        for key in plan.deletes:
            _remove_empty(storage, _directory(key))


def _remove_empty(storage: Storage, directory: str) -> None:
    while directory != DIRECTORY and storage.remove_dir(directory):
        directory = _directory(directory)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _directory(key: str) -> str:
    return key.rpartition("/")[0]
