"""An argument that has the name of a method of Airflow's base class: ``dry_run``.

Airflow reads a template field as the attribute of that name: it renders the value, stores the result back, and shows it under
Rendered Templates. ``BaseOperator`` has a method ``dry_run``, which may be called on any task. :class:`MethodArgument` serves
both: what an attribute's reader gets is the value of the argument, and it can be called.

1. Called as Airflow renders a callable (with ``context`` and ``jinja_env``), it renders the value.
2. Called otherwise, it calls the method.
3. Where Airflow serialises a DAG or the rendered fields, it is the value (``serialize``).

A reference to another task's output is not wrapped, since Airflow finds upstream tasks by its type; until Airflow has resolved
it, the method of that task cannot be called by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class MethodArgument:
    """A descriptor for an argument, installed on the class of an operator.

    :param method: of the base class.
    :param default: the value of a task that was given none.
    """

    def __init__(self, name: str, method: Callable[..., Any], default: Any) -> None:
        self._name, self._method, self._default = name, method, default

    def __get__(self, task: Any, owner: type | None = None) -> Any:
        if task is None:
            return self._method
        value = vars(task).get(self._name, self._default)
        return CallableValue(value, task, self._method) if isinstance(value, str | bool | int) else value

    def __set__(self, task: Any, value: Any) -> None:
        vars(task)[self._name] = plain_value(value)


class CallableValue:
    """The value of a :class:`MethodArgument`, which can be called; it equals the plain value."""

    __slots__ = ("_method", "_task", "value")

    def __init__(self, value: Any, task: Any, method: Callable[..., Any]) -> None:
        self.value, self._task, self._method = value, task, method

    def __call__(self, *arguments: Any, **kwargs: Any) -> Any:
        if "jinja_env" in kwargs:
            return self._task.render_template(self.value, kwargs["context"], kwargs["jinja_env"])
        return self._method(self._task, *arguments, **kwargs)

    def serialize(self) -> Any:
        return self.value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == plain_value(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __str__(self) -> str:
        return str(self.value)


def plain_value(value: Any) -> Any:
    """The plain value of an argument."""
    return value.value if isinstance(value, CallableValue) else value
