"""`SparkEpochOperator`: a `SparkSubmitOperator` whose application is one stage of an epoch."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from ...checkpoint.answers import Reconnect, Submit
from ...checkpoint.config import check_parallelism
from ...checkpoint.errors import CheckpointError, InvalidConfigError
from ...checkpoint.validation import check_spelling
from ...hooks.airflow_api import AIRFLOW_API_CONN_ID
from ...hooks.spark_connect import ConnectClient, connect_server
from ...hooks.spark_site import point_at
from ...hooks.spark_submit import EpochSubmitHook
from ...spark.execution.failure_kinds import one_line
from ...spark.handover.runtime_zip import runtime_zip
from ...spark.pyspark_versions import conflict
from ...storage.names import check_name
from ...tasks.dag_runs import stop_if_paused
from ...tasks.job_settings import (
    SPARK_CONN_ID,
    JobSettings,
    check_room,
    check_storage_and_job,
    is_rendered_later,
    naming,
    rendered_settings,
    scope_of,
)
from ...tasks.messages import skipping
from ...tasks.reports import lineage
from ...tasks.reports.links import CheckpointLink, SparkLink, SparkPlace
from ..graph.declaration import StageOperator, checked_reads, stage_uid
from ..graph.exchange import Exchange, checked_exchange
from ..graph.topology import trigger_before
from . import programs
from .drivers import DurableSubmit, StageDrivers
from .extras import Extras, extras_of, log_restore_source
from .outcome import NO_CURE, StageFailedError, StageNotRetryableError, StageRun, failed_prefix, left_out
from .submit_options import (
    FILES,
    LISTS,
    MAPPINGS,
    NUMBERS,
    SECONDS,
    TEXTS,
    check_author_settings,
    check_forms,
    checked_not_secret,
    folder_of,
    not_found,
    place_beside,
)
from .tries import why_ended

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperatorLink, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...spark.execution.log_lines import Application

log = logging.getLogger("airflow_cairn")


class SparkEpochOperator(StageOperator, DurableSubmit):
    """Submits a Spark application as one stage of the DAG run's epoch, and succeeds when the stage has acknowledged.

    All options of `SparkSubmitOperator` stay. The application opens its epoch with `with Epoch.current() as epoch:`;
    Cairn's code for the driver is shipped with it. A retry restores the latest completed checkpoint first: its start
    settles the failed try, whether or not a callback ran (semantics F5). If the driver runs on a cluster and outlives
    its task, the retry waits for the driver instead, and the same attempt goes on (`durable`, on by default).

    Args:
        storage: storage URI (templated); in a `CheckpointedTaskGroup` the group's.
        job: the job's name (templated); in a group the group's, else the DAG's id.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None: boto3's own chain. In client mode
            the driver gets its credentials through the environment of spark-submit; in cluster mode it uses the
            cluster's.
        uid: the stage's name in the job, to which its state is matched (semantics R3). By default the task's id without
            those of its groups; set it to rename the task and keep its state. Instances of a mapped task are stages of
            their own: `<uid>-0`, `<uid>-1`, ….
        parallelism: number of subtasks that must acknowledge, 1 to 32768; None: as many as the application writes.
        max_parallelism: the highest parallelism at which the stage's state can ever be restored (semantics R4); None:
            the value that the state was made with, or at first 1.5 times `parallelism`, rounded up.
        reads: uids of stages that it reads from without waiting for them, for groups whose config has
            `mode="at_least_once"` (semantics B2). Stages with an edge to it need not be named.
        exchange: `"pipelined"`: it runs again together with every stage that has an edge to it (semantics F1);
            `"blocking"`: with none of them. None: the edges decide (`Pipelined`); they are blocking by default.
        conn_id: the Spark connection; in a group the group's, else `spark_default`. With a connection of type
            `spark_connect` the application runs in a process of this task, as a client of that server.
        airflow_api_conn_id: the connection to Airflow's API, used when other tasks must run again after a failover;
            None: a user clears them. In a group the group's.
        name: the application's name in Spark (templated); job and uid by default.
        not_secret: names of settings that look like secrets but are none; added to those of the group.
        **kwargs: further arguments of `SparkSubmitOperator`.

    Raises:
        InvalidConfigError: no storage, no application, a parallelism out of its bounds, `reads` or `exchange` outside a
            group, `reads` that is not a list of uids, an unknown `exchange`, a secret or a reserved key in conf,
            env_vars, application_args or another text, or storage, job and uid that are together too long for S3.
        InvalidKeyError: job or uid are outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "storage", "job")
    operator_extra_links: Collection[BaseOperatorLink] = (CheckpointLink(), SparkLink())
    ui_color = "#f3e9d8"
    _file_options: Sequence[str] = FILES

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        aws_conn_id: str | None = None,
        uid: str | None = None,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        reads: Sequence[str] = (),
        exchange: Exchange | None = None,
        conn_id: str | None = None,
        airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID,
        name: str | None = None,
        not_secret: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(conn_id=conn_id or SPARK_CONN_ID, name=name or "", **kwargs)
        scope = scope_of(self.task_group)
        if scope is not None:
            conn_id = scope.own("conn_id", conn_id)
            aws_conn_id = scope.own("aws_conn_id", aws_conn_id)
            self._conn_id = conn_id or scope.conn_id
        self.storage = storage if storage is not None or scope is None else scope.storage
        self.job = job or (scope.job if scope else self._dag_id_if_any())
        self.aws_conn_id = aws_conn_id if aws_conn_id is not None or scope is None else scope.aws_conn_id
        self.airflow_api_conn_id = scope.airflow_api_conn_id if scope else airflow_api_conn_id
        with naming(task=self.task_id):
            self.uid = check_name("stage", uid if uid is not None else self._own_task_id())
        check_parallelism(parallelism, max_parallelism, task=self.task_id)
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.reads = checked_reads(reads, self.uid, self.task_id, in_group=scope is not None)
        self.exchange = checked_exchange(exchange, self.task_id, in_group=scope is not None)
        self.name = name or f"{self.job} {self.uid}"
        check_storage_and_job(self.storage, self.job, task=self.task_id)
        check_room(self.storage, self.job, self.uid, task=self.task_id)
        if self.application is None or self.application == "":
            raise InvalidConfigError(
                "no application is given: name the Python file or jar that opens the epoch, application='routes.py'",
                task=self.task_id,
            )
        self.not_secret = (*(scope.not_secret if scope else ()), *checked_not_secret(not_secret, self.task_id))
        self._check_author_settings(rendered=False)
        programs.program(self)
        self._warn_of_missing_files()
        self.session = scope.session if scope is not None and conn_id is None else None
        if self.session is not None:
            from .over_connect import check_options

            check_options(self)
        elif scope is not None and scope.session is not None:
            log.warning(
                "Task %s names the Spark connection %s: it goes there, and does not share the session of %s",
                self.task_id,
                conn_id,
                scope.group_id,
            )
        self._extras: Extras | None = None
        self._run: StageRun | None = None
        self._told_to_end = False
        self._client: ConnectClient | None = None
        self._ti: RuntimeTaskInstanceProtocol | None = None
        self.spark_place: SparkPlace | None = None
        """The UI address of the Spark application, once known."""

    def execute(self, context: Context) -> dict[str, Any] | None:  # type: ignore[override]  # the base has no result
        """Claim the stage's execution, submit the application, and check that it acknowledged.

        Returns:
            Checkpoint, epoch, attempt and stage; None if there was nothing to submit.

        Raises:
            AirflowFailException: the epoch has failed, and no retry follows; or the application failed with an
                error that no retry cures (semantics F4); or stages that it reads from must run again first, and a
                user has to clear them: the message says which.
            AirflowSkipException: the epoch is completed, with this stage or without it (semantics B3, F6); running
                the stage again would fold its input in twice.
            StageFailedError: the application failed, declined, or never opened an epoch.
            UnreachableError: its driver on the cluster lives or may live, and can no longer be watched.
            FencedError: another attempt replaced this one while it ran.
            AirflowRescheduleException: stages that it reads from run again first (semantics F1), the DAG is paused
                (S1), another epoch holds the place that this one needs (T2), or another run has overtaken this one
                (C2).
            InvalidConfigError: no checkpoint was triggered for the epoch, or the rendered storage and job are too
                long for S3.
        """
        # A parse does not need these imports.
        from .claim import StageClaim
        from .trigger_and_complete import complete_if_last

        self._check_author_settings(rendered=True)
        self._use_files_beside_dag()
        if (problem := conflict()) is not None:
            log.warning("%s", problem)
        ti = self._ti = context["ti"]
        uid = stage_uid(self.uid, ti.map_index)
        settings = rendered_settings(self)
        check_room(settings.storage, settings.job, uid, task=self.task_id)
        coordinator = settings.coordinator(waits=True)
        drivers = StageDrivers(self, context)
        claim = StageClaim(self, context, settings, coordinator, uid, drivers)
        answer = claim.take()
        if answer is None:
            return None
        run = StageRun(coordinator, answer.handover)
        self._run = run
        with settings.naming_connection():
            self._run_execution(context, drivers, settings, answer, run)
        log.info("Checkpoint %s: acknowledged", run.title)
        complete_if_last(coordinator, claim.epoch, uid)
        stop_if_paused(coordinator, ti)
        return {
            "checkpoint": answer.handover.checkpoint,
            "epoch": claim.epoch,
            "attempt": answer.handover.attempt,
            "stage": uid,
        }

    def _run_execution(
        self,
        context: Context,
        drivers: StageDrivers,
        settings: JobSettings,
        answer: Submit | Reconnect,
        run: StageRun,
    ) -> None:
        """Run the application to its end, and check that it has acknowledged."""
        from .overtaken_epoch import reschedule_if_overtaken

        coordinator, uid = run.coordinator, run.handover.stage
        try:
            if isinstance(answer, Reconnect):
                self._reconnect(context, drivers, run)
            else:
                log_restore_source(coordinator.head(), answer.handover)
                drivers.end_those_before(answer.handover.token)
                log.info("Checkpoint %s: submitting", run.title)
                with programs.in_places(self, run):
                    self._submit(context, drivers, settings, answer, run)
            programs.acknowledge(run, vanished=self.pod_vanished)
            run.check_acknowledged()
        except CheckpointError as error:
            kept = left_out(coordinator, answer.handover.epoch, uid)
            if kept is not None:
                raise skipping(kept) from error
            if isinstance(error, StageFailedError) and self._told_to_end:
                log.error("Checkpoint %s: ended: %s", run.title, why := why_ended(context["ti"]))  # noqa: TRY400 - as below
                raise run.refused(why, incurable=False) from error
            if isinstance(error, StageFailedError):
                why = error.message.removeprefix(failed_prefix(uid))
                log.error("Checkpoint %s: failed: %s", run.title, why)  # noqa: TRY400 - Airflow logs the trace, below the cause
            if isinstance(error, StageNotRetryableError):
                # semantics F4: Airflow does not retry this exception, and the callback reports the failure as final.
                raise AirflowFailException(str(error)) from error
            if isinstance(error, InvalidConfigError):
                raise AirflowFailException(f"{error}. {NO_CURE}") from error
            reschedule_if_overtaken(coordinator, answer.handover, error)
            raise

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Begin when the trigger's turn has come, if this stage's task triggers.

        Args:
            context: Airflow's task context.
            event: the trigger's event.

        Returns:
            The result of `execute`, whose errors may come too.

        Raises:
            CheckpointError: the wait for a place in the queue ended with an error.
        """
        trigger = trigger_before(self)
        if trigger is not None:
            trigger.check_turn(event)
        return self.execute(context)

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Tell OpenLineage which job this is."""
        return lineage.of_start(self.storage, self.job)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - as it is called
        """Tell OpenLineage what the stage read and wrote; only the job if nothing was submitted."""
        if self._run is None:
            return self.get_openlineage_facets_on_start()
        return lineage.of_stage(rendered_settings(self).storage, self._run.coordinator, self._run.handover)

    def on_kill(self) -> None:
        """End the application, if this try submitted one and no other try has taken it over."""
        self._told_to_end = True
        if self._client is not None:
            self._client.end()
        if self._hook is None:
            return
        if self._run is not None and self._run.taken_over():
            log.info("Checkpoint %s: another try of this task waits for its driver, which goes on", self._run.title)
            return
        super().on_kill()

    def _submit(
        self, context: Context, drivers: StageDrivers, settings: JobSettings, answer: Submit, run: StageRun
    ) -> None:
        from ...tasks.shared_server import SharedServer
        from ..graph.run_tasks import source_folders
        from .over_connect import client_of, run_client, run_on_shared

        sources = source_folders(self)
        if self.session is not None:
            self._check_application_is_here(run)
            shared = SharedServer(self.session, self._conn_id, settings, run.coordinator, answer.handover.epoch)
            run_on_shared(self, shared, extras_of(settings, answer, sources), run, self._keep_client)
            return
        server = connect_server(self._conn_id)
        if server is not None:
            client = client_of(self, server, extras_of(settings, answer, sources), run)
            self._check_application_is_here(run)
            self._keep_client(client)
            run_client(client, run)
            return
        # A stored driver id outlives a clear and a try. Under a key of its own only this execution finds it, so that no
        # try reconnects to the driver of another attempt.
        self.keep_drivers_of(answer.handover.token)
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            # spark-submit takes Python files for a Python application only.
            runtime = str(runtime_zip(Path(folder))) if str(self.application).endswith(".py") else ""
            self._extras = extras_of(settings, answer, sources, runtime)
            try:
                super().execute(context)
            except (AirflowSkipException, AirflowFailException):
                raise
            except Exception as error:
                hook = self._hook if isinstance(self._hook, EpochSubmitHook) else None
                absent = isinstance(error, FileNotFoundError | PermissionError) and hook is not None
                wrong = absent or isinstance(error, AirflowException | ValueError | InvalidConfigError)
                if wrong and (hook is None or not hook.was_started):
                    # The options or the connection are wrong; no driver runs, and another try would find the same.
                    why = f"spark-submit was not started: {one_line(error)}"
                    if absent:
                        why += (
                            ". Install Spark on this worker, with its bin folder on PATH, or name another program by "
                            "the extra spark-binary of the Spark connection"
                        )
                    raise run.refused(why, incurable=True) from error
                self._check_failed(drivers, run, error)
                file = hook.missing_application(str(self.application)) if hook else None
                missing = (
                    self._missing_application(file) or f"the application {file} does not exist on this worker"
                    if file is not None
                    else None
                )
                cause = hook.cause if hook else ""
                raise run.failure(hook.returncode if hook else None, str(error), missing, cause=cause) from error

    def _keep_client(self, client: ConnectClient) -> None:
        self._client = client
        client.on_application = self._hear_of

    def _hear_of(self, application: Application) -> None:
        """Link the page to the running application; at the task's end Airflow asks `SparkLink` again."""
        self.spark_place = SparkPlace(application, self._conn_id)
        try:
            address = self.spark_place.now()
            log.info("Spark application %s%s", application.id, f": {address}" if address else "")
            if address and self._ti is not None:
                self._ti.xcom_push(SparkLink().xcom_key, address)
        except Exception as error:  # noqa: BLE001 - runs while reading driver lines: a failed link must not end it
            log.warning("No link to Spark while the application runs: %s", error)

    def _reconnect(self, context: Context, drivers: StageDrivers, run: StageRun) -> None:
        """Wait for a driver that an earlier try of this task submitted (semantics F5)."""
        token = run.handover.token
        self.keep_drivers_of(token)
        try:
            driver = drivers.driver_of(token)
            self._hook = super()._get_hook()
            point_at(self._hook, driver)
            if run.handover.program is not None and drivers.has_ended_well(token, driver):
                self._hook._run_post_submit_commands()
                return
            log.info("Checkpoint %s: waiting for driver %s, which an earlier try submitted", run.title, driver)
            self.poll_until_complete(driver, context)
        except Exception as error:
            self._check_failed(drivers, run, error)
            raise run.failure(0, str(error)) from error

    @staticmethod
    def _check_failed(drivers: StageDrivers, run: StageRun, error: Exception) -> None:
        """Check that the application failed, and not only the process that watched it."""
        if run.declined() is None:
            drivers.check_lost(run.handover, error)
        if not isinstance(error, AirflowException | RuntimeError):
            raise error

    def _get_hook(self) -> SparkSubmitHook:
        """Return the provider's hook with Cairn's additions for the application; the author's fields stay unchanged."""
        plain = super()._get_hook()
        extras = self._extras
        if extras is None:
            return plain
        return EpochSubmitHook.taking_over(
            plain,
            conf={**extras.defaults, **(self.conf or {}), **extras.handed},
            py_files=",".join(filter(None, [self.py_files, extras.runtime])),
            environment=extras.environment,
            on_application=self._hear_of,
        )

    def _check_author_settings(self, *, rendered: bool) -> None:
        options = {name: _option(self, name) for name in (*TEXTS, *NUMBERS, SECONDS, *LISTS, *MAPPINGS)}
        # Without its DAG the task does not know whether templates give native values.
        native = getattr(self, "render_template_as_native_obj", None)
        if native is None:
            native = self.dag.render_template_as_native_obj if self.has_dag() else True
        templated = {each.removeprefix("_") for each in self.template_fields}
        check_forms(self.task_id, options, rendered=rendered, native=native, templated=templated)
        check_author_settings(
            self.task_id,
            conf=self.conf,
            env_vars=self.env_vars,
            application_args=self.application_args,
            texts={name: options[name] for name in (*TEXTS, "post_submit_commands")},
            not_secret=self.not_secret,
        )

    def _use_files_beside_dag(self) -> None:
        """Return spark-submit whole paths of the files that lie beside the DAG file on this worker."""
        folder = self._dag_folder()
        for option, value in self._files().items():
            placed = place_beside(folder, option, value) if folder is not None else value
            if placed != value:
                setattr(self, option if hasattr(self, option) else f"_{option}", placed)
        self._warn_of_missing_files()

    def _warn_of_missing_files(self) -> None:
        """Warn about files that this machine does not have, when the DAG is parsed and before a stage runs.

        Not an error: a relative path may mean a folder that only workers have.
        """
        folder = self._dag_folder()
        for option, value in self._files().items():
            found = not_found(folder, option, value) if folder is not None else None
            if found is not None:
                log.warning("Task %s: %s %s %s", self.task_id, option, *found)

    def _check_application_is_here(self, run: StageRun) -> None:
        missing = self._missing_application(str(self.application))
        if missing is not None:
            raise run.refused(missing, incurable=True)

    def _missing_application(self, application: str) -> str | None:
        """Return a message if this worker does not have the application; None if that is not known."""
        found = not_found(self._dag_folder(), "application", application)
        return f"the application {found[0]} does not exist on this worker: it {found[1]}" if found else None

    def _files(self) -> dict[str, str]:
        """Return the options that name files, as far as they are known."""
        options = {name: _option(self, name) for name in self._file_options}
        return {
            name: value
            for name, value in options.items()
            if value and isinstance(value, str) and not is_rendered_later(value)
        }

    def _dag_folder(self) -> Path | None:
        return folder_of(self.dag) if self.has_dag() else None

    def _dag_id_if_any(self) -> str | None:
        return self.dag.dag_id if self.has_dag() else None

    def _own_task_id(self) -> str:
        """Return the task's id without those of its groups; unlike `label` it is not the page's display name."""
        group = self.task_group
        if group is not None and group.node_id and group.prefix_group_id:
            return self.task_id[len(group.node_id) + 1 :]
        return self.task_id


def _option(operator: SparkSubmitOperator, name: str) -> Any:
    """Return an option of the provider's operator; the provider keeps options that are not templated private."""
    return getattr(operator, name) if hasattr(operator, name) else getattr(operator, f"_{name}")
