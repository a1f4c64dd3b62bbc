"""Liquid clustering, as far as the log tells of it: by which columns a table is clustered.

Protocol section "Clustered Table". The columns stand in a metadata domain, by their physical names. A table of which
somebody took the clustering away (``CLUSTER BY NONE``) keeps the feature in its protocol and the domain without columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from delta_log.errors import CorruptLog

CLUSTERING_DOMAIN = "delta.clustering"


def clustering_columns(domain_metadata: Mapping[str, str]) -> list[list[str]]:
    """The columns, each as its physical names from the top down; none: the table is not clustered.

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
