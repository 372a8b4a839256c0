"""What the harness writes into a home, as far as it can be seen without an Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Engine

from scripts.harness.airflow_config import LOCAL_SETTINGS


def test_the_database_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(LOCAL_SETTINGS, names)
    try:
        with create_engine(f"sqlite:///{tmp_path}/a.db").connect() as connection:
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 0
    finally:
        event.remove(Engine, "connect", names["leave_writing_to_the_system"])
    assert names["__all__"] == []
