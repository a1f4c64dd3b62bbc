"""From a row in a table of options follow the flag, the checks of the operator's argument, and the documentation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from tests.support import ROOT

if str(ROOT / "docs") not in sys.path:
    sys.path.insert(0, str(ROOT / "docs"))

from option_tables import argument_tables, flag_tables

from airflow_delta import operators
from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import JOB_ARGUMENTS, DeltaJobOperator
from delta_log.errors import InvalidRequest
from delta_maintenance.cli.arguments import UsageError, make_parser, rows_of
from delta_maintenance.cli.main import COMMANDS
from delta_maintenance.operations import OPERATIONS, READINGS
from delta_maintenance.options import (
    Choice,
    NewFile,
    Operation,
    Options,
    SafetySwitch,
    Size,
    option,
    table_of,
)


@dataclass(frozen=True, slots=True)
class PolishOptions(Options):
    shine: str = option(Choice(("matt", "bright")), "how to shine", default="matt", absence="it stays dull")
    cloth_size_bytes: int | None = option(
        Size(), "size of the cloth", flag="--cloth", argument="cloth_size", otherwise="the table's"
    )
    careful: bool = option(SafetySwitch(), "polish with care", default=True, flag="--no-care")
    album: str | None = option(NewFile(), "write pictures to this new file")


POLISH = Operation("polish", "polish a table", table_of(PolishOptions))


class DeltaPolishOperator(DeltaJobOperator):
    """Polishes a table."""

    operation = POLISH
    arguments = by_attribute(*JOB_ARGUMENTS, *POLISH.options)
    template_fields = (*DeltaJobOperator.template_fields, "shine", "cloth_size", "careful", "album")

    def __init__(
        self,
        *,
        shine: str | None = None,
        cloth_size: int | str | None = None,
        careful: bool | str = True,
        album: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.shine, self.cloth_size, self.careful, self.album = shine, cloth_size, careful, album
        self.check_known()


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    monkeypatch.setitem(OPERATIONS, "polish", POLISH)
    parser = make_parser(dict.fromkeys((*COMMANDS, *OPERATIONS), lambda _: None))
    return lambda *arguments: vars(parser.parse_args(["polish", "/t", *arguments]))


def test_the_command_line_has_a_flag_for_each_row(parse: Callable[..., dict[str, Any]]) -> None:
    assert POLISH.spec_options(parse()) == {}
    given = parse("--shine", "bright", "--cloth", "2MiB", "--no-care", "--album", "a.json", "--dry-run")
    assert POLISH.spec_options(given) == {
        "shine": "bright",
        "cloth_size_bytes": 2 << 20,
        "careful": False,
        "album": "a.json",
    }
    assert given["dry_run"] is True
    with pytest.raises(UsageError, match="argument --cloth: 'big' is not a size such as 512MB"):
        parse("--cloth", "big")
    with pytest.raises(UsageError, match="argument --shine: invalid choice"):
        parse("--shine", "often")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"shine": "often"}, "shine is 'often'; it must be matt or bright"),
        ({"cloth_size_bytes": 0}, "cloth_size_bytes is 0; .* from 1 to 1 PiB"),
        ({"cloth_size_bytes": "2MiB"}, "a whole number of bytes"),
        ({"careful": "no"}, "true or false"),
        ({"album": ""}, "must be a text"),
        ({"gloss": 1}, "POLISH has no option gloss. Its options are shine, cloth_size_bytes, careful, album"),
    ],
)
def test_the_options_of_a_job_spec_are_checked(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        PolishOptions.from_spec(POLISH, given)


def test_what_is_not_given_is_the_default() -> None:
    assert PolishOptions.from_spec(POLISH, {"shine": None}) == PolishOptions()


def test_the_operator_reads_each_argument_as_its_row_says() -> None:
    operator = DeltaPolishOperator(
        task_id="polish", table="/t", shine="bright", cloth_size="2MiB", careful="false", album="/a.json"
    )
    assert operator.options() == {
        "shine": "bright",
        "cloth_size_bytes": 2 << 20,
        "careful": False,
        "album": "/a.json",
    }


def test_the_operator_checks_each_row_early_and_late() -> None:
    with pytest.raises(ValueError, match="cloth_size: 'big' is not a size"):
        DeltaPolishOperator(task_id="polish", table="/t", cloth_size="big")
    with pytest.raises(ValueError, match="table: 'relative' is a relative path"):
        DeltaPolishOperator(task_id="polish", table="relative")
    operator = DeltaPolishOperator(task_id="polish", table="/t", shine="{{ params.shine }}")
    operator.render_template_fields({"params": {"shine": ""}})
    with pytest.raises(AirflowFailException, match="shine: '' is empty.*Without it it stays dull"):
        operator.check_all()


def test_airflow_sees_the_arguments_of_both_levels() -> None:
    with DAG("defaults", schedule=None, default_args={"shine": "bright", "table": "/t"}):
        assert DeltaPolishOperator(task_id="polish").options() == {"shine": "bright"}
        mapped = DeltaPolishOperator.partial(task_id="mapped", careful=True).expand(
            cloth_size=["1MiB", "2MiB"]
        )
    one = mapped.unmap({"cloth_size": "2MiB", "table": "/t"})
    assert isinstance(one, DeltaPolishOperator)
    assert one.options() == {"shine": "bright", "cloth_size_bytes": 2 << 20}
    with pytest.raises(TypeError, match="missing keyword argument 'table'"):
        DeltaPolishOperator(task_id="polish")
    with pytest.raises(TypeError, match="unexpected keyword argument 'gloss'"):
        DeltaPolishOperator.partial(task_id="polish", gloss=1)
    with pytest.raises(TypeError, match="gloss"):
        DeltaPolishOperator(task_id="polish", table="/t", gloss=1)


def test_a_subclass_of_a_user_may_have_arguments_of_its_own() -> None:
    class Nightly(DeltaPolishOperator):
        def __init__(self, *, moon: str, **kwargs: Any) -> None:
            super().__init__(**{"shine": "bright", **kwargs})
            self.moon = moon

    assert Nightly(task_id="polish", table="/t", moon="full").options() == {"shine": "bright"}


def test_the_addresses_of_a_job_follow_from_its_rows() -> None:
    assert POLISH.places({"album": "s3://lake/albums/a.json", "shine": "bright"}) == (
        "s3://lake/albums/a.json",
        "s3://lake/albums",
    )
    assert POLISH.places({"album": 5}) == ()


def test_the_documentation_has_a_line_for_each_row() -> None:
    flags, arguments = flag_tables(rows_of(POLISH)), argument_tables(POLISH.options)
    assert r"| `--shine matt\|bright` | `matt` | How to shine |" in flags
    assert "| `--cloth SIZE` | the table's | Size of the cloth |" in flags
    assert "| `cloth_size` | the table's | Size of the cloth |" in arguments
    assert "| `careful` | `True` | Polish with care |" in arguments


def test_an_operator_runs_an_operation_that_there_is() -> None:
    for name in set(operators.__all__) - {"DeltaDoctorOperator"}:  # it runs no operation
        operation = getattr(operators, name).operation
        assert {**READINGS, **OPERATIONS}[operation.name] is operation
