"""Arguments of operators and sensors: what the rows of a table of options say about them.

An operator's ``__init__`` is written by hand. Its class also has the row of each argument (:attr:`CheckedArguments.arguments`), which
decides what a value may be. A test compares both: names, defaults, template fields and docstring.

Values are checked twice: when the DAG is parsed, as far as they are known by then, and when the task runs.

A value is *open* while it may still change: a Jinja template, or the output of another task. A rendered template is text,
whatever it stands for; :class:`~delta_maintenance.options.Kind` reads it.

A template that rendered to nothing (empty text, blanks, or ``None``) is mostly a mistake:

* A switch, and any other required argument, refuses it.
* An optional argument without which a task would do more than the user asked for (which partitions, an approval, a retention, a
  verification, a budget, an identity) refuses it, see ``absence`` of :class:`~delta_maintenance.options.Option`.
* Any other optional argument is absent then.

The same holds for a reference to the output of another task, or a template of a DAG with native rendering, that comes out as
Python's ``None``. A ``None`` in the DAG file itself always means absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from delta_log.catalog.table_name import TableName
from delta_log.errors import InvalidRequest
from delta_log.redaction import has_credentials, redact
from delta_maintenance.options import Address, Kind, Option, Text, is_empty, shown


def is_open(value: Any) -> bool:
    """Whether `value` is known only when the task runs."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return not isinstance(value, bool | int | float | list | tuple | dict | None)


def read_argument(row: Option, raw: Any) -> Any:
    """The value of an argument, ``None`` where it is absent.

    :raises ValueError: `raw` makes no sense; the message says what would.
    """
    if row.templates != "whole" and is_open(raw):
        raise ValueError(
            f"{row.argument} is a template or the output of another task, and it decides which program the job "
            "runs. Write it in the DAG file."
        )
    if not row.required and (raw is None or is_empty(raw)):
        if raw is not None:
            require_harmless_absence(row, raw)
        return None
    try:
        return row.kind.read(raw)
    except ValueError as error:
        raise ValueError(redact(f"{row.argument}: {error}")) from None


def require_harmless_absence(row: Option, raw: Any) -> None:
    """
    :param raw: empty value that a template or a reference came out as.
    :raises ValueError: without the argument the task would do more than the user asked for.
    """
    if row.absence is not None:
        raise ValueError(
            f"{row.argument}: {shown(raw)} is empty; most likely its template rendered to nothing. Without it "
            f"{row.absence}. Give a value, or leave the argument out."
        )


class CheckedArguments:
    """Base of operators and sensors that check their arguments; goes before Airflow's base class.

    The ``__init__`` of each operator and sensor ends with a call of :meth:`check_known`. The ``__init__`` of a base class has none,
    since the arguments of its subclasses are not set yet.
    """

    #: The row of each argument, by the attribute that holds its value.
    arguments: ClassVar[Mapping[str, Option]] = {}

    def value_of(self, name: str) -> Any:
        """An attribute, read.

        :raises ValueError: it makes no sense.
        """
        return read_argument(self.arguments[name], getattr(self, name))

    def check_known(self) -> None:
        """
        :raises ValueError: an argument makes no sense, as far as its value is known when the DAG is parsed.
        """
        for name, row in self.arguments.items():
            if row.templates != "whole" or not is_open(getattr(self, name)):
                self.value_of(name)

    def check_all(self) -> None:
        """
        :raises AirflowFailException: an argument makes no sense, now that every value is known.
        """
        try:
            for name in self.arguments:
                self.value_of(name)
        except ValueError as error:
            raise AirflowFailException(str(error)) from None

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """Airflow calls it for mapped tasks, too.

        Airflow shows the rendered fields to everyone who may see the task, so an address with credentials ends the task
        before they are stored. Only here is it known which values were open before.
        """
        opened = [name for name in self.arguments if is_open(getattr(self, name))]
        super()._do_render_template_fields(parent, *args, **kwargs)  # type: ignore[misc]
        try:
            for name in opened:
                if getattr(self, name) is None:
                    require_harmless_absence(self.arguments[name], None)
            for name, row in self.arguments.items():
                value = getattr(self, name)
                if isinstance(row.kind, Address) and isinstance(value, str) and has_credentials(value):
                    self.value_of(name)
        except ValueError as error:
            raise AirflowFailException(str(error)) from None


def by_attribute(*rows: Option) -> dict[str, Option]:
    """The rows of arguments, by the attributes that hold their values."""
    return {row.attribute: row for row in rows}


class Members(Kind):
    """A dictionary with text keys."""

    def read(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise ValueError(f"{shown(value)} is not a dictionary with text keys.")
        return value


class TableAddress(Address):
    """The address of a table, or its name in a catalog."""

    def read(self, value: Any) -> str:
        text = Text.read(self, value)
        try:
            if TableName.parse(text) is not None:
                return text
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return super().read(value)


TABLE = Option(
    "table",
    TableAddress(),
    "the table: an absolute path, a URI such as s3://lake/events, or a name in a catalog, glue://sales.events or uc://prod.sales.events",
    required=True,
)
DELTA_CONN_ID = Option(
    "delta_conn_id",
    Text(),
    "connection with the credentials of the table's storage, of type delta, aws, google_cloud_platform, wasb, adls, azure_data_lake or azure",
    otherwise="the identity of the machine",
    absence="the machine's own identity is used, and no fence of a connection holds",
)
SPARK_CONF = Option(
    "spark_conf",
    Members(),
    "Spark properties of the job, such as spark.executor.memory",
    templates="members",
)
