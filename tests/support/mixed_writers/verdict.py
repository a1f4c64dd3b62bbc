"""Judges a table that many writers wrote to: compares its log with what readers see and what writers were told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.table import Table
from delta_log.transaction.commit_body import ENGINE_INFO
from tests.support import ROOT
from tests.support.mixed_writers.fleet import Journal, Order, Writer, environment_of

#: What a reader finds in a version: number of rows, and sum of their ids.
Rows = tuple[int, int]
Reader = Callable[[Sequence[int]], dict[int, Rows]]


@dataclass(slots=True)
class Verdict:
    """The counts that the campaign prints.

    :ivar failed_yet_committed: by writer, commits in the log that the writer was told had failed.
    :ivar rebased_over: by operation, commits that came between a compaction's read and its commit.
    :ivar lost_bins: by the writer of their rows, bins dropped from a compaction or lost with a failed one.
    :ivar versions_read: by reader.
    """

    versions: int
    rows: int
    commits: dict[str, int]
    failures: dict[str, dict[str, int]]
    failed_yet_committed: dict[str, int]
    rebased_commits: int
    rebased_over: dict[str, int]
    lost_bins: dict[str, int]
    remapped_bins: int
    versions_read: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        lines = [f"{self.versions} versions, {self.rows} rows at the end"]
        for name, count in self.commits.items():
            failed = _counted(self.failures.get(name, {}))
            late = self.failed_yet_committed.get(name, 0)
            lines.append(
                f"{name}: {count} commits"
                + (f"; conflicts, tried again: {failed}" if name in self.failures else "")
                + (f"; reported as failed, yet committed: {late}" if late else "")
            )
        lines.append(
            f"ours: {self.rebased_commits} commits rebased over {_counted(self.rebased_over)}; "
            f"lost bins with rows of {_counted(self.lost_bins)}; {self.remapped_bins} bins took deletions over"
        )
        lines += [f"read by {name}: {count} versions" for name, count in self.versions_read.items()]
        return lines

    def require(self, *, may_lose: Collection[str] = (), remaps: bool = False) -> Verdict:
        """Checks the counts against what compactions promise, and returns this verdict.

        :param may_lose: the writers that delete rows: bins with their rows may be lost. An append never loses a bin.
        :param remaps: compactions apply the deletions of others to their new files, and did so at least once.
        :raises AssertionError: a promise is broken, or the fleet did not put it to the test.
        """
        lines = "\n".join(self.lines())
        assert self.rebased_over, f"no writer committed during a compaction\n{lines}"
        assert set(self.lost_bins) <= set(may_lose), f"bins were lost that must not be\n{lines}"
        assert self.remapped_bins or not remaps, f"no bin took deletions over\n{lines}"
        return self


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "none"


def judge(table: Table, journals: Mapping[str, Journal], readers: Mapping[str, Reader]) -> Verdict:
    """Compares the log with what its writers were told, and every version with what each reader finds in it.

    :raises AssertionError: a commit is lost, doubled or overwritten, or a reader sees other rows than were committed.
    """
    expected, operations, told, ours = serial_history(table)
    entries = {name: journal.read() for name, journal in journals.items()}
    late: Counter[str] = Counter()
    for name, tries in entries.items():
        for entry in tries:
            operation = (name, entry["op"])
            if "version" in entry:
                assert entry["version"] in ours, (
                    f"{name} was told it committed version {entry['version']}, which is another writer's"
                )
            elif "failed" in entry:
                late[name] += operation in told
            else:
                assert operation in told, f"{operation} was acknowledged, and it is not in the log"
    known = {(name, entry["op"]) for name, tries in entries.items() for entry in tries}
    assert told <= known, f"no writer made {sorted(told - known)}"
    mine = [entry for tries in entries.values() for entry in tries if "version" in entry]
    assert sorted(entry["version"] for entry in mine) == sorted(ours)
    result = Verdict(
        versions=len(expected),
        rows=expected[-1][0],
        commits={name: sum("failed" not in entry for entry in tries) for name, tries in entries.items()},
        failures={
            name: dict(Counter(entry["failed"].partition(":")[0] for entry in tries if "failed" in entry))
            for name, tries in entries.items()
            if any("failed" in entry for entry in tries)
        },
        failed_yet_committed=dict(late),
        rebased_commits=sum(entry["rebased"] > 0 for entry in mine),
        rebased_over=Counter(
            operation
            for entry in mine
            for operation in operations[entry["version"] - entry["rebased"] : entry["version"]]
        ),
        lost_bins=Counter(
            whose for tries in entries.values() for entry in tries for whose in entry.get("lost", ())
        ),
        remapped_bins=sum(entry["remapped"] for entry in mine),
    )
    for name, reader in readers.items():
        seen = reader(range(len(expected)))
        wrong = {v: (seen.get(v), rows) for v, rows in enumerate(expected) if seen.get(v) != rows}
        assert not wrong, f"{name} reads other rows than were committed (version: seen, committed): {wrong}"
        result.versions_read[name] = len(seen)
    return result


def serial_history(table: Table) -> tuple[list[Rows], list[str], set[tuple[str, int]], set[int]]:
    """Reads the log: rows and operation of each version, the (writer, op) of other writers' commits, and our versions."""
    state: set[int] = set()
    expected, operations, told, ours = [], [], set(), set()
    for version in range(list_log(table.storage).latest + 1):
        lines = table.storage.read(commit_key(version)).splitlines()
        info = next(json.loads(line)["commitInfo"] for line in lines if b'"commitInfo"' in line)
        operations.append(info["operation"])
        if info.get("engineInfo") == ENGINE_INFO:
            ours.add(version)
        text = info.get("told") or info.get("userMetadata")
        if text:
            what = json.loads(text)
            operation = (what["writer"], what["op"])
            assert operation not in told, (
                f"{operation} is in the log twice, the second time in version {version}"
            )
            told.add(operation)
            added, deleted = set(range(*what.get("add", (0, 0)))), set(what.get("delete", ()))
            assert not added & state
            assert deleted <= state
            state = (state | added) - deleted
        expected.append((len(state), sum(state)))
    return expected, operations, told, ours


def read_by_us(uri: str, options: Mapping[str, Any]) -> Reader:
    def read(versions: Sequence[int]) -> dict[int, Rows]:
        table = Table(uri, options)

        def rows_of(version: int) -> Rows:
            ids = table.snapshot(version=version).to_arrow(columns=["id"])["id"].to_pylist()
            return len(ids), sum(ids)

        # Reading small files is mostly waiting.
        with ThreadPoolExecutor(8) as pool:
            return dict(zip(versions, pool.map(rows_of, versions), strict=True))

    return read


def read_by_delta_rs(uri: str, options: Mapping[str, str]) -> Reader:
    def read(versions: Sequence[int]) -> dict[int, Rows]:
        from deltalake import DeltaTable, QueryBuilder

        seen = {}
        for version in versions:
            table = DeltaTable(uri, version=version, storage_options=dict(options))
            answer = QueryBuilder().register("t", table).execute("SELECT count(*) AS n, sum(id) AS s FROM t")
            row = answer.read_all()
            seen[version] = (row["n"][0].as_py(), row["s"][0].as_py() or 0)
        return seen

    return read


def read_by_delta_spark(writer: Writer, directory: Path) -> Reader:
    """Reads in a process of its own, with the settings of a writer."""

    def read(versions: Sequence[int]) -> dict[int, Rows]:
        directory.mkdir(parents=True, exist_ok=True)
        order = Order(writer, 0, 1, len(versions), str(directory))
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.mixed_writers.spark_reader", order.to_json()],
            cwd=ROOT,
            env=environment_of(writer),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return {row["version"]: (row["rows"], row["sum"]) for row in map(json.loads, lines)}

    return read
