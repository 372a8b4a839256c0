"""The Airflow plugin. Scheduler, API server, triggerer and workers load it: it imports nothing that a DAG names."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from .timetable import CheckpointTimetable

log = logging.getLogger("airflow_cairn")

_ICON = "cairn/static/icon.svg"
_OF_DAG = "cairn/dags/{DAG_ID}"


def _tab(destination: str, route: str, query: str = "") -> dict[str, str]:
    # Addresses without a leading slash are relative to Airflow's own base path.
    return {
        "name": "Checkpoints",
        "destination": destination,
        "url_route": route,
        "href": _OF_DAG + query,
        "icon": _ICON,
    }


class CairnPlugin(AirflowPlugin):
    """Cairn in `airflow plugins`: the timetable, the tabs in the UI, and the app behind them.

    Operators bring their extra links themselves.
    """

    name = "cairn"
    timetables = [CheckpointTimetable]  # noqa: RUF012 - so Airflow declares it
    external_views = [  # noqa: RUF012 - so Airflow declares it
        {
            "name": "Cairn",
            "destination": "nav",
            "category": "browse",
            "url_route": "cairn",
            "href": "cairn/",
            "icon": _ICON,
        },
        _tab("dag", "checkpoints"),
        _tab("dag_run", "run-checkpoints", "?run_id={RUN_ID}"),
        _tab("task", "task-checkpoints", "?task_id={TASK_ID}"),
        _tab("task_instance", "ti-checkpoints", "?run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"),
    ]

    @classmethod
    def on_load(cls, *_args: Any, **_kwargs: Any) -> None:
        """Warn if two versions of PySpark are installed over each other."""
        from ..spark.pyspark_versions import conflict

        if (problem := conflict()) is not None:
            log.warning("%s", problem)

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override] # Airflow only reads it
        """The app behind the tabs. Only the API server reads this, so no other process imports FastAPI for it."""
        return [{"app": _app(), "url_prefix": "/cairn", "name": "Cairn"}]


def _app() -> Any:
    try:
        from .page.airflow_server import AirflowServer
        from .page.app import create_app

        return create_app(AirflowServer())
    except Exception:
        # Airflow does not guard this call: without the except, the API server would not start.
        log.exception("Cairn's page cannot be made. The API server runs without it and answers 503 below /cairn")
        return _unavailable


async def _unavailable(scope: Any, _receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    body = b"Cairn's page could not be made. The API server's log has the cause.\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
