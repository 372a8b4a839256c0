"""Tries a launcher on its service with a stage of a DAG file: `cairn try-launcher`, for somebody with an account.

The stage's program is `PROGRAM`. Each part has a job of its own in the storage, which is removed in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...checkpoint import CheckpointConfig, TriggerRequest
from ...checkpoint.answers import Submit
from ...checkpoint.documents.attempt import Owner, Slice, StageSpec
from ...checkpoint.documents.layout import epoch_name
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.store import acks
from ...spark.execution.failure_kinds import one_line
from ...storage.clock import new_token, system_sleep, system_time
from ...storage.errors import CairnError
from ...tasks.job_settings import rendered_settings
from .extras import extras_of
from .launched import LOOK_S, LaunchedStage, handed_over

if TYPE_CHECKING:
    from ..launchers.launcher import DriverState, Launcher

PROGRAM = """from airflow_cairn import Epoch

with Epoch.current():
    pass
"""
"""What the stage's file has to hold: it acknowledges, if conf, code and the storage's credentials have arrived."""

LONGEST_S = 3600.0
"""How long a driver is waited for."""
LISTED_S = 120.0
"""How long a driver may be missing in the service's answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was looked at."""

    what: str
    """The question."""
    found: str
    """The answer."""
    fine: bool = True
    """False if a stage would not work."""


class Trial:
    """A stage, and what is seen of it.

    Args:
        task: of a DAG file, with an Epoch block: a class of `epoch_stage`.

    Raises:
        InvalidConfigError: the task is no such stage.
    """

    def __init__(self, task: Any) -> None:
        if not isinstance(task, LaunchedStage) or task.application_args is not None:
            raise InvalidConfigError(
                "the task is no stage of a service with an Epoch block: epoch_stage(LivyOperator)(…), whose file holds "
                f"the program\n{PROGRAM}",
                task=str(getattr(task, "task_id", "")),
            )
        self._task = task

    def looks(self) -> Iterator[Seen]:
        """Submit twice with one token, watch the driver to its end, and cancel another one; yields what is seen.

        Raises:
            CairnError: the storage does not answer.
        """
        yield from self._in_job(self._watched)
        yield from self._in_job(self._cancelled)

    def _in_job(self, part: Callable[[Any, Submit], Iterator[Seen]]) -> Iterator[Seen]:
        """Play a part in a job of its own."""
        task = self._task
        task.job = f"try-launcher-{new_token()[:8]}"
        settings = rendered_settings(task)
        store = settings.hook().open_store(waits=True)
        coordinator = settings.coordinator(waits=True)
        run_id = "manual__2001-01-01T00:00:00+00:00"
        owner, stages = Owner(task.job, run_id), (StageSpec(task.uid),)
        try:
            coordinator.trigger(TriggerRequest(epoch_name(run_id), Slice(), stages, CheckpointConfig(), owner))
            answer = coordinator.begin(epoch_name(run_id), task.uid, "try-launcher")
            assert isinstance(answer, Submit)  # a job that nobody else knows
            try:
                yield from part(coordinator, answer)
            except Exception as error:
                if isinstance(error, CairnError):
                    raise
                # Such as a right that is missing; whatever the provider raises is what is asked.
                yield Seen("the service refused what comes next", one_line(error), fine=False)
        finally:
            kept = store.delete([each.key for each in store.list(f"{task.job}/")])
        if kept:
            yield Seen("its job in the storage is removed", f"no: {kept[0].key}: {kept[0].reason}", fine=False)

    def _watched(self, coordinator: Any, answer: Submit) -> Iterator[Seen]:
        token = answer.handover.token
        first, launcher = self._start(answer)
        yield Seen("submitted", f"{launcher.service} {first}")
        try:
            second, _ = self._start(answer)
        except Exception as error:  # noqa: BLE001 - how a service refuses is what is asked
            yield Seen("the same token again", f"refused: {one_line(error)}")
        else:
            same = second == first
            yield Seen("the same token again", "the same driver" if same else f"another driver, {second}: it is ended")
            if not same:
                launcher.cancel(second)
        began = system_time()
        while (found := launcher.find([token]).get(token)) is None and system_time() - began < LISTED_S:
            system_sleep(LOOK_S)
        after = f"{system_time() - began:.0f} s after the submission"
        yield Seen("found by the token", f"{found}, {after}" if found else f"no, {after}", found is not None)
        states, last = self._states(launcher, first, began)
        yield Seen("states", states, not last.lives)
        execution = answer.handover.execution
        declined = acks.why_declined(coordinator.files, answer.handover.stage, execution)
        arrived = acks.has_acknowledged(coordinator.files, answer.handover.stage, execution)
        why = "it acknowledged" if arrived else declined[1] if declined else "no: it has not acknowledged; see its log"
        yield Seen("conf, code and the storage reach the driver", why, arrived)
        yield Seen("ended well, by its state", "yes" if last.succeeded else f"no: {last.word}", last.succeeded)
        yield Seen("link to Spark", last.link or "none")
        try:
            lines = list(launcher.logs(first))
        except Exception as error:  # noqa: BLE001 - it is what is asked
            yield Seen("log", f"not readable: {one_line(error)}")
        else:
            yield Seen("log", f"{len(lines)} lines, the last: {lines[-1]}" if lines else "elsewhere")

    def _cancelled(self, _coordinator: Any, answer: Submit) -> Iterator[Seen]:
        driver, launcher = self._start(answer)
        launcher.cancel(driver)
        states, last = self._states(launcher, driver, system_time())
        yield Seen("cancelled", states, not last.lives)

    def _start(self, answer: Submit) -> tuple[str, Launcher]:
        """Submit as a stage does, by a copy of the operator of its own."""
        task = self._task
        settings, launcher = rendered_settings(task), task.made_launcher()
        launcher.check()
        launcher.hand_over(handed_over(launcher, settings, answer, extras_of(settings, answer, {})))
        ti = SimpleNamespace(
            dag_id=task.dag_id,
            task_id=task.task_id,
            run_id=task.job,
            map_index=-1,
            try_number=1,
            xcom_push=lambda *_args, **_kwargs: None,
            stats_tags={},
        )
        context: Any = {"ti": ti, "task_instance": ti, "task": task, "dag": task.dag, "run_id": task.job, "params": {}}
        return launcher.start(context), launcher

    @staticmethod
    def _states(launcher: Launcher, driver: str, began: float) -> tuple[str, DriverState]:
        """Watch a driver to its end; gives the words of its states with the seconds, and the last state."""
        words: list[str] = []
        while True:
            state = launcher.state(driver)
            if not words or not words[-1].startswith(f"{state.word} "):
                words.append(f"{state.word} ({system_time() - began:.0f} s)")
            if not state.lives or system_time() - began > LONGEST_S:
                return ", ".join(words), state
            system_sleep(LOOK_S)
