"""What an operation will cost, and what it will be worth.

Both are estimates from the log alone. The cost of an operation is corrected by what earlier runs of it on the same table took.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from delta_maintenance.fleet.history import Cost, PastRun
from delta_maintenance.fleet.policy.document import Prices
from delta_maintenance.health.diagnosis import Advice
from delta_maintenance.health.facts import HealthFacts
from delta_maintenance.units import DAY_MS

_GIB = 1 << 30
#: Bytes a second that one processor rewrites: OPTIMIZE of 2.2 GB on two cores took 9.5 s with snappy.
_REWRITTEN_BYTES_PER_SECOND = 100e6
#: Seconds of any operation beside its work: the log is read, a commit is written.
_BASE_SECONDS, _BASE_REQUESTS = 1.0, 12
#: Requests for a file that is read (footer and columns) and one that is written.
_REQUESTS_PER_SOURCE, _REQUESTS_PER_OUTPUT = 3, 2
#: Listing and bulk deletion name a thousand objects in one request.
_OBJECTS_PER_REQUEST = 1000
#: Seconds of a processor with which a query opens one more file, and reads one more commit.
_SECONDS_PER_FILE, _SECONDS_PER_COMMIT = 0.01, 0.002
#: For as long, at most, counts what queries save.
_HORIZON_DAYS = 30.0
#: Without prices, work is ordered by these; they are in proportion to each other as list prices of large clouds are.
STAND_IN_PRICES = Prices(gib_read=0.0004, gib_month=0.023, vcpu_hour=0.05, requests_1000=0.0005)
#: A single odd run does not turn a forecast upside down.
_LEAST_FACTOR, _GREATEST_FACTOR = 0.2, 10.0
#: How much the newest run counts.
_NEWEST = 0.5
#: Tables that nobody writes to are read now and then.
_LEAST_READS_PER_DAY = 1 / 30


def cost_by_log(advice: Advice, facts: HealthFacts) -> Cost:
    """What an operation costs, by the log alone."""
    gain = advice.gain
    if advice.operation in ("optimize", "purge"):
        num_bytes = gain["bytesBefore"]
        return Cost(
            num_bytes,
            _BASE_SECONDS + num_bytes / _REWRITTEN_BYTES_PER_SECOND,
            _BASE_REQUESTS
            + gain["filesBefore"] * _REQUESTS_PER_SOURCE
            + gain["filesAfter"] * _REQUESTS_PER_OUTPUT,
        )
    if advice.operation == "vacuum":
        listed = facts.files.num_files + facts.removed.named.files
        requests = (listed + gain["filesToDelete"]) / _OBJECTS_PER_REQUEST
        return Cost(0, _BASE_SECONDS + listed / 50_000, _BASE_REQUESTS + requests)
    if advice.operation == "cleanup-log":
        return Cost(0, _BASE_SECONDS, _BASE_REQUESTS + gain["filesToDelete"] / _OBJECTS_PER_REQUEST)
    return Cost(0, _BASE_SECONDS + facts.files.num_files / 200_000, _BASE_REQUESTS)


def learned_cost(cost: Cost, runs: tuple[PastRun, ...]) -> Cost:
    """Correct a cost by how far off the costs by the log were that earlier runs had.

    :param runs: earlier runs of the same operation on the same table, oldest first.
    """
    return Cost(
        cost.read_bytes * _factor([(run.by_log.read_bytes, run.outcome.read_bytes) for run in runs]),
        cost.worker_seconds
        * _factor([(run.by_log.worker_seconds, run.outcome.worker_seconds) for run in runs]),
        cost.requests * _factor([(run.by_log.requests, run.outcome.requests) for run in runs]),
    )


def _factor(pairs: list[tuple[float, float]]) -> float:
    factor = 1.0
    for expected, measured in pairs:
        # A forecast near 0 leads to an infinite ratio, and two of these to no number.
        if expected > 0 and measured > 0 and isfinite(ratio := measured / expected):
            factor += _NEWEST * (ratio - factor)
    return min(max(factor, _LEAST_FACTOR), _GREATEST_FACTOR)


def price(cost: Cost, prices: Prices) -> float:
    """The money that work costs."""
    return (
        cost.read_bytes / _GIB * prices.gib_read
        + cost.worker_seconds / 3600 * prices.vcpu_hour
        + cost.requests / 1000 * prices.requests_1000
    )


def reads_per_day(facts: HealthFacts, told: float | None) -> float:
    """How often the table is read a day; where nobody says it, as often as it is written to.

    :param told: what the policy says.
    """
    return told if told is not None else max(writes_per_day(facts), _LEAST_READS_PER_DAY)


def writes_per_day(facts: HealthFacts) -> float:
    """The rate of the newest commits."""
    times = [commit.timestamp_ms for commit in facts.commits]
    if not times:
        return 0.0
    days = max(facts.measured_ms - min(times), DAY_MS) / DAY_MS
    return len(times) / days


def lasting_days(facts: HealthFacts) -> float:
    """How long a rewritten file lasts, at most a month, if files go on being removed as they were within the retention.

    A table that is overwritten each day has removed as many bytes each day as are live: its files last a day, and so does what
    OPTIMIZE gains.
    """
    held_bytes, days = facts.removed.held.size_bytes, (facts.measured_ms - facts.removed.cutoff_ms) / DAY_MS
    if held_bytes <= 0 or days <= 0:
        return _HORIZON_DAYS
    return min(days * facts.files.size_bytes / held_bytes, _HORIZON_DAYS)


def forecast_value(advice: Advice, facts: HealthFacts, reads: float, prices: Prices) -> float:
    """The money that an operation saves within a month: reading, processors of queries, and storage.

    :param reads: readings of the table a day.
    """
    queries = reads * _HORIZON_DAYS
    gain = advice.gain
    if advice.operation in ("optimize", "purge"):
        queries = reads * lasting_days(facts)
        files, num_bytes = _less(gain, "files"), _less(gain, "bytes")
        per_query = Cost(num_bytes, files * _SECONDS_PER_FILE, files * _REQUESTS_PER_SOURCE)
        return queries * price(per_query, prices)
    if advice.operation == "vacuum":
        return float(gain["bytesToDelete"]) / _GIB * prices.gib_month
    if advice.operation == "cleanup-log":
        return queries * price(Cost(requests=gain["filesToDelete"] / _OBJECTS_PER_REQUEST), prices)
    number = gain.get("commitsBefore", gain.get("filesBefore", 0))
    return queries * price(Cost(0, number * _SECONDS_PER_COMMIT, number), prices)


def _less(gain: Mapping[str, Any], what: str) -> float:
    return max(float(gain[f"{what}Before"] - gain[f"{what}After"]), 0.0)
