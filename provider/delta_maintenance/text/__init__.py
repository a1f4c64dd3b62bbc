"""What people read of a job, on the command line and in the log of an Airflow task; standard library only."""
