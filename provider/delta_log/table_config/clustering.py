"""Liquid clustering: the columns that a table is clustered by.

Protocol section "Clustered Table". A metadata domain holds the columns by their physical names. After ``CLUSTER BY NONE``
the table keeps the feature in its protocol, and the domain without columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from delta_log.errors import CorruptLog

CLUSTERING_DOMAIN = "delta.clustering"


def clustering_columns(domain_metadata: Mapping[str, str]) -> list[list[str]]:
    """The columns, each as its physical names from the top down; empty: the table is not clustered.

    :param domain_metadata: configuration by domain.
    :raises CorruptLog: the domain does not name columns.
    """
    configuration = domain_metadata.get(CLUSTERING_DOMAIN)
    if configuration is None:
        return []
    try:
        found = json.loads(configuration)["clusteringColumns"]
        columns = [[str(name) for name in path] for path in found if isinstance(path, list)]
        if len(columns) < len(found):
            raise TypeError(found)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptLog(f"domainMetadata {CLUSTERING_DOMAIN}", f"it names no columns ({error!r})") from error
    return columns
