"""`spark-submit` with credentials in its environment, so that no command line, log or rendered field shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from ..checkpoint.errors import InvalidConfigError
from ..spark.execution.log_lines import VARIABLE, Application, marked, new_mark
from .class_archive import class_archive_conf
from .driver_output import DriverOutput, driver_output
from .kubernetes_pods import TOKEN_LABEL, labelled
from .spark_site import SparkSite

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
"""Variables of the worker that would mix its own identity with the connection's, such as a foreign session token."""

YARN_DEFAULTS = {"spark.yarn.maxAppAttempts": "1"}
"""Makes YARN give up after one attempt. YARN starts a failed driver again with the same handover: in vain if the stage
has declined, and otherwise unseen by Airflow's retries (measured). A failure must reach the task, which restores
first."""


_DEPLOYED = re.compile(r" and submission ID [^\s:]+:(?P<pod>\S+) into Kubernetes$")
"""The end of Spark's line about a driver for whose end it does not wait."""


class _PassedOn:
    """Replaces the provider's log while it reads the driver's lines: the provider strips a trace's indentation."""

    def __init__(self, output: DriverOutput, log: Any) -> None:
        self._output = output
        self._log = log
        self._read = ""

    def each_of(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass on each line, and yield it to the provider, which looks for driver ids in it."""
        for line in lines:
            self._read = line.strip()
            self._output.line(line)
            yield line

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the log: on Airflow's signal to end, the hook logs in the middle of a line."""
        return getattr(self._log, name)

    def info(self, text: str, *values: object) -> None:
        """Pass on the provider's own messages, but not the lines that it repeats."""
        said = text % values if values else text
        if said != self._read:
            self._output.line(said)


class EpochSubmitHook(SparkSubmitHook):
    """The provider's hook, with more conf and a secret environment for the one process that it starts.

    `env_vars` must not hold secrets: on YARN and Kubernetes each becomes `--conf …Env.NAME=value`. In cluster mode the
    driver runs elsewhere and gets no credentials: it uses the cluster's own identity.
    """

    _token: str
    _secrets: Mapping[str, str]
    _on_application: Callable[[Application], None]
    _process_environment: dict[str, str]
    _mark: str
    cause: str = ""
    """The line of the driver's output that says why it failed; empty if there is none."""

    @classmethod
    def taking_over(
        cls,
        hook: SparkSubmitHook,
        *,
        conf: Mapping[str, Any],
        py_files: str,
        environment: Mapping[str, str],
        token: str = "",
        on_application: Callable[[Application], None] = lambda _: None,
    ) -> EpochSubmitHook:
        """Take over a hook as the provider's operator built it, so that options of later providers are kept.

        The provider's hook is not used afterwards; the operator's own `conf` stays unchanged. `py_files` are Cairn's
        additions to the application's Python path, separated by commas; `environment` has credentials, for client mode.
        A driver's pod is found by the label `token`; empty: it gets none. `on_application` receives the Spark
        application, once known.
        """
        made = cls.__new__(cls)
        made.__dict__.update(vars(hook))
        on_yarn = made.deploys_to_cluster and str(made._connection["master"]).startswith("yarn")
        on_pod = token and made._is_kubernetes and made.deploys_to_cluster
        label = {f"spark.kubernetes.driver.label.{TOKEN_LABEL}": token} if on_pod else {}
        made._conf = {**(YARN_DEFAULTS if on_yarn else {}), **conf, **label}
        made._py_files = py_files
        made._token = token
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
        """Return the application's file if it is missing here, and `spark-submit` has ended as it does without it."""
        path = re.sub(r"\Afile:(//)?(?=/)", "", application)
        if re.match(r"[A-Za-z][\w+.-]*:", path) or Path(path).exists():
            return None
        if self.deploys_to_cluster:
            # spark-submit reads a relative path from here; an absolute path may be one of the cluster's machines.
            return path if self.returncode and not Path(path).is_absolute() else None
        # Python ends with 2 if it cannot open its script; spark-submit itself with 1 if it finds no jar.
        return path if self.returncode == (2 if path.endswith(".py") else 1) else None

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Start `spark-submit` and wait for it; see the provider's hook."""
        self._make_environment()
        if not self.deploys_to_cluster:
            self._process_environment[VARIABLE] = self._mark
        try:
            driver = super().submit(application, **{**kwargs, "env": self._process_environment})
        finally:
            # The provider leaves the pipe open.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()
        if self._token and self._should_track_driver_via_k8s_api() and not self._kubernetes_driver_pod:
            # A site's log4j2.properties may keep spark-submit from printing the name.
            found = labelled(self, [self._token]).get(self._token, "")
            self._kubernetes_driver_pod = found.partition(":")[2] or None
        return driver

    def _printed(self, lines: Iterator[Any], output: DriverOutput) -> Iterator[Any]:
        """Yield the driver's output, without Cairn's own messages in it."""
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
        """Let the provider keep the first application id: a later one may come from an error's text.

        The driver's pod is noted here: the provider looks for it only in the namespace `spark`.
        """
        first = None
        for line in lines:
            yield line
            first = first or self._yarn_application_id
            self._yarn_application_id = first
            deployed = _DEPLOYED.search(line)
            if deployed is not None and self._is_kubernetes:
                self._kubernetes_driver_pod = deployed["pod"]

    def detached_command(self, application: str) -> tuple[list[str], dict[str, str]]:
        """Return the command that submits an application, and its secret environment, without starting it."""
        self._make_environment()
        return self._build_spark_submit_command(application), self._process_environment

    @property
    def _submit_log_tail(self) -> str:
        """Empty: the provider would repeat up to 500 lines of the log in its error, unfolded, below the cause."""
        return ""

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        """Read `spark-submit`'s output as the provider does; `driver_output` explains the resulting log."""
        with driver_output() as output:
            own = self.log
            passed_on = self._log = _PassedOn(output, own)
            try:
                printed = self._printed(itr, output)
                if not self.deploys_to_cluster:
                    # All lines may be the application's, where the provider would look for ids and exit codes. Only on
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
            # The cluster's settings decide whether it writes an event log; a site with a history server has enabled
            # that.
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
        # If the author gave env_vars, the provider would start from os.environ again. So add them to our environment.
        self._process_environment.update({name: str(value) for name, value in (self._env or {}).items()})
        self._env = None
        check_sizes(command, application, self._process_environment)
        return command


MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Linux's limit in bytes for an argument, or for a variable with its name."""

_ROUND_COMMAND_BYTES = 128 * 1024
"""Bytes that Spark's scripts may add to the command and its environment."""


def check_sizes(command: Sequence[str], application: str, environ: Mapping[str, str]) -> None:
    """Check that Linux can start this command: it limits each argument and variable, and their sum.

    Raises:
        InvalidConfigError: a limit is exceeded; the message names the largest option, argument or variable.
    """
    at = command.index(application) if application in command else len(command)
    sizes = {f"the variable {name}": len(f"{name}={value}".encode()) for name, value in environ.items()}
    for position, each in enumerate(command):
        if position > at:
            name = f"application_args[{position - at - 1}]"
        else:
            name = f"{command[position - 1] if position else ''} {each.partition('=')[0][:80]}".strip()
        sizes[name] = len(each.encode())
    total, limit = sum(sizes.values()) + 9 * len(sizes), os.sysconf("SC_ARG_MAX") - _ROUND_COMMAND_BYTES
    largest = max(sizes, key=lambda name: sizes[name])
    if sizes[largest] > MAX_ARGUMENT_BYTES or total > limit:
        raise InvalidConfigError(
            f"{largest} has {sizes[largest]:,} bytes, and all together {total:,}: Linux starts a program with at most "
            f"{MAX_ARGUMENT_BYTES:,} in one argument or variable, and {limit:,} in all. Write the bulk to a file or an "
            "object, and give its place"
        )


# Keeps a site's own `spark.redaction.regex` from dropping the words by which Spark hides credentials.
#
# Spark copies the AWS keys of the driver's environment into the Hadoop conf, and shows that in its UI and event log,
# except for names that match this expression. A site's own value replaces Spark's. So Cairn passes both, joined.


REDACTION_REGEX = "spark.redaction.regex"
OUR_SECRETS = "(?i:secret|password|passphrase|token|access[._-]?key|(?:account|api|encryption|private)[._-]?key)"
"""Spark's own words, and the key names that s3a and others use."""


def redaction_conf(conf: Mapping[str, Any], site: SparkSite) -> dict[str, str]:
    """Return the conf that joins a site's own expression of secrets with Cairn's; empty if Spark's own applies."""
    found = str(conf.get(REDACTION_REGEX) or site.conf.get(REDACTION_REGEX, ""))
    return (
        {REDACTION_REGEX: found if found.startswith(f"{OUR_SECRETS}|") else f"{OUR_SECRETS}|{found}"} if found else {}
    )
