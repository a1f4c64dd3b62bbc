"""What Airflow keeps of a job's report besides the XCom: events of assets.

Two kinds of events, each through an alias (:mod:`airflow_delta.assets`):

* An event of the *maintenance asset* tells what was done. ``emit_events`` says which runs emit one.
* An event of the table's *data asset* runs the DAGs that are scheduled on the data. Maintenance changes no row, so there is none
  unless ``emit_data_asset`` asks for it, and then only for a commit.

``already_done`` counts as a change: the try that committed may have ended before it could emit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from msgspec import Struct

from airflow_delta.assets import (
    DATA_ALIAS,
    MAINTENANCE_ALIAS,
    data_asset,
    maintenance_asset,
    shared_maintenance_asset,
)
from airflow_delta.operators.arguments import is_open, read_argument
from delta_log.printable import printable
from delta_log.storage.table_uri import one_spelling
from delta_maintenance.contract import JobReport
from delta_maintenance.options import Choice, Option, Switch, Text

if TYPE_CHECKING:
    from airflow.sdk import Context


_SECTION, _SETTING, _DEFAULT = "delta", "emit_events", "changes"
_COMMITTED = ("committed", "already_done")
_CHANGED = (*_COMMITTED, "written", "cleaned", "restored")
#: By the value of ``emit_events``: the statuses of the reports that are told.
TOLD = {"all": (*_CHANGED, "nothing_to_do", "planned"), "changes": _CHANGED, "none": ()}

_ASSET_ALIAS = Option(
    "asset_alias",
    Text(),
    "name of an alias whose one asset gets the events of all tables, instead of an asset for each table",
    group="events of assets",
)
_EMIT_DATA_ASSET = Option(
    "emit_data_asset",
    Switch(),
    "let a commit be an event of the table's data asset, too, which runs the DAGs that are scheduled on it",
    default=False,
    group="events of assets",
)
#: Arguments of every operator that decide about events.
ARGUMENTS = (
    Option(
        "emit_events",
        Choice(tuple(TOLD)),
        "runs that emit an event of the maintenance asset: all that end well, those with changes, or none",
        otherwise="the setting emit_events",
        group="events of assets",
    ),
    _ASSET_ALIAS,
    _EMIT_DATA_ASSET,
)


class AssetEvent(Struct, frozen=True):
    """One event.

    :param aliases: aliases through which it is emitted; together they make one event.
    """

    aliases: tuple[AssetAlias, ...]
    asset: Asset
    extra: dict[str, Any]


def events_of(
    report: JobReport, table: str, *, told: str, alias: str | None, with_data: bool
) -> list[AssetEvent]:
    """The events that a report makes.

    :param told: value of ``emit_events``.
    :raises ValueError: Airflow takes no asset of such a name.
    """
    extra = {
        "operation": report.operation,
        "table": table,
        **({} if report.location is None else {"location": report.location}),
        "version": report.version,
        "status": report.status,
        "run_id": report.run_id,
        "metrics": dict(report.metrics),
    }
    events = []
    if report.status in TOLD[told]:
        if alias is None:
            events.append(AssetEvent((MAINTENANCE_ALIAS,), maintenance_asset(table), extra))
        else:
            aliases = (MAINTENANCE_ALIAS, AssetAlias(alias))
            events.append(AssetEvent(aliases, shared_maintenance_asset(alias), extra))
    if with_data and report.status in _COMMITTED and report.version is not None:
        events.append(AssetEvent((DATA_ALIAS,), data_asset(table), extra))
    return events


class EmittingTask(Protocol):
    """What this module needs of an operator."""

    table: str
    asset_alias: str | None
    emit_data_asset: bool | str
    outlets: list[Any]

    @property
    def log(self) -> Any: ...

    def value_of(self, name: str) -> Any: ...


def which_events(operator: EmittingTask) -> str:
    """``emit_events`` of an operator, or else of Airflow's configuration.

    :raises AirflowFailException: the setting is none of its values.
    """
    own = operator.value_of("emit_events")
    value = own or conf.get(_SECTION, _SETTING, fallback=_DEFAULT)
    if value not in TOLD:
        raise AirflowFailException(
            f"Airflow's setting [{_SECTION}] {_SETTING} is {value!r}. It must be one of {', '.join(TOLD)}."
        )
    return str(value)


def aliases_of(asset_alias: Any, emit_data_asset: Any) -> list[AssetAlias]:
    """Return the aliases through which a task may emit, as far as its arguments are known.

    :raises ValueError: an argument makes no sense.
    """
    aliases = [MAINTENANCE_ALIAS]
    if not is_open(asset_alias) and (name := read_argument(_ASSET_ALIAS, asset_alias)) is not None:
        aliases.append(AssetAlias(name))
    if not is_open(emit_data_asset) and read_argument(_EMIT_DATA_ASSET, emit_data_asset):
        aliases.append(DATA_ALIAS)
    return aliases


def add_outlets(operator: EmittingTask) -> None:
    """Give an operator the aliases through which it may emit, as far as its arguments are known."""
    aliases = aliases_of(operator.asset_alias, operator.emit_data_asset)
    operator.outlets.extend(alias for alias in aliases if alias not in operator.outlets)


def emit(context: Context, report: JobReport, operator: EmittingTask) -> None:
    """Emit the events of a report."""
    # Airflow drops events through an alias that is no outlet, and a template may have named one only now.
    add_outlets(operator)
    try:
        events = events_of(
            report,
            operator.table,
            told=which_events(operator),
            alias=operator.value_of("asset_alias"),
            with_data=operator.value_of("emit_data_asset"),
        )
    except ValueError as error:
        # The work is done, and another try could not emit it either.
        operator.log.warning(
            "No event is emitted, since Airflow takes no such asset: %s", printable(str(error))
        )
        return
    for event in events:
        for alias in event.aliases:
            accessor = context["outlet_events"][alias]
            if alias == DATA_ALIAS:
                _add_to_data(accessor, event, _addresses(operator.table, report.location))
            else:
                accessor.add(event.asset, extra=event.extra)


def _addresses(table: str, location: str | None) -> list[str]:
    """Every address under which DAGs may know the data of a table: as the operator has it, in its one spelling, and where a name leads."""
    found = [table, one_spelling(table)]
    if location is not None:
        found += [location, one_spelling(location)]
    return list(dict.fromkeys(data_asset(address).uri for address in found))


def _add_to_data(accessor: Any, event: AssetEvent, addresses: Sequence[str]) -> None:
    """Emit an event of the data asset: of each that a DAG has declared with an address of the table, under whatever name."""
    is_declared = False
    for uri in addresses:
        try:
            accessor.add(Asset.ref(uri=uri), extra=event.extra)
            is_declared = True
        except AirflowRuntimeError as error:
            if error.error.error != ErrorType.ASSET_NOT_FOUND:
                raise
    if not is_declared:
        accessor.add(event.asset, extra=event.extra)
