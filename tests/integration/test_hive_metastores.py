"""Tables by their names in a real Hive metastore, which is started once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.servers.hive import Metastore, running_metastore
from tests.support.servers.process import free_port
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.catalog.lookup import locate
from delta_log.errors import InvalidRequest, NotDelta, NotInCatalog, StorageError
from delta_maintenance.cli.main import main
from delta_maintenance.fleet.discovery import discover

DELTA = {"spark.sql.sources.provider": "delta"}


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with running_metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


def test_a_table_is_found_and_maintained_by_its_name(
    metastore: Metastore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "events"
    write_days(table)
    name = metastore.register(
        "events", f"file:{tmp_path}/events-__PLACEHOLDER__", DELTA, path=f"file:{table}"
    )
    options = json.dumps(metastore.storage_options)
    assert Table(name, metastore.storage_options).uri == str(table)
    assert main(["optimize", name.upper().replace("HMS", "hms"), "--storage-options", options, "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["status"], report["location"]) == ("committed", str(table))
    assert report["table"].lower() == name
    assert f"is at {table}" in err
    assert Table(str(table)).history(1)[0]["operation"] == "OPTIMIZE"


def test_what_is_no_delta_table_is_refused_with_what_it_is(metastore: Metastore, tmp_path: Path) -> None:
    trino = metastore.register("by_trino", f"file:{tmp_path}/t", {"spark.sql.sources.provider": "DELTA"})
    assert locate(trino, metastore.storage_options) == f"{tmp_path}/t"
    for name, parameters, kind, why in (
        ("iceberg", {"table_type": "ICEBERG"}, "EXTERNAL_TABLE", "of the format ICEBERG"),
        ("text", {}, "EXTERNAL_TABLE", "none of the properties"),
        ("a_view", {}, "VIRTUAL_VIEW", "it is a view"),
    ):
        location = None if kind == "VIRTUAL_VIEW" else f"file:{tmp_path}/{name}"
        address = metastore.register(name, location, parameters, table_type=kind)
        with pytest.raises(NotDelta, match=why):
            locate(address, metastore.storage_options)
    for address in ("hms://default.absent", "hms://absent.events"):
        with pytest.raises(NotInCatalog, match=f"{address} is not in the catalog .*table not found"):
            locate(address, metastore.storage_options)


def test_the_delta_tables_of_a_database_are_found_with_their_places(
    metastore: Metastore, tmp_path: Path
) -> None:
    for name in ("orders_1", "orders_2", "clicks"):
        metastore.register(name, f"file:{tmp_path}/{name}", DELTA)
    metastore.register("orders_text", f"file:{tmp_path}/text", {})
    found = discover(["hms://default.orders_*"], ["**/orders_2"], metastore.storage_options)
    assert [(one.table, one.location) for one in found.tables] == [
        ("hms://default.orders_1", f"{tmp_path}/orders_1")
    ]
    assert discover(["hms://absent.*"], (), metastore.storage_options).without_tables == ("hms://absent.*",)
    (unread,) = discover(
        ["hms://default.*"], (), {"hive_metastore": f"thrift://127.0.0.1:{free_port()}"}
    ).unlisted
    assert unread.error.type == "StorageError"


def test_the_next_metastore_is_asked_where_one_does_not_answer(metastore: Metastore, tmp_path: Path) -> None:
    address = metastore.register("second", f"file:{tmp_path}/t", DELTA)
    both = f"thrift://127.0.0.1:{free_port()}, {metastore.uri}"
    assert locate(address, {"hive_metastore": {"uri": both, "user": "tests"}}) == f"{tmp_path}/t"
    with pytest.raises(NotInCatalog):  # an answer, which ends the search
        locate(
            "hms://default.absent", {"hive_metastore": f"{metastore.uri},thrift://127.0.0.1:{free_port()}"}
        )


def test_an_outage_is_retryable_and_names_every_metastore() -> None:
    port, other = free_port(), free_port()
    with pytest.raises(StorageError, match=rf"127.0.0.1:{port}.*127.0.0.1:{other}") as failed:
        locate(
            "hms://sales.events", {"hive_metastore": f"thrift://127.0.0.1:{port},thrift://127.0.0.1:{other}"}
        )
    assert failed.value.retryable


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x00\x00\x00\x0bUnsupported"]
)
def test_a_server_that_speaks_something_else_is_told_from_a_metastore(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(StorageError, match="without encryption and Kerberos") as failed:
            locate("hms://sales.events", {"hive_metastore": uri})
        assert failed.value.retryable
        thread.join(10)


@pytest.mark.parametrize(
    "option",
    [
        "",
        "metastore:9083",
        "http://metastore:9083",
        "thrift://",
        "thrift://user:secret@metastore",
        {"user": "u"},
        {"uri": 1},
        7,
    ],
)
def test_an_option_that_names_no_metastore_is_refused_without_its_secrets(option: object) -> None:
    with pytest.raises(InvalidRequest, match="hive_metastore") as refused:
        locate("hms://sales.events", {"hive_metastore": option})
    assert "secret" not in str(refused.value)
