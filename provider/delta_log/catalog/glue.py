"""Asks the AWS Glue Data Catalog for a table, with botocore, which the extra ``s3`` installs.

Requests use the identity of the S3 options (``key``, ``secret``, ``token``, ``profile``, ``assume_role``), else the identity of
the machine. It needs ``glue:GetTable`` on the catalog, the database and the table, and ``glue:GetTables`` to list a database. The
option ``glue`` says which catalog is asked: ``{"region": …, "catalog_id": …, "endpoint_url": …}``, each of which may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from delta_log.catalog.table_name import CatalogEntry, TableName
from delta_log.errors import InvalidRequest, NoCredentials, NotInCatalog, StorageError
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.assumed_role import REFUSALS, renewing_session

_KEYS = ("region", "catalog_id", "endpoint_url")
#: Codes of a refusal that only this service, or any service but S3, has.
_REFUSALS = {
    "AccessDeniedException": ("the right is missing, in IAM or in Lake Formation", False),
    "UnrecognizedClientException": ("the service does not know the access key", False),
    "InvalidSignatureException": (
        "the secret key does not belong to the access key, or the clock is wrong",
        False,
    ),
    **REFUSALS,
}
#: A link of Lake Formation leads to a table, never to another link. One more is for a catalog that differs.
_MOST_LINKS = 2


def entry_of(name: TableName, storage_options: Mapping[str, Any]) -> CatalogEntry:
    """
    :raises InvalidRequest: an option is wrong, or a package is missing.
    :raises NotInCatalog: there is no such table.
    :raises StorageError: Glue refuses, or does not answer.
    """
    options = _own(storage_options)
    client = _connect(name, options, storage_options)
    asked = {"DatabaseName": name.database, "Name": name.table}
    if "catalog_id" in options:
        asked["CatalogId"] = options["catalog_id"]
    table: dict[str, Any] = {}
    for _ in range(1 + _MOST_LINKS):
        table = _get_table(client, name, asked, identity_of("s3://", storage_options))
        link = table.get("TargetTable")
        if not link:
            break
        asked = {key: link[key] for key in ("CatalogId", "DatabaseName", "Name") if link.get(key)}
    return _entry(table)


def entries_of(
    name: TableName, storage_options: Mapping[str, Any]
) -> Iterator[tuple[TableName, CatalogEntry | None]]:
    """Yield the tables of a database, a hundred by a request. A link of Lake Formation has no entry: a lookup follows it.

    :param name: name whose database is listed; its table stands in messages.
    :raises InvalidRequest: an option is wrong, or a package is missing.
    :raises NotInCatalog: there is no such database.
    :raises StorageError: Glue refuses, or does not answer.
    """
    options = _own(storage_options)
    client = _connect(name, options, storage_options)
    asked = {"DatabaseName": name.database}
    if "catalog_id" in options:
        asked["CatalogId"] = options["catalog_id"]
    pages = iter(client.get_paginator("get_tables").paginate(**asked))
    right = f"glue:GetTables on the catalog, the database {name.database} and its tables"
    while True:
        with _errors(client, name, identity_of("s3://", storage_options), right):
            page = next(pages, None)
        if page is None:
            return
        for table in page["TableList"]:
            found = TableName(name.catalog, name.database, table["Name"])
            yield found, None if table.get("TargetTable") else _entry(table)


def _entry(table: Mapping[str, Any]) -> CatalogEntry:
    storage = table.get("StorageDescriptor") or {}
    return CatalogEntry(
        table.get("TableType") or "",
        table.get("Parameters") or {},
        storage.get("Location"),
        storage.get("InputFormat"),
        (storage.get("SerdeInfo") or {}).get("Parameters") or {},
    )


def _own(storage_options: Mapping[str, Any]) -> dict[str, str]:
    given = storage_options.get("glue") or {}
    if not isinstance(given, Mapping) or not all(
        key in _KEYS and isinstance(value, str) and value for key, value in given.items()
    ):
        raise InvalidRequest(
            f'The storage option "glue" is no object with texts named {", ".join(_KEYS)}. Give one such as {{"region": "eu-central-1"}}, '
            "or leave it out."
        )
    return dict(given)


def _connect(name: TableName, options: Mapping[str, str], storage_options: Mapping[str, Any]) -> Any:
    try:
        import botocore.config  # type: ignore[import-untyped]
        import botocore.exceptions  # type: ignore[import-untyped]
        import botocore.session  # type: ignore[import-untyped]
    except ImportError as error:
        raise InvalidRequest(
            f"{name} needs a package that is not installed ({error}). Install airflow-provider-delta[s3]."
        ) from error
    store = storage_options.get("client_kwargs") or {}
    credentials = {
        "aws_access_key_id": storage_options.get("key"),
        "aws_secret_access_key": storage_options.get("secret"),
        "aws_session_token": storage_options.get("token"),
    }
    try:
        session = botocore.session.Session(profile=storage_options.get("profile"))
        if storage_options.get("assume_role") is not None:
            session, credentials = renewing_session(storage_options["assume_role"], storage_options), {}
        session.register_component("data_loader", _loader())
        return session.create_client(
            "glue",
            region_name=options.get("region") or store.get("region_name"),
            endpoint_url=options.get("endpoint_url"),
            verify=store.get("verify"),
            **credentials,
            config=botocore.config.Config(
                connect_timeout=10, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3}
            ),
        )
    except botocore.exceptions.NoRegionError as error:
        raise InvalidRequest(
            f'{name}: there is no AWS region to ask in. Set "region" of the storage option "glue" (in Airflow: region_name of the '
            "connection), or AWS_DEFAULT_REGION."
        ) from error
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise InvalidRequest(f"{name}: the settings of Glue's client are of no use ({error}).") from error


@cache
def _loader() -> Any:
    """The reader of botocore's descriptions of services. That of Glue takes half a second to read, and is kept for all lookups."""
    from botocore.loaders import create_loader  # type: ignore[import-untyped]

    return create_loader()


def _get_table(client: Any, name: TableName, asked: Mapping[str, str], identity: str) -> dict[str, Any]:
    right = f"glue:GetTable on the catalog, the database {name.database} and the table {name.table}"
    with _errors(client, name, identity, right):
        found: dict[str, Any] = client.get_table(**asked)["Table"]
    return found


@contextmanager
def _errors(client: Any, name: TableName, identity: str, right: str) -> Iterator[None]:
    """Turn an error of the client into an error of this package.

    :param right: the right that the request needs, with what it is needed on.
    """
    import botocore.exceptions

    region, endpoint = client.meta.region_name, client.meta.endpoint_url
    try:
        yield
    except botocore.exceptions.ClientError as error:
        answer = error.response.get("Error", {})
        code, said = answer.get("Code", ""), " ".join(str(answer.get("Message", "")).split())
        if code == "EntityNotFoundException":
            raise NotInCatalog(str(name), f"Glue in {region}: {said or code}") from error
        if code in ("InvalidInputException", "ParamValidationError"):
            raise InvalidRequest(
                f"{name}: Glue in {region} does not take the request ({said or code})."
            ) from error
        if code in _REFUSALS or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in (
            401,
            403,
        ):
            meaning, may_pass = _REFUSALS.get(code, ("", False))
            words = ": ".join(text for text in (code, said or meaning) if text)
            raise denied(str(name), words, identity, right=right, may_pass=may_pass) from error
        raise StorageError(
            f"{name}: Glue in {region} failed ({code}: {said}). Run again.", str(name)
        ) from error
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError) as error:
        raise NoCredentials(str(name), str(error)) from error
    except botocore.exceptions.BotoCoreError as error:
        raise StorageError(
            f"{name}: Glue does not answer at {endpoint} ({error}). Check region and endpoint; if they are right, run again when it "
            "answers.",
            str(name),
        ) from error
