"""Several Iceberg tables of one REST catalog advance by one request, where the catalog has it (decision 0056).

The library makes each table's request as for a commit of its own, with its requirements and its mark; a recorder stands
in the catalog's place. Whether a request came through each table's mark says, so a catalog that makes half of it, or
whose answer is lost, costs nothing: what has no mark is committed with what is left, or alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..storage.records import dataclass
from .contract import Change, Mark, NewTable, OpenTable
from .iceberg import OpenIceberg

log = logging.getLogger("airflow_cairn")

_ENDPOINT = "transactions/commit"
_TRIES = 3
"""Number of times that tables are committed together; then each is alone, so that a busy one holds no other up."""


@dataclass(frozen=True, slots=True)
class Due:
    """A change of a table that is to be committed."""

    table: OpenTable
    title: str
    mark: Mark
    change: Change
    check: Callable[[], None]
    """Refuses rows that do not fit the loaded version."""


class _RecordedError(Exception):
    """A request in place of a commit."""

    def __init__(self, request: Any) -> None:
        super().__init__("recorded")
        self.request = request


class _Recorder:
    """Stands for a catalog."""

    def commit_table(self, table: Any, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> None:
        """Raise the request."""
        from pyiceberg.table import CommitTableRequest, Namespace, TableIdentifier

        *namespace, name = table.name()
        identifier = TableIdentifier(namespace=Namespace(namespace), name=name)
        raise _RecordedError(CommitTableRequest(identifier=identifier, requirements=requirements, updates=updates))


def has_transactions(table: OpenTable | NewTable) -> bool:
    """Tell whether a table's catalog commits several tables by one request."""
    if not isinstance(table, OpenIceberg):
        return False
    endpoints = getattr(table.library.catalog, "_supported_endpoints", ())
    return any(str(each) == f"POST /v1/{{prefix}}/{_ENDPOINT}" for each in endpoints)


def commit_together(dues: Sequence[Due]) -> bool:
    """Commit what is due to tables of one catalog by one request.

    Returns:
        False: not all could be; each is to be committed alone, which says why, or finds its mark.
    """
    for _ in range(_TRIES):
        left = [each for each in dues if not each.table.has(each.mark)]
        if not left:
            return True
        if len(left) == 1:
            return False
        try:
            committed = _post(left[0].table, [_request(each) for each in left])
        except Exception as why:  # noqa: BLE001 - of any table: alone, each says its own
            # The answer may be lost, and the commit not: then the newest versions have their marks.
            _refresh(left)
            if all(each.table.has(each.mark) for each in left):
                return True
            log.info("Checkpoint %d: its tables are committed one after another: %s", left[0].mark.checkpoint, why)
            return False
        if committed:
            rows = sum(each.rows.rows for due in left for each in due.change.staged)
            titles = ", ".join(each.title for each in left)
            text = "Checkpoint %d: committed %d rows to %s, by one request."
            log.info(text, left[0].mark.checkpoint, rows, titles)
            return True
        _refresh(left)
    return False


def _refresh(dues: Sequence[Due]) -> None:
    for each in dues:
        each.table.refresh()


def _request(due: Due) -> Any:
    assert isinstance(due.table, OpenIceberg), "of a catalog that has transactions"
    due.check()
    library = due.table.library
    catalog, library.catalog = library.catalog, _Recorder()
    try:
        due.table.commit(due.mark, due.change)
    except _RecordedError as found:
        return found.request
    finally:
        library.catalog = catalog
    raise AssertionError("the library commits by its catalog")


def _post(table: OpenTable, requests: Sequence[Any]) -> bool:
    """Send the requests as one.

    Returns:
        False: the catalog refused it, because one of the tables has changed.
    """
    from requests import HTTPError

    assert isinstance(table, OpenIceberg), "of a catalog that has transactions"
    catalog = table.library.catalog
    body = {"table-changes": [json.loads(each.model_dump_json()) for each in requests]}
    answer = catalog._session.post(catalog.url(_ENDPOINT), json=body)
    if answer.status_code == 409:
        return False
    try:
        answer.raise_for_status()
    except HTTPError as error:
        raise ConnectionError(f"the catalog answered {answer.status_code}: {answer.text[:500]}") from error
    return True
