"""What Airflow loads of this package by entry point, in every one of its processes, and the timetable for DAG files."""

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
