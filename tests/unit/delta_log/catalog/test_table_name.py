from __future__ import annotations

import pytest
from msgspec.structs import replace

from delta_log.catalog.table_name import CatalogEntry, TableName
from delta_log.errors import InvalidRequest, NotDelta


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


NAME = TableName("hms", "sales", "events")
AT = "s3://lake/events"
OF_SPARK = CatalogEntry(
    "EXTERNAL_TABLE",
    {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "DELTA"},
    "file:/warehouse/events-__PLACEHOLDER__",
    "org.apache.hadoop.mapred.SequenceFileInputFormat",
    {"path": AT, "serialization.format": "1"},
)
OF_ATHENA = CatalogEntry("EXTERNAL_TABLE", {"table_type": "DELTA"}, AT)
OF_A_CRAWLER = CatalogEntry(
    "EXTERNAL_TABLE",
    {"TABLE_TYPE": "delta", "spark.sql.sources.provider": "delta", "classification": "parquet"},
    AT,
)
UNIFORM = CatalogEntry("EXTERNAL_TABLE", {"spark.sql.sources.provider": "delta", "table_type": "ICEBERG"}, AT)


@pytest.mark.parametrize(
    "entry", [OF_SPARK, OF_ATHENA, OF_A_CRAWLER, UNIFORM], ids=lambda entry: str(entry.parameters)
)
def test_a_delta_table_is_where_its_engine_has_written(entry: CatalogEntry) -> None:
    assert entry.location_as(NAME) == AT


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (CatalogEntry("VIRTUAL_VIEW", {"spark.sql.sources.provider": "delta"}, AT), "it is a view"),
        (CatalogEntry("MATERIALIZED_VIEW", {}), "it is a view"),
        (CatalogEntry("EXTERNAL_TABLE", {"table_type": "ICEBERG"}, AT), "of the format ICEBERG"),
        (
            CatalogEntry("MANAGED_TABLE", {"spark.sql.sources.provider": "parquet"}, AT),
            "of the format parquet",
        ),
        (CatalogEntry("EXTERNAL_TABLE", {"classification": "csv"}, AT), "none of the properties"),
        (
            CatalogEntry("EXTERNAL_TABLE", {}, f"{AT}/_symlink_format_manifest", "x.SymlinkTextInputFormat"),
            "list of symbolic links",
        ),
        (replace(OF_SPARK, storage_properties={}), "no location"),
        (replace(OF_ATHENA, location=None), "no location"),
    ],
)
def test_anything_else_is_refused_with_what_the_catalog_says_it_is(entry: CatalogEntry, why: str) -> None:
    with pytest.raises(NotDelta, match=why) as refused:
        entry.location_as(NAME)
    assert "hms://sales.events" in str(refused.value)
    assert not refused.value.retryable
