"""The Airflow plugin. Scheduler, API server, triggerer and workers load it: it imports nothing that a DAG names."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from .timetable import CheckpointTimetable


class CairnPlugin(AirflowPlugin):
    """Cairn as `airflow plugins` shows it.

    Operators bring their extra link themselves. What must run in the scheduler or the API server has its place here.
    """

    name = "cairn"
    timetables = [CheckpointTimetable]  # noqa: RUF012 - so Airflow declares it
