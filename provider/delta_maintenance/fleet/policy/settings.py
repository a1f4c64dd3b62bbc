"""The settings of one table: what holds for it, and which line of the policy says so.

Four levels are laid over each other; of each setting the last one that gives it holds: the defaults, the policy's own members, the rules
that match the table in the order of the file, and at last the table's properties, which by default can only make it more careful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.pattern import matches
from delta_maintenance.fleet.policy.calendar import Window
from delta_maintenance.fleet.policy.document import Match, Policy, Rule, TableRules
from delta_maintenance.fleet.policy.quantities import ByteSize, Number, Period, Reports, Share
from delta_maintenance.fleet.policy.reading import Path, WrittenPolicy
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.options import Size

#: The greatest limit that a reading takes.
_MOST_BYTES = Size().highest
#: How the names of properties begin with which a table speaks for itself.
PROPERTY_PREFIX = "delta-maintenance."


class Settings(Struct, frozen=True):
    """What holds for one table. Each member is one of :data:`SETTINGS`, which says what it means.

    :param origins: place that set each member, by its name: ``fleet.yaml:12``, ``default``, or a property of the table.
    """

    enabled: bool
    small_files: int
    deleted_rows: float
    reclaimable: float
    checkpoint: str
    log_files: int
    within_ms: int
    window: Window
    quiet_ms: int
    failed_statements: int
    new_table: str
    after_reports: int
    then: str
    deletions: str
    stop_after: int
    retry_ms: int
    priority: int
    other_maintainer: str
    owner: str | None = None
    target_size_bytes: int | None = None
    retain_ms: int | None = None
    reads_per_day: float | None = None
    origins: Mapping[str, str] = {}

    @property
    def reading_options(self) -> HealthOptions:
        """The options on which a reading of the table depends; what they leave out is judged afterwards."""
        return HealthOptions(deleted_rows_ratio=self.deleted_rows, target_size_bytes=self.target_size_bytes)

    def health_options(self, size_bytes: int) -> HealthOptions:
        """The limits of a reading of health.

        :param size_bytes: size of the live files.
        """
        return HealthOptions(
            small_files=max(1, self.small_files),
            deleted_rows_ratio=self.deleted_rows,
            reclaimable_bytes=min(int(self.reclaimable * size_bytes), _MOST_BYTES),
            expired_log_files=max(1, self.log_files),
            target_size_bytes=self.target_size_bytes,
        )


class Setting(NamedTuple):
    """One row of the settings.

    :ivar name: member of :class:`Settings`.
    :ivar path: path of the member in the policy, and in a rule.
    :ivar default: value without a policy; ``None``: the setting has none.
    """

    name: str
    path: tuple[str, ...]
    default: Any = None


SETTINGS = (
    Setting("enabled", ("enabled",), True),
    Setting("small_files", ("healthy", "small_files"), Number(100)),
    Setting("deleted_rows", ("healthy", "deleted_rows"), Share(0.1)),
    Setting("reclaimable", ("healthy", "reclaimable"), Share(0.3)),
    Setting("checkpoint", ("healthy", "checkpoint"), "due"),
    Setting("log_files", ("healthy", "log_files"), Number(100)),
    Setting("within_ms", ("within",), Period.of("24h")),
    Setting("window", ("window",), Window.of("always")),
    Setting("quiet_ms", ("disruption", "quiet"), Period.of("15m")),
    Setting("failed_statements", ("disruption", "failed_statements"), Number(0)),
    Setting("new_table", ("trust", "new_table"), "report"),
    Setting("after_reports", ("trust", "after"), Reports(3)),
    Setting("then", ("trust", "then"), "auto"),
    Setting("deletions", ("trust", "deletions"), "approve"),
    Setting("stop_after", ("failures", "stop_after"), 3),
    Setting("retry_ms", ("failures", "retry"), Period.of("1h")),
    Setting("priority", ("priority",), 0),
    Setting("other_maintainer", ("other_maintainer",), "report"),
    Setting("owner", ("owner",)),
    Setting("target_size_bytes", ("target_size",)),
    Setting("retain_ms", ("retain",)),
    Setting("reads_per_day", ("reads_per_day",)),
)
#: Of a policy alone.
DEFAULT_JITTER = Period.of("30m")


class _Word(NamedTuple):
    """How a table's own property gives a setting.

    :ivar read: reads the text of the property.
    :ivar is_careful: whether a value is at least as careful as another.
    """

    read: Callable[[str], Any]
    is_careful: Callable[[Any, Any], bool]


_DELETIONS = ("auto", "approve", "never")


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _deletions(text: str) -> str:
    if text not in _DELETIONS:
        raise ValueError(f"{text!r} is not one of {', '.join(_DELETIONS)}")
    return text


#: By the name of the property without its prefix: the setting, and how it is read. Other names are for the policy's rules to match.
TABLE_WORDS: dict[str, tuple[str, _Word]] = {
    "enabled": ("enabled", _Word(_switch, lambda own, theirs: not own)),
    "deletions": (
        "deletions",
        _Word(_deletions, lambda own, theirs: _DELETIONS.index(own) >= _DELETIONS.index(theirs)),
    ),
    "retain": ("retain_ms", _Word(Period.of, lambda own, theirs: own >= (theirs or 0))),
    "quiet": ("quiet_ms", _Word(Period.of, lambda own, theirs: own >= theirs)),
    "target-size": ("target_size_bytes", _Word(ByteSize.of, lambda own, theirs: True)),
}


def settings_of(written: WrittenPolicy, table: str, properties: Mapping[str, str]) -> Settings:
    """
    :param table: address of the table.
    :param properties: properties of the table.
    """
    found: dict[str, Any] = {row.name: row.default for row in SETTINGS}
    origins = dict.fromkeys(found, "default")
    for path, rules in _levels(written.policy, table, properties):
        for row in SETTINGS:
            value = _member(rules, row.path)
            if value is not None:
                found[row.name] = value
                origins[row.name] = written.place((*path, *row.path))
    for name, value, origin in _own_words(written.policy, found, properties):
        found[name], origins[name] = value, origin
    return Settings(**found, origins=origins)


def _levels(policy: Policy, table: str, properties: Mapping[str, str]) -> Iterator[tuple[Path, TableRules]]:
    yield (), policy
    for number, rule in enumerate(policy.rules):
        if does_match(rule.match, table, properties):
            yield ("rules", number), rule


def _member(rules: TableRules | Rule, path: tuple[str, ...]) -> Any:
    found: Any = rules
    for name in path:
        found = None if found is None else getattr(found, name)
    return found


def does_match(match: Match, table: str, properties: Mapping[str, str]) -> bool:
    """Whether all conditions of a rule hold for a table."""
    if match.path is not None and not matches(match.path, table):
        return False
    if match.property is None:
        return True
    name, is_compared, value = match.property.partition("=")
    own = properties.get(name.strip())
    return own is not None and (not is_compared or own == value.strip())


def _own_words(
    policy: Policy, found: Mapping[str, Any], properties: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    """The settings that the table's properties give: name, value and origin."""
    for word, (name, kind) in TABLE_WORDS.items():
        text = properties.get(PROPERTY_PREFIX + word)
        if text is None:
            continue
        origin = f"property {PROPERTY_PREFIX}{word}"
        try:
            value = kind.read(text.strip())
        except ValueError as error:
            raise InvalidRequest(
                f"The table's {origin} cannot be read: {error}. Set it anew, or unset it."
            ) from None
        if policy.properties == "obey" or kind.is_careful(value, found[name]):
            yield name, value, origin
