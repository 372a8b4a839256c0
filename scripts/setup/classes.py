"""Makes the archive of classes from which Spark drivers start; what makes it needs PySpark, which `.venv` has."""

from __future__ import annotations

from .base import run
from .java import ensure_java
from .venv import ensure_venv


def ensure_classes() -> None:
    """Make the archive, unless it is there."""
    ensure_java()
    run([ensure_venv() / "python", "-m", "scripts.harness.spark.start"])
