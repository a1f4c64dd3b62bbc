"""Baselines of a sensor: where its previous successful run ended for a table, and where this run began.

The end of a run is kept in the state store of the asset that stands for the table, if that is an inlet of the task. Else it is an
XCom under a key that names the table, because in a mapped task a table may have another map index in every run. What a run
noted counts only if the run succeeded. A failed run keeps its previous baseline.

If no earlier run is known, this run begins at some version. It has to begin there again when it is rescheduled or tried again,
or it would miss what is committed between two looks. Therefore the version is kept in the task's own state store. It is
forgotten when the task is cleared, which shows in ``max_tries``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from delta_log.storage.table_uri import one_spelling

if TYPE_CHECKING:
    from airflow.sdk import Context

_KEY = "delta_version"


class Baselines:
    """The baselines for one table, as one try of a task sees them."""

    def __init__(self, context: Context, table: str) -> None:
        self._context: Mapping[str, Any] = context
        self._instance: Any = context["ti"]
        self._table = table.rstrip("/") or "/"

    def recall(self) -> int | None:
        """The last version that an earlier run has reported; ``None`` if there is no such run."""
        notes = [note for note in self._notes() if isinstance(note, Mapping) and "lastVersion" in note]
        if not notes:
            return None
        newest = max(notes, key=lambda note: (note["lastVersion"], note["firstVersion"]))
        return int(newest["lastVersion"] if self._succeeded(newest) else newest["firstVersion"] - 1)

    def remember(self, first: int, last: int) -> None:
        """Note the range of this run; called when the task is about to succeed."""
        note = {
            "table": self._table,
            "firstVersion": first,
            "lastVersion": last,
            "runId": self._instance.run_id,
            "mapIndex": self._instance.map_index,
        }
        store = self._asset_state()
        if store is not None:
            store.set(self._state_key, note)
        else:
            self._instance.xcom_push(f"{_KEY}:{self._table}", note)

    def begun(self) -> int | None:
        """The version at which an earlier try of this run began; ``None`` if there is none, or the task was cleared since."""
        store = self._context.get("task_state_store")
        note = None if store is None else store.get(self._begin_key)
        if not isinstance(note, Mapping) or note.get("maxTries") != self._instance.max_tries:
            return None
        return int(note["version"])

    def begin(self, version: int) -> None:
        """Keep the version after which this run looks."""
        store = self._context.get("task_state_store")
        if store is not None:
            store.set(self._begin_key, {"version": version, "maxTries": self._instance.max_tries})

    @property
    def _begin_key(self) -> str:
        return f"{_KEY}_begin:{self._table}"

    @property
    def _state_key(self) -> str:
        return f"{_KEY}:{self._instance.dag_id}.{self._instance.task_id}"

    def _notes(self) -> Iterable[Any]:
        store = self._asset_state()
        if store is not None:
            return [store.get(self._state_key)]
        found = self._instance.xcom_pull(
            task_ids=[self._instance.task_id],
            key=f"{_KEY}:{self._table}",
            include_prior_dates=True,
        )
        return found if isinstance(found, list) else [found]

    def _asset_state(self) -> Any:
        """The state store of the inlet that is this table."""
        stores = self._context.get("asset_state_store")
        for inlet in getattr(self._context.get("task"), "inlets", None) or ():
            if one_spelling(str(getattr(inlet, "uri", ""))) == one_spelling(self._table):
                return stores[inlet] if stores is not None else None
        return None

    def _succeeded(self, note: Mapping[str, Any]) -> bool:
        run_id, map_index = str(note["runId"]), int(note["mapIndex"])
        states = self._instance.get_task_states(
            dag_id=self._instance.dag_id,
            map_index=map_index,
            task_ids=[self._instance.task_id],
            run_ids=[run_id],
        )
        of_run = states.get(run_id) or {}
        return all(state == "success" for state in of_run.values()) if of_run else True
