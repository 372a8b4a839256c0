"""Airflow's tables, made once for each set of locked packages and copied into every new home, to save time."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..setup.base import CACHE, ROOT


def ensure_database(database: Path, migrate: Callable[[], object]) -> None:
    """Make the SQLite database of a home, unless it is there."""
    if database.exists():
        return
    digest = hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()[:16]
    template = CACHE / "airflow-db" / f"{digest}.db"
    if not template.exists():
        migrate()
        template.parent.mkdir(parents=True, exist_ok=True)
        draft = template.with_suffix(f".{os.getpid()}")
        # A plain copy would miss what still stands in the write-ahead log.
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
        os.replace(draft, template)
        return
    shutil.copyfile(template, database)
