"""Checks before any work that every machine has what the job needs, so that an error names what is missing.

The probe is pickled by value and imports none of our modules, since the check must find out whether these arrive. It is a
plain Python UDF, since pyarrow may be missing, too.
"""

from __future__ import annotations

import json
import math
import os
import re
import site
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from delta_maintenance.engine.connect.sessions import is_connect_address
from delta_maintenance.errors import ClusterIncomplete
from delta_maintenance.process.requirements import OLDEST, REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON = (3, 10)
_PROBES = 4


class ClusterVersions(Struct, frozen=True):
    """Python and library versions by machine; ``driver`` is this process.

    :param has_library: every machine has the sources of this process; else the engine sends them.
    """

    found: Mapping[str, Mapping[str, str]]
    has_library: bool

    def describe(self) -> str:
        return "; ".join(f"{where}: {_have(versions)}" for where, versions in self.found.items())


def check_cluster(
    spark: SparkSession, make_udf: Callable[..., Any], required: Sequence[str] = REQUIRED
) -> ClusterVersions:
    """Find out what the driver and some executors have.

    :param make_udf: ``pyspark.sql.functions.udf``.
    :param required: libraries that every machine must have.
    :raises ClusterIncomplete: a machine lacks a library, or has a release that is too old.
    """
    probe = _probe(required)
    found: dict[str, dict[str, str]] = {"driver": json.loads(probe())}
    if not _executors_are_here(spark):
        found |= _ask_executors(spark, make_udf, probe)
    for versions in found.values():
        versions.pop("host", None)
    sources = {versions.pop("sources") for versions in found.values()}
    missing = {where: names for where, versions in found.items() if (names := lacking(versions))}
    if missing:
        raise ClusterIncomplete(missing, {where: _have(found[where]) for where in missing})
    return ClusterVersions(found, has_library=len(sources) == 1 and "" not in sources)


def _executors_are_here(spark: SparkSession) -> bool:
    """Tell whether tasks run on this machine, with this Python and its modules. Executors then need no probe."""
    if is_connect_address(os.environ.get("SPARK_REMOTE", "")):
        return False  # the server's machine is another one, though its master may be called local
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
    # Imported here: every job imports this module, and few make a bundle.
    from delta_maintenance.process.bundle import PACKAGES

    packages = PACKAGES

    # A nested function is pickled by value: the executor may not have this module.
    def probe() -> str:
        import hashlib
        import importlib
        import importlib.util
        import json
        import os
        import platform
        import socket

        def sources() -> str:
            """Return what tells one release from another. Imports nothing, since a task may bring another release."""
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


def lacking(versions: Mapping[str, str]) -> list[str]:
    """Return what a machine with these versions lacks, for people."""
    names = [name for name, version in versions.items() if version.startswith("missing")]
    for name, oldest in (*OLDEST.items(), ("Python", _PYTHON)):
        if _release(versions.get(name.lower(), "")) < oldest:
            names.append(f"{name} {'.'.join(map(str, oldest))} or later")
    return names


def _release(version: str) -> tuple[float, ...]:
    """Return a version's numbers for comparisons. A version that has none, or is not known, is newer than all."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(float(part) for part in numbers[0].split(".")) if numbers else (math.inf,)


def _have(versions: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} {version}" for name, version in versions.items() if not version.startswith("missing")
    )
