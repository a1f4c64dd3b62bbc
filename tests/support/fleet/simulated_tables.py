"""A model of many tables under writes and maintenance, hour by hour: figures alone, no files.

Tables are of five kinds and three patterns of arrival, as in the Cloud Analytics Benchmark: constant, daily (by day more than by night) and
bursty. All columns are arrays with a value for each table. Traffic depends on the seed and the hour alone, so it is the same under every
maintenance. Readers come as often as writers, times a random factor that nobody is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from delta_maintenance.fleet.decision.due import is_own
from delta_maintenance.health.facts import CommitFact
from delta_maintenance.units import DAY_MS
from tests.support.fleet.table_figures import MAX_DELETED, SMALL_BYTES, TARGET_BYTES, TableFigures

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]

MAX_SMALL_FILES = 100
KINDS = ("append", "upsert", "overwrite", "streaming", "dead")
_SHARES = (0.35, 0.2, 0.15, 0.1, 0.2)
#: Commits a day, and bytes of a new file: medians by kind, of log-normal distributions.
_COMMITS = {"append": 6.0, "upsert": 8.0, "overwrite": 1.0, "streaming": 200.0, "dead": 0.0}
_FILE_BYTES = {"append": 16e6, "upsert": 8e6, "overwrite": 32e6, "streaming": 1e6, "dead": 8e6}
_PATTERNS = ("constant", "daily", "bursty")
#: Files of one commit: quantiles of the 188 commits with ``WRITE`` in the corpus of real logs, whose median is 1 and greatest 20, and
#: commits of many tasks, which the corpus does not have.
_FILES_OF_COMMIT = (1, 1, 1, 2, 4, 20, 40)
_RETENTION_DAYS = 7
_KNOWN_COMMITS = 10
_ENGINE = "Apache-Spark/4.0"
assert not is_own(_ENGINE)


@dataclass(slots=True)
class Traits:
    """What does not change about each table.

    :ivar commits: commits a day; ``reads`` are queries a day.
    :ivar file_bytes: size of a new file.
    :ivar touched: part of the rows that an upsert replaces.
    """

    kind: npt.NDArray[np.int64]
    pattern: npt.NDArray[np.int64]
    commits: Floats
    reads: Floats
    files: Floats
    file_bytes: Floats
    touched: Floats
    is_partitioned: Masks
    seed: int

    @classmethod
    def drawn(cls, count: int, seed: int) -> Traits:
        rng = np.random.default_rng(seed)
        kind = rng.choice(len(KINDS), count, p=_SHARES)
        spread = rng.lognormal(0, 1, count)
        commits = np.array([_COMMITS[name] for name in KINDS])[kind] * np.minimum(spread, 20)
        files = rng.choice(_FILES_OF_COMMIT, count).astype(float)
        files[kind == KINDS.index("overwrite")] *= 10
        files[kind == KINDS.index("streaming")] = 1
        return cls(
            kind=kind,
            pattern=rng.integers(0, len(_PATTERNS), count),
            commits=commits,
            reads=np.maximum(commits, 1 / 30) * rng.lognormal(0, 1, count),
            files=files,
            file_bytes=np.array([_FILE_BYTES[name] for name in KINDS])[kind] * rng.lognormal(0, 1, count),
            touched=np.minimum(rng.lognormal(np.log(5e-4), 1, count), 0.05),
            is_partitioned=rng.random(count) < 0.5,
            seed=seed,
        )

    def is_kind(self, name: str) -> Masks:
        return np.asarray(self.kind == KINDS.index(name))

    def commits_in(self, hour: int) -> Floats:
        """The commits of an hour."""
        rng = np.random.default_rng((self.seed, hour))
        burst = np.where(
            np.random.default_rng((self.seed, hour // 24, 1)).random(len(self.kind)) < 0.1, 10.0, 0.0
        )
        by_day = 1 + 0.9 * np.sin((hour % 24 - 8) / 24 * 2 * np.pi)
        factor = np.choose(self.pattern, [np.ones_like(burst), np.full_like(burst, by_day), burst])
        return np.asarray(rng.poisson(self.commits / 24 * factor), float)


class SimulatedTables:
    """The state of all tables.

    :ivar small: number of small files, of ``small_bytes``; the others have ``large_bytes``.
    :ivar deleted: part of the rows of large files that vectors hide.
    :ivar removed: bytes removed on each of the last days of the retention, the newest first.
    :ivar unhealthy_hours: hours in which a table had too many small files or deleted rows, so far.
    """

    def __init__(self, traits: Traits) -> None:
        rng = np.random.default_rng(traits.seed + 1)
        count = len(traits.kind)
        self.traits = traits
        self.small = rng.integers(0, 400, count).astype(float)
        self.small_bytes = self.small * traits.file_bytes
        self.large_bytes = rng.lognormal(np.log(20e9), 1.5, count) // TARGET_BYTES * TARGET_BYTES
        self.large_bytes[traits.is_kind("overwrite")] = 0
        self.deleted = np.zeros(count)
        self.removed = np.zeros((_RETENTION_DAYS, count))
        self.version = np.full(count, 10.0)
        self.commits_of_day = np.zeros(count)
        self.unhealthy_hours = np.zeros(count)

    @property
    def is_unhealthy(self) -> Masks:
        return (self.small > MAX_SMALL_FILES) | self.is_over

    @property
    def is_over(self) -> Masks:
        return (self.deleted > MAX_DELETED) & (self.large_bytes >= TARGET_BYTES)

    def write(self, hour: int) -> None:
        """What writers do in an hour."""
        traits, commits = self.traits, self.traits.commits_in(hour)
        if hour % 24 == 0:
            self.removed = np.roll(self.removed, 1, axis=0)
            self.removed[0] = 0
            self.commits_of_day[:] = 0
        replaced = traits.is_kind("overwrite") & (commits > 0)
        self.removed[0] += np.where(replaced, self.small_bytes + self.large_bytes, 0)
        for column in (self.small, self.small_bytes, self.large_bytes):
            column[replaced] = 0
        files = np.where(replaced, 1, commits) * traits.files
        self.small += files
        self.small_bytes += files * traits.file_bytes
        upserts = np.where(traits.is_kind("upsert"), commits, 0)
        self.deleted = 1 - (1 - self.deleted) * (1 - traits.touched) ** upserts
        self.version += commits
        self.commits_of_day += commits
        self.unhealthy_hours += self.is_unhealthy

    def read_bytes(self) -> Floats:
        """What OPTIMIZE would read of each table."""
        small = np.where(self.small >= 2, self.small_bytes, 0)
        return small + np.where(self.is_over, self.large_bytes, 0)

    def rewrite(
        self, tables: npt.NDArray[np.int64], part: Floats, merges: Masks
    ) -> tuple[Floats, Floats, Floats]:
        """Run OPTIMIZE, which also rewrites the files with too many deleted rows, or a purge of these alone.

        :param part: the part of its work that each run does.
        :param merges: whether a run is an OPTIMIZE.
        :return: bytes that are read, and files and bytes that queries no longer read.
        """
        merged = part * (merges & (self.small[tables] >= 2))
        small, small_bytes = self.small[tables] * merged, self.small_bytes[tables] * merged
        over = np.where(self.is_over[tables], self.large_bytes[tables] * part, 0)
        freed = over * self.deleted[tables]
        whole, rest = np.divmod(small_bytes, TARGET_BYTES)
        is_small = (rest > 0) & (rest < SMALL_BYTES)
        outputs = whole + (rest > 0)
        self.removed[0][tables] += small_bytes + over
        self.small[tables] += is_small - small
        self.small_bytes[tables] += np.where(is_small, rest, 0) - small_bytes
        self.large_bytes[tables] += small_bytes - np.where(is_small, rest, 0) - freed
        self.deleted[tables] *= np.where(over > 0, 1 - part, 1)
        self.version[tables] += 1
        return small_bytes + over, np.maximum(small - outputs, 0), freed

    def figures(self, table: int, now_ms: int) -> TableFigures:
        """One table as a survey finds it."""
        known = int(min(self.commits_of_day[table], _KNOWN_COMMITS))
        between_ms = DAY_MS / max(self.commits_of_day[table], 1)
        version = int(self.version[table])
        return TableFigures(
            num_small=int(self.small[table]),
            small_bytes=int(self.small_bytes[table]),
            num_large=int(self.large_bytes[table] // TARGET_BYTES),
            large_bytes=int(self.large_bytes[table]),
            deleted=float(self.deleted[table]),
            held_bytes=int(self.removed[:, table].sum()),
            version=version,
            commits=tuple(
                CommitFact(version - n, int(now_ms - (n + 0.5) * between_ms), "WRITE", _ENGINE)
                for n in range(known)
            ),
        )
