"""The engines that run a plan's tasks: this process, worker processes of this machine, or a Spark cluster."""
