"""Notifiers that say when a table needs somebody, and send by the notifier of any provider.

Each decides whether to send, and leaves the sending to those that it is given: an e-mail, a chat, a pager. What it knows from
earlier runs are XComs of its task (:mod:`~airflow_delta.notifications.memory`).
"""

from airflow_delta.notifications.attention import DeltaTableAttentionNotifier
from airflow_delta.notifications.failures import DeltaMaintenanceFailureNotifier
from airflow_delta.notifications.fleet_report import DeltaFleetReportNotifier

__all__ = ["DeltaFleetReportNotifier", "DeltaMaintenanceFailureNotifier", "DeltaTableAttentionNotifier"]
