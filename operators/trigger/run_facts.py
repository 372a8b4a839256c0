"""Turns a DAG run of Airflow into plain values for the domain and for sources.

Also refuses a schedule that gives its runs nothing to read (T8) and a wait that could not end (P2), and starts a job
from the savepoint that its DAG or a run's conf names (R1, R3, R6).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...checkpoint import RequestKind
from ...checkpoint.config import REFUSE
from ...checkpoint.documents.attempt import Slice
from ...checkpoint.documents.head import Head, run_of_head
from ...checkpoint.documents.layout import epoch_name, run_id_of
from ...checkpoint.errors import InvalidConfigError, RefusedError
from ...checkpoint.rules.restored_state import NO_INTERVAL
from ...checkpoint.savepoints.savepoint_format import open_named, savepoint_folder
from ...checkpoint.savepoints.savepoint_request import ImportOptions, JobShape, Started, is_in_job
from ...checkpoint.source import AssetEvent, RunFacts
from ...hooks.storage import CheckpointStorageHook
from ...storage.names import parse_storage_uri, same_place, shorten
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ...tasks.dag_runs import is_queued
from ...tasks.job_settings import JobSettings, is_rendered_later, naming

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...checkpoint import Coordinator


log = logging.getLogger("airflow_cairn")

PERIODIC_RUNS = frozenset({"scheduled", "backfill", "asset_triggered"})
"""Types of DAG runs that no user requested individually (semantics T3)."""


def run_facts(context: Context) -> RunFacts:
    """Return the facts of the task's DAG run."""
    run: Any = context["dag_run"]
    return RunFacts(
        run_id=run.run_id,
        run_type=run_type_of(context),
        logical_date=run.logical_date,
        data_interval_start=run.data_interval_start,
        data_interval_end=run.data_interval_end,
        events=tuple(_event(event) for event in run.consumed_asset_events or ()),
        open_store=_open,
    )


def kind_of(context: Context) -> RequestKind:
    """Return the kind of request, by the type of the DAG run (semantics T3)."""
    return RequestKind.PERIODIC if run_type_of(context) in PERIODIC_RUNS else RequestKind.MANUAL


def run_type_of(context: Context) -> str:
    """Return the type of the task's DAG run, such as `scheduled`."""
    found: Any = context["dag_run"].run_type
    # An enum; its `str` includes the class's name.
    return str(getattr(found, "value", found))


def slice_of(
    context: Context,
    detail: dict[str, Any] | None,
    *,
    reads_window: bool = True,
    has_source: bool = False,
    again: bool = False,
) -> Slice:
    """Return the input slice of a run's epoch (semantics T8): its data interval, in ISO 8601 with offset.

    Args:
        context: Airflow's task context.
        detail: additional facts about the input.
        reads_window: whether the epoch reads the run's data interval, if there is no source.
        has_source: whether a source determines the epoch's input; then a window is not required.
        again: whether to read the run's window even if the job has read it, or may have.

    Raises:
        RefusedError: the epoch would read the run's data interval, and the run has none.
        InvalidConfigError: the run asks to read its input again, but a source determines the input.
    """
    dag_run = context["dag_run"]
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if again and has_source:
        raise InvalidConfigError(
            "dag_run.conf['cairn']['read_again'] is for a job without a source, and this job has one. To read a "
            "source's input again, go back by `cairn rewind`",
            run=context["ti"].run_id,
        )
    if not has_source and not reads_window:
        return Slice(detail=dict(detail or {}), again=again)
    if not has_source and (start is None or end is None):
        raise RefusedError(
            f"no checkpoint was triggered: {NO_INTERVAL}",
            code="source_refused",
            run=context["ti"].run_id,
            start=_iso(start),
            end=_iso(end),
        )
    if has_source and start is not None and start == end:
        start = None
    return Slice(_iso(start), _iso(end), dict(detail or {}), again=again)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _event(event: Any) -> AssetEvent:
    at = event.timestamp.isoformat()
    # The execution API gives no id of the event: its origin and its time identify it.
    made_by = [event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index]
    name = "|".join([event.asset.uri or event.asset.name, at, *("" if each is None else str(each) for each in made_by)])
    return AssetEvent(name, event.asset.uri, at, event.extra, event.source_run_id)


def _open(uri: str, aws_conn_id: str | None) -> ObjectStore:
    return CheckpointStorageHook(uri, aws_conn_id=aws_conn_id).open_store(waits=True)


# Decides, when the DAG is parsed, which schedules give their runs a data interval to read (semantics T8).
#
# `schedule="@daily"`, a cron expression and a `timedelta` make runs whose interval has no length in Airflow 3. A
# stage that filters by it reads nothing, and the run succeeds. So a job without a source must say what its runs read.


_BY_OPTION = frozenset({"CronTriggerTimetable", "DeltaTriggerTimetable"})
"""Timetables that take an `interval`, which is zero by default."""

_NEVER = {
    "NullTimetable": "schedule=None",
    "OnceTimetable": 'schedule="@once"',
    "EventsTimetable": "an EventsTimetable",
    "AssetTriggeredTimetable": "a schedule of assets",
    "PartitionedAtRuntime": "a PartitionedAtRuntime timetable",
}
"""Timetables whose runs have no interval, or one without length, with the schedules that authors write."""


def check_intervals(
    dag: DAG, reads_window: object, *, has_source: bool, on_gap: str = "report", **where: str | None
) -> None:
    """Refuse a job whose runs would have nothing to read (semantics T8), or `on_gap="refuse"` without windows (T12).

    Args:
        dag: the DAG whose schedule gives the intervals.
        reads_window: the author's value; None: the schedule decides.
        has_source: whether a source determines the epochs' input.
        on_gap: the job's setting for windows that no run has read.
        **where: `task` or `group` and its id, for the error message.

    Raises:
        InvalidConfigError: the schedule gives no intervals and `reads_window` is not given; `reads_window` is given
            besides a source; or gaps are to be refused by a job whose runs do not read their data intervals.
    """
    if reads_window is not None and not isinstance(reads_window, bool):
        raise InvalidConfigError(
            "reads_window must be True, False or None", **where, reads_window=shorten(reads_window)
        )
    if on_gap == REFUSE and (has_source or reads_window is False):
        instead = "a source says what each epoch reads" if has_source else "reads_window=False says that they do not"
        raise InvalidConfigError(
            f"on_gap='refuse' is for a job whose runs read their data intervals, and {instead}. Leave it out",
            **where,
            on_gap=on_gap,
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
    """Return the author's schedule, if it gives runs no interval; None if it does, or if that is not known."""
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


def check_room(dag: DAG | None, coordinator: Coordinator, ti: RuntimeTaskInstanceProtocol) -> None:
    """Refuse to wait for the job's last run if Airflow would start it only after the waiting run ends.

    Both would wait until the stop is given up. The last run is queued because a drain made it, or because it was
    cleared. If the DAG may have several runs, another one of them may end.

    Args:
        dag: the DAG of the task that is about to wait for the end of a stop.
        coordinator: the job's coordinator.
        ti: the task instance.

    Raises:
        RefusedError: the DAG may have no other run, and the last run is queued.
    """
    stopping = coordinator.head().kept_from(epoch_name(ti.run_id))
    if dag is None or dag.max_active_runs != 1 or stopping is None or not stopping.waits:
        return
    last = run_id_of(stopping.epoch)
    if is_queued(ti, ti.dag_id, last):
        raise RefusedError(
            "the job is being stopped, and the run that is its last one waits for the only place of the DAG "
            "(max_active_runs=1), which this run has. Clear this run when the job has been resumed",
            code="last_run_blocked",
            job=coordinator.job,
            epoch=ti.run_id,
            last_run=last,
        )


# The start of a job from a savepoint: before its first epoch, or when a run's conf asks for it.


CONF_KEY = "cairn"
"""The key of a DAG run's conf that holds Cairn's options."""

_FROM, _ALLOW, _CLAIM, _AGAIN = "restore_from", "allow_non_restored_state", "claim", "read_again"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Cairn's options of a DAG, or of a DAG run's conf."""

    restore_from: str | None = None
    """The folder of the savepoint that the job starts from."""
    allow_non_restored_state: bool = False
    """Allow non-restored state, for this start only (semantics R3)."""
    claim: bool = False
    """Claim mode: the job owns the savepoint, and deletes it once it has a copy (semantics R6)."""
    read_again: bool = False
    """Whether the run reads its whole window, even if the job has read part of it (semantics T8)."""


def check_options(options: RunOptions, storage: object, job: object, **where: str | None) -> RunOptions:
    """Check a DAG's options about its start, without opening the savepoint; `where` is for error messages.

    Raises:
        InvalidConfigError: the savepoint lies in the job's own prefix, or options are given without a savepoint.
    """
    for name in (_ALLOW, _CLAIM):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise InvalidConfigError(f"{name} must be True or False", **where, **{name: shorten(value)})
        if value and options.restore_from is None:
            raise InvalidConfigError(
                f"{name} is about a savepoint to start from: give restore_from too, or leave {name} out", **where
            )
    check_restore_from(options.restore_from, storage, job, **where)
    return options


def check_restore_from(restore_from: object, storage: object, job: object, **where: str | None) -> None:
    """Check a savepoint's URI without opening the savepoint; `where` is for error messages.

    Raises:
        InvalidConfigError: the folder lies in the job's own prefix.
    """
    if restore_from is None or is_rendered_later(restore_from):
        return
    with naming(**where, restore_from=shorten(restore_from)):
        folder = savepoint_folder(restore_from)
    if is_rendered_later(storage) or is_rendered_later(job):
        return
    root = str(parse_storage_uri(storage))
    if is_in_job(folder, root, str(job)):
        raise InvalidConfigError(
            "restore_from lies in the job's own prefix, which the job cleans. Name a savepoint's folder elsewhere",
            **where,
            restore_from=folder,
            prefix=f"{root}/{job}",
        )


def options_of(conf: object) -> RunOptions:
    """Read Cairn's options in a DAG run's conf: the object under `cairn`.

    Raises:
        InvalidConfigError: `cairn` is not an object, or an entry is unknown or has another type.
    """
    found = conf.get(CONF_KEY) if isinstance(conf, Mapping) else None
    if found is None:
        return RunOptions()
    types = {_FROM: str, _ALLOW: bool, _CLAIM: bool, _AGAIN: bool}
    if not isinstance(found, Mapping) or not found.keys() <= types.keys():
        raise InvalidConfigError(
            f"dag_run.conf[{CONF_KEY!r}] must be an object that has no other fields than {', '.join(types)}",
            conf=shorten(found),
        )
    for name, value in found.items():
        if not isinstance(value, types[name]):
            raise InvalidConfigError(
                f"dag_run.conf[{CONF_KEY!r}][{name!r}] must be a {types[name].__name__}", conf=shorten(value)
            )
    options = RunOptions(found.get(_FROM), found.get(_ALLOW, False), found.get(_CLAIM, False), found.get(_AGAIN, False))
    if options.restore_from is None and found.keys() - {_AGAIN}:
        raise InvalidConfigError(f"dag_run.conf[{CONF_KEY!r}] says how to start, but not from what: give {_FROM!r} too")
    return options


def start_if_asked(
    context: Context, settings: JobSettings, coordinator: Coordinator, dag: RunOptions, runs: JobShape
) -> Started | None:
    """Start the job from a savepoint, if this run's conf asks for it, or if the DAG does and the job is new.

    The conf applies only before the run's first checkpoint request: a retry or a clear does not start from the
    savepoint again.

    Args:
        context: Airflow's task context.
        settings: the job; its connection reads the savepoint too.
        coordinator: the job's coordinator.
        dag: the DAG's options.
        runs: the job's stages; a savepoint that does not fit is refused, and nothing changes.

    Returns:
        The start; None if there was nothing to do.

    Raises:
        InvalidStateError: the savepoint holds state that nothing claims (semantics R3); or a stage cannot be restored
            at its parallelism (semantics R4).
    """
    said = options_of(context["dag_run"].conf)
    if said.restore_from is not None:
        if not coordinator.is_new_epoch(epoch_name(context["ti"].run_id)):
            return None
    elif dag.restore_from is None or not _concerns(coordinator.head(), dag.restore_from):
        return None
    options = dag if said.restore_from is None else said
    how = ImportOptions(options.allow_non_restored_state, options.claim, only_if_new=options is dag)
    check_restore_from(options.restore_from, settings.storage, settings.job)

    def opened(uri: str) -> ObjectStore:
        return replace(settings, storage=parse_storage_uri(uri)).hook().open_store(waits=True)

    folder = open_named(options.restore_from, opened)
    log.info("Starting %s from the savepoint %s", settings.job, folder.uri)
    before = coordinator.head()
    found = coordinator.start_from(folder, how, runs=runs, open_folder=opened)
    if found.allowed:
        log.info("The job has started from this savepoint before; this run now allows non-restored state")
    if not found.created:
        log.info("No savepoint was copied: the job is not new. Its latest checkpoint is %d", found.checkpoint)
        return found
    log.info("Copied as checkpoint %d: %d files, %d bytes", found.checkpoint, found.files, found.size_bytes)
    for epoch in (*found.gave_up.epochs, *found.gave_up.pending_epochs):
        log.warning("DAG run %s is not part of the savepoint and must run again", run_of_head(before, epoch))
    return found


def _concerns(head: Head, restore_from: str) -> bool:
    """Tell whether the job starts from its DAG's savepoint: it is new, or crashed before it deleted a claimed one."""
    if not head.completed:
        return True
    newest = head.import_of(head.completed[-1].id)
    return newest is not None and newest.claimed and same_place(newest.origin.uri, savepoint_folder(restore_from))
