"""Airflow's metrics: functions of a module from Airflow 3.3 on, methods of a class before."""

from __future__ import annotations

from typing import Any

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

if hasattr(stats, "initialize"):
    sink: Any = stats

    def configure() -> None:
        """Configure Airflow's metrics in this process, as Airflow's own processes do."""
        stats.initialize(
            factory=stats_utils.get_stats_factory(), export_legacy_names=conf.getboolean("metrics", "legacy_names_on")
        )
else:
    sink = stats.Stats

    def configure() -> None:
        """Configure Airflow's metrics in this process, as Airflow's own processes do."""
        older_factory: Any = stats_utils.get_stats_factory
        sink.initialize(factory=older_factory(sink))
