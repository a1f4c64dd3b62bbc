"""The description of this provider, which Airflow reads through the entry point ``apache_airflow_provider``.

Every process of an Airflow installation calls it at start, so it imports nothing.
"""

from __future__ import annotations

from typing import Any


def _text(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}


def _secret(label: str, description: str) -> dict[str, Any]:
    return {
        "label": label,
        "description": description,
        "schema": {"type": ["string", "null"], "format": "password"},
    }


def _switch(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": "boolean", "default": False}}


#: Named as fsspec's file systems name them: what the form writes into ``extra`` *is* the storage options.
CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "test_table": _text(
        "Table to test with", "Address of a table whose store the Test button examines. Not a credential."
    ),
    "allowed_roots": _text(
        "Allowed roots",
        "Addresses, with commas between them: a table must lie below one. Empty: only the setting [delta] allowed_roots "
        "counts.",
    ),
    "hive_metastore": _text(
        "Hive metastore",
        "Address in which names hms://database.table are looked up, for example thrift://metastore:9083. Not a credential.",
    ),
    "key": _text("S3: access key id", "Empty: the machine's own identity."),
    "secret": _secret("S3: secret access key", ""),
    "token": _secret(
        "S3: session token; GCS: key", "For GCS the JSON of a service account key, or its path."
    ),
    "endpoint_url": _text("S3: endpoint", "For S3-compatible stores, for example http://minio:9000."),
    "anon": _switch("S3, Azure: anonymous", "Do not sign requests."),
    "project": _text("GCS: project", ""),
    "account_name": _text("Azure: storage account", ""),
    "account_key": _secret("Azure: account key", ""),
    "sas_token": _secret("Azure: SAS token", ""),
    "tenant_id": _text("Azure: tenant id", ""),
    "client_id": _text("Azure: client id", ""),
    "client_secret": _secret("Azure: client secret", ""),
    "connection_string": _secret("Azure: connection string", ""),
}

#: The form of a connection to a catalog with a REST interface; beside it are host, login and password.
CATALOG_FIELDS: dict[str, dict[str, Any]] = {
    **{name: CONNECTION_FIELDS[name] for name in ("test_table", "allowed_roots")},
    "token_uri": _text(
        "Token service", "Address that gives tokens to an OAuth client. Empty: the password is a token."
    ),
    "scope": _text("Scope", "Scope that the OAuth client asks for."),
    "ca_bundle": _text("Authorities", "Path of a file in PEM form. Empty: the authorities of the machine."),
    "endpoint_url": CONNECTION_FIELDS["endpoint_url"],
}
_METALAKE = {"metalake": _text("Metalake", "Metalake in which catalogs are looked up.")}


def _catalog(kind: str, hook: str, name: str, host: str, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "connection-type": kind,
        "hook-class-name": f"airflow_delta.hooks.rest_catalogs.{hook}",
        "hook-name": name,
        "conn-fields": {**CATALOG_FIELDS, **more},
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {
                "host": "Address of the catalog",
                "login": "OAuth client id",
                "password": "Token, or secret of the OAuth client",
                "port": "Port (0, for the Test button)",
                "extra": "Storage options",
            },
            "placeholders": {
                "host": host,
                "port": "0",
                "extra": '{"client_kwargs": {"region_name": "eu-central-1"}}',
            },
        },
    }


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "airflow-provider-delta",
        "name": "Delta Lake",
        "description": "Keeps Delta Lake tables healthy: compaction through PySpark, without a JVM Delta library.",
        "integrations": [{"integration-name": "Delta Lake", "external-doc-url": "https://delta.io/"}],
        "operators": [
            {
                "integration-name": "Delta Lake",
                "python-modules": [
                    "airflow_delta.fleet.maintenance",
                    "airflow_delta.operators.checkpoint",
                    "airflow_delta.operators.content.drop_feature",
                    "airflow_delta.operators.content.expire",
                    "airflow_delta.operators.doctor",
                    "airflow_delta.operators.optimize",
                    "airflow_delta.operators.reorg_purge",
                    "airflow_delta.operators.table_health",
                    "airflow_delta.operators.vacuum",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "Delta Lake",
                "python-modules": [
                    "airflow_delta.sensors.deletion_vector_ratio",
                    "airflow_delta.sensors.table_health",
                    "airflow_delta.sensors.table_version",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": "Delta Lake",
                "python-modules": [
                    "airflow_delta.triggers.deletion_vector_ratio",
                    "airflow_delta.triggers.table_health",
                    "airflow_delta.triggers.table_version",
                ],
            }
        ],
        "notifications": [
            "airflow_delta.notifications.DeltaFleetReportNotifier",
            "airflow_delta.notifications.DeltaMaintenanceFailureNotifier",
            "airflow_delta.notifications.DeltaTableAttentionNotifier",
        ],
        "extra-links": [
            "airflow_delta.links.SparkApplicationLink",
            "airflow_delta.links.TableLink",
            "airflow_delta.links.TablePageLink",
        ],
        "hooks": [{"integration-name": "Delta Lake", "python-modules": ["airflow_delta.hooks.delta_table"]}],
        "config": {
            "delta": {
                "description": "Maintenance of Delta Lake tables.",
                "options": {
                    "allowed_roots": {
                        "description": "Addresses, with commas between them. A table, and any other place that an operator, "
                        "sensor or trigger is given, must lie below one of them. Not set: any address is allowed. A "
                        "connection of type delta can narrow it further.",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "s3://lake/sales, /data/lake",
                        "default": None,
                    },
                    "deferral_settle_seconds": {
                        "description": "How long a trigger waits, from the beginning of a deferral on, before it wakes its task: as long as the "
                        "deferred process takes to end, and the scheduler to hear of it. If that takes longer on a busy system, "
                        "Airflow fails tasks that are woken at once.",
                        "version_added": "0.2.0",
                        "type": "float",
                        "example": "30",
                        "default": "10",
                    },
                    "emit_events": {
                        "description": "Which runs of the operators emit an event of their maintenance asset: all (every run "
                        "that ends well), changes (runs that changed the table) or none. An operator's emit_events wins.",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "none",
                        "default": "changes",
                    },
                    "hive_metastore": {
                        "description": "Address of the Hive metastore in which tables are looked up that are given as "
                        "hms://database.table; several with commas between them. The hive_metastore of a connection wins.",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "thrift://metastore.example.org:9083",
                        "default": None,
                    },
                    "monitoring": {
                        "description": "Whether tasks report to the page Delta tables of Airflow's UI: an entry of the task's state "
                        "store for each run and each reading of health.",
                        "version_added": "0.2.0",
                        "type": "boolean",
                        "example": "False",
                        "default": "True",
                    },
                    "monitoring_days": {
                        "description": "How many days back the page Delta tables looks, and how long tasks let Airflow keep what "
                        "they report. A table that no task has reported of since then is not shown.",
                        "version_added": "0.2.0",
                        "type": "integer",
                        "example": "30",
                        "default": "90",
                    },
                    "maintenance_dag": {
                        "description": "Id of a DAG that users may start for a table from the page Delta tables, with the table's "
                        "address as the param table. Airflow decides who may start it. Not set: the page starts nothing.",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "adhoc_maintenance",
                        "default": None,
                    },
                    "page_places": {
                        "description": "Where Airflow's UI shows the page Delta tables, with commas between: nav (navigation), dag, "
                        "task_instance and asset (a tab of each DAG, task instance and asset; of assets from Airflow 3.4 on), dashboard "
                        "(a panel of the home page).",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "nav, dashboard",
                        "default": "nav, dag, task_instance, asset, dashboard",
                    },
                    "spark_history_url": {
                        "description": "Address of an application's page in the Spark history server, with {application_id} in "
                        "it; for the link of a task to its Spark application. Not set: the link leads to the "
                        "application's own UI, which is gone when it has ended.",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "https://history.example.org/history/{application_id}/jobs/",
                        "default": None,
                    },
                    "table_metrics_limit": {
                        "description": "How many tables of one mapped task send gauges to Airflow's metrics: those with the lowest map "
                        "indexes. A task that is not mapped is one table. 0: none.",
                        "version_added": "0.2.0",
                        "type": "integer",
                        "example": "200",
                        "default": "1000",
                    },
                    "table_url": {
                        "description": "Address of a table's page, such as in a catalog, with {table} in it: the table's "
                        "address, escaped. Not set: tasks have no link to their table.",
                        "version_added": "0.2.0",
                        "type": "string",
                        "example": "https://catalog.example.org/tables?uri={table}",
                        "default": None,
                    },
                },
            }
        },
        "connection-types": [
            {
                "connection-type": "delta",
                "hook-class-name": "airflow_delta.hooks.delta_table.DeltaTableHook",
                "hook-name": "Delta Lake table storage",
                "conn-fields": CONNECTION_FIELDS,
                "ui-field-behaviour": {
                    # Airflow 3.3 tests a connection without a port as one with port 0, and then refuses because the two differ.
                    "hidden-fields": ["host", "login", "password", "schema"],
                    "relabeling": {
                        "port": "Port (0, for the Test button)",
                        "extra": "Further storage options",
                    },
                    "placeholders": {
                        "port": "0",
                        "extra": '{"client_kwargs": {"region_name": "eu-central-1"}}',
                    },
                },
            },
            _catalog("unity_catalog", "UnityCatalogHook", "Unity Catalog", "https://catalog.example.org", {}),
            _catalog("polaris", "PolarisHook", "Polaris", "https://polaris.example.org/api/catalog", {}),
            _catalog("lakekeeper", "LakekeeperHook", "Lakekeeper", "https://lakekeeper.example.org", {}),
            _catalog("gravitino", "GravitinoHook", "Gravitino", "https://gravitino.example.org", _METALAKE),
        ],
    }
