"""Facts about a stage's client process, where the stage runs on a Spark Connect server."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_cairn.spark import Epoch
from airflow_cairn.spark.execution.transport import is_remote


def is_client(epoch: Epoch) -> bool:
    """Tell whether this process is the client of a server, and not a driver itself."""
    return is_remote(epoch.spark)


def note_client(epoch: Epoch, gates: str) -> int:
    """Write down for which execution this client runs, as the tests' `spark-submit` does for a driver.

    The session stands for the execution: its id is computed from the execution's token.

    Returns:
        The process that a test kills.
    """
    with Path(gates, "submitted").open("a") as noted:
        noted.write(f"{epoch.job} {epoch.epoch} {epoch.stage} {epoch.spark.session_id}\n")  # type: ignore[attr-defined]
    return os.getpid()
