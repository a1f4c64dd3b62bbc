"""Makes the asset that tasks tell of tables by, before a task needs it.

Airflow 3.3 makes an asset that does not exist when the first event reaches it through an alias, within the request that marks the
task a success. Two tasks that end at that moment both make it, and one of them is marked failed. So the rows are made when the scheduler,
the DAG processor or the triggerer starts (:mod:`airflow_delta.monitoring.plugin`), and a task whose asset is not there tells nothing
(:mod:`airflow_delta.operators.monitoring`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from airflow.models.asset import AssetActive, AssetAliasModel, AssetModel
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, OperationalError

from airflow_delta.assets import MONITORING_ALIAS, MONITORING_ASSET

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


#: Begins a session; it is committed at the end, or rolled back where an exception leaves it.
Sessions = Callable[[], AbstractContextManager["Session"]]


def make_asset_rows(sessions: Sessions = create_session) -> None:
    """Make the rows of the asset, of its alias, and of what binds them, as far as they are missing."""
    try:
        _make(sessions)
    except (IntegrityError, OperationalError):
        # Another process made some of them at the same time, and MySQL may call that a deadlock. They are there now.
        _make(sessions)


def _make(sessions: Sessions) -> None:
    with sessions() as session:
        asset = session.scalar(select(AssetModel).where(AssetModel.name == MONITORING_ASSET.name))
        if asset is None:
            asset = AssetModel(MONITORING_ASSET.name, MONITORING_ASSET.uri, group=MONITORING_ASSET.group)
            session.add(asset)
        alias = _alias(session)
        if alias not in asset.aliases:
            asset.aliases.append(alias)
        if session.get(AssetActive, (asset.name, asset.uri)) is None:
            # A task finds active assets only. The scheduler keeps it active, since an alias refers to it.
            session.add(AssetActive.for_asset(asset))


def _alias(session: Session) -> AssetAliasModel:
    found = session.scalar(select(AssetAliasModel).where(AssetAliasModel.name == MONITORING_ALIAS.name))
    return found or AssetAliasModel(name=MONITORING_ALIAS.name, group=MONITORING_ALIAS.group)
