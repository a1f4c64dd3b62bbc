"""Jobs as drivers on a cluster: one module for each kind of cluster, and what all of them share."""
