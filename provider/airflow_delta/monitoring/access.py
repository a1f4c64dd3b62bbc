"""Airflow's own authentication and permissions, for the routes of the API.

Airflow promises nothing about the modules that are imported here, so no other module imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_asset, requires_authenticated
from airflow.configuration import conf
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


def maintenance_dag(user: GetUserDep) -> str | None:
    """The DAG of the setting ``maintenance_dag``, if the caller may start it."""
    dag_id = (conf.get("delta", "maintenance_dag", fallback=None) or "").strip()
    if not dag_id:
        return None
    may_start = get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
    )
    return dag_id if may_start else None


def metadata_session() -> Iterator[Session]:
    with create_session(scoped=False) as session:
        yield session
