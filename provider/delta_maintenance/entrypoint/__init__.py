"""Programs that others start: the job that spark-submit, Airflow and the local runner execute."""
