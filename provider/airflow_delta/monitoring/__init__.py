"""What tasks report of tables, and the page *Delta tables* of Airflow's UI that shows it.

* :mod:`~airflow_delta.monitoring.record` is what a task reports: one entry of its state store for each run and each reading of health.
* :mod:`~airflow_delta.monitoring.metadata_queries` reads these entries from Airflow's metadata database, in the API server.
* :mod:`~airflow_delta.monitoring.fleet` and :mod:`~airflow_delta.monitoring.table_view` are pure functions from records to what
  is shown.
* :mod:`~airflow_delta.monitoring.api` serves it as JSON, and :mod:`~airflow_delta.monitoring.plugin` adds API and page to Airflow.

Nothing here opens a table: the API server needs no credentials of a store.
"""
