"""Asks a stage's cluster for its equipment, by the way in which the stage starts: `cairn doctor --cluster --stage`.

An operator of a service submits as its stage does, with `spark/cluster_probe.py` in place of the author's program. That
writes its answer into the storage, as the stage's driver writes: with the service's own role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.masking import masked
from ...checkpoint.validation import did_you_mean
from ...spark.cluster_probe import REPORT
from ...spark.execution.failure_kinds import one_line
from ...storage.clock import system_time
from ...storage.errors import CairnError
from ...tasks.health.facts import ClusterFacts, NoAnswer, Silence, ask_cluster
from .launched import LaunchedStage
from .operator import SparkEpochOperator
from .stored_runtime import stored_probe
from .trial import rendered, trial_job, watched

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from ..launchers.launcher import Launcher
    from .trial import TrialJob

ANSWER_S = 1200.0
"""Seconds for a service to start a cluster, the application, and its small job."""


def ask_by_stage(
    task: Any, conf: Mapping[str, str], context: Context | None = None, *, answer_s: float | None = None
) -> ClusterFacts | NoAnswer:
    """Run the application as a stage of a DAG starts, and return its facts.

    Args:
        task: a stage: by a Spark connection, or of `epoch_stage`.
        conf: conf besides the stage's own, where a Spark connection starts it.
        context: of Airflow's task that asks; None: no task runs.
        answer_s: seconds after which the application is ended. None: `ANSWER_S`.

    Raises:
        InvalidConfigError: the task is no stage, or one of its templates cannot be rendered.
    """
    if isinstance(task, SparkEpochOperator):
        made = rendered(task, context)
        own: Mapping[str, Any] = made.conf or {}
        return ask_cluster(made._conn_id, {**{str(key): str(value) for key, value in own.items()}, **conf})
    if not isinstance(task, LaunchedStage):
        raise InvalidConfigError(
            "the task is no stage: name a SparkEpochOperator, or a class of epoch_stage", task=task.task_id
        )
    task = rendered(task, context)
    try:
        with trial_job(task) as it:
            launcher: Launcher = task.made_launcher()
            key = f"{task.job}/report"
            launcher.give_places(dict.fromkeys(task.place_marks, "-"))
            program = stored_probe(it.store)
            try:
                launcher.run_instead(program, (REPORT, it.store.spark_url(key)))
            except InvalidConfigError as error:
                return NoAnswer(Silence.ELSEWHERE, error.message)
            return _answer(it, launcher, f"{key}/", ANSWER_S if answer_s is None else answer_s)
    except CairnError as error:
        return NoAnswer(Silence.FAILED, masked(str(error)))


def stage_in(dag: DAG, task_id: str) -> Any:
    """Return a task of a DAG.

    Raises:
        InvalidConfigError: there is none of that id.
    """
    tasks = dag.task_dict
    if task_id not in tasks:
        raise InvalidConfigError(
            f"the DAG has no such task{did_you_mean(task_id, tasks)}", task=task_id, tasks=", ".join(sorted(tasks))
        )
    return tasks[task_id]


def _answer(it: TrialJob, launcher: Launcher, folder: str, answer_s: float) -> ClusterFacts | NoAnswer:
    began, driver = system_time(), ""
    try:
        driver = it.submit(launcher)
        words, last = watched(launcher, driver, began, answer_s)
    except Exception as error:  # noqa: BLE001 - whatever the provider raises is what is asked
        what = f"{launcher.service} {driver} is not answered for" if driver else f"no {launcher.service} was submitted"
        return NoAnswer(Silence.FAILED, masked(f"{what}: {one_line(error)}"))
    # Not those below `_temporary`, which may be half of one.
    parts = [each.key for each in it.store.list(folder) if each.key.removeprefix(folder).startswith("part-")]
    texts = [it.store.get(each).data.decode() for each in parts]
    text = next((each for each in texts if each.strip()), None)
    if text is not None:
        return ClusterFacts.of(text, over_connect=False, has_code=launcher.has_block)
    if last.lives:
        return NoAnswer(Silence.FAILED, f"no answer within {answer_s:.0f} s. {launcher.service} {driver}: {words}")
    try:
        lines = [each for each in launcher.logs(driver) if each.strip()]
    except Exception as error:  # noqa: BLE001 - it is only for people
        lines = [f"its log could not be read: {one_line(error)}"]
    why = lines[-1] if lines else "its log is on the service"
    return NoAnswer(Silence.FAILED, masked(f"{launcher.service} {driver} ended ({last.word}) without an answer: {why}"))
