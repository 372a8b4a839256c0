"""Job runs of EMR Serverless and of EMR on EKS, over their operators and hooks.

The token is `clientToken`: a second `StartJobRun` with it starts nothing. It is the end of the job run's name too,
which `ListJobRuns` shows. The handover goes into the classification `spark-defaults`, whose values EMR takes as they
are, and not into `sparkSubmitParameters`, whose quoting AWS does not describe.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checkpoint.errors import InvalidConfigError
from ..tasks.job_settings import is_rendered_later
from .launcher import AWS, DriverState, HandedOver, Launcher, alive, as_s3, by_token, on_pages, tries_again

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.operators.emr import EmrContainerOperator, EmrServerlessStartJobOperator

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
            InvalidConfigError: a setting is longer than EMR takes, or an option that has been rendered is none.
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
        """See `Launcher`; a jar's `--class` is left, for Spark looks at none with a Python file."""
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
        """See `Launcher`."""
        return on_pages(drivers, self._pages(), "id", self._state_of)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        states = alive(self._client, "JobRunState", self.ended)
        for page in self._client.get_paginator("list_job_runs").paginate(**self._args(), states=states):
            yield page["jobRuns"]

    def state(self, driver: str) -> DriverState:
        """See `Launcher`."""
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
        """See `Launcher`."""
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
    missing = "EMR Serverless has no driver of it: it was not submitted, or has ended without acknowledging"
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
    missing = "EMR on EKS has no driver of it: it was not submitted, or has ended without acknowledging"
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
