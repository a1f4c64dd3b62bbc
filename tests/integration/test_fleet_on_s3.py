"""A fleet on a real S3 server: found, surveyed, and surveyed again, with the requests counted."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

from tests.support.servers.proxy import proxied
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_maintenance.fleet.discovery import discover
from delta_maintenance.fleet.survey import survey
from delta_maintenance.fleet.survey_memory import SurveyMemoryFile
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.progress import SilentProgress


def test_a_table_is_found_and_surveyed_with_one_request_each(s3_server: S3Server, tmp_path: Path) -> None:
    bucket = s3_server.make_bucket()
    for name in ("gold/events", "gold/orders", "raw/clicks"):
        write_days(tmp_path / name, files=3)
        s3_server.put_tree(tmp_path / name, f"{bucket}/{name}")
    s3_server.put(f"{bucket}/raw/files/a.json", b"{}")
    with proxied(s3_server.endpoint) as proxy:
        options = dataclasses.replace(s3_server, endpoint=proxy.endpoint).storage_options

        def requests() -> Counter[str]:
            found = Counter("LIST" if "list-type" in one.query else one.method for one in proxy.requests)
            proxy.requests.clear()
            return found

        found = discover([f"s3://{bucket}/**"], (), options)
        assert [one.table for one in found.tables] == [
            f"s3://{bucket}/{name}" for name in ("gold/events", "gold/orders", "raw/clicks")
        ]
        # The root; gold, raw and raw/files, twice each; three tables.
        assert requests() == {"LIST": 1 + 2 * 3 + 3}
        place = SurveyMemoryFile(f"s3://{bucket}/fleet/memory", options)
        first = survey(found.tables, lambda address, properties: HealthOptions(), None, options)
        place.write(first.memory)
        assert first.unread == ()
        requests()
        memory = place.read(SilentProgress())
        second = survey(found.tables, lambda address, properties: HealthOptions(), memory, options)
        assert requests() == {"LIST": 3, "GET": 1}
        assert [one.facts for one in second.tables] == [one.facts for one in first.tables]
        write_days(tmp_path / "gold/orders", files=1)
        s3_server.put_tree(tmp_path / "gold/orders", f"{bucket}/gold/orders")
        third = survey(found.tables, lambda address, properties: HealthOptions(), second.memory, options)
        assert requests() == {"LIST": 3, "GET": 4}
        assert third.num_read == 1
        assert third.tables[1].facts.version == Table(str(tmp_path / "gold/orders")).snapshot().version == 3
        s3_server.remove_tree(f"{bucket}/raw/clicks")
        (unread,) = survey(found.tables, lambda address, properties: HealthOptions(), memory, options).unread
        assert unread.error.type == "NotATable"
