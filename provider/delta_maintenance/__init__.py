"""What to do about a Delta table: plan, run, commit and report, on this machine or on Spark, without Airflow.

Importing this package loads nothing. Callers that ask for maintenance use :mod:`delta_maintenance.contract`; processes that
run a job use :mod:`delta_maintenance.entrypoint.run_job`; people use :mod:`delta_maintenance.cli.main`.
"""
