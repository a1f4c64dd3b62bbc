"""A policy is read strictly: every mistake is told with its line, its reason and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.policy.reading import policy_of, read_policy

WHOLE = """\
version: 1
tables:   {include: ["s3://lake/**", "glue://sales.*"], exclude: ["**/tmp_*"]}
healthy:  {small_files: 100, deleted_rows: 10%, reclaimable: 30%, checkpoint: due}
within:   24h
window:   "22:00-06:00 Europe/Berlin"
budget:   {read: 5TiB, worker_hours: 40, requests: 2M, cost: 30}
disruption: {failed_statements: 0, quiet: 15m, at_once: {tables: 10%}, freeze: [{on: last-workday, for: 2d, why: month-end}]}
trust:    {new_table: report, after: 3 reports, then: auto, deletions: approve}
failures: {stop_after: 3, retry: 1h}
known_broken: {"s3://lake/ops/x": {until: 2027-01-15, why: TICKET-17}}
prices:   {gib_read: 0.0004, gib_month: 0.023, vcpu_hour: 0.05, requests_1000: 0.005}
rules:
  - {match: {path: "s3://lake/gold/**"}, owner: bi@example.org, priority: 100, target_size: 512MiB}
  - {match: {property: "delta-maintenance.tier = hot"}, within: 1h}
"""

#: A bad policy, the line of the mistake, and what the message says of reason and remedy.
BAD = {
    "healthy:\n  small_file: 3": (2, "no member 'small_file' of healthy", "Did you mean 'small_files'"),
    "healty: {small_files: 3}": (1, "no member 'healty'", "Did you mean 'healthy'"),
    "healthy:\n  deleted_rows: 10": (2, "10 is not a share", "10%"),
    "healthy: [1]": (1, "must be a mapping", "The wanted state"),
    "within: 24": (1, "the unit is needed", "24h"),
    "within: 0h": (1, "no table is healthy at every moment", "such as 24h"),
    "window: 22:00-06:00 Europe/Berln": (1, "'Europe/Berln' is not a time zone", "Europe/Berlin"),
    "window: 25:00-06:00 UTC": (1, "no clock shows", "from 00:00 to 23:59"),
    "window: 06:00-06:00 UTC": (1, "begins and ends at the same time", "always"),
    "budget:\n  read: 5 TB/s": (2, "not a size", "5TiB"),
    "budget:\n  cost: 3": (2, "cannot be known without prices", "Add prices"),
    "budget: {requests: -1}": (1, "not a number", "2M"),
    "budget: {worker_hours: 0}": (1, "> 0", "Hours of one processor"),
    "rules:\n  - {owner: bi}": (2, "'match' is missing", "members are"),
    "rules:\n  - {match: {path: a}}": (2, "sets nothing", "leave the rule out"),
    "rules:\n  - {match: {}, owner: bi}": (2, "matches nothing", "Give a path or a property"),
    "within: 1h\nwithin: 2h": (2, "stands twice, first in line 1", "Leave one of the two out"),
    "trust: {deletions: aprove}": (1, "no choice 'aprove'", "approve: a person approves each"),
    "trust: {new_table: auto, after: 3 reports}": (1, "new tables are maintained at once", "Leave after out"),
    "known_broken: {'s3://a/b': {until: 2027-02-31, why: x}}": (1, "not a date", "such as 2027-01-15"),
    "disruption: {freeze: [{on: sometimes, for: 2d, why: x}]}": (1, "is not a day", "last-workday"),
    "disruption: {at_once: {tables: 0}}": (1, "neither a share", "10%"),
    "prices: {gib_read: 1}": (1, "'gib_month' is missing", "members are"),
    "version: 2": (1, "no choice 2", "Version of the format"),
    "tables: {exclude: ['**/x']}": (1, "none is included", "Add include"),
    "tables: {include: s3://lake}": (1, "a list", "Addresses"),
    "priority: 5000": (1, "<= 1000", "Weight of the tables"),
    "failures: {retry: 0m}": (1, "repeat a failure at once", "Write 1h"),
    "x: &a 1\ny: *a": (1, "used again", "Write the value out"),
    "within: 1:30": (1, "base of 60", "into quotes"),
    "within: !!python/object:os.system 1h": (1, "has the tag", "Leave the tag out"),
    "a: [": (1, "not YAML", "indentation"),
    "- a": (1, "must be a mapping", ""),
}


def test_a_whole_policy_is_read() -> None:
    policy = read_policy(WHOLE, "fleet.yaml").policy
    assert policy.tables.include == ("s3://lake/**", "glue://sales.*")
    assert policy.healthy is not None
    assert (policy.healthy.deleted_rows, policy.healthy.small_files) == (0.1, 100)
    assert policy.budget.read == 5 << 40
    assert policy.budget.requests == 2_000_000
    assert policy.within == 24 * 3_600_000
    assert policy.rules[0].target_size == 512 << 20
    assert [rule.priority for rule in policy.rules] == [100, None]


@pytest.mark.parametrize("text", ["", "# nothing\n", "version: 1", "{}"])
def test_an_empty_policy_is_a_policy(text: str) -> None:
    assert read_policy(text, "fleet.yaml").policy == policy_of({}).policy


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_is_told_with_line_reason_and_remedy(text: str) -> None:
    line, reason, remedy = BAD[text]
    with pytest.raises(InvalidRequest) as caught:
        read_policy(text, "fleet.yaml")
    message = str(caught.value)
    assert message.startswith(f"fleet.yaml:{line}: ")
    assert reason in message
    assert remedy in message
    assert re.search(r"[.?]$", message)


def test_a_policy_of_python_is_checked_alike() -> None:
    with pytest.raises(InvalidRequest, match=r"^dag\.py: healthy: there is no member 'small_file'"):
        policy_of({"healthy": {"small_file": 3}}, "dag.py")


def test_yaml_and_python_say_the_same() -> None:
    text = read_policy("rules:\n  - {match: {path: 'a/**'}, within: 1h}", "fleet.yaml").policy
    python = policy_of({"rules": [{"match": {"path": "a/**"}, "within": "1h"}]}).policy
    assert text == python


def test_places_are_the_lines_of_the_file(tmp_path: Path) -> None:
    written = read_policy(WHOLE, "fleet.yaml")
    assert written.place(("rules", 1, "within")) == "fleet.yaml:14"
    assert written.place(("healthy", "deleted_rows")) == "fleet.yaml:3"
    assert written.place(("nowhere",)) == "fleet.yaml:1"
