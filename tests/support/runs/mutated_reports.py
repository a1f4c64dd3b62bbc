"""Reports, specs and lines of a job, broken in many ways: each is refused by one kind of error, or can be used.

:func:`run` is called by a unit test with some hundreds of examples, and may be called with as many as one likes.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict

import msgspec
from airflow.sdk.exceptions import AirflowException

from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.operators.reporting.failure import raise_for
from airflow_delta.runners.job_output import JobOutput, JobProgress
from airflow_delta.runners.task_log import tell_report
from delta_maintenance.contract import (
    PROGRESS_PREFIX,
    REPORT_PREFIX,
    ContractError,
    ErrorReport,
    JobReport,
    JobSpec,
    TransactionId,
    line_prefix,
)

_NONCE = "6e6f6e63652d6f662d612d72756e2d21"
_REPORTS = (
    JobReport(
        "optimize",
        "/t",
        "committed",
        run_id="r",
        version=3,
        read_version=2,
        engine="local",
        engine_reason="asked for",
        transaction=TransactionId("a", 1),
        metrics={"numAddedFiles": 1},
        dropped_bins=1,
        dropped=[{"bin": "b", "partition_values": {"p": None}, "message": "m"}],
        left={"bins": 1},
        started_ms=1,
        finished_ms=2,
    ),
    JobReport(
        "vacuum", "/t", "planned", plan={"files": [{"path": "a"}], "reasons": {"orphan": {"numFiles": 1}}}
    ),
    JobReport(
        "optimize",
        "/t",
        "failed",
        error=ErrorReport("CorruptLog", "m", "refused", retryable=False),
    ),
)
_SPEC = JobSpec("optimize", "/t", "r", options={"where": "p = 1"}, transaction=TransactionId("a", 1))

#: Pieces of JSON that no writer of ours writes in their place.
_ODD = (
    "1e999",
    "-1e999",
    "NaN",
    "-Infinity",
    "9" * 30,
    "9" * 10_000,
    "-9223372036854775808",
    "9223372036854775808",
    "0.1",
    "true",
    "null",
    '""',
    r'"\ud800"',
    r'"\u0000\u001b]0;t\u0007\u202e\n2026-01-01 INFO forged"',
    f'"{REPORT_PREFIX}{{}}"',
    "{}",
    "[]",
    '{"kind": ["refused"]}',
    '{"kind": {}, "message": 1}',
    '{"app_id": "a"}',
    "[" * 60 + "]" * 60,
    "[" * 5_000 + "]" * 5_000,
    '{"a":' * 5_000 + "1" + "}" * 5_000,
)


def run(examples: int, seed: int) -> Counter[str]:
    """Break so many; gives how many were read, refused, or taken for text.

    :raises AssertionError: something else came of one.
    """
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for number in range(examples):
        check = rng.choice((_check_report, _check_spec, _check_output))
        broken = ""
        try:
            original = _SPEC.to_json() if check is _check_spec else rng.choice(_REPORTS).to_json()
            broken = _broken(original, rng)
            outcomes[check(broken, rng)] += 1
        except Exception as error:
            raise AssertionError(
                f"example {number} of seed {seed}: {type(error).__name__} from {check.__name__} of {broken[:500]!r}"
            ) from error
    return outcomes


def broken_texts(text: str, examples: int, rng: random.Random) -> Iterator[str]:
    """A report or spec, broken in so many ways."""
    for _ in range(examples):
        yield _broken(text, rng)


def _broken(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(_BREAKS)(text, rng)
    return text


def _flip(text: str, rng: random.Random) -> str:
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode("utf-8", rng.choice(("replace", "surrogateescape", "backslashreplace")))


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _noise(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.randbytes(rng.randint(1, 20)).decode("latin-1") + text[at:]


def _member(text: str, rng: random.Random) -> str:
    """One member replaced by something odd, or gone."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return text
    holders = (
        [raw, *(value for value in raw.values() if isinstance(value, dict))] if isinstance(raw, dict) else []
    )
    holder = rng.choice([held for held in holders if held] or [{"": ""}])
    name = rng.choice(sorted(holder))
    if rng.random() < 0.1:
        del holder[name]
        return json.dumps(raw)
    holder[name] = "@@ODD@@"
    return json.dumps(raw).replace('"@@ODD@@"', rng.choice(_ODD))


_BREAKS: tuple[Callable[[str, random.Random], str], ...] = (_flip, _cut, _noise, _member, _member, _member)


def _check_spec(text: str, _rng: random.Random) -> str:
    try:
        spec = JobSpec.from_json(text)
    except ContractError as error:
        return _refused(error)
    assert JobSpec.from_json(spec.to_json()) == spec
    return "read"


def _check_report(text: str, _rng: random.Random) -> str:
    try:
        report = JobReport.from_json(text)
    except ContractError as error:
        return _refused(error)
    _use(report)
    return "read"


def _check_output(text: str, rng: random.Random) -> str:
    """The broken line among others, with the nonce of the run, with none, or with another one."""
    nonce = rng.choice((_NONCE, _NONCE, None, "0" * 32))
    line = line_prefix(rng.choice((PROGRESS_PREFIX, REPORT_PREFIX)), nonce) + text
    output = JobOutput(_NONCE)
    try:
        found = list(output.sort(["before", rng.choice(("", "26/01/01 WARN ")) + line, "behind"]))
    except ContractError as error:
        assert nonce == _NONCE, "only a line of this run can be a report"
        return _refused(error)
    texts = [str(item) for item in found]
    assert (texts[0], texts[-1]) == ("before", "behind")
    assert all(shown.isprintable() for shown in texts)
    if nonce != _NONCE:
        assert output.report is None
        assert not any(isinstance(item, JobProgress) for item in found)
    if output.report is not None:
        _use(output.report)
        return "read"
    return "text"


def _use(report: JobReport) -> None:
    """What an operator, a state store, the wire to Airflow and its database do with a report."""
    raw = report.to_dict()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(raw)) == raw
    text = json.dumps(raw, allow_nan=False)
    text.encode("utf-8")
    assert "\\u0000" not in text
    assert report.exit_code in (0, 1, 2, 3)
    assert JobReport.from_json(report.to_json()) == report
    assert asdict(report)
    with contextlib.redirect_stdout(io.StringIO()):
        tell_report(DeltaOptimizeOperator(task_id="t", table="/t").log, report)
    problem = ""
    try:
        raise_for(report, "optimize", "/t")
    except AirflowException as error:
        problem = str(error)
    assert problem.isprintable()


def _refused(error: ContractError) -> str:
    assert len(str(error)) < 1_000
    assert str(error).isprintable()
    return "refused"
