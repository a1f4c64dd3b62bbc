"""The metastore of Hive 2.3, which PySpark carries, with its tables in memory."""

from __future__ import annotations

import importlib.util
import io
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers.dynamodb import short_lived_java
from tests.support.servers.process import running

#: The part of the interface that tables are made with, in one with that of the product.
_INTERFACE = """
exception MetaException { 1: string message }
struct FieldSchema { 1: string name, 2: string type, 3: string comment }
struct SerDeInfo { 1: string name, 2: string serializationLib, 3: map<string, string> parameters }
struct StorageDescriptor { 1: list<FieldSchema> cols, 2: string location, 3: string inputFormat, 4: string outputFormat,
  5: bool compressed, 6: i32 numBuckets, 7: SerDeInfo serdeInfo, 8: list<string> bucketCols, 9: list<string> sortCols,
  10: map<string, string> parameters }
struct Table { 1: string tableName, 2: string dbName, 3: string owner, 7: StorageDescriptor sd, 8: list<FieldSchema> partitionKeys,
  9: map<string, string> parameters, 10: string viewOriginalText, 11: string viewExpandedText, 12: string tableType }
service ThriftHiveMetastore {
  void create_table(1: Table tbl) throws (1: MetaException o1)
}
"""
_SITE = """<configuration>
  <property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:memory:metastore;create=true</value></property>
  <property><name>javax.jdo.option.ConnectionDriverName</name><value>org.apache.derby.jdbc.EmbeddedDriver</value></property>
  <property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
  <property><name>hive.metastore.schema.verification</name><value>false</value></property>
  <property><name>hive.metastore.warehouse.dir</name><value>file:{directory}/warehouse</value></property>
  <property><name>hive.async.log.enabled</name><value>false</value></property>
</configuration>
"""
#: Java 17 keeps these closed, and Hive looks into them.
_OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "util")]


@dataclass(frozen=True, slots=True)
class Metastore:
    """A running metastore, and the database that it makes when it starts."""

    port: int
    database: str = "default"

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {"hive_metastore": self.uri}

    def register(
        self,
        name: str,
        location: str | None,
        parameters: Mapping[str, str],
        path: str | None = None,
        table_type: str = "EXTERNAL_TABLE",
    ) -> str:
        """Puts a table into the catalog, and returns its name as an address.

        :param path: the property of the storage in which Spark keeps the location.
        """
        if location is not None:
            # Otherwise the metastore makes the directory.
            Path(location.removeprefix("file:")).mkdir(parents=True, exist_ok=True)
        interface = _interface()
        serde = interface.SerDeInfo(
            name=name,
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            parameters={} if path is None else {"path": path},
        )
        storage = interface.StorageDescriptor(
            cols=[interface.FieldSchema(name="col", type="array<string>", comment="")],
            location=location,
            inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            compressed=False,
            numBuckets=-1,
            serdeInfo=serde,
            bucketCols=[],
            sortCols=[],
            parameters={},
        )
        is_external = {"EXTERNAL": "TRUE"} if table_type == "EXTERNAL_TABLE" else {}
        table = interface.Table(
            tableName=name,
            dbName=self.database,
            owner="tests",
            sd=storage,
            partitionKeys=[],
            parameters={**is_external, **parameters},
            tableType=table_type,
        )
        if table_type == "VIRTUAL_VIEW":
            table.viewOriginalText = table.viewExpandedText = "SELECT 1"
        self.call("create_table", table)
        return f"hms://{self.database}.{name}"

    def call(self, method: str, *arguments: Any) -> None:
        from thriftpy2.protocol import TBinaryProtocol
        from thriftpy2.thrift import TClient
        from thriftpy2.transport import TBufferedTransport, TSocket

        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            transport = TBufferedTransport(TSocket(sock=connection))  # type: ignore[no-untyped-call]
            protocol = TBinaryProtocol(transport)  # type: ignore[no-untyped-call]
            getattr(TClient(_interface().ThriftHiveMetastore, protocol), method)(*arguments)


def _interface() -> Any:
    import thriftpy2

    return thriftpy2.load_fp(io.StringIO(_INTERFACE), "tests_hive_metastore_thrift")


@contextmanager
def running_metastore(directory: Path) -> Iterator[Metastore]:
    """Runs the metastore of Hive 2.3 for the length of a block; ends the test if Java is missing."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    jars = Path(found.origin).parent / "jars"
    (directory / "hive-site.xml").write_text(_SITE.format(directory=directory))
    command = [
        *short_lived_java("to run a Hive metastore"),
        *_OPENED,
        "-Xmx400m",
        "-cp",
        f"{directory}:{jars}/*",
    ]
    command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p"]
    with running(lambda port: [*command, str(port)], directory) as port:
        yield Metastore(port)
