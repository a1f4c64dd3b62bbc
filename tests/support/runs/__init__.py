"""Runs of maintenance and of Airflow's parts, and what a test does meanwhile."""
