"""Airflow's own authentication and permissions, for the routes of the API.

Airflow promises nothing about the modules that are imported here, so no other module imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_asset, requires_authenticated
from airflow.utils.session import create_session
from fastapi import Depends
from sqlalchemy.orm import Session

#: Refuses a caller without a token of this Airflow.
AUTHENTICATED = Depends(requires_authenticated())
#: Refuses a caller who may not see assets.
MAY_READ_ASSETS = Depends(requires_access_asset("GET"))


def readable_dags(user: GetUserDep) -> Callable[[str], bool]:
    """Whether a DAG is one that the caller may read. Airflow shows the events of other DAGs to no caller either."""
    dag_ids = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return dag_ids.__contains__


def metadata_session() -> Iterator[Session]:
    with create_session(scoped=False) as session:
        yield session
