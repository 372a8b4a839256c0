"""`epoch_stage`: any operator of a service that has a launcher, as a stage of the epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Handover, Slice
from ...checkpoint.errors import FencedError, InvalidConfigError
from ...hooks.airflow_api import AIRFLOW_API_CONN_ID
from ...hooks.driver_output import driver_output
from ...launchers.launcher import DriverState, HandedOver, Launcher, check_known, known_as, launcher_of
from ...spark.execution.failure_kinds import error_line
from ...spark.execution.log_lines import Application
from ...spark.programs.arguments import Argument, mark, marked, program_of, texts_in
from ...storage.clock import system_sleep, system_time
from ...storage.errors import CairnError, GoneError
from ...tasks.job_settings import rendered_settings
from ...tasks.reports.links import CheckpointLink, SparkLink, SparkPlace
from ..graph.declaration import Exchange, stage_uid
from . import programs
from .drivers import StageDrivers
from .epoch_stage import EpochStage
from .extras import Extras, extras_of
from .outcome import StageFailedError, StageRun
from .submit_options import check_author_settings, checked_not_secret

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from ...checkpoint.answers import Submit
    from ...checkpoint.documents.acknowledgement import AckDocument
    from ...tasks.job_settings import JobSettings

log = logging.getLogger("airflow_cairn")

LOOK_S = 10.0
"""Seconds between two looks at a driver."""

UNANSWERED = 18
"""Number of looks in a row that may fail before a try gives up watching: three minutes."""

Operator = TypeVar("Operator", bound=BaseOperator)


class LaunchedStage(EpochStage):
    """A stage whose application an operator of a service starts; the base of the classes that `epoch_stage` makes.

    Args:
        **kwargs: the operator's own arguments.

    Raises:
        InvalidConfigError: an option of `epoch_stage` is invalid, or an argument of the operator leaves no way to hand
            over; see `SparkEpochOperator` for the options.
        InvalidKeyError: job or uid are outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    cairn_operator: ClassVar[type[BaseOperator]]
    cairn_options: ClassVar[Mapping[str, Any]]
    """The options of a stage, as `_declare` takes them."""
    cairn_durable: ClassVar[bool]
    cairn_not_secret: ClassVar[tuple[str, ...]]
    deferrable: bool
    """The operator's own: whether the triggerer waits for the driver."""

    def __init__(self, **kwargs: Any) -> None:
        places: list[Argument] = []
        super().__init__(**marked(kwargs, places))
        self.application_args = places or None
        self.place_marks = tuple(mark(number, place) for number, place in enumerate(places))
        # An operator may have arguments with the names of Cairn's, such as aws_conn_id.
        self.launch_fields = {name: vars(self)[name] for name in self.cairn_options if name in vars(self)}
        scope = self._declare(**self.cairn_options)
        self.not_secret = (*(scope.not_secret if scope else ()), *self.cairn_not_secret)
        launcher = self.made_launcher()
        self._check_places(launcher)
        self._check_author(launcher)
        launcher.check()
        self._check_trigger(launcher)
        programs.program(self)
        self._launcher: Launcher | None = None
        self._driver: str | None = None
        self._ended_driver: str | None = None
        self._end_asked = False

    def _prepare(self) -> None:
        self._launcher = self.made_launcher()
        self._check_author(self._launcher)

    def _find_drivers(self, context: Context) -> StageDrivers:  # noqa: ARG002 - the service knows
        return StageDrivers(self._ready(), durable=self.cairn_durable)

    def _submit(
        self, context: Context, drivers: StageDrivers, settings: JobSettings, answer: Submit, run: StageRun
    ) -> None:
        from ..graph.topology import source_folders

        launcher, it = self._ready(), answer.handover
        extras = extras_of(settings, answer, source_folders(self))
        launcher.give_places(dict(zip(self.place_marks, self.application_args or (), strict=True)))
        launcher.hand_over(handed_over(launcher, settings, answer, extras))
        try:
            self._driver = launcher.start(context)
        except Exception as error:
            if isinstance(error, CairnError):
                raise
            # It may have been accepted: then the next try finds it by its token.
            drivers.check_lost(it, error)
            raise run.refused(
                f"the {launcher.service} was not submitted: {error_line(error)}", incurable=False
            ) from error
        log.info("Checkpoint %s: %s %s was submitted", run.title, launcher.service, self._driver)
        self._wait(context, drivers, run, self._driver)

    def _reconnect(self, context: Context, drivers: StageDrivers, run: StageRun) -> None:
        launcher = self._ready()
        try:
            self._driver = drivers.driver_of(run.handover.token)
        except Exception as error:
            self._check_failed(drivers, run, error)
            raise run.failure(0, str(error)) from error
        log.info(
            "Checkpoint %s: waiting for %s %s, which an earlier try submitted",
            run.title,
            launcher.service,
            self._driver,
        )
        self._wait(context, drivers, run, self._driver)

    def _wait(
        self, context: Context, drivers: StageDrivers, run: StageRun, driver: str, deadline: float | None = None
    ) -> None:
        """Wait until a driver has ended.

        Args:
            context: Airflow's task context.
            drivers: those of this stage.
            run: the execution.
            driver: its driver.
            deadline: of a wait in the triggerer that goes on; None: it begins now.

        Raises:
            TaskDeferred: the driver lives, and the triggerer waits for it.
            StageFailedError: it did not end well.
            UnreachableError: the service does not say any more whether it lives.
        """
        launcher, unanswered, link = self._ready(), 0, ""
        while True:
            state: DriverState | None = None
            try:
                state = launcher.state(driver)
                unanswered = 0
            except Exception as error:
                unanswered += 1
                if unanswered >= UNANSWERED:
                    drivers.check_lost(run.handover, error)
                    raise
                log.warning("The %s %s: no answer about its state: %s", launcher.service, driver, error_line(error))
            address = SparkPlace(Application(driver, ui=state.link), "").now() if state is not None else ""
            if address not in ("", link):
                link = address
                log.info("Spark application of %s %s: %s", launcher.service, driver, link)
                context["ti"].xcom_push(SparkLink().xcom_key, link)
            if state is not None and not state.lives:
                break
            if state is not None and self.deferrable:
                self._defer(run, driver, deadline)
            system_sleep(LOOK_S)
        self._check_end(run, driver, state)

    def _check_end(self, run: StageRun, driver: str, state: DriverState) -> None:
        """Pass on the log of a driver that has ended.

        Raises:
            StageFailedError: it did not end well, and has not acknowledged.
        """
        launcher = self._ready()
        self._ended_driver = driver
        cause = self._pass_on_log(launcher, driver)
        if not state.succeeded and not run.acknowledged():
            raise self._failed(run, f"{launcher.service} {driver} ended ({state.word})", cause)

    def _defer(self, run: StageRun, driver: str, deadline: float | None) -> NoReturn:
        """Let the triggerer wait for a driver.

        The event leads to this execution and its driver again: a second `begin` of the same try would submit.
        """
        from ...triggers.driver import DriverTrigger

        it, limit = run.handover, self.execution_timeout
        if deadline is None and limit is not None:
            deadline = system_time() + limit.total_seconds()
        log.info(
            "Checkpoint %s: the triggerer waits for %s %s, without a worker", run.title, self._ready().service, driver
        )
        self.defer(
            trigger=DriverTrigger(
                operator=known_as(self.cairn_operator),
                fields=self._ready().fields(),
                driver=driver,
                deadline=deadline,
            ),
            method_name=self.resume.__name__,
            kwargs={
                "driver": driver,
                "checkpoint": it.checkpoint,
                "attempt": it.attempt,
                "token": it.token,
                "deadline": deadline,
            },
        )

    def resume(
        self,
        context: Context,
        event: Mapping[str, Any],
        *,
        driver: str,
        checkpoint: int,
        attempt: int,
        token: str,
        deadline: float | None,
    ) -> dict[str, Any]:
        """Go on after the wait in the triggerer, with the execution and the driver that it began with.

        Args:
            context: Airflow's task context.
            event: the trigger's event.
            driver: the driver.
            checkpoint: of the execution.
            attempt: of the execution.
            token: of the execution.
            deadline: at which `execution_timeout` is over, seconds since 1970; None: there is none.

        Returns:
            As `execute` does, whose errors may come too.

        Raises:
            AirflowTaskTimeout: the driver took longer than `execution_timeout`, and is asked to end.
            TaskDeferred: the triggerer had no answer about the driver, which lives.
        """
        from ...triggers.driver import ENDED, TIMEOUT

        # Nothing is submitted, so what a changed DAG file would be refused for must not cost the driver's work.
        self._launcher = self.made_launcher()
        settings, drivers = rendered_settings(self), self._find_drivers(context)
        coordinator = settings.coordinator(waits=True)
        ti = context["ti"]
        own = Handover(
            job=settings.job,
            checkpoint=checkpoint,
            epoch=layout.epoch_name(ti.run_id),
            attempt=attempt,
            stage=stage_uid(self.uid, ti.map_index),
            token=token,
            claimant=str(ti.id),
            slice=Slice(),
        )
        # Cleaned after later checkpoints: the head still knows how the epoch ended.
        with settings.naming_connection(), suppress(GoneError):
            stored, _ = coordinator.files.read(Handover, layout.handover(checkpoint, own.stage, token))
            own = replace(stored, claimant=own.claimant)  # another try may have taken the driver over by now
        run = StageRun(coordinator, own)
        self._driver = driver

        def until_end() -> None:
            if event["status"] == TIMEOUT:
                state = self._last_state(driver)
                if state is not None and not state.lives:
                    self._check_end(run, driver, state)
                    return
                self.on_kill()
                raise AirflowTaskTimeout(f"{self._ready().service} {driver} took longer than execution_timeout")
            if event["status"] == ENDED:
                self._check_end(run, driver, DriverState(event["word"], lives=False, succeeded=event["succeeded"]))
                return
            log.warning(
                "The triggerer had no answer about %s %s, so this task looks itself",
                self._ready().service,
                driver,
            )
            self._wait(context, drivers, run, driver, deadline)

        return self._end_with(context, settings, run, until_end)

    def _last_state(self, driver: str) -> DriverState | None:
        """Ask once more before a driver is ended; None without an answer."""
        launcher = self._ready()
        try:
            return launcher.state(driver)
        except Exception as error:  # noqa: BLE001 - it is ended as one that lives
            log.warning("The %s %s: no answer about its state: %s", launcher.service, driver, error_line(error))
            return None

    @staticmethod
    def _pass_on_log(launcher: Launcher, driver: str) -> str:
        """Write the end of a driver's log into the task's; gives the line that says why it failed."""
        try:
            lines = list(launcher.logs(driver))
        except Exception as error:  # noqa: BLE001 - the driver has ended, and its log is only for people
            log.warning("The log of %s %s could not be read: %s", launcher.service, driver, error_line(error))
            lines = []
        with driver_output() as output:
            for line in lines:
                output.line(line)
            return output.cause({})

    def _run_execution(self, context: Context, run: StageRun, until_end: Callable[[], None]) -> AckDocument | None:
        """See `EpochStage`; then remove the driver's record, which the next try needs until the end is judged."""
        try:
            own = super()._run_execution(context, run, until_end)
        except (
            StageFailedError,
            FencedError,
            AirflowFailException,
            AirflowRescheduleException,
            AirflowSkipException,
        ):
            self._leave()
            raise
        self._leave()
        return own

    def _leave(self) -> None:
        launcher, driver = self._ready(), self._ended_driver
        if driver is None:
            return
        try:
            launcher.leave(driver)
        except Exception as error:  # noqa: BLE001 - it has ended
            log.warning("The %s %s has ended and could not be removed: %s", launcher.service, driver, error_line(error))

    @staticmethod
    def _failed(run: StageRun, what: str, cause: str) -> StageFailedError:
        return run.failure(0, f"{what}: {cause}" if cause else what)

    def on_kill(self) -> None:
        """End the driver of this try's execution, unless another try has taken it over."""
        self._told_to_end = True
        run, launcher = self._run, self._launcher
        if run is None or launcher is None or self._end_asked:
            return
        if run.taken_over():
            log.info("Checkpoint %s: another try of this task waits for its driver, which goes on", run.title)
            return
        try:
            driver = self._driver or launcher.find([run.handover.token]).get(run.handover.token)
            if driver is not None:
                launcher.cancel(driver)
                self._end_asked = True  # Airflow calls again after `execution_timeout`, and AWS refuses a second time
                log.info("Checkpoint %s: %s %s is asked to end", run.title, launcher.service, driver)
        except Exception as error:  # noqa: BLE001 - the task ends anyway
            log.warning("Checkpoint %s: its %s could not be ended: %s", run.title, launcher.service, error_line(error))

    def _ready(self) -> Launcher:
        assert self._launcher is not None  # `execute` begins with `_prepare`
        return self._launcher

    def made_launcher(self) -> Launcher:
        """Return the launcher over a copy of this task that is nothing but the operator."""
        plain = self.cairn_operator.__new__(self.cairn_operator)
        vars(plain).update({**vars(self), **self.launch_fields})
        launcher = launcher_of(self.cairn_operator, plain)
        written = program_of(self.application_args, self.task_id)
        launcher.has_block, launcher.writes = written is None, bool(written and written.outputs)
        return launcher

    def _check_places(self, launcher: Launcher) -> None:
        given = list(texts_in(launcher.arguments))
        for place, text in zip(self.application_args or (), self.place_marks, strict=True):
            if not any(text in each for each in given):
                raise InvalidConfigError(
                    f"{place!r} is not an argument of the application, and no other field takes a place: give it where "
                    f"{self.cairn_operator.__name__} takes the application's arguments",
                    task=self.task_id,
                )

    def _check_trigger(self, launcher: Launcher) -> None:
        for name, given in launcher.fields().items() if self.deferrable else ():
            if isinstance(given, Mapping) and "proxies" in given:
                raise InvalidConfigError(
                    f"proxies may hold a password, and {name} is handed to the triggerer: put it into the connection, "
                    "or set deferrable=False",
                    task=self.task_id,
                )

    def _check_author(self, launcher: Launcher) -> None:
        check_author_settings(
            self.task_id,
            conf=launcher.conf,
            application_args=launcher.arguments,
            texts=launcher.texts,
            not_secret=self.not_secret,
        )


def handed_over(launcher: Launcher, settings: JobSettings, answer: Submit, extras: Extras) -> HandedOver:
    """Return what a submission has to carry; uploads Cairn's code to the storage if need be."""
    from .extras import stored_runtime

    it, code = answer.handover, tuple[str, ...]()
    if launcher.has_block:
        code = (stored_runtime(settings.hook().open_store(waits=True), wheel=launcher.takes_wheel),)
    return HandedOver(it.token, f"{it.job}-{it.stage}-{it.token}", extras.defaults, extras.handed, code)


def epoch_stage(
    operator: type[Operator],
    *,
    storage: str | None = None,
    job: str | None = None,
    aws_conn_id: str | None = None,
    uid: str | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    reads: Sequence[str] = (),
    exchange: Exchange | None = None,
    airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID,
    durable: bool = True,
    not_secret: Collection[str] = (),
) -> type[Operator]:
    """Return an operator of a service as a class of stages: `epoch_stage(LivyOperator)(task_id="routes", …)`.

    The call of the class takes the operator's own arguments, as they stand in a DAG without Cairn. Template fields,
    retries, pools, callbacks and extra links stay the operator's. With its `deferrable` the triggerer waits for the
    driver, without a worker slot; otherwise the task waits, whatever other arguments about waiting say. A driver
    outlives a worker or a triggerer that dies, and the next try finds it by its execution's token.

    With places such as `Output("clean")` among the arguments for the application, that has no `Epoch` block, and the
    operator acknowledges.

    Args:
        operator: a class of Airflow's providers that has a launcher, or one derived from it.
        storage: storage URI (templated); in a `CheckpointedTaskGroup` the group's.
        job: the job's name (templated); in a group the group's, else the DAG's id.
        aws_conn_id: Airflow connection of type `aws` by which the task reaches an `s3://` storage; in a group the
            group's. The driver uses the service's own role.
        uid: the stage's name in the job; by default the task's id without those of its groups.
        parallelism: number of subtasks that must acknowledge, 1 to 32768; None: as many as the application writes.
        max_parallelism: the highest parallelism at which the stage's state can ever be restored (semantics R4).
        reads: uids of stages that it reads from without waiting for them (semantics B2).
        exchange: `"pipelined"` or `"blocking"`; None: the edges decide.
        airflow_api_conn_id: the connection to Airflow's API; in a group the group's.
        durable: False: a retry never waits for an earlier try's driver, and opens a new attempt.
        not_secret: names of settings in the operator's conf that look like secrets but are not.

    Returns:
        A class derived from the operator's.

    Raises:
        InvalidConfigError: there is no launcher for the operator; further options are checked when a stage is made.
    """
    check_known(operator)
    options = {
        "storage": storage,
        "job": job,
        "aws_conn_id": aws_conn_id,
        "uid": uid,
        "parallelism": parallelism,
        "max_parallelism": max_parallelism,
        "reads": reads,
        "exchange": exchange,
        "airflow_api_conn_id": airflow_api_conn_id,
    }
    shared = options.keys() & set(operator.template_fields)
    links: Collection[BaseOperatorLink] = (CheckpointLink(), SparkLink(), *operator.operator_extra_links)
    members = {
        "__doc__": operator.__doc__,
        "__module__": __name__,
        "template_fields": tuple(
            dict.fromkeys((*operator.template_fields, "storage", "job", *(["launch_fields"] if shared else [])))
        ),
        "operator_extra_links": links,
        "cairn_operator": operator,
        "cairn_options": options,
        "cairn_durable": durable,
        "cairn_not_secret": checked_not_secret(not_secret, operator.__name__),
    }
    meta: Any = type(operator)
    return cast("type[Operator]", meta(f"Epoch{operator.__name__}", (LaunchedStage, operator), members))
