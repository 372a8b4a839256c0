"""Asks a stage's cluster for its equipment, by the way in which the stage starts: `cairn doctor --cluster --stage`.

An operator submits as its stage does, with `spark/cluster_probe.py` in place of the author's program. Where the driver
runs elsewhere, on a service or in cluster mode, the probe writes its answer into the storage, as the stage's driver
writes: with the service's or the cluster's own identity.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.masking import masked
from ...checkpoint.validation import did_you_mean
from ...spark import cluster_probe
from ...spark.cluster_probe import REPORT
from ...spark.execution.failure_kinds import error_line
from ...spark.handover.runtime_zip import runtime_zip
from ...storage.clock import system_time
from ...storage.errors import CairnError
from ...tasks.health.facts import APPLICATION, ClusterFacts, NoAnswer, Silence, ask_cluster, bounded
from ...tasks.job_settings import rendered_settings
from .drivers import DurableSubmit
from .extras import extras_of
from .launched import LaunchedStage
from .operator import SparkEpochOperator
from .stored_runtime import stored_probe
from .trial import rendered, trial_job, watched

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from ...launchers.launcher import Launcher
    from ...storage.port import ObjectStore
    from .trial import TrialJob

ANSWER_S = 1200.0
"""Seconds for a service to start a cluster, the application, and its small job."""


def ask_by_stage(task: Any, conf: Mapping[str, str], context: Context | None = None) -> ClusterFacts | NoAnswer:
    """Run the application as a stage of a DAG starts, and return its facts.

    Args:
        task: a stage: by a Spark connection, or of `epoch_stage`.
        conf: conf besides the stage's own, where a Spark connection starts it.
        context: of Airflow's task that asks; None: no task runs.

    Raises:
        InvalidConfigError: the task is no stage, or one of its templates cannot be rendered.
    """
    if isinstance(task, SparkEpochOperator):
        return _by_spark_submit(rendered(task, context), conf)
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
                return NoAnswer(Silence.UNFIT, error.message)
            return _answer(it, launcher, f"{key}/")
    except CairnError as error:
        return NoAnswer(Silence.FAILED, masked(str(error)))


def ask_by_connection(
    conn_id: str, conf: Mapping[str, str], *, storage: str, aws_conn_id: str | None = None
) -> ClusterFacts | NoAnswer:
    """Run the application with a Spark connection; in cluster mode it answers through a storage.

    Args:
        conn_id: a connection of type `spark` or `spark_connect`.
        conf: conf that the stages get.
        storage: URI of the storage.
        aws_conn_id: the connection to it; see `CheckpointStorageHook`.
    """
    made = SparkEpochOperator(
        task_id=APPLICATION,
        job=APPLICATION,
        storage=storage,
        aws_conn_id=aws_conn_id,
        application=cluster_probe.__file__,
        conn_id=conn_id,
        durable=False,  # else YARN would need the address of its ResourceManager
    )
    return _by_spark_submit(made, conf)


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


def _by_spark_submit(made: Any, conf: Mapping[str, str]) -> ClusterFacts | NoAnswer:
    made.conf = {**{str(key): str(value) for key, value in (made.conf or {}).items()}, **conf}
    made._use_files_beside_dag()
    found = ask_cluster(made._conn_id, made.conf, plain=made._get_hook)
    if not isinstance(found, NoAnswer) or found.silence is not Silence.ELSEWHERE:
        return found
    # The author's commands belong to the stage's end.
    made.application, made.name, made._java_class, made.post_submit_commands = (
        cluster_probe.__file__,
        APPLICATION,
        None,
        [],
    )
    try:
        with trial_job(made) as it, tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            key = f"{made.job}/report"
            made.application_args = [REPORT, it.store.spark_url(key)]
            made.keep_drivers_of(it.answer.handover.token)
            made._extras = extras_of(rendered_settings(made), it.answer, {}, str(runtime_zip(Path(folder))))
            said, execute = "", cast("Any", DurableSubmit.execute)
            with bounded(ANSWER_S, made.on_kill) as late:
                try:
                    execute.__wrapped__(made, it.context())  # Airflow lets only a task call the method itself
                except Exception as error:  # noqa: BLE001 - whatever the provider raises is what is asked
                    said = masked(error_line(error))
                except BaseException:
                    made.on_kill()  # the command is ended, and the driver would run on
                    raise
            text = _report(it.store, f"{key}/")
            if text is not None:
                return ClusterFacts.of(text, over_connect=False, has_code=True)
            return late.why(getattr(made._hook, "cause", "") or said)
    except CairnError as error:
        return NoAnswer(Silence.FAILED, masked(str(error)))


def _report(store: ObjectStore, folder: str) -> str | None:
    # Not those below `_temporary`, which may be half of one.
    parts = [each.key for each in store.list(folder) if each.key.removeprefix(folder).startswith("part-")]
    texts = [store.get(each).data.decode() for each in parts]
    return next((each for each in texts if each.strip()), None)


def _answer(it: TrialJob, launcher: Launcher, folder: str) -> ClusterFacts | NoAnswer:
    began, driver = system_time(), ""
    try:
        driver = it.submit(launcher)
        words, last = watched(launcher, driver, began, ANSWER_S)
    except Exception as error:  # noqa: BLE001 - whatever the provider raises is what is asked
        what = f"{launcher.service} {driver} is not answered for" if driver else f"no {launcher.service} was submitted"
        return NoAnswer(Silence.FAILED, masked(f"{what}: {error_line(error)}"))
    text = _report(it.store, folder)
    if text is not None:
        return ClusterFacts.of(text, over_connect=False, has_code=launcher.has_block)
    if last.lives:
        return NoAnswer(Silence.FAILED, f"no answer within {ANSWER_S:.0f} s. {launcher.service} {driver}: {words}")
    try:
        lines = [each for each in launcher.logs(driver) if each.strip()]
    except Exception as error:  # noqa: BLE001 - it is only for people
        lines = [f"its log could not be read: {error_line(error)}"]
    why = lines[-1] if lines else "its log is on the service"
    return NoAnswer(Silence.FAILED, masked(f"{launcher.service} {driver} ended ({last.word}) without an answer: {why}"))
