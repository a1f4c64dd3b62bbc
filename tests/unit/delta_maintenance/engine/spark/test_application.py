from __future__ import annotations

from delta_maintenance.contract import JobSpec
from delta_maintenance.engine.spark.application import MAX_CHARACTERS, application_name


def named(table: str, dag_id: str = "nightly", task_id: str = "optimize") -> str:
    tags = {"airflow.dag_id": dag_id, "airflow.task_id": task_id}
    return application_name(JobSpec("optimize", table, "run", tags=tags))


def test_it_names_operation_table_and_task() -> None:
    assert named("s3://lake/events") == "OPTIMIZE s3://lake/events (nightly.optimize)"
    assert application_name(JobSpec("vacuum", "/data/events", "cli-1")) == "VACUUM /data/events"


def test_a_long_name_is_cut_to_its_ends() -> None:
    name = named(f"s3://lake/{'deep/' * 100}events", "dag" * 100, "group.optimize")
    assert len(name) == MAX_CHARACTERS
    assert name.startswith("OPTIMIZE …")
    assert "deep/events (…" in name
    assert name.endswith(".group.optimize)")


def test_what_a_table_is_called_neither_steers_a_terminal_nor_shows_a_secret() -> None:
    name = named("s3://KEY:SECRET@lake/a\x1b[2J\nb")
    assert name.isprintable()
    assert "SECRET" not in name
