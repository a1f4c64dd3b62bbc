from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files

import jsonschema
import pytest
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from airflow_delta import operators
from airflow_delta.provider_info import get_provider_info


@pytest.mark.parametrize("schema", ["provider_info.schema.json"])
def test_provider_info_is_what_airflow_expects(schema: str) -> None:
    jsonschema.validate(get_provider_info(), json.loads((files("airflow") / schema).read_text()))


def test_the_form_of_the_connection_is_what_airflow_expects() -> None:
    # The runtime schema permits any field there; this one says what the UI understands.
    schema = json.loads((files("airflow") / "provider.yaml.schema.json").read_text())
    connections = get_provider_info()["connection-types"]
    jsonschema.validate(connections, schema["properties"]["connection-types"])


def test_every_class_and_module_that_is_named_exists() -> None:
    info = get_provider_info()
    for connection in info["connection-types"]:
        module, _, name = connection["hook-class-name"].rpartition(".")
        hook = getattr(import_module(module), name)
        assert issubclass(hook, BaseHook)
        assert (hook.conn_type, hook.hook_name) == (connection["connection-type"], connection["hook-name"])
    kinds: dict[str, type] = {
        "operators": BaseOperator,
        "sensors": BaseSensorOperator,
        "triggers": BaseTrigger,
    }
    for listed, kind in kinds.items():
        for module in (module for entry in info[listed] for module in entry["python-modules"]):
            assert any(
                isinstance(found, type) and issubclass(found, kind) and found.__module__ == module
                for found in vars(import_module(module)).values()
            ), module
    for entry in info["hooks"]:
        for module in entry["python-modules"]:
            import_module(module)


def test_every_link_of_an_operator_is_listed_for_airflow_shows_no_other() -> None:
    listed = set()
    for path in get_provider_info()["extra-links"]:
        module, _, name = path.rpartition(".")
        listed.add(getattr(import_module(module), name))
    used = {
        type(link) for name in operators.__all__ for link in getattr(operators, name).operator_extra_links
    }
    assert used == listed
