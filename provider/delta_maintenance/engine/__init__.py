"""The engines that run a plan's tasks: this machine, or a Spark cluster."""
