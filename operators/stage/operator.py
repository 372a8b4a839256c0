"""`SparkEpochOperator`: a `SparkSubmitOperator` whose application is one stage of an epoch."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from ...checkpoint.answers import Submit
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.validation import check_spelling
from ...hooks.airflow_api import AIRFLOW_API_CONN_ID
from ...hooks.spark_connect import ConnectClient, connect_server
from ...hooks.spark_submit import EpochSubmitHook
from ...spark.execution.failure_kinds import error_line
from ...spark.handover.runtime_zip import runtime_zip
from ...spark.pyspark_versions import conflict
from ...tasks.job_settings import (
    SPARK_CONN_ID,
    JobSettings,
    is_rendered_later,
)
from ...tasks.reports.links import CheckpointLink, SparkLink, SparkPlace
from ..graph.declaration import Exchange
from . import programs
from .drivers import DurableSubmit, StageDrivers, SubmittedDrivers, point_at
from .epoch_stage import EpochStage
from .extras import Extras, extras_of
from .outcome import StageRun
from .submit_options import (
    FILES,
    LISTS,
    MAPPINGS,
    NUMBERS,
    SECONDS,
    TEXTS,
    check_author_settings,
    check_forms,
    check_program,
    checked_not_secret,
    folder_of,
    not_found,
    option_of,
    place_beside,
)

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperatorLink, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...spark.execution.log_lines import Application

log = logging.getLogger("airflow_cairn")


class SparkEpochOperator(EpochStage, DurableSubmit):  # type: ignore[misc]  # the provider's `execute` has no result
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
            the ids of its groups. If you rename the task, give the old name here to keep its state. Instances of a
            mapped task are stages of their own: `<uid>-0`, `<uid>-1`, ….
        application: the Python file that opens the epoch, or a program without a block; required. A relative path is
            beside the DAG file (templated).
        application_args: texts, or places and values such as `Output("clean")`. With a place the program has no block,
            and the operator acknowledges.
        parallelism: number of subtasks that must acknowledge, 1 to 32768; None: as many as the application writes.
        max_parallelism: only with `parallelism`: the highest at which the stage's state can ever be restored, and the
            number of its key groups, 1 to 32768 (semantics R4). None: what the state was made with, at first 1.5 times
            `parallelism`, rounded up to a power of two, at least 128. The first state fixes it: a different value
            later, or a `parallelism` above it, is an error at the trigger.
        reads: uids of stages that this stage reads from without waiting for them and without an edge, for groups whose
            config has `mode="at_least_once"` (semantics B2).
        exchange: `"pipelined"`: the stage runs again together with every stage that has an edge to it (semantics F1);
            `"blocking"`: with none of them. Only in a group. None: the edges decide (`Pipelined`); they are
            blocking by default.
        conn_id: the Spark connection; in a group the group's, else `spark_default`. With a connection of type
            `spark_connect` the application runs in a process of this task, as a client of that server.
        airflow_api_conn_id: the connection to Airflow's API, used when other tasks must run again after a failover;
            None: a user clears them. In a group the group's.
        name: the application's name in Spark (templated); job and uid by default.
        not_secret: names of settings that look like secrets but are not, such as
            `["spark.my.token.kind", "--token-kind"]`; added to those of the group.
        durable: True, the default: a retry waits for a driver that outlives its task in cluster mode, where the
            provider follows it by its id. False: each retry fails over.
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
        scope = self._declare(
            storage=storage,
            job=job,
            aws_conn_id=aws_conn_id,
            uid=uid,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            reads=reads,
            exchange=exchange,
            airflow_api_conn_id=airflow_api_conn_id,
        )
        if scope is not None:
            conn_id = scope.own("conn_id", conn_id)
            self._conn_id = conn_id or scope.conn_id
        self.name = name or f"{self.job} {self.uid}"
        if self.application is None or self.application == "":
            raise InvalidConfigError(
                "no application is given: name the Python file or jar that opens the epoch, application='routes.py'",
                task=self.task_id,
            )
        check_program(self.application, self.task_id)
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
        self._client: ConnectClient | None = None
        self._ti: RuntimeTaskInstanceProtocol | None = None
        self.spark_place: SparkPlace | None = None
        """The UI address of the Spark application, once known."""

    def _prepare(self) -> None:
        self._check_author_settings(rendered=True)
        self._use_files_beside_dag()
        if (problem := conflict()) is not None:
            log.warning("%s", problem)

    def _find_drivers(self, context: Context) -> StageDrivers:
        self._ti = context["ti"]
        return StageDrivers(SubmittedDrivers(self, context), durable=self.durable)

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
        from ..graph.topology import source_folders
        from .over_connect import client_of, run_client, run_on_shared

        sources = source_folders(self)
        if self.session is not None:
            self._check_application_is_here(run)
            shared = SharedServer(self.session, self._conn_id, settings, run.coordinator, answer.handover.epoch)
            run_on_shared(self, shared, extras_of(settings, answer, sources), run, self._keep_client)
            self.ended_here = True
            return
        server = connect_server(self._conn_id)
        if server is not None:
            client = client_of(self, server, extras_of(settings, answer, sources), run)
            self._check_application_is_here(run)
            self._keep_client(client)
            run_client(client, run)
            self.ended_here = True
            return
        # A stored driver id outlives a clear and a try. Under a key of its own only this execution finds it, so that no
        # try reconnects to the driver of another attempt.
        self.keep_drivers_of(answer.handover.token)
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            # spark-submit takes Python files for a Python application only.
            runtime = str(runtime_zip(Path(folder))) if str(self.application).endswith(".py") else ""
            self._extras = extras_of(settings, answer, sources, runtime)
            try:
                DurableSubmit.execute(self, context)
            except (AirflowSkipException, AirflowFailException):
                raise
            except Exception as error:
                hook = self._hook if isinstance(self._hook, EpochSubmitHook) else None
                absent = isinstance(error, FileNotFoundError | PermissionError) and hook is not None
                wrong = absent or isinstance(error, AirflowException | ValueError | InvalidConfigError)
                if wrong and (hook is None or not hook.was_started):
                    # The options or the connection are wrong; no driver runs, and another try would find the same.
                    why = f"spark-submit was not started: {error_line(error)}"
                    if absent:
                        why += (
                            ". Install Spark on this worker, with its bin folder on PATH, or name another program by "
                            "the extra spark-binary of the Spark connection"
                        )
                    raise run.refused(why, incurable=True) from error
                cause = hook.cause if hook else ""
                self._check_failed(drivers, run, error, cause)
                file = hook.missing_application(str(self.application)) if hook else None
                missing = (
                    self._missing_application(file) or f"the application {file} does not exist on this worker"
                    if file is not None
                    else None
                )
                raise run.failure(hook.returncode if hook else None, str(error), missing, cause=cause) from error
            self.ended_here = isinstance(self._hook, EpochSubmitHook) and not self._hook.deploys_to_cluster

    def _keep_client(self, client: ConnectClient) -> None:
        self._client = client
        client.on_application = self._link_to

    def _link_to(self, application: Application) -> None:
        """Link the task's page to the running application; at the task's end Airflow asks `SparkLink` again."""
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
            if run.handover.program is not None and drivers.has_ended_well(driver):
                self._hook._run_post_submit_commands()
                return
            log.info("Checkpoint %s: waiting for driver %s, which an earlier try submitted", run.title, driver)
            self.poll_until_complete(driver, context)
        except Exception as error:
            self._check_failed(drivers, run, error)
            raise run.failure(0, str(error)) from error

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
            token=self._token,
            on_application=self._link_to,
        )

    def _check_author_settings(self, *, rendered: bool) -> None:
        options = {name: option_of(self, name) for name in (*TEXTS, *NUMBERS, SECONDS, *LISTS, *MAPPINGS)}
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
        """Replace relative paths of files that lie beside the DAG file on this worker by whole paths."""
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
        """Return a message if this worker certainly lacks the application, else None."""
        found = not_found(self._dag_folder(), "application", application)
        return f"the application {found[0]} does not exist on this worker: it {found[1]}" if found else None

    def _files(self) -> dict[str, str]:
        """Return the options that name files, as far as they are known."""
        options = {name: option_of(self, name) for name in self._file_options}
        return {
            name: value
            for name, value in options.items()
            if value and isinstance(value, str) and not is_rendered_later(value)
        }

    def _dag_folder(self) -> Path | None:
        return folder_of(self.dag) if self.has_dag() else None
