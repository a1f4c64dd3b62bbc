"""What a rewrite chose and left, in lines for people, from the member ``selection`` of a report or a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from delta_maintenance.units import counted, format_bytes

#: Why a file was chosen, by the reasons of a plan.
CHOSEN_WORDS = {
    "small": "small",
    "deleted_rows": "with deleted rows",
    "deleted_rows_unknown": "with an unknown number of deleted rows",
    "full": "not written under the present settings",
    "dropped_columns": "with dropped columns",
    "large": "above the maximum size",
    "layout": "not laid out yet, or together with such files",
}
#: Why a file was left.
LEFT_WORDS = {
    "large_enough": "large enough",
    "up_to_date": "written under the present settings",
    "clean": "without deleted rows or dropped columns to purge",
    "below_ratio": "with fewer deleted rows than the ratio asks for",
    "alone": "small, but no other small file is in their partition",
    "too_large_together": "small, but above the target size together with any other file of their partition",
    "unmatched": "small, but too different in size from the others to be worth merging",
    "left_over": "small, but the files that would fit are merged without them",
    "laid_out": "laid out already",
    "sealed": "in sealed cubes of the clustering",
    "clustered": "clustered, which packing would undo",
    "clustered_otherwise": "clustered by other columns or another provider; full clusters them anew",
    "hot": "in partitions that are being written to",
    "over_budget": "beyond the budget of this run",
    "outside_where": "outside of the predicate",
    "undecided": "with a partition value that cannot be read and the predicate needs",
    "foreign": "outside of the table's directory",
    "finished": "finished by an earlier try",
}


def chosen_text(selection: Mapping[str, Any]) -> str:
    """Say which files were chosen, and why: ``422 of 5,000 files, 1.2 GiB, in 6 bins of 4 partitions: 400 small, …``."""
    chosen = selection["chosen"]
    within = f" of {counted(chosen['partitions'], 'partition')}" if chosen["partitions"] else ""
    reasons = ", ".join(_chosen_for(selection, name, count) for name, count in chosen["by_reason"].items())
    return (
        f"{chosen['files']:,} of {counted(selection['files'], 'file')}, {format_bytes(chosen['bytes'])}, in "
        f"{counted(chosen['bins'], 'bin')}{within}: {reasons}"
    )


def _chosen_for(selection: Mapping[str, Any], reason: str, count: int) -> str:
    words = f"{count:,} {CHOSEN_WORDS.get(reason, reason)}"
    if reason == "small":
        words += f" (below {format_bytes(selection['small_below_bytes'])})"
    return words


def left_rows(selection: Mapping[str, Any]) -> Iterator[tuple[str, int, int, str]]:
    """Yield reason, files, bytes and words of what was left."""
    for reason, count in selection["left"].items():
        yield reason, count["files"], count["bytes"], LEFT_WORDS.get(reason, reason)


def left_text(selection: Mapping[str, Any]) -> str:
    """Say which files were left, and why; empty if none was: ``4,578 files, 796.0 GiB: 4,500 large enough; …``.

    Finished ones are not left to be done; :func:`taken_over_text` tells of them.
    """
    rows = [row for row in left_rows(selection) if row[0] != "finished"]
    if not rows:
        return ""
    files, size = sum(row[1] for row in rows), sum(row[2] for row in rows)
    reasons = "; ".join(f"{count:,} {words}" for _, count, _, words in rows)
    return f"{counted(files, 'file')}, {format_bytes(size)}: {reasons}"


def taken_over_text(earlier: Mapping[str, int], bins_to_do: int) -> str:
    """Say what earlier tries of the run had finished: ``6 of 10 bins were finished by an earlier try (240 files, 1.0 GiB)``.

    :param bins_to_do: number of bins that this try has to do.
    """
    total = earlier["bins"] + bins_to_do
    verb = "was" if earlier["bins"] == 1 else "were"
    return (
        f"{earlier['bins']:,} of {counted(total, 'bin')} {verb} finished by an earlier try "
        f"({counted(earlier['files'], 'file')}, {format_bytes(earlier['bytes'])})"
    )
