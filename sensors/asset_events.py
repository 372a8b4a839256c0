"""Asset events of an epoch's last task: they say which checkpoint completed, and its contents.

Airflow registers a task's asset events with its success, in one transaction. A task that dies before leaves no event,
and its next try finds the same checkpoint. A task that a user clears succeeds again, with another event of the same
checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from ..checkpoint.errors import InvalidConfigError
from ..storage.errors import CairnError
from ..storage.names import check_name, shorten

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..checkpoint import Coordinator
    from ..tasks.job_settings import JobSettings

log = logging.getLogger("airflow_cairn")


def check_table_outlets(table_outlets: object, others: Iterable[object] = ()) -> dict[str, Asset]:
    """Check the assets that get an event for each published table.

    Args:
        table_outlets: an asset for each table, by the table's name.
        others: the assets that get an event for the whole checkpoint.

    Raises:
        InvalidConfigError: `table_outlets` maps something else, or an asset is named twice: its event would have two
            meanings.
        InvalidKeyError: no table can have such a name (semantics W1).
    """
    if table_outlets is None:
        return {}
    if not isinstance(table_outlets, Mapping) or not all(isinstance(each, Asset) for each in table_outlets.values()):
        raise InvalidConfigError(
            "table_outlets must give an asset for each table: table_outlets={'totals': Asset('totals')}",
            table_outlets=shorten(table_outlets),
        )
    found = {check_name("table", name): asset for name, asset in table_outlets.items()}
    # Airflow identifies an event's asset by name and URI.
    taken = [(each.name, each.uri) for each in others if isinstance(each, Asset)]
    for name, asset in found.items():
        if (asset.name, asset.uri) in taken:
            raise InvalidConfigError(
                "an asset in table_outlets is that of another table, or in outlets too: give each an asset of its own",
                table=name,
                asset=asset.name,
            )
        taken.append((asset.name, asset.uri))
    return found


def rows_by_table(coordinator: Coordinator | None, result: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of rows that the epoch has written to each published table, if known.

    A store that does not answer does not delay the event.

    Args:
        coordinator: the job's coordinator; None: nothing is known.
        result: the task's result.
    """
    if coordinator is None or "tables" not in result:
        return {}
    from ..checkpoint.views import lineage  # here: a DAG file does not need it

    try:
        found = lineage.rows_written(coordinator, result["checkpoint"]) or {}
    except CairnError as error:
        log.warning("The asset events say no rows: %s", error)
        return {}
    return {name: rows for name, rows in found.items() if rows is not None}


def describe(
    outlets: Iterable[object],
    tables: Mapping[str, Asset],
    context: Context,
    settings: JobSettings,
    result: Mapping[str, Any],
    rows: Mapping[str, int],
) -> None:
    """Write to the event of each asset which checkpoint completed; an author's own entries stay.

    Args:
        outlets: the task's outlets; those that are no `Asset` stay unchanged.
        tables: the assets among them that stand for a table, by the table's name.
        context: Airflow's task context.
        settings: the job and its storage.
        result: the task's result.
        rows: the number of rows that the epoch has written, by table.
    """
    facts = {"storage": str(settings.storage), "run_id": context["ti"].run_id, **result}
    for asset in outlets:
        if isinstance(asset, Asset):
            names = [name for name, of in tables.items() if of == asset]
            event = context["outlet_events"][asset]
            event.extra = {**facts, **_of_tables(names, rows), **event.extra}
    published = result.get("tables", ())
    for name in tables:
        if "acks" in result and name not in published:
            known = ", ".join(published) or "none"
            log.warning(
                "The option table_outlets names %r, which the checkpoint does not publish; it publishes: %s",
                name,
                known,
            )


def _of_tables(names: list[str], rows: Mapping[str, int]) -> dict[str, Any]:
    """Return the facts about tables: a table's own event names that table, the checkpoint's has the rows of all."""
    if not names:
        return {"rows": dict(rows)} if rows else {}
    (name,) = names
    return {"table": name, **({"rows": rows[name]} if name in rows else {})}
