"""Job runs of EMR Serverless, over `EmrServerlessStartJobOperator` and its hook.

The token is `clientToken`: a second `StartJobRun` with it starts nothing. It is the end of the job run's name too,
which `ListJobRuns` shows. The handover goes into the classification `spark-defaults`, whose values EMR takes as they
are, and not into `sparkSubmitParameters`, whose quoting AWS does not describe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
from ...tasks.job_settings import is_rendered_later
from .launcher import DriverState, HandedOver, Launcher

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator

ENDED = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
"""The states of a job run that has ended; one that is CANCELLING may still write."""

DEFAULTS = "spark-defaults"
MAX_NAME = 256
MAX_VALUE = 1024
"""Characters that EMR takes as a name, and as a value of a classification."""

_OURS = ("clientToken", "name", "configurationOverrides", "jobDriver")
_PY_FILES = re.compile(r"(--py-files[= ]\s*)(\S+)")


class EmrServerlessLauncher(Launcher):
    """Starts job runs."""

    service = "EMR Serverless job run"

    missing = "EMR Serverless has no driver of it: it was not submitted, or has ended without acknowledging"

    _operator: EmrServerlessStartJobOperator

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
        driver = self._operator.job_driver
        found = driver.get("sparkSubmit") if isinstance(driver, Mapping) else None
        return {"sparkSubmitParameters": found.get("sparkSubmitParameters")} if isinstance(found, Mapping) else {}

    def check(self) -> None:
        """Check the author's options.

        Raises:
            InvalidConfigError: see `Launcher`.
        """
        operator = self._operator
        driver: object = operator.job_driver
        if not is_rendered_later(driver) and not (isinstance(driver, Mapping) and "sparkSubmit" in driver):
            raise InvalidConfigError(
                "job_driver has no sparkSubmit: a stage is a Spark application, "
                "job_driver={'sparkSubmit': {'entryPoint': 's3://…/routes.py'}}",
                task=operator.task_id,
            )
        taken = [name for name in _OURS if isinstance(operator.config, Mapping) and name in operator.config]
        if taken or operator.name:
            raise InvalidConfigError(
                f"{taken[0] if taken else 'name'} is set by Cairn, or has an argument of its own: remove it",
                task=operator.task_id,
            )

    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the job run.

        Raises:
            InvalidConfigError: a setting is longer than EMR takes.
        """
        operator, submit = self._operator, dict(self._operator.job_driver["sparkSubmit"])
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
        zip_uri = handed.zip_uri.replace("s3a://", "s3://", 1)
        with_zip, found = _PY_FILES.subn(rf"\g<1>\g<2>,{zip_uri}", given)
        submit["sparkSubmitParameters"] = with_zip if found else f"{given} --py-files {zip_uri}".strip()
        operator.job_driver = {**operator.job_driver, "sparkSubmit": submit}
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
        operator.client_request_token, operator.name = handed.token, handed.name[-MAX_NAME:]
        operator.deferrable, operator.wait_for_completion = False, False

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return job runs that have not ended."""
        if not tokens:
            return {}
        client = self._client
        states = [each for each in client.meta.service_model.shape_for("JobRunState").enum if each not in ENDED]
        pages = client.get_paginator("list_job_runs").paginate(applicationId=self._application, states=states)
        runs = [run for page in pages for run in page["jobRuns"]]
        named = {str(run.get("name", "")).rpartition("-")[2]: str(run["id"]) for run in runs}
        return {token: named[token] for token in tokens if token in named}

    def state(self, driver: str) -> DriverState:
        """See `Launcher`."""
        client = self._client
        try:
            run = client.get_job_run(applicationId=self._application, jobRunId=driver)["jobRun"]
        except client.exceptions.ResourceNotFoundException:
            return DriverState("unknown to EMR Serverless", lives=False)
        word, why = str(run["state"]), str(run.get("stateDetails") or "")
        ended = word in ENDED
        return DriverState(f"{word}: {why}" if ended and why else word, not ended, word == "SUCCESS")

    def cancel(self, driver: str) -> None:
        """See `Launcher`."""
        self._client.cancel_job_run(applicationId=self._application, jobRunId=driver)

    def logs(self, driver: str) -> Iterable[str]:  # noqa: ARG002 - see `Launcher`
        """Return nothing: the log is in S3 or CloudWatch, to which the operator's own buttons lead."""
        return ()

    @property
    def _application(self) -> str:
        return str(self._operator.application_id)

    @property
    def _client(self) -> Any:
        return self._operator.hook.conn


def _classifications(overrides: object) -> list[dict[str, Any]]:
    found = overrides.get("applicationConfiguration") if isinstance(overrides, Mapping) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
