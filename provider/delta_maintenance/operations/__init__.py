"""The operations, each from opening the table to the report: plan, run, commit."""
