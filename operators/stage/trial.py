"""Asks a stage's cluster for its equipment, and tries a launcher on its service, with a stage of a DAG file.

`cairn doctor --cluster --stage`: an operator submits as its stage does, with `spark/cluster_probe.py` in place of the
author's program. Where the driver runs elsewhere, on a service or in cluster mode, the probe writes its answer into the
storage, as the stage's driver writes: with the service's or the cluster's own identity.

`cairn try-launcher`, for somebody with an account: the stage's program is `PROGRAM`. Each part has a job of its own in
the storage, which is removed in the end.
"""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ...checkpoint import CheckpointConfig, TriggerRequest
from ...checkpoint.answers import Submit
from ...checkpoint.documents.attempt import Owner, Slice, StageSpec
from ...checkpoint.documents.layout import epoch_name
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.masking import masked
from ...checkpoint.store import acks
from ...checkpoint.validation import did_you_mean
from ...spark import cluster_probe
from ...spark.cluster_probe import REPORT
from ...spark.execution.failure_kinds import error_line
from ...spark.handover.runtime_zip import runtime_zip
from ...storage.clock import new_token, system_sleep, system_time
from ...storage.errors import CairnError
from ...storage.records import dataclass
from ...tasks.health.facts import APPLICATION, ClusterFacts, NoAnswer, Silence, ask_cluster, bounded
from ...tasks.job_settings import rendered_settings
from .drivers import DurableSubmit
from .extras import extras_of, stored_probe
from .launched import LOOK_S, LaunchedStage, handed_over
from .operator import SparkEpochOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from ...launchers.launcher import DriverState, Launcher
    from ...storage.port import DeleteFailures, ObjectStore

ANSWER_S = 1200.0
"""Seconds for a service to start a cluster, the application, and its small job."""


def ask_by_stage(task: Any, conf: Mapping[str, str], context: Context | None = None) -> ClusterFacts | NoAnswer:
    """Run the application as a stage of a DAG starts, and return its facts.

    Args:
        task: a stage: by a Spark connection, or of `epoch_stage`.
        conf: conf besides the stage's own, where a Spark connection starts it.
        context: of Airflow's task that asks; None: no task runs.

    Raises:
        InvalidConfigError: the task is not a stage, or one of its templates cannot be rendered.
    """
    if isinstance(task, SparkEpochOperator):
        return _by_spark_submit(rendered(task, context), conf)
    if not isinstance(task, LaunchedStage):
        raise InvalidConfigError(
            "the task is not a stage: name a SparkEpochOperator, or a class of epoch_stage", task=task.task_id
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


log = logging.getLogger("airflow_cairn")

PROGRAM = """from airflow_cairn import Epoch

with Epoch.current():
    pass
"""
"""The stage's program: it acknowledges, if conf, code and the storage's credentials have arrived."""

LONGEST_S = 3600.0
"""Seconds of waiting for a driver."""
LISTED_S = 120.0
"""Seconds that a driver may be missing in the service's answer, and of waiting for one that is told to end."""

DAY = datetime(2001, 1, 1, tzinfo=UTC)
RUN_ID = "manual__2001-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that was looked at."""

    what: str
    """The question."""
    found: str
    """The answer."""
    fine: bool = True
    """False if a stage would not work."""


def rendered(task: Any, context: Context | None = None) -> Any:
    """Return a copy of a task, with its templates rendered.

    Args:
        task: of a DAG.
        context: of a task that runs; None: outside of a run, where a template may use `var`, `conn`, `params`, `macros`
            and the times of a run at 2001-01-01.

    Raises:
        InvalidConfigError: a template cannot be rendered.
    """
    from airflow.sdk.execution_time.context import ConnectionAccessor, MacrosAccessor, VariableAccessor

    made, day, stamp = copy.copy(task), f"{DAY:%Y-%m-%d}", DAY.isoformat()
    values: Any = context or {
        **dict.fromkeys(("logical_date", "data_interval_start"), DAY),
        "data_interval_end": DAY + timedelta(days=1),
        "ds": day,
        "ds_nodash": day.replace("-", ""),
        "ts": stamp,
        "dag": task.dag,
        "task": made,
        "run_id": RUN_ID,
        "params": dict(task.params),
        "macros": MacrosAccessor(),
        "var": {name: VariableAccessor(deserialize_json=name == "json") for name in ("json", "value")},
        "conn": ConnectionAccessor(),
    }
    try:
        made.render_template_fields(values)
    except Exception as error:
        raise InvalidConfigError(
            "a template of the task cannot be rendered here, where it may use var, conn, params, macros and times: "
            f"{error_line(error)}. Write the value in its place",
            task=task.task_id,
        ) from error
    return made


@dataclass
class TrialJob:
    """A job in the storage with one claimed stage, and the drivers that are started for it."""

    task: Any
    """Rendered."""
    coordinator: Any
    answer: Submit
    store: Any
    drivers: list[tuple[Launcher, str]] = field(default_factory=list)
    unheard: list[Launcher] = field(default_factory=list)
    """Launchers whose submission ended with an error: the service may have accepted it."""
    kept: DeleteFailures = field(default_factory=list)
    """Objects of the trial that could not be deleted."""

    def submit(self, launcher: Launcher) -> str:
        """Submit as a stage does, by a launcher of its own; returns the driver."""
        settings = rendered_settings(self.task)
        launcher.check()
        launcher.hand_over(handed_over(launcher, settings, self.answer, extras_of(settings, self.answer, {})))
        self.unheard.append(launcher)
        driver = launcher.start(self.context())
        self.unheard.remove(launcher)
        self.drivers.append((launcher, driver))
        return driver

    def context(self) -> Context:
        """Give what Airflow would give to a task that starts."""
        task = self.task
        dag = task.dag if task.has_dag() else None
        ti = SimpleNamespace(
            dag_id=task.dag_id,
            task_id=task.task_id,
            run_id=task.job,
            map_index=-1,
            try_number=1,
            xcom_push=lambda *_args, **_kwargs: None,
            stats_tags={},
        )
        given: Any = {"ti": ti, "task_instance": ti, "task": task, "dag": dag, "run_id": task.job, "params": {}}
        return cast("Context", given)

    def end_drivers(self) -> None:
        """End drivers that live: they would write to the job's folder again."""
        for launcher in self.unheard:
            try:
                self.drivers += [(launcher, each) for each in launcher.find([self.answer.handover.token]).values()]
            except Exception as error:  # noqa: BLE001 - those that are known are ended
                log.warning("What was submitted could not be ended, so a driver may be left: %s", error_line(error))
        for launcher, driver in self.drivers:
            try:
                if launcher.state(driver).lives:
                    launcher.cancel(driver)
                    watched(launcher, driver, system_time(), LISTED_S)
            except Exception as error:  # noqa: BLE001 - the others are ended, too
                log.warning("Driver %s could not be ended: %s", driver, error_line(error))


@contextmanager
def trial_job(task: Any) -> Iterator[TrialJob]:
    """Have a job in the storage for a stage; in the end its drivers are ended, and it is removed.

    Args:
        task: rendered; its job's name changes.
    """
    task.job = f"trial-{new_token()[:8]}"
    settings = rendered_settings(task)
    store, coordinator = settings.hook().open_store(waits=True), settings.coordinator(waits=True)
    owner, stages = Owner(task.job, RUN_ID), (StageSpec(task.uid),)
    it: TrialJob | None = None
    try:
        coordinator.trigger(TriggerRequest(epoch_name(RUN_ID), Slice(), stages, CheckpointConfig(), owner))
        answer = coordinator.begin(epoch_name(RUN_ID), task.uid, "trial")
        assert isinstance(answer, Submit)  # a job that nobody else knows
        it = TrialJob(task, coordinator, answer, store)
        yield it
    finally:
        if it is not None:
            it.end_drivers()
        kept = store.delete([each.key for each in store.list(f"{task.job}/")])
        if it is not None:
            it.kept = kept


def watched(launcher: Launcher, driver: str, began: float, longest_s: float) -> tuple[str, DriverState]:
    """Watch a driver to its end; gives the words of its states with the seconds, and the last state."""
    words: list[str] = []
    while True:
        state = launcher.state(driver)
        if not words or not words[-1].startswith(f"{state.word} "):
            words.append(f"{state.word} ({system_time() - began:.0f} s)")
        if not state.lives or system_time() - began > longest_s:
            return ", ".join(words), state
        system_sleep(LOOK_S)


class Trial:
    """A stage, and what is seen of it.

    Args:
        task: of a DAG file, with an Epoch block: a class of `epoch_stage`.

    Raises:
        InvalidConfigError: the task is not such a stage, or one of its templates cannot be rendered.
    """

    def __init__(self, task: Any) -> None:
        if not isinstance(task, LaunchedStage) or task.application_args is not None:
            raise InvalidConfigError(
                "the task is not a stage of a service with an Epoch block: epoch_stage(LivyOperator)(…), whose file "
                f"holds the program\n{PROGRAM}",
                task=str(getattr(task, "task_id", "")),
            )
        self._task = rendered(task)

    def looks(self) -> Generator[Seen]:
        """Submit twice with one token, watch the driver to its end, and cancel another one; yields what is seen.

        Raises:
            CairnError: the storage does not answer.
        """
        for part in (self._watched, self._cancelled):
            with trial_job(self._task) as it:
                try:
                    yield from part(it)
                except Exception as error:
                    if isinstance(error, CairnError):
                        raise
                    # Such as a right that is missing; whatever the provider raises is what is asked.
                    yield Seen("the service refused what comes next", error_line(error), fine=False)
            if it.kept:
                what = f"no: {it.kept[0].key}: {it.kept[0].reason}"
                yield Seen("its job in the storage is removed", what, fine=False)

    def _watched(self, it: TrialJob) -> Iterator[Seen]:
        handover, launcher = it.answer.handover, self._task.made_launcher()
        first = it.submit(launcher)
        yield Seen("submitted", f"{launcher.service} {first}")
        try:
            second = it.submit(self._task.made_launcher())
        except Exception as error:  # noqa: BLE001 - how a service refuses is what is asked
            yield Seen("the same token again", f"refused: {error_line(error)}")
        else:
            same = second == first
            yield Seen("the same token again", "the same driver" if same else f"another driver, {second}: it is ended")
            if not same:
                launcher.cancel(second)
        began = system_time()
        while (found := launcher.find([handover.token]).get(handover.token)) is None:
            if system_time() - began > LISTED_S:
                break
            system_sleep(LOOK_S)
        after = f"{system_time() - began:.0f} s after the submission"
        yield Seen("found by the token", f"{found}, {after}" if found else f"no, {after}", found is not None)
        states, last = watched(launcher, first, began, LONGEST_S)
        yield Seen("states", states, not last.lives)
        declined = acks.why_declined(it.coordinator.files, handover.stage, handover.execution)
        arrived = acks.has_acknowledged(it.coordinator.files, handover.stage, handover.execution)
        why = "it acknowledged" if arrived else declined[1] if declined else "no: it has not acknowledged; see its log"
        yield Seen("conf, code and the storage reach the driver", why, arrived)
        yield Seen("ended well, by its state", "yes" if last.succeeded else f"no: {last.word}", last.succeeded)
        yield Seen("link to Spark", last.link or "none")
        try:
            lines = list(launcher.logs(first))
        except Exception as error:  # noqa: BLE001 - it is what is asked
            yield Seen("log", f"not readable: {error_line(error)}")
        else:
            yield Seen("log", f"{len(lines)} lines, the last: {lines[-1]}" if lines else "elsewhere")

    def _cancelled(self, it: TrialJob) -> Iterator[Seen]:
        launcher = self._task.made_launcher()
        driver = it.submit(launcher)
        launcher.cancel(driver)
        states, last = watched(launcher, driver, system_time(), LONGEST_S)
        yield Seen("cancelled", states, not last.lives)
