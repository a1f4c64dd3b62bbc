"""The options of OPTIMIZE and of REORG PURGE, checked before any file is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_maintenance.contract import (
    AFTER_MAX_WAIT,
    BROKEN_SOURCES,
    COMMIT_MOMENTS,
    HOT_PARTITIONS,
    LAYOUTS,
    REWRITES,
    VERIFICATIONS,
)
from delta_maintenance.layout.layout import ZORDER
from delta_maintenance.options import (
    DRY_RUN,
    ENGINE,
    EXECUTOR_CREDENTIALS,
    HOW_TO_RUN,
    MEMORY_LIMIT,
    NO_APPROVAL,
    PARALLELISM,
    WHERE_ABSENCE,
    Choice,
    Columns,
    Count,
    NewFile,
    Operation,
    Option,
    Options,
    PlanDigest,
    Predicate,
    Ratio,
    Size,
    Switch,
    minutes,
    option,
    seconds,
    table_of,
)

_WHAT = "what to rewrite"
_LAYOUT = "how to divide rows between files, so that queries skip most files"
_ONLY_PACKED = "files would be put together without the layout, for which to leave the argument out"
_WRITERS = "beside other writers"
_HOW_MUCH = "how much in one run; the rest is left for the next run"
_DEFAULT_RATIO = 0.05
_MAX_WAIT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class OptimizeOptions(Options):
    """What to rewrite, how far, and with how much care.

    :param purge: REORG PURGE: take out deleted rows and dropped columns, whatever the size of a file.
    """

    where: str | None = option(
        Predicate(),
        "rewrite only partitions for which this SQL predicate on partition columns is true",
        otherwise="every partition",
        group=_WHAT,
        absence=WHERE_ABSENCE,
    )
    target_size_bytes: int | None = option(
        Size(),
        "size of the new files",
        otherwise="the table's delta.targetFileSize, else 1GiB",
        group=_WHAT,
        flag="--target-size",
        argument="target_size",
    )
    # A minimum equal to the target would rewrite nearly full files again and again.
    min_file_size_bytes: int | None = option(
        Size(lowest=0),
        "compact files that are smaller than this",
        otherwise="3/4 of the target size",
        group=_WHAT,
        flag="--min-file-size",
        argument="min_file_size",
    )
    max_file_size_bytes: int | None = option(
        Size(),
        "split files that are larger than this into files of the target size",
        otherwise="no file is split",
        group=_WHAT,
        flag="--max-file-size",
        argument="max_file_size",
    )
    max_deleted_rows_ratio: float | None = option(
        Ratio(),
        "rewrite files with a greater part of deleted rows, even a single file",
        otherwise=str(_DEFAULT_RATIO),
        group=_WHAT,
    )
    full: bool = option(
        Switch(),
        "rewrite every selected file, except those that an earlier run wrote with the same settings",
        default=False,
        group=_WHAT,
    )
    zorder_by: tuple[str, ...] | None = option(
        Columns(),
        "put rows with like values of these columns into the same files, along a Z-order curve",
        otherwise="no Z-order",
        group=_LAYOUT,
        absence=_ONLY_PACKED,
    )
    layout: str | None = option(
        Choice(LAYOUTS),
        "kd, hilbert or zorder: put rows with like values of the columns of `by` into the same files, by a tree of quantiles or "
        "along a curve; pack: only put small files together",
        otherwise="a clustered table is clustered, any other is packed",
        group=_LAYOUT,
        absence=_ONLY_PACKED,
    )
    by: tuple[str, ...] | None = option(
        Columns(),
        "the columns of `layout`",
        group=_LAYOUT,
        absence=_ONLY_PACKED,
    )
    seal_size_bytes: int | None = option(
        Size(),
        "in a clustered table, leave groups of files alone that are clustered and larger than this",
        otherwise="100GiB, as in Spark",
        group=_LAYOUT,
        flag="--seal-size",
        argument="seal_size",
    )
    own_cubes: bool = option(
        Switch(),
        "cluster a table for ourselves: OPTIMIZE of Delta Lake on Spark leaves the new files alone, unless it is FULL",
        default=False,
        group=_LAYOUT,
    )
    max_bytes: int | None = option(
        Size(),
        "read at most this much in one run; what removes most files for its bytes goes first",
        otherwise="no limit",
        group=_HOW_MUCH,
        absence="there is no limit, for which to write 1PiB",
    )
    max_files: int | None = option(
        Count("files", lowest=2),
        "replace at most this many files in one run",
        otherwise="no limit",
        group=_HOW_MUCH,
        absence="there is no limit, for which to write 1000000000",
    )
    max_duration_seconds: int | None = option(
        seconds(),
        "begin no bin after this time; bins that have begun are finished and committed",
        otherwise="no limit",
        group=_HOW_MUCH,
        flag="--max-duration",
        argument="max_duration",
        absence="there is no limit, for which to write 100000000",
    )
    quiet_minutes: int | None = option(
        minutes(),
        "a partition is hot if it was written to within this time",
        otherwise="no partition is hot",
        group=_HOW_MUCH,
        absence="partitions are rewritten while others write to them",
    )
    hot_partitions: str = option(
        Choice(HOT_PARTITIONS),
        "last: rewrite hot partitions last; wait: leave them for another run",
        default="last",
        group=_HOW_MUCH,
        absence="hot partitions are rewritten in this run, for which to write last",
    )
    batch_size_bytes: int | None = option(
        Size(),
        "commit each time this much has been rewritten",
        otherwise="one commit, at the end",
        group=HOW_TO_RUN,
        flag="--batch-size",
        argument="batch_size",
    )
    rewrite: str = option(
        Choice(REWRITES),
        "auto: copy large row groups as bytes where nothing in them changes; copy: small ones, too; encode: none",
        default="auto",
        group=HOW_TO_RUN,
    )
    verify: str = option(
        Choice(VERIFICATIONS),
        "counts: compare row counts; full: read the new files back and compare all columns, too",
        default="counts",
        group=HOW_TO_RUN,
        absence="only rows are counted",
    )
    on_broken_source: str = option(
        Choice(BROKEN_SOURCES),
        "where a file is missing or broken, fail, or skip its bin and go on",
        default="fail",
        group=HOW_TO_RUN,
    )
    remap: bool = option(
        Switch(),
        "where others delete rows meanwhile, delete them in the new files, too; else the bin is left out",
        default=False,
        group=_WRITERS,
    )
    commit_when: str = option(
        Choice(COMMIT_MOMENTS),
        "gap: hold finished bins back until few statements of other writers are in flight; now: commit at once",
        default="now",
        group=_WRITERS,
        absence="statements of other writers may fail because of the commit, for which to write now",
    )
    max_wait_seconds: int | None = option(
        seconds(),
        "with commit_when=gap, wait at most this long",
        otherwise="600",
        group=_WRITERS,
        flag="--max-wait",
        argument="max_wait",
    )
    after_max_wait: str = option(
        Choice(AFTER_MAX_WAIT),
        "then commit anyway; or leave the bins to the next try of the run, and fail",
        default="commit",
        group=_WRITERS,
        absence="bins are committed when no gap came in time, for which to write commit",
    )
    output: str | None = option(
        NewFile(),
        "with a dry run, write the whole plan to this new file, one JSON object a line",
        group=HOW_TO_RUN,
        # An operator's `output` is the reference to its XCom.
        attribute="output_uri",
    )
    approved_digest: str | None = option(
        PlanDigest(),
        "the plan of a dry run that was approved; refuse where the plan is another one by now",
        group=HOW_TO_RUN,
        flag="--approved",
        argument="approved_plan",
        absence=NO_APPROVAL,
    )
    purge: bool = False

    @property
    def deleted_rows_ratio(self) -> float:
        """The ratio that holds: the given one, else 0 for a purge and 0.05 for OPTIMIZE."""
        if self.max_deleted_rows_ratio is not None:
            return self.max_deleted_rows_ratio
        return 0.0 if self.purge else _DEFAULT_RATIO

    @property
    def looks_for_dropped_columns(self) -> bool:
        """Whether the footer of every file has to be read, for columns that the table has dropped."""
        return self.purge and self.max_deleted_rows_ratio is None

    @property
    def max_wait_ms(self) -> int:
        """How long finished bins may wait for a gap."""
        return 1000 * (_MAX_WAIT_SECONDS if self.max_wait_seconds is None else self.max_wait_seconds)

    @property
    def sorts(self) -> str | None:
        """The kind of layout that the request asks for; ``None``: none, or whatever the table says."""
        if self.zorder_by is not None:
            return ZORDER
        return None if self.layout == "pack" else self.layout

    def __post_init__(self) -> None:
        # Spelt out, since a class with slots is made anew by its decorator.
        Options.__post_init__(self)
        if self.commit_when == "now" and (
            self.max_wait_seconds is not None or self.after_max_wait != "commit"
        ):
            raise InvalidRequest(
                "max_wait and after_max_wait are for commit_when='gap', and commit_when is 'now': bins are committed as soon as they "
                "are finished. Leave them out, or wait for a gap."
            )
        if self.zorder_by is not None and (self.by is not None or self.layout not in (None, ZORDER)):
            raise InvalidRequest(
                "zorder_by is layout='zorder' with its columns. Give it alone, or layout and by."
            )
        if self.zorder_by is None and (self.sorts is None) != (self.by is None):
            raise InvalidRequest(
                f"layout is {self.layout or 'not given'}, and by {'is not' if self.by is None else 'is'} given. Give the "
                "columns together with layout='zorder', 'hilbert' or 'kd', and for no other layout."
            )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any], *, purge: bool = False) -> OptimizeOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown, or has a value of a wrong kind.
        """
        return cls.from_spec(PURGE if purge else OPTIMIZE, raw, purge=purge)


_SETTINGS = (DRY_RUN, ENGINE, PARALLELISM, EXECUTOR_CREDENTIALS, MEMORY_LIMIT)

OPTIMIZE = Operation(
    "optimize",
    "compact small files, purge deleted rows",
    table_of(OptimizeOptions),
    _SETTINGS,
    is_resumable=True,
)


def _of_purge(row: Option) -> Option | None:
    """A row of OPTIMIZE for a purge, which chooses files by what is in them, not by their size."""
    if row.name in ("min_file_size_bytes", "max_file_size_bytes", "full") or row.group == _LAYOUT:
        return None
    if row.name == "max_deleted_rows_ratio":
        return replace(
            row,
            help="rewrite only files with a greater part of deleted rows, and look for no dropped columns",
            otherwise="every file with a deletion or a dropped column",
        )
    return row


PURGE = Operation(
    "purge",
    "take deleted rows and dropped columns out of the files that hold them",
    tuple(row for row in map(_of_purge, OPTIMIZE.options) if row is not None),
    _SETTINGS,
    is_resumable=True,
)
