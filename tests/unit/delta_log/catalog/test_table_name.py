from __future__ import annotations

import pytest

from delta_log.catalog.table_name import TableName
from delta_log.errors import InvalidRequest


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("glue://sales.events", TableName("glue", "sales", "events")),
        ("HMS://Sales_2.Events-Raw/", TableName("hms", "sales_2", "events-raw")),
    ],
)
def test_a_name_is_a_database_and_a_table_in_lower_case(address: str, name: TableName) -> None:
    assert TableName.parse(address) == name
    assert TableName.parse(str(name)) == name


@pytest.mark.parametrize("address", ["s3://sales.events/t", "/data/glue.t", "file:///data/t", "glue.t"])
def test_the_address_of_a_place_is_no_name(address: str) -> None:
    assert TableName.parse(address) is None


@pytest.mark.parametrize(
    "address",
    [
        "glue://events",
        "glue://a.b.c",
        "glue://sales/events",
        "glue://sales.",
        "hms://evil.example:9083/sales.events",
        "hms://user:password@sales.events",
        "glue://sales.events?x=1",
        "glue://sales.*",
        "glue://sales.events/*",
        "glue://sales.ev\nents",
    ],
)
def test_a_name_can_hold_nothing_else_least_of_all_a_host(address: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a name in a catalog") as refused:
        TableName.parse(address)
    assert "password" not in str(refused.value)
