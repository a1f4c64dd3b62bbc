"""What OPTIMIZE and REORG PURGE share as operators: which partitions, how much at a time, and how carefully."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.operators.base import DeltaJobOperator
from delta_maintenance.contract import BROKEN_SOURCES, HOT_PARTITIONS, VERIFICATIONS

_DIGEST_LENGTHS = range(12, 65)


def read_digest(name: str, value: Any) -> str:
    """Of a plan: the digest itself, the plan, or the report that holds it; or what a template makes of those."""
    found = arguments.plan_within(value)
    if isinstance(found, Mapping):
        found = found.get("digest")
    if (
        not isinstance(found, str)
        or len(found) not in _DIGEST_LENGTHS
        or not set(found) <= set("0123456789abcdef")
    ):
        raise ValueError(
            f"{name} is neither a plan nor the digest of one. Give the output of this operator with dry_run=True."
        )
    return found


class DeltaRewriteOperator(DeltaJobOperator):
    """Rewrites files of a Delta table, and no row changes.

    :param where: predicate on partition columns, such as ``day >= '2026-01-01'``: only these partitions. (templated)
    :param target_size: size of the files to be made, such as ``256MiB``; ``None``: the table's own. (templated)
    :param max_deleted_rows_ratio: files with more deleted rows than this share are rewritten. (templated)
    :param max_bytes: read no more than this in one run; the rest is left for the next, as with the two below. (templated)
    :param max_files: replace no more files than this in one run. (templated)
    :param max_duration: seconds after which nothing more is begun. (templated)
    :param batch_size: commit whenever so much was rewritten; ``None``: once, at the end. (templated)
    :param quiet_minutes: partitions that somebody wrote to so recently come last. (templated)
    :param hot_partitions: those come ``last``, or ``wait`` for another run. (templated)
    :param verify: ``counts``, or ``full``: read new files back and compare all columns. (templated)
    :param on_broken_source: where a file is missing or broken: ``fail``, or ``skip`` its bin and go on. (templated)
    :param remap: where somebody deletes rows of the files meanwhile, take that over by deletion vectors on the new ones;
        else those files are left as they are. (templated)
    :param output: with ``dry_run``, URI of a new file for the whole plan, one JSON object a line. (templated)
    :param approved_plan: output of a dry run that somebody has agreed to; if the plan is another one by now, nothing is
        done. (templated)
    """

    template_fields: Sequence[str] = (
        *DeltaJobOperator.template_fields,
        "where",
        "target_size",
        "max_deleted_rows_ratio",
        "max_bytes",
        "max_files",
        "max_duration",
        "batch_size",
        "quiet_minutes",
        "hot_partitions",
        "verify",
        "on_broken_source",
        "remap",
        "output_uri",
        "approved_plan",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
        "approved_plan": "json",
    }
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaJobOperator.arguments,
        "where": arguments.WHERE,
        "target_size": Argument("target_size", arguments.read_size),
        "max_deleted_rows_ratio": Argument("max_deleted_rows_ratio", arguments.read_ratio),
        "max_bytes": Argument("max_bytes", arguments.read_size),
        "max_files": Argument("max_files", arguments.read_count),
        "max_duration": Argument("max_duration", arguments.read_count),
        "batch_size": Argument("batch_size", arguments.read_size),
        "quiet_minutes": Argument("quiet_minutes", arguments.read_count),
        "hot_partitions": Argument("hot_partitions", arguments.read_one_of(HOT_PARTITIONS)),
        "verify": Argument("verify", arguments.read_one_of(VERIFICATIONS), absence="only rows are counted"),
        "on_broken_source": Argument("on_broken_source", arguments.read_one_of(BROKEN_SOURCES)),
        "remap": Argument("remap", arguments.read_switch, required=True),
        "output_uri": Argument("output", arguments.read_address),
        "approved_plan": Argument("approved_plan", read_digest, absence=arguments.NO_APPROVAL),
    }

    def __init__(  # noqa: PLR0913 - each is an option of its own, by keyword
        self,
        *,
        where: str | None = None,
        target_size: int | str | None = None,
        max_deleted_rows_ratio: float | str | None = None,
        max_bytes: int | str | None = None,
        max_files: int | str | None = None,
        max_duration: int | str | None = None,
        batch_size: int | str | None = None,
        quiet_minutes: int | str | None = None,
        hot_partitions: str | None = None,
        verify: str | None = None,
        on_broken_source: str | None = None,
        remap: bool | str = False,
        output: str | None = None,
        approved_plan: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.target_size = target_size
        self.max_deleted_rows_ratio = max_deleted_rows_ratio
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.max_duration = max_duration
        self.batch_size = batch_size
        self.quiet_minutes = quiet_minutes
        self.hot_partitions = hot_partitions
        self.verify = verify
        self.on_broken_source = on_broken_source
        self.remap = remap
        # An operator's `output` is the reference to its XCom.
        self.output_uri = output
        self.approved_plan = approved_plan

    def options(self) -> dict[str, Any]:
        options = {
            "where": self.value_of("where"),
            "target_size_bytes": self.value_of("target_size"),
            "max_deleted_rows_ratio": self.value_of("max_deleted_rows_ratio"),
            "max_bytes": self.value_of("max_bytes"),
            "max_files": self.value_of("max_files"),
            "max_duration_seconds": self.value_of("max_duration"),
            "batch_size_bytes": self.value_of("batch_size"),
            "quiet_minutes": self.value_of("quiet_minutes"),
            "hot_partitions": self.value_of("hot_partitions"),
            "verify": self.value_of("verify"),
            "on_broken_source": self.value_of("on_broken_source"),
            "remap": self.value_of("remap") or None,
            "output": self.value_of("output_uri"),
            "approved_digest": self.value_of("approved_plan"),
            **self.own_options(),
        }
        return {name: value for name, value in options.items() if value is not None}

    def own_options(self) -> dict[str, Any]:
        """Those that the other operators of this kind do not have."""
        return {}
