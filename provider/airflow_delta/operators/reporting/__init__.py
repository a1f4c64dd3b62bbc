"""What becomes of a job's report: results, metrics, lineage, and the exception of a failed one."""
