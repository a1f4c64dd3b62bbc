"""What to do about a Delta table: plan, run, commit and report, on this machine or on Spark, without Airflow.

Importing this package loads nothing: :mod:`delta_maintenance.contract` is for whoever asks for maintenance,
:mod:`delta_maintenance.entrypoint.run_job` for whoever runs it, :mod:`delta_maintenance.cli.main` for people.
"""
