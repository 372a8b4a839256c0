"""Illnesses of a cluster, planted one at a time: each is named rightly, and a healthy one has none."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as hooks_of_provider

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.health.findings import Examination, Finding
from airflow_cairn.cli.main import DAMAGED, FAILED, main
from airflow_cairn.operators import CairnDoctorOperator
from airflow_cairn.storage import open_store
from airflow_cairn.tasks.health import checks, facts
from airflow_cairn.tasks.health.examine import examine_worker
from airflow_cairn.tasks.health.facts import ClusterFacts, NoAnswer, Silence
from airflow_cairn.tasks.health.facts import ask_cluster as ask
from scripts.harness.ports import free_port
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Ti, context
from tests.support.connect_stand_in import connect_server
from tests.support.narrowing import expect
from tests.support.once_said import OnceSaid
from tests.support.world.world import World

Submit = Callable[[str], None]

CONN = "lake_spark"
HEALTHY = ClusterFacts(
    spark="4.2.0",
    pyspark="4.2.0",
    java="17.0.12",
    python="3.12.3",
    executor_spark=("4.2.0",),
    executor_java=("17.0.12", "21.0.4"),
    executor_python=("3.12.3", "3.12.11"),
    hosts=("node-1", "node-2"),
)
MISMATCH = """An exception was thrown from the Python worker. Please see the stack trace below.
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver: 3.12, PySpark cannot run with different minor versions.
"""  # noqa: E501 - as Spark 4 says it
NO_PYTHON = """An error occurred while calling o71.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 1.0 (TID 8) (127.0.0.1 executor 0): java.io.IOException: Cannot run program "python3"
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\t... 32 more
"""
NO_MODULE = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: \
Lost task 0.3 in stage 1.0 (TID 8) (10.0.0.1 executor 0): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 1
ModuleNotFoundError: No module named 'pyspark'

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""
REFUSED = """[UNRESOLVED_ROUTINE] Cannot resolve routine `java_method` on search path. SQLSTATE: 42883; line 1 pos 0;
'Project ['java_method(java.lang.System, getProperty, java.version)]
"""


def of_cluster(facts: ClusterFacts) -> list[Finding]:
    judges = (checks.check_cluster_spark, checks.check_cluster_java, checks.check_cluster_python)
    found = [each for check in judges for each in check(CONN, facts)]
    assert all(each.subject == CONN and each.what and each.why and each.mend for each in found)
    return found


ILL: dict[str, tuple[ClusterFacts, list[str]]] = {
    "an old Spark": (replace(HEALTHY, spark="3.4.1", executor_spark=("3.4.1",), pyspark="3.4.1"), ["spark-unfit"] * 2),
    "a Spark that is too new": (replace(HEALTHY, spark="5.0.0", executor_spark=(), pyspark="5.0.0"), ["spark-unfit"]),
    "executors of another Spark": (replace(HEALTHY, executor_spark=("4.1.1", "4.2.0")), ["spark-versions"]),
    "a client of another Spark": (replace(HEALTHY, pyspark="4.1.1", over_connect=True), ["spark-versions"]),
    "an old Java": (replace(HEALTHY, java="11.0.2"), ["java-old"]),
    "an old Java of executors": (replace(HEALTHY, executor_java=("1.8.0_412", "17.0.12")), ["java-old"]),
    "two Pythons": (replace(HEALTHY, executor_python=(), failed={"python": MISMATCH}), ["python-versions"]),
    "two Pythons that one executor has": (replace(HEALTHY, executor_python=("3.12.3", "3.9.2")), ["python-versions"]),
    "no Python": (replace(HEALTHY, executor_python=(), failed={"python": NO_PYTHON}), ["cluster-python"]),
}


@pytest.mark.parametrize("illness", ILL)
def test_an_illness_of_a_cluster_is_named_rightly(illness: str) -> None:
    facts, names = ILL[illness]
    assert [each.name for each in of_cluster(facts)] == names


@pytest.mark.parametrize(
    "facts", [HEALTHY, replace(HEALTHY, over_connect=True), replace(HEALTHY, spark="4.2.7-vendor")]
)
def test_a_healthy_cluster_has_none(facts: ClusterFacts) -> None:
    assert of_cluster(facts) == []


def test_what_was_found_and_what_mends_it_is_said() -> None:
    (found,) = of_cluster(ILL["two Pythons"][0])
    assert found.what == "the driver's Python is 3.12, and the executors' 3.11"
    assert "spark.pyspark.python" in found.mend
    (found,) = of_cluster(replace(ILL["two Pythons"][0], over_connect=True))
    assert found.what == "this worker's Python is 3.12, and the executors' 3.11"
    assert "PYSPARK_PYTHON" in found.mend
    (found,) = of_cluster(ILL["no Python"][0])
    assert found.what.endswith(': java.io.IOException: Cannot run program "python3"')
    (found,) = of_cluster(ILL["an old Java of executors"][0])
    assert found.what == "Java of the executors is 1.8.0_412"


def test_the_line_of_an_error_that_says_most() -> None:
    assert checks.cause_of(NO_MODULE) == "ModuleNotFoundError: No module named 'pyspark'"
    assert checks.cause_of(REFUSED).startswith("[UNRESOLVED_ROUTINE] Cannot resolve routine")
    assert checks.cause_of("") == "it gave no cause"


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Define) -> Submit:
    """Have a `spark-submit` on the path that runs a line of shell; `$FILE` is where the application's answer goes."""
    connections(CONN, json.dumps({"conn_type": "spark", "host": "spark://cluster", "port": 7077}))
    program = tmp_path / "spark-submit"

    def put(line: str) -> None:
        program.write_text(f'#!/bin/bash\nfor FILE; do :; done\necho "$@" >{tmp_path}/asked\n{line}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return put


OF_HERE = ("over_connect", "storage", "has_code")


def answer(facts: ClusterFacts) -> str:
    """Give the line of shell that answers as the application does."""
    told = {name: getattr(facts, name) for name in ClusterFacts.__slots__ if name not in OF_HERE}
    return f"echo '{json.dumps(told)}' >$FILE"


def names(found: Examination) -> list[str]:
    ours = {CONN, "nowhere"}
    return [each.name for each in found.findings if each.subject in ours]


def examined(**more: Any) -> Examination:
    return examine_worker(s3=False, airflow_api_conn_id=None, **more)


def test_a_cluster_is_asked_by_spark_submit(submit: Submit, tmp_path: Path) -> None:
    submit(answer(HEALTHY))
    found = examined(cluster=CONN, spark_conf={"spark.executor.memory": "1g"})
    assert names(found) == []
    assert found.passed[-3:] == ["cluster", "cluster's Python", "cluster's Java"]
    assert "the cluster" not in found.skipped
    asked = (tmp_path / "asked").read_text()
    assert "--master spark://cluster:7077" in asked
    assert "--conf spark.executor.memory=1g" in asked
    submit(answer(replace(HEALTHY, executor_python=("3.11.2",), java="", failed={"java": NO_PYTHON})))
    found = examined(cluster=CONN)
    assert names(found) == ["python-versions"]
    assert found.skipped["cluster's Java"].startswith("java.io.IOException: Cannot run program")


def test_a_cluster_that_is_not_asked(submit: Submit, connections: Define) -> None:
    assert "--cluster" in examined().skipped["the cluster"]
    submit("exit 1")
    for host, why in (("yarn", "answers through the storage"), ("spark://cluster:7077", "takes no Python program")):
        of_cluster_mode(connections, host)
        found = examined(cluster=CONN)
        assert (names(found), why in found.skipped["the cluster"]) == ([], True)


def of_cluster_mode(connections: Define, host: str) -> None:
    extra = json.dumps({"deploy-mode": "cluster", "namespace": "lake"})
    connections(CONN, json.dumps({"conn_type": "spark", "host": host, "extra": extra}))


@pytest.mark.parametrize("host", ["yarn", "k8s://https://cluster"])
def test_a_cluster_in_deploy_mode_cluster_answers_through_the_storage(
    submit: Submit,
    connections: Define,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    host: str,
) -> None:
    """The driver gets Cairn's code and the job's conf; its answer is read, and nothing of it stays."""
    monkeypatch.setattr(hooks_of_provider, "kube_client", object(), raising=False)
    of_cluster_mode(connections, host)
    lake = tmp_path / "lake"
    told = json.loads(answer(replace(HEALTHY, java="11.0.2")).split("'")[1]) | {"storage": {"failed": "no s3a"}}
    there = "FOLDER=${FILE#file://}; mkdir -p $FOLDER/_temporary; echo '{' >$FOLDER/_temporary/part-0"
    words = ["doctor", "--cluster", "--spark-conn", CONN, "--conf", "spark.executor.memory=1g"]
    words += ["--storage", f"file://{lake}", "--json"]
    for line, found in (
        (f"{there}; echo '{json.dumps(told)}' >$FOLDER/part-0; echo 'Exit code: 0'", {"java-old", "cluster-storage"}),
        (f"{there}; exit 1", {"cluster-failed"}),
    ):
        submit(line)
        assert main(words) == DAMAGED
        said = json.loads(capsys.readouterr().out)
        assert {each["name"] for each in said["findings"] if each["subject"] == CONN} == found
        asked = (tmp_path / "asked").read_text()
        for word in ("--deploy-mode cluster", "spark.executor.memory=1g", "spark.cairn.handover=", "--py-files"):
            assert word in asked
        assert [each.key for each in open_store(f"file://{lake}").list("")] == []
    (tmp_path / "asked").unlink()
    main([*words, "--read-only"])
    assert "answers through the storage" in capsys.readouterr().out
    assert not (tmp_path / "asked").exists()


MASTERS = """cat <<'END'
26/11/27 11:05:56 WARN StandaloneAppClient: Failed to connect to master 127.0.0.1:1
26/11/27 11:05:56 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive!
Traceback (most recent call last):
  File "cluster_probe.py", line 89, in <module>
py4j.protocol.Py4JJavaError: An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
END
exit 1"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (MASTERS, ": StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive!"),
        ("echo 'Exception in thread \"main\" java.net.UnknownHostException: cluster'; exit 1", "UnknownHostException"),
        ("exit 0", "did not say why"),
    ],
)
def test_a_cluster_that_runs_nothing(submit: Submit, line: str, said: str) -> None:
    submit(line)
    (finding,) = [each for each in examined(cluster=CONN).findings if each.subject == CONN]
    assert (finding.name, said in finding.what) == ("cluster-failed", True), finding.what


def test_a_cluster_without_a_free_executor(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's time is bounded, and Spark's last word is told."""
    starved = "Initial job has not accepted any resources"
    bounds: list[float] = []

    def once_said(seconds: float, end: Callable[[], None]) -> OnceSaid:
        bounds.append(seconds)
        return OnceSaid(starved, end)

    monkeypatch.setattr(facts, "Timer", once_said)
    submit(f"echo '26/11/27 10:00:00 WARN TaskSchedulerImpl: {starved}'; exec sleep 600")
    found = expect(NoAnswer, ask(CONN, {}, answer_s=7))
    assert found.silence is Silence.FAILED
    assert found.why.startswith("no answer within 7 s. The last of Spark's log: ")
    assert found.why.endswith(starved)
    monkeypatch.setattr(facts, "ANSWER_S", 3.0)
    assert names(examined(cluster=CONN)) == ["cluster-failed"]
    assert bounds == [7, 3.0]


def test_a_connection_that_is_not_there_or_cannot_be_used(connections: Define) -> None:
    assert names(examined(cluster="nowhere")) == ["connection-missing"]
    connections(CONN, json.dumps({"conn_type": "spark_connect", "host": "", "password": "of-a-test"}))
    assert names(examined(cluster=CONN)) == ["connection-broken"]
    extra = json.dumps({"spark-binary": "/my/own/spark-submit"})
    connections(CONN, json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
    assert names(examined(cluster=CONN)) == ["connection-broken"], "the provider refuses it"


def of_connect(connections: Define, port: int) -> Finding:
    connections(CONN, json.dumps({"conn_type": "spark_connect", "host": "localhost", "port": port}))
    (found,) = [each for each in examined(cluster=CONN).findings if each.subject == CONN]
    return found


def test_a_spark_connect_server_that_is_away_or_of_another_spark(connections: Define) -> None:
    away = of_connect(connections, free_port())
    assert away.name == "cluster-failed"
    assert "the Spark Connect server cannot be reached" in away.what
    with connect_server(version="3.5.1") as server:
        other = of_connect(connections, server.port)
    assert other.name == "cluster-failed"
    assert "the Spark Connect server is Spark 3.5.1" in other.what


def test_a_spark_connect_session_gets_the_conf_of_the_stages(connections: Define) -> None:
    with connect_server() as server:
        at = {"conn_type": "spark_connect", "host": "localhost", "port": server.port}
        connections(CONN, json.dumps(at))
        ask(CONN, {"spark.sql.shuffle.partitions": "7"})
        [conf] = server.conf.values()
    assert conf["spark.sql.shuffle.partitions"] == "7"


def test_the_command(submit: Submit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    submit(answer(replace(HEALTHY, executor_java=("11.0.2",))))
    assert main(["doctor", "--cluster", "--spark-conn", CONN]) == DAMAGED
    assert f"ERROR java-old: {CONN}\n  what           Java of the executors is 11.0.2\n" in capsys.readouterr().out
    assert facts.ANSWER_S <= 300


def test_a_connection_to_a_cluster_that_is_not_to_be_asked_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a user would take the silence for a healthy cluster."""
    said = "give --cluster too\nnext: cairn doctor --help\n"
    for words in (["--worker"], ["--storage", f"file://{tmp_path}"]):
        assert main(["doctor", "--spark-conn", CONN, *words]) == FAILED
        assert capsys.readouterr().err.endswith(said), words
    for more, why in (("--worker", "give --cluster and no --spark-conn"), ("--cluster", "by --dag-file FILE DAG_ID")):
        assert main(["doctor", "--stage", "epoch.routes", more]) == FAILED
        assert why in capsys.readouterr().err
    with pytest.raises(InvalidConfigError, match="give cluster=True and no spark_conn_id"):
        CairnDoctorOperator(task_id="doctor", storage=f"file://{tmp_path}", stage="routes")
    with pytest.raises(InvalidConfigError, match="give cluster=True too"):
        CairnDoctorOperator(task_id="doctor", storage=f"file://{tmp_path}", spark_conn_id=CONN)


def test_the_operator_asks_by_the_connection_of_the_stages(submit: Submit, tmp_path: Path, said: Said) -> None:
    storage = f"file://{tmp_path}/lake"
    World(open_store(storage)).run_epoch("a")

    def doctor(**more: Any) -> dict[str, Any]:
        made = CairnDoctorOperator(
            task_id="doctor",
            storage=storage,
            airflow_api_conn_id=None,
            spark_conf={"spark.executor.memory": "1g"},
            fail_on="never",
            **more,
        )
        return made.execute(context(Ti(run_id="r")))

    submit(answer(replace(HEALTHY, java="11.0.2")))
    assert [
        each["name"] for each in doctor(cluster=True, spark_conn_id=CONN)["findings"] if each["subject"] == CONN
    ] == ["java-old"]
    assert f"The cluster of {CONN}: Spark 4.2.0, Java 11.0.2, Python 3.12.3" in said.text
    assert "--conf spark.executor.memory=1g" in (tmp_path / "asked").read_text()
    (tmp_path / "asked").unlink()
    assert "it was not asked" in json.dumps(doctor()["skipped"])
    assert not (tmp_path / "asked").exists()
