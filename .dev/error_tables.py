"""Write the tables and messages of errors into the documentation, from their classes and from where they are raised.

Called by `./dev lint --fix`; a test says when the page is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from pkgutil import walk_packages

from airflow_delta.connections.fields import UnusableConnection
from airflow_delta.runners.job_runner import JobError
from delta_log.errors import CommitFailed, DeltaLogError, TableError
from delta_maintenance.cli.arguments import UsageError
from delta_maintenance.contract import ErrorReport
from delta_maintenance.job_interface import ContractError

ROOT = Path(__file__).resolve().parents[1]
PROVIDER = ROOT / "provider"
PAGE = ROOT / "docs" / "reference" / "errors.md"
BEGIN, END = "<!-- from the code, by ./dev lint --fix -->", "<!-- end of what comes from the code -->"

#: Errors that one module raises and another of ours catches.
INTERNAL = {"BadManifest", "ContentChanged", "CreationConflict"}
#: Only their subclasses are raised.
_BASES = {TableError, CommitFailed, JobError}
_PACKAGES = ("parquet_parts", "delta_log", "delta_maintenance", "airflow_delta")
_HEADINGS = {
    "refused": "The table or the request is at fault",
    "conflict": "Another writer was faster",
    "failed": "The store, the machine or the job failed",
    "": "The Airflow task has no report of a job",
}
#: Airflow's own exceptions, which tasks raise without a name of ours.
_OF_AIRFLOW = {
    "AirflowFailException": "| {} | An argument, a connection or a setting cannot be used. | the DAG, the connection or the setting | no |",
    "AirflowException": "| {} | A service that opens sessions for a connection does not answer. | that service | yes |",
}
#: Fewer letters than these are no message, but a part of one.
_FEWEST_LETTERS = 12


def errors() -> Iterator[type[Exception]]:
    """Every error that ends an operation."""
    for name in _PACKAGES:
        package = import_module(name)
        for module in walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    ours = {cls for base in (DeltaLogError, JobError) for cls in _below(base)}
    ours = {cls for cls in ours if cls.__module__.startswith(_PACKAGES)} - _BASES
    for cls in sorted(ours | {ContractError, UsageError, UnusableConnection}, key=lambda cls: cls.__name__):
        if cls.__name__ not in INTERNAL and not cls.__name__.startswith("_"):
            yield cls


def _below(base: type[Exception]) -> Iterator[type[Exception]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _below(cls)


def tables() -> list[str]:
    """Lines of Markdown: a table for each kind of error, then the messages of each error."""
    known = list(errors())
    lines = []
    for kind, heading in _HEADINGS.items():
        code = f": exit code {ErrorReport(kind=kind).exit_code}" if kind else ""
        lines += [f"## {heading}{code}", "", "| error | what happened | at fault | another try helps |"]
        lines += ["|---|---|---|---|", *(_row(cls) for cls in known if _kind(cls) == kind)]
        lines += [] if kind else [row.format(f"`{name}`") for name, row in _OF_AIRFLOW.items()]
        lines.append("")
    lines += ["## Messages", "", "An ellipsis stands for a value.", ""]
    said = {cls.__name__: messages_of(cls) for cls in known} | {name: _raised()[name] for name in _OF_AIRFLOW}
    for name, messages in sorted(said.items()):
        if messages:
            lines += [f"### `{name}`", "", *(f"* ``{message}``" for message in messages), ""]
    return lines


def messages_of(cls: type[Exception]) -> list[str]:
    """What an error may say, with an ellipsis for each value."""
    return _own_message(cls) or _raised().get(cls.__name__, [])


def page() -> str:
    """The whole page, with the tables as they must be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return "\n".join([f"{before}{BEGIN}", "", *tables(), f"{END}{rest.partition(END)[2]}"])


def _kind(cls: type[Exception]) -> str:
    return str(getattr(cls, "kind", ""))


def _row(cls: type[Exception]) -> str:
    what = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", _first_paragraph(cls))
    retried = "yes" if getattr(cls, "retryable", False) else "no"
    exception = vars(cls).get("when_retryable", "")
    if _decides_by_itself(cls) != bool(exception):
        raise TypeError(f"{cls.__name__}: when_retryable says when its own retryable differs, and only that")
    if exception:
        retried = exception if exception.startswith("as ") else f"{retried}; {exception}"
    cells = (f"`{cls.__name__}`", what, str(getattr(cls, "at_fault", "")), retried)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _first_paragraph(cls: type[Exception]) -> str:
    first = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]
    if "__doc__" not in vars(cls) or not first or first.startswith(":"):
        raise TypeError(f"{cls.__name__}: the docstring has to say what happened")
    return " ".join(first.split())


def _decides_by_itself(cls: type[Exception]) -> bool:
    """Whether the constructor sets whether another try helps."""
    made = vars(cls).get("__init__")
    return made is not None and "self.retryable =" in inspect.getsource(made)


# -- messages --------------------------------------------------------------------------------------------------------


def _own_message(cls: type[Exception]) -> list[str]:
    """The messages that a constructor makes, or that of a class above; nothing: its caller gives the whole message."""
    for owner in cls.__mro__:
        made = vars(owner).get("__init__")
        if not inspect.isfunction(made):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("super(") and node.args:
                found = _worth_showing(_Scope(tree, {}, made.__globals__).texts(node.args[0]))
                if found:
                    return found
    return []


@cache
def _raised() -> dict[str, list[str]]:
    """The messages of each name that is called with one, in all modules."""
    found: dict[str, list[str]] = {}
    for path in sorted(path for name in _PACKAGES for path in (PROVIDER / name).rglob("*.py")):
        name = ".".join(path.relative_to(PROVIDER).with_suffix("").parts)
        if name not in sys.modules or "testing" in name:
            continue
        module = ast.parse(path.read_text(encoding="utf-8"))
        defined = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        functions = {node.name: node for node in defined}
        for function in defined:
            scope = _Scope(function, functions, vars(sys.modules[name]))
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                    messages = found.setdefault(node.func.id, [])
                    messages += [
                        text for text in _worth_showing(scope.texts(node.args[0])) if text not in messages
                    ]
    return found


def _worth_showing(texts: Iterable[str]) -> list[str]:
    return [" ".join(text.split()) for text in texts if _is_worded(text)]


def _is_worded(text: str) -> bool:
    return len(re.findall(r"[a-zA-Z]", text)) >= _FEWEST_LETTERS


class _Scope:
    """What is known of the names in a function before it runs.

    :param functions: of its module, which may make a message.
    :param constants: of its module.
    """

    def __init__(
        self, function: ast.AST, functions: Mapping[str, ast.FunctionDef], constants: Mapping[str, object]
    ) -> None:
        self._functions, self._constants = functions, constants
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned.setdefault(node.targets[0].id, []).append(node.value)

    def texts(self, node: ast.expr, depth: int = 4) -> list[str]:
        """What an expression may be as a text, with an ellipsis for what is not known."""
        if depth == 0:
            return ["…"]
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                pieces = [self._piece(part, depth) for part in parts]
                return [re.sub(r"…(\s*…)+", "…", "".join(made)) for made in product(*pieces)]
            case ast.IfExp(body=body, orelse=other):
                return [*self.texts(body, depth), *self.texts(other, depth)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return ["".join(pair) for pair in product(self.texts(left, depth), self.texts(right, depth))]
            case ast.Name(id=name) if isinstance(self._constants.get(name), str):
                return [str(self._constants[name])]
            case ast.Name(id=name):
                return [
                    text for value in self._assigned.get(name, ()) for text in self.texts(value, depth - 1)
                ] or ["…"]
            case ast.Call(func=ast.Name(id=name)) if name in self._functions:
                made = self._functions[name]
                scope = _Scope(made, self._functions, self._constants)
                returned = [
                    each.value for each in ast.walk(made) if isinstance(each, ast.Return) and each.value
                ]
                return [text for value in returned for text in scope.texts(value, depth - 1)] or ["…"]
        return ["…"]

    def _piece(self, part: ast.expr, depth: int) -> list[str]:
        """A part of an f-string: its words, where it is a name for words."""
        if isinstance(part, ast.FormattedValue):
            known = self.texts(part.value, depth - 1) if isinstance(part.value, ast.Name) else []
            return known if known and all(_is_worded(text) for text in known) else ["…"]
        return self.texts(part, depth)


def main() -> None:
    text = page()
    if PAGE.read_text(encoding="utf-8") != text:
        PAGE.write_text(text, encoding="utf-8")
        print(f"{PAGE.name}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
