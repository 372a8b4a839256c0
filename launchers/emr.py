"""Steps of an EMR cluster, and job runs of EMR Serverless and of EMR on EKS, over their operators and hooks.

**Steps.** The token is the end of the step's name, which `ListSteps` shows. EMR would take a second step of that name;
the claim allows only one. A step is the `spark-submit` on the cluster's first node. In client mode it ends with the
driver. In cluster mode it ends as YARN says of the driver, and a cancelled step leaves the driver to its fence.

**Job runs.** The token is `clientToken`: a second `StartJobRun` with it starts nothing. It is the end of the job run's
name too, which `ListJobRuns` shows. The handover goes into the classification `spark-defaults`, whose values EMR takes
as they are, and not into `sparkSubmitParameters`, whose quoting AWS does not describe.
"""

from __future__ import annotations

import ast
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from ..checkpoint.errors import InvalidConfigError
from ..hooks.spark_submit import YARN_DEFAULTS
from ..tasks.job_settings import is_rendered_later
from .launcher import AWS, DriverState, HandedOver, Launcher, alive, as_s3, by_token, on_pages, tries_again

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.operators.emr import (
        EmrAddStepsOperator,
        EmrContainerOperator,
        EmrServerlessStartJobOperator,
    )
    from airflow.sdk import Context

ENDED = frozenset({"COMPLETED", "CANCELLED", "FAILED", "INTERRUPTED"})
"""The states of a step that has ended; one whose cancellation is pending may still write."""

MAX_NAME = 256
MAX_IDS = 10
"""Steps that EMR takes in one question."""
ALONE = frozenset({"--verbose", "-v", "--supervise"})
"""Options of spark-submit without a value."""


class EmrStepLauncher(Launcher):
    """Starts steps."""

    service = "EMR step"

    missing = "the EMR cluster has no driver of this execution: it was not submitted, or ended without acknowledging"
    asks_with = AWS

    _operator: EmrAddStepsOperator

    @property
    def conf(self) -> object:
        """The author's `--conf`."""
        options, _ = _split(_words(self._steps()))
        pairs = (value.partition("=") for name, value in options if name in ("--conf", "-c"))
        return {key: value for key, _, value in pairs}

    @property
    def arguments(self) -> object:
        """The step's words besides the conf."""
        options, rest = _split(_words(self._steps()))
        return [*(word for option in options if option[0] not in ("--conf", "-c") for word in option), *rest]

    def check(self) -> None:
        if not isinstance(self._operator.steps, str):
            self._check_step()

    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the step, before the application."""
        self._check_step()
        (step,) = self._steps()
        jar = step["HadoopJarStep"]
        options, rest = _split(_words([step]))
        files = [*[value for name, value in options if name == "--py-files"][-1:], *map(as_s3, handed.code)]
        defaults = {**YARN_DEFAULTS, **handed.defaults}
        arranged = (
            *(("--conf", f"{key}={value}") for key, value in defaults.items()),
            *(option for option in options if option[0] != "--py-files"),
            *((("--py-files", ",".join(files)),) if files else ()),
            *(("--conf", f"{key}={value}") for key, value in handed.conf.items()),
        )
        words = [word for name, value in arranged for word in ((name,) if name in ALONE else (name, value))]
        name = f"{step.get('Name', handed.name)}-{handed.token}"[-MAX_NAME:]
        self._operator.steps = [
            {**step, "Name": name, "HadoopJarStep": {**jar, "Args": [jar["Args"][0], *words, *rest]}}
        ]
        self._operator.deferrable, self._operator.wait_for_completion = False, False

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        """See `Launcher`; a jar's `--class` stays, because Spark ignores it with a Python file."""
        self._check_step()
        (step,) = self._steps()
        options, _ = _split(_words([step]))
        words = [word for name, value in options for word in ((name,) if name in ALONE else (name, value))]
        jar = step["HadoopJarStep"]
        run = [jar["Args"][0], *words, as_s3(program), *arguments]
        self._operator.steps = [{**step, "HadoopJarStep": {**jar, "Args": run}}]

    def fields(self) -> dict[str, Any]:
        """Return the fields, with the cluster's id even where the author gives its name."""
        return {**super().fields(), "job_flow_id": self._cluster}

    def start(self, context: Context) -> str:
        (step,) = self._execute(context)
        return str(step)

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return steps that have not ended."""
        if not tokens or self._cluster is None:
            return {}
        states = alive(self._client, "StepState", ENDED)
        pages = self._client.get_paginator("list_steps").paginate(ClusterId=self._cluster, StepStates=states)
        return by_token(tokens, ((step["Name"], step["Id"]) for page in pages for step in page["Steps"]))

    def state(self, driver: str) -> DriverState:
        client = self._client
        try:
            status = client.describe_step(ClusterId=self._cluster, StepId=driver)["Step"]["Status"]
        except client.exceptions.InvalidRequestException as error:
            return DriverState(f"unknown to EMR: {error}", lives=False)
        return _state_of(status)

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        """See `Launcher`. EMR refuses a question that names an unknown step: then each is asked about alone."""
        client, ids, found = self._client, sorted(drivers), dict[str, DriverState]()
        for at in range(0, len(ids), MAX_IDS):
            try:
                answer = client.list_steps(ClusterId=self._cluster, StepIds=ids[at : at + MAX_IDS])
            except client.exceptions.InvalidRequestException:
                continue
            found |= {step["Id"]: _state_of(step["Status"]) for step in answer["Steps"]}
        return found

    def cancel(self, driver: str) -> None:
        """Ask EMR to end the step.

        Raises:
            AirflowException: EMR refused, and the step has not ended.
        """
        (answer,) = self._client.cancel_steps(ClusterId=self._cluster, StepIds=[driver])["CancelStepsInfoList"]
        if answer["Status"] == "FAILED" and self.state(driver).lives:
            raise AirflowException(f"EMR did not cancel the step: {answer.get('Reason')}")

    def _check_step(self) -> None:
        steps = self._steps()
        if len(steps) != 1 or not _words(steps):
            raise InvalidConfigError(
                "steps is not one spark-submit: a stage is one Spark application, steps=[{'Name': …, 'HadoopJarStep': "
                "{'Jar': 'command-runner.jar', 'Args': ['spark-submit', …]}}]. Give other steps a task of their own",
                task=self._operator.task_id,
            )

    def _steps(self) -> list[Any]:
        """Return the steps, which may be a list in a text; empty while they are known only as a template."""
        steps: object = self._operator.steps
        if isinstance(steps, str):
            try:
                steps = ast.literal_eval(steps)
            except (ValueError, SyntaxError):
                return []
        return list(steps) if isinstance(steps, list | tuple) else []

    @cached_property
    def _cluster(self) -> str | None:
        """The cluster's id; None if none has the author's name and states."""
        operator = self._operator
        found = operator.job_flow_id or operator.hook.get_cluster_id_by_name(
            str(operator.job_flow_name), operator.cluster_states
        )
        return None if found is None else str(found)

    @property
    def _client(self) -> Any:
        return self._operator.hook.conn


def _state_of(status: Mapping[str, Any]) -> DriverState:
    word, failure = str(status["State"]), status.get("FailureDetails") or status.get("StateChangeReason") or {}
    why = str(failure.get("Message") or failure.get("Reason") or "")
    return DriverState.of(word, why, ENDED, "COMPLETED")


def _words(steps: Sequence[Any]) -> list[str]:
    """Return the words after `spark-submit` in the only step; empty for other programs and for more steps."""
    jar = steps[0].get("HadoopJarStep") if len(steps) == 1 and isinstance(steps[0], Mapping) else None
    if not isinstance(jar, Mapping) or str(jar.get("Jar")).rpartition("/")[2] != "command-runner.jar":
        return []
    program, *words = jar.get("Args") or [""]
    return [str(word) for word in words] if str(program).rpartition("/")[2] == "spark-submit" else []


def _split(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Split the words after `spark-submit` into options with their values, and the application with its arguments."""
    options, at = list[tuple[str, str]](), 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if not equals and name not in ALONE:
            at += 1
            value = words[at] if at < len(words) else ""
        options.append((name, value))
        at += 1
    return options, list(words[at:])


DEFAULTS = "spark-defaults"
MAX_VALUE = 1024
"""Characters that EMR takes as a value of a classification."""

_PY_FILES = re.compile(r"(--py-files[= ]\s*)(\S+)")


class JobRunLauncher(Launcher):
    """Starts job runs; a subclass has one service's words."""

    kind: str
    """The job driver that submits to Spark."""
    place: tuple[str, str]
    """The client's argument that names the place of job runs, and the operator's."""
    run: str
    """The client's argument that names a job run."""
    ask: str
    """The client's method that describes a job run."""
    mappings: tuple[str, ...] = ("configuration_overrides",)
    """The operator's options that are dictionaries."""
    ended: frozenset[str]
    """The states of a job run that has ended; one that is being cancelled may still write."""
    succeeded: str

    _operator: Any

    @property
    def conf(self) -> object:
        """The author's `spark-defaults`."""
        for each in _classifications(self._operator.configuration_overrides):
            if each.get("classification") == DEFAULTS:
                return each.get("properties")
        return None

    @property
    def texts(self) -> Mapping[str, object]:
        """Other texts of the author that the service shows."""
        return {"sparkSubmitParameters": self._submit.get("sparkSubmitParameters")}

    @property
    def arguments(self) -> object:
        """The arguments of the entry point."""
        return self._submit.get("entryPointArguments")

    @property
    def _submit(self) -> Mapping[str, Any]:
        driver = self._operator.job_driver
        found = driver.get(self.kind) if isinstance(driver, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def check(self) -> None:
        """Check the author's options.

        Raises:
            InvalidConfigError: see `Launcher`.
        """
        operator = self._operator
        driver: object = operator.job_driver
        if not is_rendered_later(driver) and not (isinstance(driver, Mapping) and self.kind in driver):
            raise InvalidConfigError(
                f"job_driver has no {self.kind}: a stage is a Spark application, "
                f"job_driver={{'{self.kind}': {{'entryPoint': 's3://…/routes.py'}}}}",
                task=operator.task_id,
            )
        for name in self.mappings:
            self.check_dictionary(name)
        self._check_own()

    @abstractmethod
    def _check_own(self) -> None:
        """Check the options that the service alone has."""

    def _refuse(self, taken: str) -> InvalidConfigError:
        return InvalidConfigError(
            f"{taken} is set by Cairn, or has an argument of its own: remove it", task=self._operator.task_id
        )

    def _check_attempts(self, attempts: object) -> None:
        if attempts not in (None, 1):
            raise InvalidConfigError(
                tries_again("the service would start a failed driver", "ask for one attempt"),
                task=self._operator.task_id,
                attempts=attempts,
            )

    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the job run.

        Raises:
            InvalidConfigError: a setting is longer than EMR takes, or a rendered option is refused by `check`.
        """
        self.check()
        operator, submit = self._operator, dict(self._operator.job_driver[self.kind])
        own = {**handed.conf}
        long = next((key for key, value in own.items() if len(value) > MAX_VALUE), None)
        if long is not None:
            raise InvalidConfigError(
                f"EMR takes at most {MAX_VALUE} characters in a setting, and {long} has {len(own[long])}: give the "
                "job fewer sources, or shorter addresses",
                task=operator.task_id,
                key=long,
            )
        own = {key: value for key, value in own.items() if value}  # EMR takes no empty value
        given = str(submit.get("sparkSubmitParameters") or "")
        for zip_uri in map(as_s3, handed.code):
            with_zip, found = _PY_FILES.subn(rf"\g<1>\g<2>,{zip_uri}", given)
            submit["sparkSubmitParameters"] = with_zip if found else f"{given} --py-files {zip_uri}".strip()
        operator.job_driver = {**operator.job_driver, self.kind: submit}
        others = [
            each
            for each in _classifications(operator.configuration_overrides)
            if each.get("classification") != DEFAULTS
        ]
        author: Mapping[str, str] = self.conf if isinstance(self.conf, Mapping) else {}
        operator.configuration_overrides = {
            **(operator.configuration_overrides or {}),
            "applicationConfiguration": [
                *others,
                {"classification": DEFAULTS, "properties": {**handed.defaults, **author, **own}},
            ],
        }
        operator.client_request_token, operator.name = handed.token, self._name(handed)
        operator.deferrable, operator.wait_for_completion = False, False

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        """See `Launcher`; a jar's `--class` stays, because Spark ignores it with a Python file."""
        submit = {**self._submit, "entryPoint": as_s3(program), "entryPointArguments": [*arguments]}
        self._operator.job_driver = {**self._operator.job_driver, self.kind: submit}

    @abstractmethod
    def _name(self, handed: HandedOver) -> str:
        """Return the job run's name, which ends with the token."""

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return job runs that have not ended."""
        if not tokens:
            return {}
        return by_token(tokens, ((run.get("name", ""), run["id"]) for page in self._pages() for run in page))

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        return on_pages(drivers, self._pages(), "id", self._state_of)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        states = alive(self._client, "JobRunState", self.ended)
        for page in self._client.get_paginator("list_job_runs").paginate(**self._args(), states=states):
            yield page["jobRuns"]

    def state(self, driver: str) -> DriverState:
        client = self._client
        try:
            run = getattr(client, self.ask)(**self._args(driver))["jobRun"]
        except client.exceptions.ResourceNotFoundException:
            return DriverState("unknown to EMR", lives=False)
        return self._state_of(run)

    def _state_of(self, run: Mapping[str, Any]) -> DriverState:
        word, why = str(run["state"]), str(run.get("stateDetails") or run.get("failureReason") or "")
        return DriverState.of(word, why, self.ended, self.succeeded)

    def cancel(self, driver: str) -> None:
        self._client.cancel_job_run(**self._args(driver))

    def _args(self, driver: str | None = None) -> dict[str, str]:
        argument, option = self.place
        return {argument: str(getattr(self._operator, option))} | ({} if driver is None else {self.run: driver})

    @property
    def _client(self) -> Any:
        return self._operator.hook.conn


class EmrServerlessLauncher(JobRunLauncher):
    """Starts job runs of an EMR Serverless application."""

    service = "EMR Serverless job run"
    missing = "EMR Serverless has no driver of this execution: it was not submitted, or has ended without acknowledging"
    kind, place, mappings = "sparkSubmit", ("applicationId", "application_id"), ("configuration_overrides", "config")
    run, ask = "jobRunId", "get_job_run"
    asks_with = (*AWS, "application_id")
    ended, succeeded = frozenset({"SUCCESS", "FAILED", "CANCELLED"}), "SUCCESS"

    _operator: EmrServerlessStartJobOperator

    def _check_own(self) -> None:
        operator = self._operator
        config: Mapping[str, Any] = operator.config if isinstance(operator.config, Mapping) else {}
        for name in ("clientToken", "name", "configurationOverrides", "jobDriver"):
            if name in config:
                raise self._refuse(name)
        if operator.name:
            raise self._refuse("name")
        self._check_attempts((config.get("retryPolicy") or {}).get("maxAttempts"))

    def _name(self, handed: HandedOver) -> str:
        return handed.name[-256:]


class EmrContainerLauncher(JobRunLauncher):
    """Starts job runs of a virtual cluster of EMR on EKS."""

    service = "EMR on EKS job run"
    missing = "EMR on EKS has no driver of this execution: it was not submitted, or has ended without acknowledging"
    kind, place = "sparkSubmitJobDriver", ("virtualClusterId", "virtual_cluster_id")
    run, ask = "id", "describe_job_run"
    asks_with = (*AWS, "virtual_cluster_id")
    ended, succeeded = frozenset({"COMPLETED", "FAILED", "CANCELLED"}), "COMPLETED"

    _operator: EmrContainerOperator

    def _check_own(self) -> None:
        operator = self._operator
        if operator.client_request_token is not None:
            raise self._refuse("client_request_token")
        self._check_attempts(operator.job_retry_max_attempts)

    def _name(self, handed: HandedOver) -> str:
        return f"{self._operator.name}-{handed.token}"[-64:]


def _classifications(overrides: object) -> list[dict[str, Any]]:
    found = overrides.get("applicationConfiguration") if isinstance(overrides, Mapping) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
