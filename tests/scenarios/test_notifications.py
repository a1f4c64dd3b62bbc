"""Notifiers over several runs of a DAG, with the XComs that Airflow would keep between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from tests.support.records import HOSTILE, health_document
from tests.support.servers.smtp import running_mail_server
from tests.support.tables.written_log import add, write_log

from airflow_delta.monitoring.record import table_id
from airflow_delta.notifications import DeltaMaintenanceFailureNotifier, DeltaTableAttentionNotifier
from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator
from airflow_delta.testing import FakeJobRunner
from delta_maintenance.contract import ErrorReport, JobReport

MakeContext = Callable[..., dict[str, Any]]
TABLE = "s3://lake/events"


class Chat(BaseNotifier):
    """As a provider's notifier is: with templates."""

    template_fields = ("message",)

    def __init__(self, room: list[str], message: str) -> None:
        super().__init__()
        self.room, self.message = room, message

    def notify(self, context: Any) -> None:
        self.room.append(self.message)


class OptimizeWith(DeltaOptimizeOperator):
    """Runs its job with a fake."""

    runner: FakeJobRunner

    def local_runner(self, storage_options: Any) -> FakeJobRunner:
        return self.runner


class History:
    """The XComs of one task in all runs of its DAG."""

    def __init__(self, make_context: MakeContext) -> None:
        self.kept: list[tuple[str, Any]] = []
        self.may_push = self.may_pull = True
        self._make_context = make_context

    def context(self, task: Any, **members: Any) -> dict[str, Any]:
        context = self._make_context(xcom_push=self._push, xcom_pull=self._pull, task=task)
        return {**context, **members}

    def _push(self, key: str, value: Any) -> None:
        if not self.may_push:
            raise ValueError("Unable to decode message: a DAG processor writes no XComs")
        self.kept.append((key, value))

    def _pull(self, key: str, *, include_prior_dates: bool) -> Any:
        """As Airflow answers: nothing, the one value, or all values in no order of time."""
        assert include_prior_dates
        if not self.may_pull:
            raise ConnectionError("no API server")
        found = [value for name, value in self.kept if name == key]
        return None if not found else found[0] if len(found) == 1 else found[::-1]


@pytest.fixture
def history(make_context: MakeContext) -> History:
    return History(make_context)


def read(history: History, notifier: DeltaTableAttentionNotifier, status: str, table: str = TABLE) -> None:
    """A run of a task that found a status."""
    task = DeltaTableHealthOperator(task_id="health", table=table)
    task.document = health_document(table, status)
    notifier(history.context(task))


def fail(history: History, notifier: DeltaMaintenanceFailureNotifier, table: str = TABLE) -> None:
    task = DeltaOptimizeOperator(task_id="optimize", table=table)
    notifier(history.context(task, exception=RuntimeError("The store is away.")))


def test_it_sends_when_a_table_becomes_worse_and_not_again_while_it_stays_so(history: History) -> None:
    room: list[str] = []
    for number, status in enumerate(
        ("healthy", "attention", "attention", "critical", "attention", "healthy", "healthy", "attention")
    ):
        # Each run parses its DAG anew.
        read(history, DeltaTableAttentionNotifier(Chat(room, f"{number} {{{{ delta.status }}}}")), status)
    assert room == ["1 attention", "3 critical", "7 attention"]


def test_it_says_what_is_wrong_and_what_helps(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/team/")
    room: list[str] = []
    chat = Chat(room, "{{ delta.name }}\n{{ delta.text }}\n{{ delta.page }}")
    read(history, DeltaTableAttentionNotifier([chat]), "critical")
    assert room[0].splitlines() == [
        "events",
        "s3://lake/events: critical",
        "OPTIMIZE would merge 416 of 422 files; the limit is 10.",
        "Recommended: optimize: 416 files (1.2 GiB) → about 6 (1.2 GiB) in 6 partitions.",
        f"https://airflow.example.org/team/plugin/delta-tables?table={table_id(TABLE)}",
    ]


@pytest.mark.parametrize(
    ("at_least", "expected"),
    [
        ("critical", ["critical"]),
        ("attention", ["attention", "critical"]),
        ("unsupported", ["unsupported", "attention", "critical"]),
    ],
)
def test_the_least_status_that_is_told_can_be_chosen(
    history: History, at_least: Any, expected: list[str]
) -> None:
    room: list[str] = []
    for status in ("unsupported", "attention", "critical"):
        read(
            history,
            DeltaTableAttentionNotifier(Chat(room, "{{ delta.status }}"), at_least=at_least),
            status,
        )
    assert room == expected


def test_each_table_of_a_mapped_task_has_a_history_of_its_own(history: History) -> None:
    room: list[str] = []
    # A DAG processor may call one notifier for several tasks.
    needy = DeltaTableAttentionNotifier(Chat(room, "{{ delta.name }}"))
    failing = DeltaMaintenanceFailureNotifier(Chat(room, "{{ delta.name }}"))
    for table in ["s3://lake/one", "s3://lake/two"] * 2:
        read(history, needy, "attention", table)
    assert room == ["one", "two"]
    room.clear()
    for table in ["s3://lake/one", "s3://lake/two"] * 3:
        fail(history, failing, table)
    assert room == ["one", "two"]


def test_the_third_failure_in_succession_is_told_and_each_third_one_after_that(history: History) -> None:
    room: list[str] = []
    for number in range(1, 7):
        fail(history, DeltaMaintenanceFailureNotifier(Chat(room, f"{number}: {{{{ delta.text }}}}")))
    assert room == [
        "3: optimize of s3://lake/events has failed 3 times in succession.\nThe store is away.",
        "6: optimize of s3://lake/events has failed 6 times in succession.\nThe store is away.",
    ]


def test_a_run_that_ends_well_ends_the_count(history: History) -> None:
    room: list[str] = []

    def operator(report: JobReport) -> OptimizeWith:
        notifier = DeltaMaintenanceFailureNotifier(Chat(room, "{{ delta.failures }}"), times=2)
        made = OptimizeWith(task_id="optimize", table=TABLE, engine="local", on_failure_callback=notifier)
        made.runner = FakeJobRunner(report)
        return made

    def run(report: JobReport) -> None:
        task = operator(report)
        context = history.context(task)
        try:
            OptimizeWith.execute.__wrapped__(task, context)  # type: ignore[attr-defined]
        except Exception as error:
            callbacks: Any = task.on_failure_callback
            callbacks[0]({**context, "exception": error})

    broken = JobReport("optimize", TABLE, "failed", error=ErrorReport("E", "away"))
    sound = JobReport("optimize", TABLE, "nothing_to_do")
    for report in (broken, sound, broken, sound, broken):
        run(report)
    assert room == []
    run(broken)
    assert room == ["2"]


def test_a_reading_that_ends_well_ends_the_count_and_is_there_for_the_callback(
    history: History, tmp_path: Path
) -> None:
    write_log(tmp_path / "t", [add("1.parquet", 100)])
    room: list[str] = []
    watch = DeltaMaintenanceFailureNotifier(Chat(room, "{{ delta.failures }}"), times=2)
    task = DeltaTableHealthOperator(task_id="health", table=str(tmp_path / "t"), on_failure_callback=watch)
    fail(history, watch, str(tmp_path / "t"))
    DeltaTableHealthOperator.execute.__wrapped__(task, history.context(task))  # type: ignore[attr-defined]
    fail(history, watch, str(tmp_path / "t"))
    assert room == []
    DeltaTableAttentionNotifier(Chat(room, "never"))(history.context(task))
    assert task.document is not None
    assert room == []


def test_without_a_notifier_no_run_asks_for_its_history(make_context: MakeContext) -> None:
    task = OptimizeWith(task_id="optimize", table=TABLE, engine="local")
    task.runner = FakeJobRunner(JobReport("optimize", TABLE, "nothing_to_do"))
    # The instance of this context has no XComs to pull.
    OptimizeWith.execute.__wrapped__(task, make_context())  # type: ignore[attr-defined]


def test_where_no_xcom_can_be_read_or_written_it_sends_rather_than_not(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    room: list[str] = []
    fail(history, DeltaMaintenanceFailureNotifier(Chat(room, "counted"), times=2))
    history.may_push = False
    fail(history, DeltaMaintenanceFailureNotifier(Chat(room, "{{ delta.failures }}"), times=2))
    assert room == ["2"]
    history.may_pull = False
    read(history, DeltaTableAttentionNotifier(Chat(room, "{{ delta.status }}")), "attention")
    assert room == ["2", "attention"]
    assert "could not be written" in caplog.text
    assert "does not tell" in caplog.text


def test_one_that_cannot_send_does_not_silence_the_others(history: History) -> None:
    room: list[str] = []

    def broken(_: Any) -> None:
        raise ConnectionError("no chat")

    with pytest.raises(ConnectionError, match="no chat"):
        read(history, DeltaTableAttentionNotifier([broken, Chat(room, "{{ delta.name }}")]), "critical")
    assert room == ["events"]


def test_a_mail_arrives_with_the_name_of_the_table_escaped(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    with running_mail_server() as server:
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", server.connection)
        mail = SmtpNotifier(
            from_email="airflow@example.org",
            to="lakehouse@example.org",
            subject="{{ delta.name }}: {{ delta.status }}",
            html_content="<pre>{{ delta.text | e }}</pre>",
        )
        read(history, DeltaTableAttentionNotifier(mail), "critical", "s3://lake/<b>events<b>")
    assert server.subjects() == ["<b>events<b>: critical"]
    text = "\n".join(part.get_content() for part in server.mails[0].walk() if not part.is_multipart())
    assert "<pre>s3://lake/&lt;b&gt;events&lt;b&gt;: critical" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_sent_as_one_line_without_control_characters(history: History, name: str) -> None:
    said: list[dict[str, Any]] = []
    notifier = DeltaMaintenanceFailureNotifier(lambda context: said.append(context["delta"]), times=1)
    fail(history, notifier, f"s3://lake/{name}")
    assert said[0]["table"].isprintable()
    assert said[0]["name"].isprintable()


def test_a_notifier_of_the_wrong_task_or_without_another_one_says_so(history: History) -> None:
    other = DeltaOptimizeOperator(task_id="optimize", table=TABLE)
    with pytest.raises(TypeError, match="belongs into on_success_callback of a DeltaTableHealthOperator"):
        DeltaTableAttentionNotifier(print)(history.context(other))
    with pytest.raises(TypeError, match="an instance of a mapped task that was killed is not counted"):
        DeltaMaintenanceFailureNotifier(print)(history.context(object()))
    for nothing in ([], "an address", [None]):
        with pytest.raises((ValueError, TypeError)):
            DeltaTableAttentionNotifier(nothing)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at_least: 'healthy'"):
        DeltaTableAttentionNotifier(print, at_least="healthy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="times: 0"):
        DeltaMaintenanceFailureNotifier(print, times=0)
