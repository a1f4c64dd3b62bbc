"""Base of the sensors: waiting in the task or in the triggerer, and errors.

A sensor waits out an outage of the store, until `timeout`. An error that waiting does not cure (a refused table, a missing
permission or connection) fails the task at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from airflow_delta.operators.arguments import DELTA_CONN_ID, TABLE, CheckedArguments, by_attribute
from airflow_delta.operators.monitoring import report_sight
from airflow_delta.operators.reporting.failure import with_connection
from airflow_delta.triggers.deferral import deferral_timeout
from delta_log.printable import printable
from delta_maintenance.process.fast_start import convert_without_pandas

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_delta.triggers.table_wait import Outcome


class DeltaTableSensor(CheckedArguments, BaseSensorOperator):
    """Waits for something about one Delta table.

    :param table: address of the table: an absolute path, a URI such as ``s3://lake/events``, or a name in a catalog,
        ``glue://sales.events`` or ``uc://prod.sales.events``. (templated)
    :param delta_conn_id: connection with the credentials of the table's storage, of type delta, aws, google_cloud_platform,
        wasb, adls, azure_data_lake or azure, or of a catalog; default: the identity of the machine. (templated)
    :param deferrable: switch to wait in the triggerer, holding no slot; default: ``[operators] default_deferrable``.
    :param poke_interval: seconds between two looks at the table.

    `timeout`, `mode`, `soft_fail` and the others are Airflow's own. A deferred sensor ends at the earlier of
    `timeout` and `execution_timeout`, but not in the first fifteen seconds.
    """

    arguments = by_attribute(TABLE, DELTA_CONN_ID)
    template_fields: Sequence[str] = ("table", "delta_conn_id")
    ui_color = "#e3f4f7"

    def __init__(
        self,
        *,
        table: str,
        delta_conn_id: str | None = None,
        deferrable: bool | None = None,
        poke_interval: timedelta | float = 30,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.table = table
        self.delta_conn_id = delta_conn_id
        self.deferrable = (
            conf.getboolean("operators", "default_deferrable", fallback=False)
            if deferrable is None
            else deferrable
        )

    def look(self, context: Context) -> Outcome | None:
        """Look once; returns the outcome, or ``None`` to be called again."""
        raise NotImplementedError

    def trigger(self) -> BaseTrigger:
        """The trigger that goes on waiting; called after the first :meth:`look`."""
        raise NotImplementedError

    def result(self, context: Context, outcome: Mapping[str, Any]) -> Any:
        """The XCom of an outcome."""
        return dict(outcome)

    def execute(self, context: Context) -> Any:
        self.check_all()
        convert_without_pandas()  # the process of the task does nothing else
        if not self.deferrable:
            return super().execute(context)
        try:
            return self._execute_deferrable(context)
        except (AirflowFailException, AirflowSensorTimeout) as error:
            if self.soft_fail or self.never_fail:
                which = "soft_fail" if self.soft_fail else "never_fail"
                raise AirflowSkipException(f"Skipping due to {which} is set to True.") from error
            raise

    def _execute_deferrable(self, context: Context) -> Any:
        deadline = time.monotonic() + self._patience_seconds()
        outcome = self.look(context)
        while outcome is None and not self.can_defer():
            if time.monotonic() > deadline:
                raise AirflowSensorTimeout(f"The store of {printable(self.table)} did not answer in time.")
            time.sleep(self.poke_interval)
            outcome = self.look(context)
        if outcome is None:
            self.defer(
                trigger=self.trigger(),
                method_name="execute_complete",
                timeout=deferral_timeout(deadline - time.monotonic()),
            )
        return self.execute_complete(context, outcome)

    def _patience_seconds(self) -> float:
        """How long to wait. Airflow does not apply the execution timeout to a deferred task, so it is applied here."""
        if self.execution_timeout is None:
            return self.timeout
        return min(self.timeout, self.execution_timeout.total_seconds())

    def can_defer(self) -> bool:
        """Whether :meth:`trigger` can be made already."""
        return True

    def poke(self, context: Context) -> bool | PokeReturnValue:
        outcome = self.look(context)
        if outcome is None:
            return False
        return PokeReturnValue(is_done=True, xcom_value=self.execute_complete(context, outcome))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The XCom, from the outcome that a look or the trigger has found.

        :raises AirflowFailException: the table or the request is at fault.
        """
        if event["status"] == "refused":
            message = with_connection(event["message"], self.value_of("delta_conn_id"))
            raise AirflowFailException(printable(f"{message} [{event['type']}]"))
        result = self.result(context, event)
        version = result.get("version", result.get("lastVersion")) if isinstance(result, Mapping) else None
        report_sight(context, self.table, version, self)
        return result
