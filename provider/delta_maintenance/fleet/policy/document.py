"""The policy as its file says it.

Every member may be left out: :mod:`~delta_maintenance.fleet.policy.settings` says what holds then. The types below are the policy's
definition: its JSON Schema and the reference in the documentation are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from delta_maintenance.fleet.policy.calendar import FreezeDay, Window
from delta_maintenance.fleet.policy.quantities import ByteSize, Number, Period, Reports, Share, TableLimit

_Positive = Annotated[float, Meta(gt=0)]
_NotNegative = Annotated[float, Meta(ge=0)]
_Text = Annotated[str, Meta(min_length=1)]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A mapping of the policy. A member that it does not know is an error."""


class Tables(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tables of the fleet.

    :param include: addresses, patterns such as ``s3://lake/**``, and namespaces of catalogs such as ``glue://sales.*`` and ``uc://prod.*``.
    :param exclude: patterns of tables that are left out.
    """

    include: tuple[_Text, ...] = ()
    exclude: tuple[_Text, ...] = ()


class Healthy(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The wanted state of a table, in the findings of ``health``.

    :param small_files: most files that OPTIMIZE would merge.
    :param deleted_rows: greatest part of deleted rows in any partition.
    :param reclaimable: greatest size of removed files that VACUUM may delete, as a part of the live bytes.
    :param checkpoint: ``due``: a table without a checkpoint that is due is unhealthy. ``ignore``: checkpoints are left to others.
    :param log_files: most files of the log that may be older than its retention and not needed.
    """

    small_files: Number | None = None
    deleted_rows: Share | None = None
    reclaimable: Share | None = None
    checkpoint: Literal["due", "ignore"] | None = None
    log_files: Number | None = None


class Trust(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a table is changed, and not only reported.

    :param new_table: ``report``: nothing is done to a table before ``after``. ``auto``: it is maintained from the first run on.
    :param after: number of nights that report a table before ``then`` holds. Where ``window`` is ``always``, each run is a night.
    :param then: what follows the reports.
    :param deletions: VACUUM and cleanup of the log: ``auto``: they run once they were announced in a report. ``approve``: a person
        approves each. ``never``: they are only reported.
    """

    new_table: Literal["report", "auto"] | None = None
    after: Reports | None = None
    then: Literal["auto", "report"] | None = None
    deletions: Literal["auto", "approve", "never"] | None = None


class Failures(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What follows a failure.

    :param stop_after: number of failures of one operation on one table, one after the other, after which it is left alone until the
        table changes.
    :param retry: time after a failure before the next try; it doubles with each further failure, up to 7 days.
    """

    stop_after: Annotated[int, Meta(ge=1)] | None = None
    retry: Period | None = None


class TableDisruption(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much other writers of a table may notice.

    :param failed_statements: statements of other writers that may fail because of us. With 0, a rewrite of a table whose writers delete,
        update or merge rows waits for a gap between their statements before it commits, and takes over deletions of rows; else it commits
        at once.
    :param quiet: partitions that were written to within this time are left alone.
    """

    failed_statements: Number | None = None
    quiet: Period | None = None


class Freeze(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Days on which nothing is changed.

    :param on: the day at whose beginning the freeze begins: ``last-workday`` or ``first-workday`` of the month, a weekday, a date, or
        month and day of every year.
    :param length: its length; ``for`` in the file.
    :param why: reason, which reports repeat.
    """

    on: FreezeDay
    length: Period = field(name="for")
    why: _Text


class AtOnce(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much is done at the same time.

    :param tables: most tables at the same time.
    """

    tables: TableLimit | None = None


class Disruption(TableDisruption, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much others may notice.

    :param at_once: most tables at the same time.
    :param freeze: days on which nothing is changed.
    """

    at_once: AtOnce | None = None
    freeze: tuple[Freeze, ...] = ()


class Budget(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of one window. Work that might exceed one is not begun.

    :param read: bytes of data files that are read.
    :param worker_hours: hours of one processor.
    :param requests: requests to stores.
    :param cost: money, in the currency of ``prices``.
    """

    read: ByteSize | None = None
    worker_hours: _Positive | None = None
    requests: Number | None = None
    cost: _Positive | None = None


class Prices(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Prices in one currency of your choice.

    :param gib_read: price of reading one GiB from the store.
    :param gib_month: price of keeping one GiB for a month.
    :param vcpu_hour: price of one processor for an hour.
    :param requests_1000: price of a thousand requests.
    :param healthy_table: worth of one table that becomes healthy. It orders the work: the more it is, the more tables become
        healthy for a budget; with 0, money that queries and storage save counts alone.
    """

    gib_read: _NotNegative
    gib_month: _NotNegative
    vcpu_hour: _NotNegative
    requests_1000: _NotNegative
    healthy_table: _NotNegative = 10.0


class KnownBroken(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that is known to be broken: it is reported, and does not make a run fail.

    :param until: last day on which this holds.
    :param why: reason, or the number of a ticket.
    """

    until: date
    why: _Text


class Match(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tables of a rule: all conditions hold.

    :param path: pattern of the table's address.
    :param property: property of the table, as ``name = value``, or a name alone: the table has it.
    """

    path: _Text | None = None
    property: _Text | None = None


class TableRules(_Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of tables, as a whole policy or one of its rules gives them.

    :param enabled: ``false``: the tables are surveyed and reported, never changed.
    :param healthy: the wanted state.
    :param within: longest time after which a table that became unhealthy is healthy again.
    :param window: time of the day in which tables are maintained.
    :param trust: when a table is changed, and not only reported.
    :param failures: what follows a failure.
    :param owner: person or team that is told.
    :param priority: weight of the tables: 100 doubles the value of their work, 200 quadruples it; from -1000 to 1000.
    :param target_size: size of new files; default: the table's ``delta.targetFileSize``, else 1 GiB.
    :param retain: time for which VACUUM keeps removed files, if that is longer than the retention of the table.
    :param other_maintainer: ``report``: a table that another program maintains is not touched. ``maintain``: it is.
    :param reads_per_day: how often the tables are read a day; default: as often as they are written to.
    """

    enabled: bool | None = None
    healthy: Healthy | None = None
    within: Period | None = None
    window: Window | None = None
    trust: Trust | None = None
    failures: Failures | None = None
    owner: _Text | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    target_size: ByteSize | None = None
    retain: Period | None = None
    other_maintainer: Literal["report", "maintain"] | None = None
    reads_per_day: _NotNegative | None = None


class Rule(TableRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of some tables. Of the rules that match a table, the last that gives a setting wins.

    :param match: the tables of the rule.
    :param disruption: how much other writers of the tables may notice.
    """

    match: Match
    disruption: TableDisruption | None = None


class Policy(TableRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file. An empty policy is a good one.

    :param version: version of the format; 1.
    :param tables: the tables of the fleet.
    :param disruption: how much others may notice.
    :param budget: limits of one window.
    :param prices: prices, for which reports show money, and work is ordered by it.
    :param jitter: greatest delay before a table is begun, so that many do not begin at the same moment.
    :param known_broken: tables that are known to be broken, by address.
    :param properties: ``careful``: properties of a table make it more careful, never less. ``obey``: they hold as they are.
    :param rules: settings of some tables.
    """

    version: Literal[1] = 1
    tables: Tables = Tables()
    disruption: Disruption | None = None
    budget: Budget = Budget()
    prices: Prices | None = None
    jitter: Period | None = None
    known_broken: Mapping[_Text, KnownBroken] = {}
    properties: Literal["careful", "obey"] = "careful"
    rules: tuple[Rule, ...] = ()
