"""The checkpoint campaign: many more random histories than the tests have time for.

``./dev campaign checkpoints [--histories N]`` writes histories of appended, removed, refreshed and re-added files, of
changed deletion vectors and of expiring tombstones, with classic, full, incremental and foreign checkpoints among them,
and compares each checkpoint with what the commits replay to. A failure is shrunk and printed with its history.
"""

from __future__ import annotations

import argparse

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.tables.checkpoint_histories import PROPERTIES, check_history


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=2000)
    options = parser.parse_args()
    reused = []

    @settings(
        max_examples=options.histories, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(properties=PROPERTIES, sidecar_actions=st.sampled_from([1, 2, 5]), data=st.data())
    def histories(properties: dict[str, str], sidecar_actions: int, data: st.DataObject) -> None:
        reused.append(check_history(data, properties, sidecar_actions))

    histories()
    print(f"{len(reused):,} histories, {sum(reused):,} sidecars named again, no difference")


if __name__ == "__main__":
    main()
