"""Which schedules give their runs a data interval to read, decided where the DAG is parsed (semantics T8).

`schedule="@daily"`, a cron expression and a `timedelta` make runs whose interval has no length in Airflow 3. A stage
that filters by it reads nothing, and the run is green. So a job without a source says what its runs read.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidConfigError
from ...storage.names import shorten

if TYPE_CHECKING:
    from airflow.sdk import DAG

_BY_OPTION = frozenset({"CronTriggerTimetable", "DeltaTriggerTimetable"})
"""Timetables that take an `interval`, which is zero by default."""

_NEVER = {
    "NullTimetable": "schedule=None",
    "OnceTimetable": 'schedule="@once"',
    "EventsTimetable": "an EventsTimetable",
    "AssetTriggeredTimetable": "a schedule of assets",
    "PartitionedAtRuntime": "a PartitionedAtRuntime timetable",
}
"""Those whose runs have no interval, or one without length, with what their authors write."""


def check_intervals(dag: DAG, reads_window: object, *, has_source: bool, **where: str | None) -> None:
    """Refuse a job whose runs would have nothing to read (semantics T8).

    Args:
        dag: whose schedule gives the intervals.
        reads_window: what the author says; None: the schedule says it.
        has_source: whether a source says what the epochs read.
        **where: `task` or `group` and its id, for the message.

    Raises:
        InvalidConfigError: the schedule gives no intervals and the author does not say so; or says it beside a source.
    """
    if reads_window is not None and not isinstance(reads_window, bool):
        raise InvalidConfigError(
            "reads_window must be True, False or None", **where, reads_window=shorten(reads_window)
        )
    if has_source:
        if reads_window is not None:
            raise InvalidConfigError(
                "reads_window is for a job without a source: the source says what each epoch reads. Leave it out",
                **where,
            )
        return
    schedule = _without_intervals(dag.timetable)
    if reads_window is not None or schedule is None:
        return
    cron = getattr(dag.timetable, "expression", None) or "0 0 * * *"
    raise InvalidConfigError(
        f"{schedule} gives a run no data interval, so its stages would read nothing. Use "
        f"schedule=CronDataIntervalTimetable({str(cron)!r}, timezone='UTC') or CheckpointTimetable(timedelta(...)), or "
        "give a source. If the stages read no window of time, say reads_window=False; if each run brings an interval "
        "of its own (from Airflow's API), say reads_window=True",
        **where,
        timetable=type(dag.timetable).__name__,
    )


def _without_intervals(timetable: object) -> str | None:
    """Say what the author wrote, where it gives runs no interval; None where it does, or where that is not known."""
    several = getattr(timetable, "timetables", None)
    if type(timetable).__name__ == "MultipleCronTriggerTimetable" and several:
        return _without_intervals(several[0])
    for kind in type(timetable).__mro__:
        if kind.__name__ in _BY_OPTION:
            interval = getattr(timetable, "interval", getattr(timetable, "_interval", None))
            return None if interval else _as_written(timetable)
        if kind.__name__ in _NEVER:
            return _NEVER[kind.__name__]
    return None


def _as_written(timetable: object) -> str:
    expression, delta = getattr(timetable, "expression", None), getattr(timetable, "delta", None)
    if isinstance(delta, timedelta):
        return f"schedule={delta!r} (a {type(timetable).__name__} without an interval)"
    return f"schedule={expression!r} (a {type(timetable).__name__} without an interval)"
