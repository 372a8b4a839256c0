"""An auth manager in which one user may do everything with one DAG, and nothing with any other."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

NARROW, DAG_ID = "nora", "flights"
"""The user, and the DAG."""


class OneDagAuthManager(SimpleAuthManager):
    """Airflow's simple manager, which knows no right to a single DAG, with one added."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **more: Any) -> bool:
        """Refuse this user every other DAG, and a question about all."""
        if user.get_name() == NARROW and (details is None or details.id != DAG_ID):
            return False
        return super().is_authorized_dag(user=user, details=details, **more)
