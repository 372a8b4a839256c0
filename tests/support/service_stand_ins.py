"""Stands in for services that start Spark by a REST API, as the provider's real operator and hook ask them.

Each honours tokens, pages, states and errors as the service's documentation says; `SOURCES` has the places. What a
cloud does besides is not known here: no run on one stands behind these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.support.api_stand_in import Answer, Asked, Serving

SOURCES = {
    "livy": "https://livy.apache.org/docs/latest/rest-api.html",
    "emr_serverless": "https://docs.aws.amazon.com/emr-serverless/latest/APIReference/API_StartJobRun.html, and "
    "https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/job-states.html",
}

RUNNING, DONE, FAILED, KILLED = "RUNNING", "DONE", "FAILED", "KILLED"


@dataclass
class Driver:
    """One submission that the service has accepted."""

    body: dict[str, Any]
    state: str = RUNNING
    looks: int = 0


@dataclass
class ServiceStandIn(Serving):
    """Keeps drivers.

    Args:
        act: called for a running driver each time somebody looks at it: its conf, and how often before; gives its
            state from now on.
    """

    operator: ClassVar[str]
    """Where the operator is."""
    ui: ClassVar[str | None] = None
    """The address of the Spark UI, where the service names one."""
    act: Callable[[dict[str, str], int], str] = lambda _conf, _looks: RUNNING
    drivers: dict[str, Driver] = field(default_factory=dict)
    submitted: int = 0
    killed: list[str] = field(default_factory=list)
    down: bool = False
    cuts: bool = False
    """Whether it accepts a submission and the answer is lost."""

    @property
    def live(self) -> list[str]:
        """Drivers that have not ended."""
        return [driver for driver, it in self.drivers.items() if it.state == RUNNING]

    def connection(self) -> tuple[str, str]:
        """Give the connection to it: id and JSON."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        """Give the arguments of its operator."""
        raise NotImplementedError

    def conf_of(self, driver: str) -> dict[str, str]:
        """Give the conf that a driver starts with."""
        raise NotImplementedError

    def zip_of(self, driver: str) -> str:
        """Give what a driver has on its Python path."""
        raise NotImplementedError

    def _answer(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        if self.down:
            return 500, {"msg": "no"}
        return self.answer(asked, parts.path, parse_qs(parts.query))

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        """Answer one request."""
        raise NotImplementedError

    def accept(self, body: dict[str, Any]) -> str:
        """Take a submission; gives the driver."""
        self.submitted += 1
        driver = str(self.submitted)
        self.drivers[driver] = Driver(body)
        return driver

    def look(self, driver: str) -> str:
        """Let time pass for a driver; gives its state."""
        it = self.drivers[driver]
        if it.state == RUNNING:
            it.looks += 1
            it.state = self.act(self.conf_of(driver), it.looks - 1)
        return it.state

    def kill(self, driver: str) -> None:
        """End a driver."""
        if self.drivers[driver].state == RUNNING:
            self.drivers[driver].state = KILLED
            self.killed.append(driver)


class LivyStandIn(ServiceStandIn):
    """Livy: a batch that was deleted is not known any more; a list has 100 batches a page."""

    operator = "airflow.providers.apache.livy.operators.livy.LivyOperator"
    ui = "http://ui/1"
    WORDS: ClassVar = {RUNNING: "running", DONE: "success", FAILED: "dead", KILLED: "killed"}

    def connection(self) -> tuple[str, str]:
        port = self.url.rpartition(":")[2]
        return "livy_default", json.dumps({"conn_type": "livy", "host": "127.0.0.1", "port": int(port)})

    def arguments(self) -> dict[str, Any]:
        return {"file": "s3://lake/routes.py", "conf": {"spark.author": "{{ var }}"}, "py_files": ["s3://lake/own.zip"]}

    def conf_of(self, driver: str) -> dict[str, str]:
        conf: dict[str, str] = self.drivers[driver].body["conf"]
        return conf

    def zip_of(self, driver: str) -> str:
        return str(self.drivers[driver].body["pyFiles"][-1])

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        parts = path.strip("/").split("/")
        if asked.method == "POST":
            driver = self.accept(asked.body)
            return None if self.cuts else (201, self._batch(driver))
        if len(parts) == 1:
            begin, size = int(query["from"][0]), int(query["size"][0])
            known = [self._batch(driver) for driver in self.drivers]
            return 200, {"from": begin, "total": len(known), "sessions": known[begin : begin + size]}
        if parts[1] not in self.drivers:
            return 404, {"msg": f"Session '{parts[1]}' not found."}
        if parts[-1] == "log":
            return 200, {"id": int(parts[1]), "log": ["stdout: ", 'Exception in thread "main" the day is broken']}
        if asked.method == "DELETE":
            self.kill(parts[1])
            del self.drivers[parts[1]]
            return 200, {"msg": "deleted"}
        self.look(parts[1])
        return 200, self._batch(parts[1])

    def _batch(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        more = {"appId": f"application_1_{driver}", "appInfo": {"driverLogUrl": None, "sparkUiUrl": self.ui}}
        return {"id": int(driver), "name": it.body.get("name"), "state": self.WORDS[it.state], **more}


class EmrServerlessStandIn(ServiceStandIn):
    """EMR Serverless: a token that was used gives its job run again; a list has the states that were asked for."""

    operator = "airflow.providers.amazon.aws.operators.emr.EmrServerlessStartJobOperator"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "SUCCESS", FAILED: "FAILED", KILLED: "CANCELLED"}

    def connection(self) -> tuple[str, str]:
        extra = {
            "endpoint_url": self.url,
            "region_name": "eu-central-1",
            "config_kwargs": {"retries": {"total_max_attempts": 1}},
        }
        secret = {"login": "AKIAEXAMPLE", "password": "example"}
        return "aws_default", json.dumps({"conn_type": "aws", **secret, "extra": extra})

    def arguments(self) -> dict[str, Any]:
        submit = {
            "entryPoint": "s3://lake/routes.py",
            "sparkSubmitParameters": "--conf spark.executor.cores=2 --py-files s3://lake/own.zip",
        }
        author = {"classification": "spark-defaults", "properties": {"spark.author": "{{ var }}"}}
        return {
            "application_id": "app",
            "execution_role_arn": "arn:aws:iam::123456789012:role/spark",
            "job_driver": {"sparkSubmit": submit},
            "configuration_overrides": {"applicationConfiguration": [author]},
        }

    def conf_of(self, driver: str) -> dict[str, str]:
        (defaults,) = self.drivers[driver].body["configurationOverrides"]["applicationConfiguration"]
        conf: dict[str, str] = defaults["properties"]
        return conf

    def zip_of(self, driver: str) -> str:
        words = self.drivers[driver].body["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
        found = re.fullmatch(r"--conf spark.executor.cores=2 --py-files s3://lake/own.zip,(\S+)", words)
        assert found is not None, words
        return found[1]

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        parts = path.strip("/").split("/")
        if len(parts) == 2:
            return 200, {"application": {"applicationId": "app", "state": "STARTED"}}
        if asked.method == "POST":
            token = asked.body["clientToken"]
            known = [driver for driver, it in self.drivers.items() if it.body["clientToken"] == token]
            driver = known[0] if known else self.accept(asked.body)
            return None if self.cuts else (200, {"applicationId": "app", "jobRunId": driver, "arn": "arn"})
        if len(parts) == 3:
            runs = [self._run(each) for each in self.drivers]
            return 200, {"jobRuns": [each for each in runs if each["state"] in query["states"]]}
        if parts[3] not in self.drivers:
            return 404, {"__type": "ResourceNotFoundException", "message": "no such job run"}
        if asked.method == "DELETE":
            self.kill(parts[3])
            return 200, {"applicationId": "app", "jobRunId": parts[3]}
        self.look(parts[3])
        return 200, {"jobRun": self._run(parts[3])}

    def _run(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        why = "the day is broken" if it.state == FAILED else ""
        return {
            "id": driver,
            "jobRunId": driver,
            "name": it.body["name"],
            "state": self.WORDS[it.state],
            "stateDetails": why,
        }


STAND_INS: dict[str, type[ServiceStandIn]] = {"livy": LivyStandIn, "emr_serverless": EmrServerlessStandIn}
