"""Steps of an EMR cluster, over `EmrAddStepsOperator` and its hook.

The token is the end of the step's name, which `ListSteps` shows. No field of a step refuses a second one: the claim
allows one. A step is the `spark-submit` on the cluster's first node: it ends with the driver in client mode, and in
cluster mode with what YARN says of the driver, which a cancelled step leaves to its fence.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from ..checkpoint.errors import InvalidConfigError
from ..hooks.spark_submit import YARN_DEFAULTS
from .launcher import AWS, DriverState, HandedOver, Launcher, alive, as_s3, by_token

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
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

    missing = "the EMR cluster has no driver of it: it was not submitted, or has ended without acknowledging"
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
        """Check the author's options.

        Raises:
            InvalidConfigError: see `Launcher`.
        """
        if not isinstance(self._operator.steps, str):
            self._check_step()

    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the step, before the application.

        Raises:
            InvalidConfigError: the rendered steps are not one spark-submit.
        """
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
        """See `Launcher`; a jar's `--class` is left, for Spark looks at none with a Python file."""
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
        """See `Launcher`."""
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
        """See `Launcher`."""
        client = self._client
        try:
            status = client.describe_step(ClusterId=self._cluster, StepId=driver)["Step"]["Status"]
        except client.exceptions.InvalidRequestException as error:
            return DriverState(f"unknown to EMR: {error}", lives=False)
        return _state_of(status)

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        """See `Launcher`; a step that EMR does not know has it refuse the question, and each is asked about alone."""
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
    """Return the words after `spark-submit` in the one step; empty if there is none such."""
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
