"""Liquid clustering: the columns that a table is clustered by.

Protocol section "Clustered Table". A metadata domain holds the columns by their physical names. After ``CLUSTER BY NONE``
the table keeps the feature in its protocol, and the domain without columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from delta_log.errors import InvalidMetadata

CLUSTERING_DOMAIN = "delta.clustering"
#: In ``add.clusteringProvider`` of files that were clustered as Spark clusters them.
PROVIDER = "liquid"
#: In ``add.clusteringProvider`` of files that Spark is to leave alone: each implementation clusters anew only files of its own provider.
OWN_PROVIDER = "airflow-provider-delta"
#: In ``add.tags`` of such files: the cube, which is the set of files that were clustered together, and its columns as a JSON list
#: of logical names.
CUBE_TAG, CUBE_COLUMNS_TAG = "ZCUBE_ID", "ZCUBE_ZORDER_BY"


def clustering_columns(domain_metadata: Mapping[str, str]) -> list[list[str]]:
    """The columns, each as its physical names from the top down; empty: the table is not clustered.

    :param domain_metadata: configuration by domain.
    :raises InvalidMetadata: the domain does not name columns.
    """
    configuration = domain_metadata.get(CLUSTERING_DOMAIN)
    if configuration is None:
        return []
    try:
        found = json.loads(configuration)["clusteringColumns"]
        if not isinstance(found, list):
            raise TypeError(found)
        # The protocol's text shows plain names, where writers give the parts of each name.
        columns = [[path] if isinstance(path, str) else [str(name) for name in path] for path in found]
        if not all(path and all(path) for path in columns):
            raise TypeError(found)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidMetadata(
            f"domainMetadata {CLUSTERING_DOMAIN}", f"it names no columns ({error!r})"
        ) from error
    return columns
