"""Arguments of operators and sensors that follow from tables of options.

A class names the rows of its table (:attr:`CheckedArguments.own_arguments`). From them it gets the keyword arguments of
``__init__`` with their defaults, the attributes, ``template_fields`` with their renderers, the lines of its docstring, and two
checks: an early one when the DAG is parsed, of every value that is known by then, and a late one when the task runs.

A value is *open* while it may still change: a Jinja template, or the output of another task. A rendered template is text,
whatever it stands for; :class:`~delta_maintenance.options.Kind` reads it.

A template that rendered to nothing (empty text, blanks, or ``None``) is a mistake more often than a wish:

* A switch, and any other required argument, refuses it.
* An optional argument without which a task would do more than the user asked for (which partitions, an approval, a retention, a
  verification, a budget, an identity) refuses it, see ``absence`` of :class:`~delta_maintenance.options.Option`.
* Any other optional argument is absent then.

The same holds for a reference to the output of another task, or a template of a DAG with native rendering, that comes out as
Python's ``None``. A ``None`` in the DAG file itself always means absent.

An argument that is left out is an attribute of the class, and no template field of the operator
(:mod:`~airflow_delta.operators.given_template_fields`).

Type checkers and editors cannot see what a class gets from its table. A block under ``if TYPE_CHECKING`` in each class tells
them; ``./dev lint --fix`` writes it, and a test compares (:func:`typed_face`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.operators.given_template_fields import GivenRenderers, GivenTemplateFields
from airflow_delta.operators.method_argument import MethodArgument, plain_value
from delta_log.catalog.table_name import TableName
from delta_log.errors import InvalidRequest
from delta_log.redaction import has_credentials, redact
from delta_maintenance.options import NO_DEFAULT, Address, Kind, Option, Text, is_empty, shown


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
    :param raw: what a template or a reference came out as; empty.
    :raises ValueError: without the argument the task would do more than the user asked for.
    """
    if row.absence is not None:
        raise ValueError(
            f"{row.argument}: {shown(raw)} is empty; most likely its template rendered to nothing. Without it "
            f"{row.absence}. Give a value, or leave the argument out."
        )


class CheckedArguments:
    """Base of operators and sensors whose arguments follow from tables; goes before Airflow's base class.

    A subclass that gives :attr:`own_arguments` takes these and those of its base classes. Its own ``__init__``, if it has one,
    takes arguments that are no options; it runs before the attributes of its options are set.
    """

    #: The rows that a class adds.
    own_arguments: ClassVar[Sequence[Option]] = ()
    #: All rows, by attribute.
    arguments: ClassVar[Mapping[str, Option]] = {}
    template_fields: Collection[str] = ()
    template_fields_renderers: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "own_arguments" in vars(cls):
            _take_arguments(cls)

    def value_of(self, name: str) -> Any:
        """An attribute, read.

        :raises ValueError: it makes no sense.
        """
        return read_argument(self.arguments[name], self._given(name))

    def _given(self, name: str) -> Any:
        """An attribute, as it was given or rendered."""
        return plain_value(getattr(self, name))

    def arguments_given(self) -> None:
        """Called once, when every argument has its value; a subclass may act on those that are known."""
        self.check_known()

    def check_known(self) -> None:
        """Refuse a senseless argument when the DAG is parsed, as far as its value is known then."""
        for name in filter(vars(self).__contains__, self.arguments):
            row, given = self.arguments[name], self._given(name)
            if given is not row.argument_default and (row.templates != "whole" or not is_open(given)):
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
        opened = [name for name in self.arguments if is_open(self._given(name))]
        super()._do_render_template_fields(parent, *args, **kwargs)  # type: ignore[misc]
        try:
            for name in opened:
                if self._given(name) is None:
                    require_harmless_absence(self.arguments[name], None)
            for name, row in self.arguments.items():
                value = self._given(name)
                if isinstance(row.kind, Address) and isinstance(value, str) and has_credentials(value):
                    self.value_of(name)
        except ValueError as error:
            raise AirflowFailException(str(error)) from None


def _take_arguments(cls: type[CheckedArguments]) -> None:
    """Give a class what follows from its rows."""
    own = {row.attribute: row for row in cls.own_arguments}
    # A row of a base class may be replaced, and keeps its place.
    cls.arguments = {**cls.arguments, **own}
    for name, row in own.items():
        method = getattr(cls, name, None)
        if inspect.isfunction(method):
            setattr(cls, name, MethodArgument(name, method, row.argument_default))
        elif row.argument_default is not NO_DEFAULT:
            setattr(cls, name, row.argument_default)
    rows = cls.arguments.values()
    fields = [row.attribute for row in rows if row.templates != "none"]
    cls.template_fields = GivenTemplateFields(fields)  # type: ignore[assignment]
    cls.template_fields_renderers = GivenRenderers(  # type: ignore[assignment]
        {row.attribute: row.kind.renderer for row in rows if row.kind.renderer}
    )
    cls.__doc__ = _documented(cls)
    # BaseOperator's metaclass wraps it afterwards, for `default_args` and mapped tasks, as if it were written by hand.
    cls.__init__ = _initializer(cls, tuple(own.values()))  # type: ignore[method-assign]


def _initializer(cls: type[CheckedArguments], own: Sequence[Option]) -> Callable[..., None]:
    """An ``__init__`` that takes the rows of a class as keyword arguments, and leaves the others to the base classes."""
    written = vars(cls).get("__init__")
    attributes = {row.argument: row.attribute for row in own}

    def __init__(self: CheckedArguments, **kwargs: Any) -> None:  # noqa: N807
        given = {attributes[name]: kwargs.pop(name) for name in tuple(kwargs) if name in attributes}
        if written is not None:
            written(self, **kwargs)
        else:
            above = super(cls, self).__init__
            # What Airflow's metaclass does at each level, it has done already, for all arguments.
            undecorated = getattr(above, "undecorated", None)
            if undecorated is None:
                above(**kwargs)
            else:
                undecorated(self, **kwargs)
        for name, value in given.items():
            setattr(self, name, value)
        if type(self).arguments is cls.arguments:
            self.arguments_given()

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    __init__.written = written  # type: ignore[attr-defined]
    __init__.undecorated = __init__  # type: ignore[attr-defined]
    __init__.__signature__ = inspect.Signature(list(_parameters(cls, written)))  # type: ignore[attr-defined]
    return __init__


def _parameters(
    cls: type[CheckedArguments], written: Callable[..., None] | None
) -> Iterator[inspect.Parameter]:
    """Those of a class and of its base classes, and a place for Airflow's own."""
    yield inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for row in cls.arguments.values():
        default = inspect.Parameter.empty if row.argument_default is NO_DEFAULT else row.argument_default
        yield inspect.Parameter(
            row.argument, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_annotation(row)
        )
    above = [getattr(vars(base).get("__init__"), "written", None) for base in cls.__mro__[1:]]
    for function in (written, *above):
        if function is not None:
            parameters = inspect.signature(function).parameters.values()
            yield from (one for one in parameters if one.kind is one.KEYWORD_ONLY)
    yield inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Any")


def _annotation(row: Option) -> str:
    annotation = row.kind.annotation
    return annotation if row.required or annotation == "Any" else f"{annotation} | None"


def _documented(cls: type[CheckedArguments]) -> str:
    """The docstring of a class, with a line for each argument."""
    templated = {"whole": " (templated)", "members": " (its values templated)", "none": ""}
    lines = []
    for row in cls.arguments.values():
        default = f"; default: {row.default_words}" if row.default_words else ""
        lines.append(f":param {row.argument}: {row.help}{default}.{templated[row.templates]}")
    return "\n".join([inspect.cleandoc(vars(cls).get("__doc__") or ""), "", *lines])


def typed_face(cls: type[CheckedArguments]) -> str:
    """What type checkers and editors are told of a class: its attributes and its ``__init__``, as source text."""
    # A type checker knows an attribute that can be called from Airflow's base class.
    attributes = [
        f"{name}: {_annotation(row)}"
        for name, row in cls.arguments.items()
        if not isinstance(inspect.getattr_static(cls, name, None), MethodArgument)
    ]
    _, *parameters, _ = inspect.signature(cls.__init__).parameters.values()
    taken = [
        f"{one.name}: {one.annotation}" + ("" if one.default is one.empty else f" = {one.default!r}")
        for one in parameters
    ]
    return "\n".join([*attributes, f"def __init__(self, *, {', '.join(taken)}, **kwargs: Any) -> None: ..."])


class Members(Kind):
    """A dictionary with text keys."""

    annotation = "dict[str, Any]"
    renderer = "json"

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
    "the table: an absolute path, a URI such as s3://lake/events, or a name in a catalog, glue://sales.events or hms://sales.events",
    argument_default=NO_DEFAULT,
)
DELTA_CONN_ID = Option(
    "delta_conn_id",
    Text(),
    "connection with the credentials of the table's storage, of type delta, aws, google_cloud_platform, wasb, adls, azure_data_lake or azure",
    otherwise="the identity of the machine",
    absence="the machine's own identity is used, and no fence of a connection holds",
)
