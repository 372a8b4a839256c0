"""Configuration that the harness writes into a home, as far as it shows without an Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Engine

from airflow_cairn.plugin.page import job_reader
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


def test_the_pages_wait_for_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["airflow", "api-server"])
    monkeypatch.setattr(job_reader, "PATIENCE_S", job_reader.PATIENCE_S)
    names: dict[str, Any] = {}
    exec(LOCAL_SETTINGS, names)
    event.remove(Engine, "connect", names["leave_writing_to_the_system"])
    assert job_reader.SharedReads()._patience_s > 100
