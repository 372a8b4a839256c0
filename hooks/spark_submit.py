"""`spark-submit` with credentials in its environment, where no command line, log or rendered field shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from ..spark.application import Application
from ..spark.execution.log_lines import VARIABLE, marked, new_mark
from .class_archive import class_archive_conf
from .drivers.driver_output import DriverOutput, driver_output
from .drivers.redaction import redaction_conf
from .drivers.spark_site import SparkSite

OTHER_IDENTITY = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SECURITY_TOKEN",
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    }
)
"""Variables of the worker that would mix its own identity with the connection's: a foreign session token, say."""

YARN_DEFAULTS = {"spark.yarn.maxAppAttempts": "1"}
"""YARN starts a driver that failed a second time, with the same handover: once the stage has declined, to no avail, and
otherwise behind the back of Airflow's retries (measured). A failure is to reach the task, which restores first."""


class _PassedOn:
    """The provider's log while it reads the driver's lines: it strips their indentation, which tells a trace."""

    def __init__(self, output: DriverOutput, log: Any) -> None:
        self._output = output
        self._log = log
        self._read = ""

    def each_of(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass on each line, and give it to the provider, which looks for ids of drivers in it."""
        for line in lines:
            self._read = line.strip()
            self._output.line(line)
            yield line

    def __getattr__(self, name: str) -> Any:
        """Give the rest of the log: Airflow's signal to end has the hook log in the middle of a line."""
        return getattr(self._log, name)

    def info(self, text: str, *values: object) -> None:
        """Pass on what the provider says itself, and not the line that it repeats."""
        said = text % values if values else text
        if said != self._read:
            self._output.line(said)


class EpochSubmitHook(SparkSubmitHook):
    """The provider's hook, with more conf and a secret environment for the one process that it starts.

    `env_vars` is no channel for secrets: on YARN and Kubernetes each becomes `--conf …Env.NAME=value`. In cluster mode
    the driver runs elsewhere and nothing is passed: the cluster's own identity is used.
    """

    _secrets: Mapping[str, str]
    _on_application: Callable[[Application], None]
    _process_environment: dict[str, str]
    _mark: str
    cause: str = ""
    """The line of the driver's output that says why it failed; empty if no line does."""

    @classmethod
    def taking_over(
        cls,
        hook: SparkSubmitHook,
        *,
        conf: Mapping[str, Any],
        py_files: str,
        environment: Mapping[str, str],
        on_application: Callable[[Application], None] = lambda _: None,
    ) -> EpochSubmitHook:
        """Take over a hook as the provider's operator built it, so that options of later providers come along.

        Args:
            hook: the provider's hook; it is not used afterwards.
            conf: what to submit with, over the defaults for where the driver runs; the operator's own dictionary stays
                as its author wrote it.
            py_files: what the application needs on its Python path, separated by commas.
            environment: credentials, for client mode.
            on_application: told which Spark application it is, once that is known.
        """
        made = cls.__new__(cls)
        made.__dict__.update(vars(hook))
        on_yarn = made.deploys_to_cluster and str(made._connection["master"]).startswith("yarn")
        made._conf = {**(YARN_DEFAULTS if on_yarn else {}), **conf}
        made._py_files = py_files
        made._secrets = dict(environment)
        made._on_application = on_application
        made._process_environment = {}
        made._mark = new_mark()
        return made

    @property
    def deploys_to_cluster(self) -> bool:
        """Whether the driver runs on the cluster and not below this process."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @property
    def was_started(self) -> bool:
        """Whether a `spark-submit` was started, however it ended."""
        return self._submit_sp is not None

    @property
    def returncode(self) -> int | None:
        """The exit status of `spark-submit`; None if it was not started or has not ended."""
        return self._submit_sp.returncode if self._submit_sp is not None else None

    def missing_application(self, application: str) -> str | None:
        """Give the application's file if the driver that ran here has ended as one ends that does not find it."""
        path = application.removeprefix("file://")
        if self.deploys_to_cluster or "://" in path or Path(path).exists():
            return None
        # Python ends with 2 where it cannot open its script; spark-submit itself with 1 where it finds no jar.
        return path if self.returncode == (2 if path.endswith(".py") else 1) else None

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Start `spark-submit` and wait for it; see the provider's hook."""
        self._make_environment()
        if not self.deploys_to_cluster:
            self._process_environment[VARIABLE] = self._mark
        try:
            return super().submit(application, **{**kwargs, "env": self._process_environment})
        finally:
            # The provider leaves the pipe open.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()

    def _printed(self, lines: Iterator[Any], output: DriverOutput) -> Iterator[Any]:
        """Yield what the driver prints, without what Cairn says there."""
        for line in lines:
            printed, own = marked(line, self._mark)
            if own is None or printed:
                yield printed
            application = Application.in_line(own or "")
            if application is not None:
                self._on_application(application)
            elif own is not None:
                output.line(own, own=True)

    def _first_id(self, lines: Iterator[Any]) -> Iterator[Any]:
        """Have the provider keep the first application id that it finds: a later one may stand in an error's text."""
        first = None
        for line in lines:
            yield line
            first = first or self._yarn_application_id
            self._yarn_application_id = first

    def detached_command(self, application: str) -> tuple[list[str], dict[str, str]]:
        """Give the command that submits an application, and its secret environment; nothing is started.

        Args:
            application: the path that is submitted.
        """
        self._make_environment()
        return self._build_spark_submit_command(application), self._process_environment

    @property
    def _submit_log_tail(self) -> str:
        """Nothing: the provider would repeat up to 500 lines of the log in its error, unfolded, below the cause."""
        return ""

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        """Read what `spark-submit` prints, as the provider does; see `driver_output` for what the log then shows."""
        with driver_output() as output:
            own = self.log
            passed_on = self._log = _PassedOn(output, own)
            try:
                printed = self._printed(itr, output)
                if not self.deploys_to_cluster:
                    # All of it may be the application's. The provider would look for ids and exit codes in it; only on
                    # Kubernetes it needs to see that there was a line.
                    for line in printed:
                        output.line(line)
                    printed = iter([""])
                super()._process_spark_submit_log(passed_on.each_of(self._first_id(printed)))
            finally:
                self._log = own
                self.cause = output.cause({**self._process_environment, **self._secrets})
        id_on_cluster = self._yarn_application_id or self._kubernetes_application_id
        if id_on_cluster and self.deploys_to_cluster:
            # Whether it writes an event log is the cluster's setting; who names a history server has switched it on.
            self._on_application(Application(id_on_cluster, logged=True, attempt="1" if self._is_yarn else ""))

    def _make_environment(self) -> None:
        hands_over = bool(self._secrets) and not self.deploys_to_cluster
        dropped = OTHER_IDENTITY if hands_over else frozenset()
        self._process_environment = {name: value for name, value in os.environ.items() if name not in dropped}
        if hands_over:
            self._process_environment.update(self._secrets)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        environ = {**self._process_environment, **(self._env_vars or {})}
        site = SparkSite(environ, str(self._connection["spark_binary"]), self._properties_file)
        self._conf |= redaction_conf(self._conf, site)
        if not self.deploys_to_cluster:
            self._conf |= class_archive_conf(self._conf, site)
        command: list[str] = super()._build_spark_submit_command(application)
        # The provider would start again from os.environ wherever the author gave env_vars. They go into ours instead.
        self._process_environment.update({name: str(value) for name, value in (self._env or {}).items()})
        self._env = None
        return command
