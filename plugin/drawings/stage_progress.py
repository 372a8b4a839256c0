"""The progress of each stage of a checkpoint, from the store and from Airflow's task tries; pure.

The store decides: a stage that has acknowledged, declined or failed is so, whatever its task's state. Airflow adds
facts that the store cannot know: that a task waits in a queue or for its retry, when a try started, and how long a
failed try ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...checkpoint.reasons import Status
from ...checkpoint.views import wording
from ...checkpoint.views.checkpoint_list import CheckpointRow
from ...checkpoint.views.details import CheckpointDetails, StageRow
from ...hooks.task_refs import AT_WORK
from ...storage.records import dataclass

WIDTH = 1_000
"""Width of the longest stage's bar."""


@dataclass(frozen=True, slots=True)
class TaskTry:
    """One try of a task, from Airflow's database."""

    run_id: str
    task_id: str
    map_index: int
    """-1 if the task is not mapped."""
    number: int
    state: str | None
    """Airflow's name of the state; None: the try is not scheduled."""
    started_at_ms: int | None
    """None: the try has not started, so it has no log."""
    ended_at_ms: int | None
    newest: bool = True
    """Whether this is the task's present try."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The progress of one stage."""

    kind: str
    """Look of the stage: `completed`, `failed`, `running`, `queued`, `retry`, `kept`; empty: it has not begun."""
    text: str
    acknowledged: bool = False
    waited_ms: int | None = None
    """Time from the trigger until it started; None if that is not known, or if it ran in another attempt."""
    ran_ms: int = 0
    wrote_ms: int = 0
    """Time in which it wrote its state."""
    logged: TaskTry | None = None
    """The try with the log to show; None: there is none."""

    own_ms: int | None = None
    """Time for which its own driver ran, in whichever attempt; None if that is not known."""

    @property
    def took_ms(self) -> int | None:
        return None if self.waited_ms is None else self.waited_ms + self.ran_ms + self.wrote_ms


@dataclass(frozen=True, slots=True)
class StageBar:
    """A stage's time since the trigger, in units of which the longest stage has `WIDTH`."""

    waited: int
    """Time before it started."""
    ran: int
    wrote: int


_WAITING = {
    None: ("", "not begun"),
    "scheduled": ("queued", "scheduled"),
    "queued": ("queued", "queued"),
    "restarting": ("queued", "restarting"),
    "up_for_retry": ("retry", "up for retry"),
    "up_for_reschedule": ("queued", "up for reschedule"),
    "failed": ("failed", "its task failed"),
    "upstream_failed": ("failed", "upstream failed"),
    "skipped": ("kept", "its task was skipped"),
    "removed": ("failed", "not in the DAG"),
    "success": ("queued", "to run again"),
}
"""Kind and text of a stage that has not acknowledged, by the state of its task's present try, which does not run."""


def progress_of(
    found: CheckpointDetails, tries: Mapping[str, Sequence[TaskTry]], now_ms: int
) -> dict[str, StageProgress]:
    """Return each stage's progress, by its uid, from the tries of its task that Airflow remembers."""
    return {stage.stage: _progress(found, stage, tries.get(stage.stage, ()), now_ms) for stage in found.stages}


def bars_of(progress: Mapping[str, StageProgress]) -> dict[str, StageBar]:
    """Return the bars of the stages whose duration is known, by the stage's uid."""
    longest = max((each.took_ms or 0 for each in progress.values()), default=0)
    known = ((uid, each) for uid, each in progress.items() if each.took_ms is not None)
    return {uid: _bar(each, longest) for uid, each in known} if longest else {}


def _bar(each: StageProgress, longest: int) -> StageBar:
    return StageBar(*(round(WIDTH * part / longest) for part in (each.waited_ms or 0, each.ran_ms, each.wrote_ms)))


def _progress(found: CheckpointDetails, stage: StageRow, tries: Sequence[TaskTry], now_ms: int) -> StageProgress:
    logged = _logged(found, stage, tries)
    kind, text = _said(found, stage, next((each for each in tries if each.newest), None), logged, now_ms)
    ran_here = (stage.begun or (kind == "failed" and found.row.ended_at_ms is not None)) and not stage.carried
    times: tuple[int | None, int, int] = (None, 0, 0)
    if stage.metrics is not None and not stage.carried:
        times = _measured(stage)
    elif ran_here and logged is not None and logged.started_at_ms is not None:
        times = _seen(found, logged, logged.started_at_ms, now_ms)
    waited, ran, wrote = _measured(stage) if stage.metrics is not None else times
    own = None if waited is None else ran + wrote
    if kind == "failed" and text == "failed" and own is not None:
        text = f"failed after {wording.duration(own)}"
    return StageProgress(kind, text, stage.acknowledged, *times, logged, own)


def _measured(stage: StageRow) -> tuple[int | None, int, int]:
    assert stage.metrics is not None  # only stages with metrics come here
    took = stage.took_ms or 0
    waited = min(stage.metrics.start_delay_ms, took)
    wrote = min(stage.metrics.sync_ms + stage.metrics.async_ms, took - waited)
    return waited, took - waited - wrote, wrote


def _seen(found: CheckpointDetails, it: TaskTry, started_at_ms: int, now_ms: int) -> tuple[int, int, int]:
    """Take times from Airflow, whose clock may differ from the checkpoint's: negative times become 0."""
    row = found.row
    ended_at_ms = it.ended_at_ms if it.state not in AT_WORK else None
    until = next(each for each in (ended_at_ms, row.ended_at_ms, now_ms) if each is not None)
    return max(0, started_at_ms - row.triggered_at_ms), max(0, until - started_at_ms), 0


def _logged(found: CheckpointDetails, stage: StageRow, tries: Sequence[TaskTry]) -> TaskTry | None:
    """Return the newest try that has started; for an ended checkpoint, the newest of its own.

    That is the newest that started before its end. Where no try has claimed the stage, it started after the trigger, or
    in an epoch's first attempt, where the first stage's own task triggers, ended after it.
    """
    row, end = found.row, found.row.ended_at_ms
    started = [
        (each.started_at_ms, each.number, each.newest, each)
        for each in tries
        if each.started_at_ms is not None
        and (end is None or each.started_at_ms < end)
        and (end is None or stage.begun or _is_of_attempt(row, each, each.started_at_ms))
    ]
    return max(started, key=lambda each: each[:3])[3] if started else None


def _is_of_attempt(row: CheckpointRow, it: TaskTry, started_at_ms: int) -> bool:
    """Return whether a try that has claimed nothing is of an ended attempt, and not of the one before."""
    if started_at_ms >= row.triggered_at_ms:
        return True
    return row.attempt == 1 and it.ended_at_ms is not None and it.ended_at_ms >= row.triggered_at_ms


def _failed_before_claim(row: CheckpointRow, logged: TaskTry | None) -> bool:
    return (
        logged is not None
        and logged.state in ("failed", "up_for_retry")
        and logged.ended_at_ms is not None
        and row.ended_at_ms is not None
        and logged.ended_at_ms <= row.ended_at_ms
    )


def _said(
    found: CheckpointDetails, stage: StageRow, present: TaskTry | None, logged: TaskTry | None, now_ms: int
) -> tuple[str, str]:
    if stage.problem or stage.declined or stage.stage in found.failed_stages:
        return "failed", found.how_far(stage)
    if stage.acknowledged:
        if stage.skipped:
            return "kept", "skipped"
        return ("kept", f"kept from {stage.home}") if stage.carried else ("completed", "acknowledged")
    if found.row.status is Status.COMPLETED:
        return "kept", "left out"
    if found.row.status is Status.FAILED:
        if stage.late:
            return "", "acknowledged late"
        if not stage.begun and _failed_before_claim(found.row, logged):
            return "failed", "failed before it began"
        return "", "had begun" if stage.begun else "had not begun"
    state = present.state if present is not None else None
    if present is not None and state in AT_WORK and present.started_at_ms is not None:
        if not stage.begun:
            # An execution is claimed some seconds after its try starts; a try from before the trigger is still being
            # ended.
            return ("queued", "starting") if present.started_at_ms >= found.row.triggered_at_ms else _WAITING["success"]
        return "running", f"{state} for {wording.duration(max(0, now_ms - present.started_at_ms))}"
    if stage.begun and (present is None or state not in _WAITING):
        return "running", "begun"
    return _WAITING.get(state, ("", "not begun"))
