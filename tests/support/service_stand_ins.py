"""Stands in for services that start Spark by a REST API, as the provider's real operator and hook ask them.

Each honours tokens, pages, states and errors as the service's documentation says; `SOURCES` has the places. What a
cloud does besides is not known here: no run on one stands behind these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_cairn.hooks import kubernetes_pods
from airflow_cairn.storage.clock import system_time
from tests.support.api_stand_in import Answer, Asked, Serving

SOURCES = {
    "livy": "https://livy.apache.org/docs/latest/rest-api.html",
    "emr_serverless": "https://docs.aws.amazon.com/emr-serverless/latest/APIReference/API_StartJobRun.html, and "
    "https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/job-states.html",
    "emr_container": "https://docs.aws.amazon.com/emr-on-eks/latest/APIReference/API_StartJobRun.html",
    "emr_steps": "https://docs.aws.amazon.com/emr/latest/APIReference/API_AddJobFlowSteps.html, API_ListSteps.html, "
    "API_CancelSteps.html",
    "spark_kubernetes": "https://kubernetes.io/docs/reference/using-api/api-concepts, and "
    "https://github.com/kubeflow/spark-operator/blob/master/docs/api-docs.md",
    "databricks": "https://docs.databricks.com/api/workspace/jobs/submit, listruns, getrun, cancelrun, getrunoutput",
    "glue": "https://docs.aws.amazon.com/glue/latest/dg/aws-glue-api-jobs-runs.html; several settings in one --conf "
    "as the OpenLineage provider writes them",
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
    """Import path of the operator."""
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

    def arrange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lead the provider's hook here where no connection does."""

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

    def crowd(self) -> None:
        """Add a driver of another pipeline, the newest of all."""
        for driver, it in list(self.drivers.items()):
            token = self.conf_of(driver)["spark.cairn.handover"].rpartition("/")[2].removesuffix(".json")
            self.drivers[f"7{driver}"] = Driver(json.loads(json.dumps(it.body).replace(token, token[::-1])))

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


class AwsStandIn(ServiceStandIn):
    """A service of AWS."""

    def connection(self) -> tuple[str, str]:
        extra = {
            "endpoint_url": self.url,
            "region_name": "eu-central-1",
            "config_kwargs": {"retries": {"total_max_attempts": 1}},
        }
        secret = {"login": "AKIAEXAMPLE", "password": "example"}
        return "aws_default", json.dumps({"conn_type": "aws", **secret, "extra": extra})


class JobRunStandIn(AwsStandIn):
    """A service of job runs: a token that was used gives its job run again; a list has the states asked for."""

    kind: ClassVar[str]
    """The job driver that submits to Spark."""
    WORDS: ClassVar[dict[str, str]]

    def arguments(self) -> dict[str, Any]:
        submit = {
            "entryPoint": "s3://lake/routes.py",
            "sparkSubmitParameters": "--conf spark.executor.cores=2 --py-files s3://lake/own.zip",
        }
        author = {"classification": "spark-defaults", "properties": {"spark.author": "{{ var }}"}}
        return {
            "execution_role_arn": "arn:aws:iam::123456789012:role/spark",
            "job_driver": {self.kind: submit},
            "configuration_overrides": {"applicationConfiguration": [author]},
        }

    def conf_of(self, driver: str) -> dict[str, str]:
        (defaults,) = self.drivers[driver].body["configurationOverrides"]["applicationConfiguration"]
        conf: dict[str, str] = defaults["properties"]
        return conf

    def zip_of(self, driver: str) -> str:
        words = self.drivers[driver].body["jobDriver"][self.kind]["sparkSubmitParameters"]
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
            return None if self.cuts else (200, self.ids(driver) | {"arn": "arn"})
        if len(parts) == 3:
            runs = [self._run(each) for each in self.drivers]
            return 200, {"jobRuns": [each for each in runs if each["state"] in query["states"]]}
        if parts[3] not in self.drivers:
            return 404, {"__type": "ResourceNotFoundException", "message": "no such job run"}
        if asked.method == "DELETE":
            self.kill(parts[3])
            return 200, self.ids(parts[3])
        self.look(parts[3])
        return 200, {"jobRun": self._run(parts[3])}

    def ids(self, driver: str) -> dict[str, str]:
        """Give how the service names a job run and its place."""
        raise NotImplementedError

    def _run(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        why = "the day is broken" if it.state == FAILED else ""
        return {
            "id": driver,
            **self.ids(driver),
            "name": it.body["name"],
            "state": self.WORDS[it.state],
            "stateDetails": why,
        }


class EmrServerlessStandIn(JobRunStandIn):
    """EMR Serverless."""

    operator = "airflow.providers.amazon.aws.operators.emr.EmrServerlessStartJobOperator"
    kind = "sparkSubmit"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "SUCCESS", FAILED: "FAILED", KILLED: "CANCELLED"}

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"application_id": "app"}

    def ids(self, driver: str) -> dict[str, str]:
        return {"applicationId": "app", "jobRunId": driver}


class EmrContainerStandIn(JobRunStandIn):
    """EMR on EKS."""

    operator = "airflow.providers.amazon.aws.operators.emr.EmrContainerOperator"
    kind = "sparkSubmitJobDriver"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "COMPLETED", FAILED: "FAILED", KILLED: "CANCEL_PENDING"}

    def arguments(self) -> dict[str, Any]:
        place = {"virtual_cluster_id": "eks", "release_label": "emr-7.9.0-latest"}
        return super().arguments() | place | {"name": "routes-of-the-day"}

    def ids(self, driver: str) -> dict[str, str]:
        return {"virtualClusterId": "eks", "id": driver}


class AwsJsonStandIn(AwsStandIn):
    """A service with one address for all operations; a list has one entry a page, the newest first."""

    def page(self, entries: list[dict[str, Any]], begin: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Give one page, and where the next begins."""
        at, newest = int(begin or 0), entries[::-1]
        return newest[at : at + 1], str(at + 1) if at + 1 < len(newest) else None


class EmrStepsStandIn(AwsJsonStandIn):
    """Steps of an EMR cluster: no token, and none that is unknown is told from a bad request."""

    operator = "airflow.providers.amazon.aws.operators.emr.EmrAddStepsOperator"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "COMPLETED", FAILED: "FAILED", KILLED: "CANCELLED"}
    AUTHOR: ClassVar = ("--deploy-mode", "client", "--verbose", "--conf=spark.author={{ var }}")

    def arguments(self) -> dict[str, Any]:
        words = ["spark-submit", *self.AUTHOR, "--py-files", "s3://lake/own.zip", "s3://lake/routes.py", "--conf", "x"]
        jar = {"Jar": "command-runner.jar", "Args": words}
        return {"job_flow_name": "lake", "steps": [{"Name": "routes", "HadoopJarStep": jar}]}

    def conf_of(self, driver: str) -> dict[str, str]:
        words = self._options(driver)
        pairs = [
            (words[at + 1] if word == "--conf" else "").partition("=")
            for at, word in enumerate(words)
            if word == "--conf"
        ]
        return {key: value for key, _, value in pairs}

    def zip_of(self, driver: str) -> str:
        words = self._options(driver)
        assert words[words.index("--deploy-mode") : words.index("--verbose") + 1] == [
            "--deploy-mode",
            "client",
            "--verbose",
        ]
        own, _, added = words[words.index("--py-files") + 1].partition(",")
        assert own == "s3://lake/own.zip"
        return added

    def _options(self, driver: str) -> list[str]:
        words: list[str] = self.drivers[driver].body["HadoopJarStep"]["Args"]
        assert (words[0], words[-3:]) == ("spark-submit", ["s3://lake/routes.py", "--conf", "x"])
        return words[1:-3]

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        body = asked.body
        match asked.operation:
            case "ListClusters":
                return 200, {"Clusters": [{"Id": "j-1", "Name": "lake"}, {"Id": "j-2", "Name": "other"}]}
            case "DescribeCluster":
                return 200, {"Cluster": {"Id": "j-1"}}
            case "AddJobFlowSteps":
                assert body["JobFlowId"] == "j-1"
                drivers = [self.accept(step) for step in body["Steps"]]
                return None if self.cuts else (200, {"StepIds": drivers})
            case "ListSteps":
                if "StepIds" in body:
                    unknown = set(body["StepIds"]) - self.drivers.keys()
                    wrong = {"__type": "InvalidRequestException", "Message": f"Step ids are not valid: {unknown}"}
                    return (400, wrong) if unknown else (200, {"Steps": [self._step(it) for it in body["StepIds"]]})
                known = [self._step(each) for each in self.drivers]
                listed = [each for each in known if each["Status"]["State"] in body["StepStates"]]
                steps, marker = self.page(listed, body.get("Marker"))
                return 200, {"Steps": steps} | ({"Marker": marker} if marker else {})
            case "CancelSteps":
                (driver,) = body["StepIds"]
                self.kill(driver)
                return 200, {"CancelStepsInfoList": [{"StepId": driver, "Status": "SUBMITTED", "Reason": ""}]}
        if body["StepId"] not in self.drivers:
            return 400, {"__type": "InvalidRequestException", "Message": "Step id is not valid."}
        self.look(body["StepId"])
        return 200, {"Step": self._step(body["StepId"])}

    def _step(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        why = {"FailureDetails": {"Reason": "Unknown", "Message": "the day is broken"}} if it.state == FAILED else {}
        return {"Id": driver, "Name": it.body["Name"], "Status": {"State": self.WORDS[it.state], **why}}


class GlueStandIn(AwsJsonStandIn):
    """Glue: no token; the job has arguments of its own, which those of a run replace."""

    operator = "airflow.providers.amazon.aws.operators.glue.GlueJobOperator"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "SUCCEEDED", FAILED: "FAILED", KILLED: "STOPPING"}

    JOB: ClassVar[dict[str, Any]] = {
        "Name": "routes",
        "MaxRetries": 0,
        "DefaultArguments": {"--conf": "spark.author={{ var }}", "--extra-py-files": "s3://lake/own.zip", "--x": "y"},
    }

    def arguments(self) -> dict[str, Any]:
        return {"job_name": "routes", "script_args": {"--day": "{{ ds }}"}, "stop_job_run_on_kill": True}

    def conf_of(self, driver: str) -> dict[str, str]:
        words = re.split(r" --conf ", self.drivers[driver].body["Arguments"]["--conf"])
        return {key: value for key, _, value in (word.partition("=") for word in words)}

    def zip_of(self, driver: str) -> str:
        arguments = self.drivers[driver].body["Arguments"]
        assert set(arguments) == {"--day", "--conf", "--extra-py-files"}
        own, _, added = arguments["--extra-py-files"].partition(",")
        assert own == "s3://lake/own.zip"
        return str(added)

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        body = asked.body
        match asked.operation:
            case "GetJob":
                return 200, {"Job": self.JOB}
            case "StartJobRun":
                driver = self.accept(body)
                return None if self.cuts else (200, {"JobRunId": driver})
            case "GetJobRuns":
                runs, token = self.page([self._run(each) for each in self.drivers], body.get("NextToken"))
                return 200, {"JobRuns": runs} | ({"NextToken": token} if token else {})
            case "BatchStopJobRun":
                (driver,) = body["JobRunIds"]
                self.kill(driver)
                return 200, {"SuccessfulSubmissions": [{"JobName": "routes", "JobRunId": driver}], "Errors": []}
        if body["RunId"] not in self.drivers:
            return 400, {"__type": "EntityNotFoundException", "Message": "no such run"}
        self.look(body["RunId"])
        return 200, {"JobRun": self._run(body["RunId"])}

    def _run(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        why = {"ErrorMessage": "the day is broken"} if it.state == FAILED else {}
        return {"Id": driver, "JobRunState": self.WORDS[it.state], "Arguments": it.body["Arguments"], **why}


class DatabricksStandIn(ServiceStandIn):
    """Databricks: a token that was used gives its run again; a list has one run a page here, the newest first."""

    operator = "airflow.providers.databricks.operators.databricks.DatabricksSubmitRunOperator"
    ui = "http://ui/1"
    WORDS: ClassVar = {
        RUNNING: ("RUNNING", None),
        DONE: ("TERMINATED", "SUCCESS"),
        FAILED: ("TERMINATED", "FAILED"),
        KILLED: ("TERMINATING", None),
    }

    def connection(self) -> tuple[str, str]:
        port = int(self.url.rpartition(":")[2])
        place = {"host": "127.0.0.1", "port": port, "schema": "http", "password": "example"}
        return "databricks_default", json.dumps({"conn_type": "databricks", **place})

    def arguments(self) -> dict[str, Any]:
        cluster = {"spark_version": "16.4.x-scala2.12", "num_workers": 2, "spark_conf": {"spark.author": "{{ var }}"}}
        return {
            "json": {"new_cluster": cluster, "run_name": "replaced by the named one"},
            "run_name": "routes of the day",
            "spark_python_task": {"python_file": "s3://lake/routes.py", "parameters": ["--day", "{{ ds }}"]},
            "libraries": [{"whl": "s3://lake/own.whl"}],
            "databricks_retry_limit": 1,
        }

    def arrange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The hook asks Airflow for its own version, and Airflow knows no provider beside .venv.
        hook: Any = import_module("airflow.providers.databricks.hooks.databricks_base").BaseDatabricksHook
        monkeypatch.setattr(hook, "user_agent_value", "the provider")

    def conf_of(self, driver: str) -> dict[str, str]:
        body = self.drivers[driver].body
        assert (body["new_cluster"]["num_workers"], body["run_name"][:18]) == (
            "2",
            "routes of the day-",
        )  # the provider makes texts of numbers
        conf: dict[str, str] = body["new_cluster"]["spark_conf"]
        return conf

    def zip_of(self, driver: str) -> str:
        own, added = self.drivers[driver].body["libraries"]
        assert own == {"whl": "s3://lake/own.whl"}
        return str(added["whl"])

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        operation = path.removeprefix("/api/2.2/jobs/runs/")
        if operation == "submit":
            token = asked.body["idempotency_token"]
            assert "disable_auto_optimization" not in asked.body, "a field of the tasks"
            places = {"new_cluster", "existing_cluster_id"}
            for each in asked.body.get("tasks", ()) if not places & asked.body.keys() else ():
                assert each.get("disable_auto_optimization") or places & each.keys()
            known = [driver for driver, it in self.drivers.items() if it.body["idempotency_token"] == token]
            driver = known[0] if known else self.accept(asked.body)
            return None if self.cuts else (200, {"run_id": int(driver)})
        if operation == "list":
            assert (query["active_only"], query["run_type"]) == (["true"], ["SUBMIT_RUN"])
            active = [driver for driver, it in self.drivers.items() if it.state in (RUNNING, KILLED)][::-1]
            at = int(query.get("page_token", ["0"])[0])
            more = {"next_page_token": str(at + 1)} if at + 1 < len(active) else {}
            return 200, {"runs": [self._run(each) for each in active[at : at + 1]]} | more
        driver = str(asked.body["run_id"] if asked.body else query["run_id"][0])
        if driver not in self.drivers:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": f"Run {driver} does not exist."}
        if operation == "cancel":
            self.kill(driver)
            return 200, {}
        if operation == "get-output":
            trace = 'Traceback (most recent call last):\n  File "routes.py", line 1\nValueError: the day is broken'
            return 200, {"logs": "stdout\n", "error": "ValueError", "error_trace": trace}
        self.look(driver)
        return 200, self._run(driver)

    def _run(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        word, result = self.WORDS[it.state]
        state = {"life_cycle_state": word} | ({"result_state": result, "state_message": ""} if result else {})
        one = {"run_id": int(driver), "run_name": it.body["run_name"], "run_page_url": self.ui, "state": state}
        return {**one, "tasks": [{"run_id": int(driver)}]}


class DatabricksJobStandIn(DatabricksStandIn):
    """Runs of a job of Databricks, which have its name, and list the parameters that replace the job's."""

    operator = "airflow.providers.databricks.operators.databricks.DatabricksRunNowOperator"
    TASK: ClassVar[dict[str, Any]] = {"task_key": "routes", "spark_python_task": {"python_file": "routes.py"}}

    def arguments(self) -> dict[str, Any]:
        return {"job_name": "routes", "databricks_retry_limit": 1}

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        match path.removeprefix("/api/2.2/jobs/"):
            case "list":
                return 200, {"jobs": [{"job_id": 7, "settings": {"name": "routes"}}], "has_more": False}
            case "get":
                return 200, {"job_id": 7, "settings": {"name": "routes", "tasks": [self.TASK]}}
            case "run-now":
                assert asked.body["job_id"] == 7
                return super().answer(asked, "/api/2.2/jobs/runs/submit", query)
            case "runs/list":
                assert query["job_id"] == ["7"]
                at = int(query.get("page_token", ["0"])[0])
                runs = self.live if query.get("active_only") == ["true"] else list(self.drivers)
                more = {"next_page_token": str(at + 1)} if at + 1 < len(runs) else {}
                return 200, {"runs": [self._run(each) for each in runs[::-1][at : at + 1]]} | more
        return super().answer(asked, path, query)

    def _run(self, driver: str) -> dict[str, Any]:
        body = self.drivers[driver].body
        body.setdefault("run_name", "routes")
        return super()._run(driver) | {"overriding_parameters": {"python_params": body["python_params"]}}


class SparkKubernetesStandIn(ServiceStandIn):
    """Kubernetes with the Spark operator's resource: one of a name, lists by label, its status by the controller."""

    operator = "airflow.providers.cncf.kubernetes.operators.spark_kubernetes.SparkKubernetesOperator"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "COMPLETED", FAILED: "FAILED"}
    pod: Answer = None
    """Pod of a driver that has not started, as the API shows it."""

    def waits_for_an_image(self, seconds: int, status: int = 200) -> None:
        """Have drivers wait for an image, seen for so long already; with what status pods are answered."""
        uid, name = self.url, "spark-kubernetes-driver"
        kubernetes_pods._waits[uid] = system_time() - seconds
        waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
        about = {"name": name, "image": "", "imageID": "", "ready": False, "restartCount": 0}
        containers = [{**about, "state": {"waiting": waiting}}]
        spec = {"containers": [{"name": name}]}
        self.pod = status, {"metadata": {"uid": uid}, "spec": spec, "status": {"containerStatuses": containers}}

    def connection(self) -> tuple[str, str]:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": self.url}}],
            "users": [{"name": "it", "user": {"token": "example"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        extra = {"kube_config": json.dumps(config)}
        return "kubernetes_default", json.dumps({"conn_type": "kubernetes", "extra": extra})

    def arguments(self) -> dict[str, Any]:
        spec = {
            "type": "Python",
            "mainApplicationFile": "s3a://lake/routes.py",
            "arguments": ["--day", "{{ ds }}"],
            "deps": {"pyFiles": ["s3a://lake/own.zip"], "jars": ["s3a://lake/own.jar"]},
            "sparkConf": {"spark.author": "{{ var }}"},
            "driver": {"cores": 1, "labels": {"team": "lake"}},
            "executor": {"instances": 1},
        }
        about = {"name": "routes", "labels": {"team": "lake"}}
        body = {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": about,
            "spec": spec,
        }
        return {"namespace": "spark", "template_spec": body, "image": "spark:4", "delete_on_termination": False}

    def conf_of(self, driver: str) -> dict[str, str]:
        spec = self.drivers[driver].body["spec"]
        assert (spec["image"], spec["driver"]["labels"]) == ("spark:4", {"team": "lake"})
        conf: dict[str, str] = spec["sparkConf"]
        return conf

    def zip_of(self, driver: str) -> str:
        dependencies = self.drivers[driver].body["spec"]["deps"]
        own, added = dependencies["pyFiles"]
        assert (own, dependencies["jars"]) == ("s3a://lake/own.zip", ["s3a://lake/own.jar"])
        return str(added)

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        if path.startswith("/api/v1/namespaces/spark/pods/") and not path.endswith("/log"):
            names = ("istio-proxy", "spark-kubernetes-driver")
            return self.pod or (200, {"spec": {"containers": [{"name": each} for each in names]}})
        if path.endswith("/log"):
            assert query["container"] == ["spark-kubernetes-driver"]
            return 200, b'Traceback (most recent call last):\n  File "routes.py", line 1\nValueError: the day is broken'
        begin, _, name = path.partition("/namespaces/spark/sparkapplications")
        assert begin == "/apis/sparkoperator.k8s.io/v1beta2", path
        name = name.strip("/")
        found = [
            driver for driver, it in self.drivers.items() if it.body["metadata"]["name"] == (name or self._name(asked))
        ]
        if asked.method == "POST":
            if found:
                return 409, {"kind": "Status", "reason": "AlreadyExists", "code": 409}
            driver = self.accept(asked.body)
            return None if self.cuts else (201, self._resource(driver))
        if not name:
            wanted = re.fullmatch(r"airflow-cairn-token in \((.*)\)", query["labelSelector"][0])
            assert wanted is not None
            of = {driver: it.body["metadata"]["labels"]["airflow-cairn-token"] for driver, it in self.drivers.items()}
            return 200, {"items": [self._resource(each) for each in of if of[each] in wanted[1].split(",")]}
        if not found:
            return 404, {"kind": "Status", "reason": "NotFound", "code": 404}
        if asked.method == "DELETE":
            self.kill(found[0])
            del self.drivers[found[0]]
            return 200, {"kind": "Status", "status": "Success"}
        self.look(found[0])
        return 200, self._resource(found[0])

    @staticmethod
    def _name(asked: Asked) -> str:
        return str(asked.body["metadata"]["name"]) if asked.body else ""

    def _resource(self, driver: str) -> dict[str, Any]:
        it = self.drivers[driver]
        word = "SUBMITTED" if self.pod is not None and it.state == RUNNING else self.WORDS[it.state]
        state = {"state": word, "errorMessage": ""}
        status = {"applicationState": state, "driverInfo": {"podName": f"{it.body['metadata']['name']}-driver"}}
        return {**it.body, "status": status}


STAND_INS: dict[str, type[ServiceStandIn]] = {
    "livy": LivyStandIn,
    "emr_serverless": EmrServerlessStandIn,
    "emr_container": EmrContainerStandIn,
    "emr_steps": EmrStepsStandIn,
    "glue": GlueStandIn,
    "databricks": DatabricksStandIn,
    "spark_kubernetes": SparkKubernetesStandIn,
}
