"""Loads pyarrow into a program of this package without what it brings and the program does not need.

1. The first time that pyarrow converts a Python list, it tries to import pandas, so that it knows a Series when it gets one, and
   remembers the answer. Importing pandas takes longer than all that a small job does, and no code of this package holds a Series. So
   that first conversion is made here, while pandas cannot be found.
2. When ``pyarrow.compute`` is loaded, it makes a function in Python for each of Arrow's, and puts the help texts together from those of
   their options. Each function is made when it is asked for, without such a text. NumPy gives its functions their help texts when it is
   loaded. A program shows none of them.
3. NumPy's linear algebra, which is not used here, starts threads that spin for an eighth of a second.
4. pyarrow's file systems for object stores, and the certificates for them, are not loaded: this package goes to stores by fsspec.
5. Arrow's own allocator has twice the memory that is in use, and gives free memory back to the system each second, to pay for each
   page anew a moment later. That of the GNU C library needs less, and is told here to keep what it has.
6. msgspec takes from typing_extensions what Python has itself since 3.11, and loads ``uuid``, which asks ``platform`` one question.
   pyarrow asks it none until it is to describe itself.
7. NumPy's classes for annotations, by which NumPy annotates a few results of its linear algebra.
8. Sockets, with which a function of pyarrow finds a free port.
9. ``argparse`` looks for translations of its messages in several places (:func:`load_lean_parser`).
10. Python looks for unused cycles of objects after every 700 objects that stay. A start makes a hundred thousand that all stay.
   The command line says so before it loads its own modules (:func:`collect_rarely`).

Only programs that are ours from their first line call this: the command line, the entry point of a job on one machine, a
worker. A process of someone else that imports this package, and a Spark driver, stay as they are. Other libraries of the
process can import pandas afterwards. ``to_pandas`` of pyarrow works, too: it tries the import again.

Spark has loaded pyarrow into its Python workers before a task of ours begins, so only the first point is left to do there. It
is done in an application that is ours, whose workers serve nobody else (:func:`prepare_spark_worker`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.machinery import PathFinder
from threading import RLock
from types import ModuleType, SimpleNamespace
from typing import Any

#: Set to 1 in the Python workers of a Spark application that is ours.
OWN_WORKERS_VARIABLE = "DELTA_MAINTENANCE_OWN_WORKERS"
_ALGEBRA = {"OPENBLAS_NUM_THREADS": "1"}
_SYSTEM_POOL = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
#: Parameters of mallopt: the free memory at the end of the heap that is given back, and the size from which memory comes from the
#: system and returns to it at once, with the largest value that there is.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 1 << 30, 32 << 20
#: The new objects after which Python looks for cycles.
_OBJECTS = 200_000
#: The modules of NumPy that only give help texts to its functions.
_HELP_OF_NUMPY = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
#: The file systems of pyarrow that are left out. That of HDFS stays, since fsspec uses it.
_STORES = ("pyarrow._s3fs", "pyarrow._gcsfs", "pyarrow._azurefs")
#: Functions of Arrow that ``pyarrow.compute`` gives a second name when it is loaded, and those that have another one there.
_RENAMED_FUNCTIONS, _KEYWORDS = ("utf8_zero_fill",), {"and_": "and", "or_": "or"}
_MAKING = RLock()
#: What Python has itself.
_PRESENT = ("typing_extensions",)
#: The package that pyarrow looks for when it converts the first list, for values of its types.
_NOT_NEEDED = ("pandas",)


def load_lean_arrow() -> None:
    """Import pyarrow with its functions, and make its first conversion.

    Does nothing where a caller has imported it: it has what it has.
    """
    if "pyarrow" in sys.modules:
        return
    collect_rarely()
    with _hidden(_PRESENT), _in_place(*_system()), suppress(ImportError):
        import msgspec  # noqa: F401
    with _environment(_ALGEBRA | (_SYSTEM_POOL if _keeps_free_memory() else {})):
        _convert_first()
    with _in_place(_certificates()), _hidden(_STORES), suppress(Exception):
        import pyarrow.fs  # noqa: F401
    # This is about private parts of pyarrow. Where they have changed, all functions are made, when they are needed.
    with _in_place(_reader_of_help()), suppress(Exception):
        _load_functions()


def load_lean_parser() -> None:
    """Import ``argparse`` without translations of its messages, of which there are none."""
    one_of = _module(
        "gettext", gettext=lambda text: text, ngettext=lambda one, many, n: one if n == 1 else many
    )
    with _in_place(one_of):
        import argparse  # noqa: F401


def collect_rarely() -> None:
    """Have Python look for unused cycles of objects less often."""
    first, *others = gc.get_threshold()
    if first:  # 0 turns it off
        gc.set_threshold(max(_OBJECTS, first), *others)


def prepare_spark_worker() -> None:
    """Make pyarrow's first conversion, where this process is a Python worker of a Spark application that is ours."""
    if os.environ.get(OWN_WORKERS_VARIABLE) == "1":
        _convert_first()


def _convert_first() -> None:
    with _in_place(*_help_of_numpy(), _annotations_of_numpy(), *_system(), ModuleType("socket")):
        import pyarrow as pa

    if "pandas" not in sys.modules:
        with _hidden(_NOT_NEEDED):
            # Without a type, since the inference of types looks for pandas once more.
            pa.array([None])


class _Hides:
    """A finder of modules that finds none of some. It has no base class, since the module of that class is slow to import."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)


@contextmanager
def _hidden(names: Collection[str]) -> Iterator[None]:
    finder = _Hides(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def _in_place(*modules: ModuleType) -> Iterator[None]:
    """Put modules in the place of those with their names, which are loaded later if somebody asks for them. A loaded one stays."""
    absent = {module.__name__: module for module in modules if module.__name__ not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name, module in absent.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


def _system() -> list[ModuleType]:
    """Stand for ``platform``, which ``uuid`` asks for the name of the system. Most of that module are patterns for other questions."""
    if not hasattr(os, "uname"):
        return []
    return [_module("platform", system=lambda: os.uname().sysname, __getattr__=_of_platform)]


def _of_platform(name: str) -> Any:
    """Answer one who has kept what stood for ``platform``."""
    if name.startswith("__"):
        raise AttributeError(name)
    if vars(sys.modules.get("platform", sys)).get("__getattr__") is _of_platform:
        del sys.modules["platform"]
    import platform

    return getattr(platform, name)


def _certificates() -> ModuleType:
    """Stand for ``ssl``: pyarrow asks it for certificates for object stores in any case, and gets none."""
    none = SimpleNamespace(cafile=None, capath=None)
    return _module("ssl", get_default_verify_paths=lambda: none)


def _help_of_numpy() -> list[ModuleType]:
    # Another release of NumPy may call functions of these modules.
    return [_module(name, __getattr__=_does_nothing) for name in _HELP_OF_NUMPY]


def _does_nothing(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_, **__: None


def _annotations_of_numpy() -> ModuleType:
    """Stand for NumPy's classes for annotations: any name is a class that takes parameters."""
    numpy = PathFinder.find_spec("numpy")
    # Another release of NumPy may import modules within it.
    places = [f"{place}/_typing" for place in (numpy and numpy.submodule_search_locations) or ()]
    return _module("numpy._typing", __path__=places, __getattr__=_is_a_list)


def _is_a_list(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return list


class _Registry:
    """Stands for Arrow's registry of functions, and names some of them only."""

    def __init__(self, whole: Any, *names: str) -> None:
        self._whole, self._names = whole, names

    def list_functions(self) -> tuple[str, ...]:
        return self._names

    def get_function(self, name: str) -> Any:
        return self._whole.get_function(name)


def _load_functions() -> None:
    """Import ``pyarrow.compute``, which makes its functions for Arrow's when they are asked for."""
    from pyarrow import _compute

    registry = _compute.function_registry
    _compute.function_registry = lambda: _Registry(registry(), *_RENAMED_FUNCTIONS)
    try:
        import pyarrow.compute as functions
    finally:
        _compute.function_registry = registry
    functions.function_registry = registry
    functions.__getattr__ = partial(_function, functions, registry)


def _function(functions: Any, registry: Callable[[], Any], name: str) -> Any:
    """Return a function of ``pyarrow.compute`` that was not made yet.

    :raises AttributeError: there is none.
    """
    with _MAKING, suppress(KeyError):
        if name not in vars(functions):
            functions.function_registry = lambda: _Registry(registry(), _KEYWORDS.get(name, name))
            try:
                functions._make_global_functions()
            finally:
                functions.function_registry = registry
    if name in vars(functions):
        return vars(functions)[name]
    raise AttributeError(f"module {functions.__name__!r} has no attribute {name!r}")


def _reader_of_help() -> ModuleType:
    """Stand for the module by which pyarrow reads the help texts of options."""
    return _module("pyarrow.vendored.docscrape", NumpyDocString=lambda _text: {"Parameters": ()})


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that libraries read when they are loaded. What a user has set stays, and children inherit none."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _keeps_free_memory() -> bool:
    """Tell the allocator of the C library to keep free memory; return whether it is that of the GNU C library, which can."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES))
