"""Who does the rewriting: this process, worker processes of this machine, or a Spark cluster; one
protocol."""
