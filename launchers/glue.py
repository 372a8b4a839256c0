"""Job runs of Glue, over `GlueJobOperator` and its hook.

The token stands in the handover's key, in the run's own `--conf`, which `GetJobRuns` shows. No field of `StartJobRun`
refuses a second run: the claim allows one. Airflow's own note of a run (`glue_job_run_id`) outlives a clear, so it is
never asked.

A run's arguments replace the job's of the same name, so both are read and put together. Glue does not describe the
quoting of `--conf`: nothing is handed over that needs any.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from ..checkpoint.errors import InvalidConfigError
from ..spark.handover.conf import FOR_PEOPLE, HANDOVER
from .launcher import AWS, DriverState, HandedOver, Launcher, as_s3, on_pages, tries_again

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
    from airflow.sdk import Context

ENDED = frozenset({"STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED"})
"""The states of a run that has ended; one that is STOPPING may still write."""

CONF, PY_FILES = "--conf", "--extra-py-files"
SCRIPT, LANGUAGE = "--scriptLocation", "--job-language"
"""Arguments that override the job's own:
docs.aws.amazon.com/glue/latest/dg/aws-glue-programming-etl-glue-arguments.html."""

_QUOTED = re.compile(r"[\s\"'\\$`]")
_TOKEN = re.compile(rf"{re.escape(HANDOVER)}=\S*/([^/\s]+)\.json")


class GlueLauncher(Launcher):
    """Starts job runs."""

    service = "Glue job run"

    missing = "Glue has no driver of this execution: it was not submitted"
    asks_with = (*AWS, "job_name")

    _operator: GlueJobOperator

    @property
    def conf(self) -> object:
        """The author's `--conf`: settings with ` --conf ` between them."""
        given = self._operator.script_args
        if not isinstance(given, Mapping):
            return None
        pairs = (each.strip().partition("=") for each in str(given.get(CONF, "")).split("--conf ") if each.strip())
        return {key: value for key, _, value in pairs}

    @property
    def arguments(self) -> object:
        """The script's arguments besides the conf."""
        given = self._operator.script_args
        return [it for each in given.items() if each[0] != CONF for it in each] if isinstance(given, Mapping) else None

    def check(self) -> None:
        self._check_job(self._own_job())

    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the run's arguments.

        Raises:
            InvalidConfigError: a setting would need quotes, or the job cannot be a stage.
        """
        operator, job = self._operator, self._job()
        self._check_job(job)
        self.check_dictionary("script_args")
        arguments = {**(job.get("DefaultArguments") or {}), **operator.script_args}
        own = {key: value for key, value in handed.conf.items() if key not in FOR_PEOPLE}
        before = {**handed.defaults}
        quoted = next((key for key, value in {**before, **own}.items() if _QUOTED.search(value)), None)
        if quoted is not None:
            raise InvalidConfigError(
                f"Glue does not say how a setting is quoted, and {quoted} has blanks or quotes in it: rename the "
                "storage, job, stage or source that it names",
                task=operator.task_id,
                key=quoted,
            )
        given = str(arguments.get(CONF, "")).strip()
        settings = (*_settings(before), *([given] if given else []), *_settings(own))
        files = [*filter(None, [str(arguments.get(PY_FILES, ""))]), *map(as_s3, handed.code)]
        operator.script_args = {
            **operator.script_args,
            CONF: " --conf ".join(settings),
            **({PY_FILES: ",".join(files)} if files else {}),
        }
        # It would wait in its own ways, and take up a run of any earlier try.
        operator.deferrable, operator.durable = False, False

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        self.check_dictionary("script_args")
        named = dict(zip(arguments[::2], arguments[1::2], strict=True))
        self._operator.script_args = {
            **self._operator.script_args,
            SCRIPT: as_s3(program),
            LANGUAGE: "python",
            **named,
        }

    def start(self, context: Context) -> str:
        """Submit by the operator's own method, without waiting."""
        return str(self._operator.submit_job(context))

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the runs that Glue knows, ended ones too."""
        found, lives = dict[str, str](), set[str]()
        for run in (run for page in (self._pages() if tokens else ()) for run in page):
            match = _TOKEN.search(str((run.get("Arguments") or {}).get(CONF, "")))
            if match is None or match[1] not in tokens or match[1] in lives:
                continue
            found[match[1]] = str(run["Id"])
            if run["JobRunState"] not in ENDED:
                lives.add(match[1])
        return found

    def state(self, driver: str) -> DriverState:
        client = self._client
        try:
            run = client.get_job_run(JobName=self._operator.job_name, RunId=driver)["JobRun"]
        except client.exceptions.EntityNotFoundException:
            return DriverState("unknown to Glue", lives=False)
        return _state_of(run)

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        return on_pages(drivers, self._pages(), "Id", _state_of)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        for page in self._client.get_paginator("get_job_runs").paginate(JobName=self._operator.job_name):
            yield page["JobRuns"]

    def cancel(self, driver: str) -> None:
        """Ask Glue to stop the run.

        Raises:
            AirflowException: Glue refused, and the run has not ended.
        """
        answer = self._client.batch_stop_job_run(JobName=self._operator.job_name, JobRunIds=[driver])
        if answer.get("Errors") and self.state(driver).lives:
            raise AirflowException(f"Glue did not stop the run: {answer['Errors'][0].get('ErrorDetail')}")

    def _job(self) -> Mapping[str, Any]:
        """Return the definition by which the run starts: the job's, or the operator's where it makes or changes one."""
        operator, client = self._operator, self._client
        if operator.update_config:
            return self._own_job()
        try:
            job: Mapping[str, Any] = client.get_job(JobName=operator.job_name)["Job"]
        except client.exceptions.EntityNotFoundException:
            return self._own_job()
        return job

    def _own_job(self) -> Mapping[str, Any]:
        given = self._operator.create_job_kwargs
        return {"MaxRetries": self._operator.retry_limit, **(given if isinstance(given, Mapping) else {})}

    def _check_job(self, job: Mapping[str, Any]) -> None:
        fixed = {CONF, PY_FILES} & set(job.get("NonOverridableArguments") or {})
        kind = (job.get("Command") or {}).get("Name", "glueetl")
        why = (
            tries_again("the job tries a failed run", "set MaxRetries (retry_limit) to 0")
            if job.get("MaxRetries")
            else f"the job fixes {', '.join(sorted(fixed))}, by which Cairn hands over: make it a default argument"
            if fixed
            else f"the job's command is {kind}, and a stage is a Spark job (glueetl)"
            if kind != "glueetl"
            else None
        )
        if why is not None:
            raise InvalidConfigError(why, task=self._operator.task_id, job=self._operator.job_name)

    @cached_property
    def _client(self) -> Any:
        it = self._operator  # whose own hook would upload a local script each time
        hook = it.aws_hook_class(
            aws_conn_id=it.aws_conn_id, region_name=it.region_name, verify=it.verify, config=it.botocore_config
        )
        return hook.conn


def _state_of(run: Mapping[str, Any]) -> DriverState:
    word, why = str(run["JobRunState"]), str(run.get("ErrorMessage") or "")
    return DriverState.of(word, why, ENDED, "SUCCEEDED")


def _settings(conf: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in conf.items()]
