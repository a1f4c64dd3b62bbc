"""The seam for teams that start Spark drivers in their own way: Livy, EMR, Databricks, a gateway of their own.

A :class:`DriverLauncher` starts one PySpark application and tells whether it runs. It knows nothing of maintenance: the application
reads its spec from its arguments, and leaves progress and report in the table's directory, where :class:`~airflow_delta.runners.
cluster.ClusterJobRunner` reads them. The contract test is :class:`airflow_delta.testing.DriverLauncherContract`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from msgspec import Struct

from airflow_delta.runners.detached import JobHandle


@dataclass(frozen=True, slots=True)
class DriverRequest:
    """One PySpark application.

    :param name: name for people: operation, table, dag and task.
    :param submission_id: unique id of 32 hexadecimal digits; a launcher that can name or tag the application does it with this id,
        so that :meth:`DriverLauncher.find` finds it.
    :param application: path of the program ``run_job.py``, on this machine unless the user named another place.
    :param arguments: arguments of the program. They hold no secrets, and everybody may see them.
    :param environment: variables of the driver that hold secrets. They must not go where others read them: not into command lines, and
        into Spark properties only where these are redacted.
    :param spark_conf: Spark properties.
    """

    name: str
    submission_id: str
    application: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark_conf: Mapping[str, str] = field(default_factory=dict)


class DriverPhase(Enum):
    """``WAITING``: accepted, and has not begun. ``UNKNOWN``: the cluster does not answer now; the driver counts as running."""

    WAITING = "waiting"
    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: The cluster does not know the driver, or does not know it any more.
    GONE = "gone"

    @property
    def is_over(self) -> bool:
        return self in (DriverPhase.SUCCEEDED, DriverPhase.FAILED, DriverPhase.GONE)


class DriverState(Struct, frozen=True):
    """
    :param text: description for people, in the cluster's words: ``FAILED: container killed``.
    """

    phase: DriverPhase
    text: str = ""


class DriverLauncher(ABC):
    """Starts drivers on one cluster. An object is made at parse time, too: its ``__init__`` looks nothing up and connects to nothing."""

    #: For people: which cluster.
    place: str

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class by its full name, and keyword arguments that make an equal launcher. They hold no secrets: name a connection."""

    @abstractmethod
    def start(self, request: DriverRequest) -> JobHandle:
        """Start a driver, and return as soon as the cluster has accepted it.

        :return: what identifies it; JSON values without secrets.
        :raises JobCannotStart: the request or the configuration is wrong; nothing was started.
        :raises JobLost: the cluster did not answer, or was full; another try may succeed.
        """

    def find(self, submission_id: str) -> JobHandle | None:
        """Look for a driver by its submission id; ``None``: there is none, or the cluster cannot tell."""
        return None

    def prepare(self) -> None:
        """Import, and look up, what :meth:`state` and :meth:`end` need: see
        :meth:`DetachedRunner.prepare <airflow_delta.runners.detached.DetachedRunner.prepare>`.

        :raises JobCannotStart: something is missing, or the configuration is wrong.
        """

    @abstractmethod
    def state(self, handle: JobHandle) -> DriverState:
        """The state of a driver. An outage is ``UNKNOWN``, not an error."""

    @abstractmethod
    def end(self, handle: JobHandle) -> None:
        """End a driver with its executors. It may be over, or gone.

        :raises JobLost: the cluster did not answer.
        """
