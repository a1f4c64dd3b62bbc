"""Checks of what is installed here. Loads none of the libraries, since one may be missing."""

from __future__ import annotations

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version

from delta_log.storage.schemes import opened_kind, scheme_of
from delta_log.storage.table_uri import is_name
from delta_log.version import VERSION
from delta_maintenance.doctor.check import FAILURE, OK, Check, Examination
from delta_maintenance.process.requirements import REQUIRED, missing_here

#: The client of all stores that can be written to.
_CLIENT = "obstore"
#: By scheme of a name, the package that its catalog needs, and the extra that installs it.
_CATALOG_CLIENTS = {"glue": ("botocore", "s3"), "hms": ("thriftpy2", "hive")}


def examine_installation(examination: Examination, table: str | None) -> bool:
    """Check this process's Python and libraries, and the client of the table's store.

    :return: whether a table can be opened at all.
    """
    missing = missing_here()
    if missing:
        examination.add(
            Check(
                "python.libraries",
                FAILURE,
                f"Python {platform.python_version()} lacks {', '.join(missing)}.",
                "Install airflow-provider-delta with its dependencies into this Python.",
                {"missing": missing},
            )
        )
        return False
    versions = {name: _version(name) for name in REQUIRED}
    examination.add(
        Check(
            "python.libraries",
            OK,
            f"Python {platform.python_version()}, airflow-provider-delta {VERSION}, "
            + ", ".join(f"{name} {found}" for name, found in versions.items()),
            facts={"python": platform.python_version(), "versions": versions},
        )
    )
    return table is None or examination.run("store.client", lambda: _client_of(table))


def _client_of(table: str) -> str | Check:
    scheme = scheme_of(table)
    if scheme in ("", "file"):
        return "a local directory needs no client library"
    kind = opened_kind(scheme)
    if scheme in _CATALOG_CLIENTS:
        package, extra = _CATALOG_CLIENTS[scheme]
    elif kind is not None:
        package, extra = _CLIENT, kind.extra
    elif is_name(table):
        return "the catalog is asked without a client library"
    else:
        return f"{scheme}:// is opened by fsspec, and can only be read"
    if importlib.util.find_spec(package) is None:
        return Check(
            "store.client",
            FAILURE,
            f"Tables on {scheme}:// need {package}, which is not installed here.",
            f"Install airflow-provider-delta[{extra}].",
            {"missing": [package]},
        )
    return f"{package} {_version(package)}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
