"""The template fields of an operator: the arguments that it was given.

Airflow looks at each template field of an operator when it makes, serialises and renders it, and looks up its configuration for each
that is serialised. An operator has thirty arguments, of which few are given, and a DAG file may make thousands of operators.

An argument is given if the operator has an attribute of its own; otherwise it has that of its class, the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class GivenTemplateFields:
    """A descriptor for ``template_fields``: the class has all of them, an operator those that it was given.

    An attribute that is assigned later counts as given. A mapped operator takes the fields of its class.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def __get__(self, task: Any, owner: type | None = None) -> tuple[str, ...]:
        return self._names if task is None else tuple(filter(vars(task).__contains__, self._names))


class GivenRenderers:
    """A descriptor for ``template_fields_renderers``: the class has those of all template fields, an operator those of the fields it was given."""

    def __init__(self, renderers: Mapping[str, str]) -> None:
        self._renderers = dict(renderers)

    def __get__(self, task: Any, owner: type | None = None) -> dict[str, str]:
        if task is None:
            return self._renderers
        given = vars(task)
        return {name: renderer for name, renderer in self._renderers.items() if name in given}
