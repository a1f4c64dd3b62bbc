"""Where a Spark driver runs, as spark-submit names it. DAG files import this."""

from __future__ import annotations

#: Beside the task, which holds its slot; and on the cluster.
CLIENT, CLUSTER = "client", "cluster"
DEPLOY_MODES = (CLIENT, CLUSTER)
