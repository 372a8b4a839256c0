"""The timetable for DAG files, and the parts that Airflow loads by entry point in each of its processes.

Users import the names of `__all__`; the modules below are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .timetable import CheckpointTimetable as CheckpointTimetable

__all__ = ["CheckpointTimetable"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .timetable import CheckpointTimetable

    return CheckpointTimetable
