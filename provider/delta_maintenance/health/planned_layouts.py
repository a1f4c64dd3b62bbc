"""What a layout would gain for some queries, by the planner and the forecast of OPTIMIZE."""

from __future__ import annotations

from delta_log.snapshot.snapshot import Snapshot
from delta_maintenance.health.facts import PlannedLayout
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.planned_rewrites import rewrite_of
from delta_maintenance.optimize.forecast.layout_advice import Query, advised_layout, clustering_advice
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.table_layout import clustered_columns


def looks_for_layout(snapshot: Snapshot, options: HealthOptions) -> bool:
    """Whether a reading says anything about layouts."""
    return options.queries is not None or bool(clustered_columns(snapshot))


def planned_layout(snapshot: Snapshot, options: HealthOptions, now_ms: int) -> PlannedLayout | None:
    """Find the layout for the queries of a reading; ``None``: none would change anything.

    :raises InvalidRequest: the queries cannot be read, or name too many columns.
    """
    queries: list[Query] = []
    if options.queries is not None:
        # Imported here: most readings parse no SQL.
        from delta_maintenance.partitions.predicate import filtered_columns

        queries = [query for text in options.queries for query in filtered_columns(text)]
    request = OptimizeOptions.from_mapping(options.optimize_request)
    is_clustered = bool(clustered_columns(snapshot))
    advise = clustering_advice if is_clustered else advised_layout
    advice = advise(snapshot, queries, request, now_ms)
    if advice is None:
        return None
    layout = advice.plan.layout
    assert layout is not None
    wanted = {} if is_clustered else {"layout": advice.options.sorts, "by": list(advice.options.by or ())}
    return PlannedLayout(
        "clustering" if is_clustered else layout.layout.kind,
        layout.names,
        advice.now,
        max(advice.now, advice.after),
        rewrite_of(advice.plan, snapshot, {**options.optimize_request, **wanted}),
        advice.unusable,
    )
