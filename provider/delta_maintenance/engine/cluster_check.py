"""Does every machine have what the job needs? Asked before any work, so that the answer is a name, not a
traceback.

The probe is sent by value and imports nothing of ours, since whether our own modules arrive is one of the
questions; and it is a plain Python UDF, since Arrow is another.
"""

from __future__ import annotations

import importlib.util
import json
import os
import site
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_maintenance.bundle import PACKAGES
from delta_maintenance.errors import ClusterIncomplete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Imported by the rewriter; compiled, so that a bundle cannot bring them.
REQUIRED = ("pyarrow", "numpy", "fsspec", "pyroaring", "msgspec")
_PYTHON = (3, 10)
_PROBES = 4


@dataclass(frozen=True, slots=True)
class ClusterVersions:
    """Python and library versions by machine; ``driver`` is this process.

    :param has_library: every machine has the very sources of this process; else they have to be sent.
    """

    found: Mapping[str, Mapping[str, str]]
    has_library: bool

    def describe(self) -> str:
        return "; ".join(f"{where}: {_have(versions)}" for where, versions in self.found.items())


def check(spark: SparkSession, make_udf: Callable[..., Any]) -> ClusterVersions:
    """Ask the driver and some executors.

    :param make_udf: ``pyspark.sql.functions.udf``.
    :raises ClusterIncomplete: something is missing; named, machine by machine.
    """
    probe = _probe(REQUIRED)
    found: dict[str, dict[str, str]] = {"driver": json.loads(probe())}
    if not _executors_are_here(spark):
        found |= _ask_executors(spark, make_udf, probe)
    for versions in found.values():
        versions.pop("host", None)
    sources = {versions.pop("sources") for versions in found.values()}
    missing = {where: _missing(versions) for where, versions in found.items() if _missing(versions)}
    if missing:
        raise ClusterIncomplete(missing, {where: _have(found[where]) for where in missing})
    return ClusterVersions(found, has_library=len(sources) == 1 and "" not in sources)


def _executors_are_here(spark: SparkSession) -> bool:
    """Do tasks run on this machine, with this Python and its modules? Then there is nobody else to ask."""
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        return False
    python = spark.conf.get("spark.pyspark.python", None) or os.environ.get("PYSPARK_PYTHON", "")
    if os.path.realpath(python) != os.path.realpath(sys.executable):
        return False
    library = Path(__file__).resolve().parents[2]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if library in {Path(path).resolve() for path in (*site.getsitepackages(), *inherited) if path}:
        return True
    return library.name in (spark.conf.get("spark.submit.pyFiles", "") or "")


def _ask_executors(
    spark: SparkSession, make_udf: Callable[..., Any], probe: Callable[[], str]
) -> dict[str, dict[str, str]]:
    # Arrow-optimised UDFs would fail before the probe can say that pyarrow is missing.
    ask = make_udf(lambda _: probe(), "string", useArrow=False)
    rows = spark.range(0, _PROBES, 1, _PROBES).select(ask("id").alias("answer")).collect()
    answers = [json.loads(row["answer"]) for row in rows]
    return {f"executor {answer['host']}": answer for answer in answers}


def _probe(required: Sequence[str]) -> Callable[[], str]:
    packages = PACKAGES

    # A nested function, so that it is pickled by value: the executor may not have this module.
    def probe() -> str:
        import hashlib
        import importlib
        import importlib.util
        import json
        import os
        import platform
        import socket

        def sources() -> str:
            """What tells one release from another; nothing is imported, since a task may bring another one."""
            found = importlib.util.find_spec("delta_maintenance")
            if found is None or found.origin is None:
                return ""
            home = os.path.dirname(os.path.dirname(found.origin))
            if os.path.isfile(home):  # a bundle, whose name holds its hash
                return os.path.basename(home)
            digest = hashlib.sha256()
            for package in packages:
                for directory, below, names in os.walk(os.path.join(home, package)):
                    below.sort()
                    for name in sorted(names):
                        if name.endswith(".py"):
                            path = os.path.join(directory, name)
                            digest.update(os.path.relpath(path, home).encode())
                            with open(path, "rb") as file:
                                digest.update(file.read())
            return digest.hexdigest()

        answer: dict[str, Any] = {"host": socket.gethostname(), "python": platform.python_version()}
        for name in required:
            try:
                answer[name] = str(getattr(importlib.import_module(name), "__version__", "?"))
            except Exception as error:  # noqa: BLE001 - a broken library is as bad as none
                answer[name] = f"missing: {error}"
        answer["sources"] = sources()
        return json.dumps(answer)

    return probe


def _missing(versions: Mapping[str, str]) -> list[str]:
    names = [name for name in REQUIRED if versions[name].startswith("missing")]
    if tuple(int(part) for part in versions["python"].split(".")[:2]) < _PYTHON:
        names.append(f"Python {'.'.join(map(str, _PYTHON))}")
    return names


def _have(versions: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} {version}" for name, version in versions.items() if not version.startswith("missing")
    )


def missing_here() -> list[str]:
    """What this very process lacks; to ask needs the standard library alone."""
    return [name for name in REQUIRED if importlib.util.find_spec(name) is None]
