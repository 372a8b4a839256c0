"""Illnesses of a worker, planted one at a time: each is named rightly, and a healthy one has none."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.health.findings import Examination, Finding
from airflow_cairn.cli.main import DAMAGED, FAILED, main
from airflow_cairn.cli.output import hints
from airflow_cairn.hooks.airflow_api import AirflowApiHook
from airflow_cairn.hooks.class_archive import FILE
from airflow_cairn.operators import CairnDoctorOperator
from airflow_cairn.storage import UnsupportedStorageError, open_store
from airflow_cairn.tasks.health import checks, examine
from airflow_cairn.tasks.health.examine import examine_worker
from airflow_cairn.tasks.health.facts import SparkFacts, gather
from scripts.setup.base import ROOT
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Ti, context
from tests.support.api_stand_in import Answer, ApiStandIn, Asked
from tests.support.errors import raises_code
from tests.support.world.world import World

HOME = Path("/opt/spark")
JARS = frozenset(
    {
        "spark-core_2.13-4.1.0.jar",
        "hadoop-client-api-3.5.0.jar",
        "hadoop-aws-3.5.0.jar",
        "spark-hadoop-cloud_2.13-4.1.0.jar",
    }
)
HEALTHY = SparkFacts(
    program="/opt/spark/bin/spark-submit",
    home=HOME,
    jars=JARS,
    conf={},
    java=17,
    python="3.12",
    driver_python="3.12",
    executor_python="3.12",
    packages={"pyspark": "4.1.0"},
)
GIVEN = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0,org.apache.spark:spark-hadoop-cloud_2.13:4.1.0"}


def without(prefix: str) -> frozenset[str]:
    return frozenset(name for name in JARS if not name.startswith(prefix))


def of_spark(facts: SparkFacts) -> list[str]:
    judges = (checks.check_own_spark, checks.check_packages, checks.check_own_python)
    return names(each for check in (*judges, checks.check_s3a_jars) for each in check(facts))


def names(found: Iterator[Finding] | list[Finding]) -> list[str]:
    findings = list(found)
    assert all(each.what and each.why and each.mend for each in findings)
    return [each.name for each in findings]


SPARK: dict[str, tuple[SparkFacts, str]] = {
    "no spark-submit": (replace(HEALTHY, program=None, home=None, jars=frozenset()), "spark-missing"),
    "no Java": (replace(HEALTHY, java=None), "java-missing"),
    "an old Java": (replace(HEALTHY, java=11), "java-old"),
    "Spark 3.4": (
        replace(HEALTHY, jars=without("spark-core") | {"spark-core_2.12-3.4.1.jar"}, packages={"pyspark": "3.4.1"}),
        "spark-unfit",
    ),
    "two PySparks": (replace(HEALTHY, packages={"pyspark": "4.1.0", "pyspark-client": "4.1.1"}), "pyspark-twice"),
    "another PySpark": (replace(HEALTHY, packages={"pyspark": "4.0.1"}), "spark-versions"),
    "another client": (replace(HEALTHY, packages={"pyspark-client": "4.0.1"}), "spark-versions"),
    "two Pythons": (replace(HEALTHY, executor_python="3.11"), "python-versions"),
    "an old Python": (replace(HEALTHY, driver_python="3.9", executor_python="3.9"), "python-old"),
    "no hadoop-aws": (
        replace(HEALTHY, jars=frozenset({"spark-core_2.13-4.1.0.jar", "hadoop-client-api-3.5.0.jar"})),
        "jars-missing",
    ),
    "another hadoop-aws": (replace(HEALTHY, jars=without("hadoop-aws") | {"hadoop-aws-3.3.4.jar"}), "jars-versions"),
    "no magic committer": (replace(HEALTHY, jars=without("spark-hadoop-cloud")), "committer-missing"),
    "the unsafe committer": (
        replace(HEALTHY, conf={"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2"}),
        "committer-unsafe",
    ),
}


@pytest.mark.parametrize("illness", SPARK)
def test_an_illness_of_spark_is_named_rightly(illness: str) -> None:
    facts, name = SPARK[illness]
    assert of_spark(facts) == [name]


@pytest.mark.parametrize(
    "facts",
    [
        HEALTHY,
        replace(HEALTHY, jars=without("hadoop-aws") - {"spark-hadoop-cloud_2.13-4.1.0.jar"}, conf=GIVEN),
        replace(HEALTHY, driver_python=None, executor_python=None),
        replace(HEALTHY, packages={"pyspark-client": "4.1.2"}),
        replace(HEALTHY, packages={"pyspark": "4.1.0", "pyspark-client": "4.1.0"}),
        replace(
            HEALTHY,
            jars=without("spark-core") | {"spark-core_2.12-3.5.9.jar"},
            packages={"pyspark": "4.2.0", "pyspark-client": "4.2.0"},
        ),
    ],
    ids=[
        "jars beside Spark",
        "jars that stages are given",
        "Pythons elsewhere",
        "another bug-fix release",
        "as README",
        "Spark 3.5 by SPARK_HOME",
    ],
)
def test_a_healthy_spark_has_none(facts: SparkFacts) -> None:
    assert of_spark(facts) == []


_OR_INSTALL = "Or, if the package index has that version: pip install"
_GAPS = "(pyspark-client does not exist for each Spark)"


@pytest.mark.parametrize(
    ("started", "packages", "first", "install"),
    [
        (
            "4.3.0",
            {"pyspark": "4.2.0", "pyspark-client": "4.2.0"},
            "export SPARK_HOME=$(python -c 'import pyspark; print(pyspark.__path__[0])')",
            "pyspark==4.3.0 pyspark-client==4.3.0",
        ),
        (
            "4.3.0-vendor-1",
            {"pyspark-client": "4.2.0"},
            "Set SPARK_HOME to the home of Spark 4.2.0",
            "pyspark-client==4.3.0",
        ),
    ],
    ids=["a fresh install, and another one by SPARK_HOME", "the client alone, and a vendor's"],
)
def test_two_versions_are_mended_first_by_what_always_works(
    started: str, packages: dict[str, str], first: str, install: str
) -> None:
    """Spark 4.3.0 had no `pyspark-client`, so that advice alone led nowhere."""
    jars = without("spark-core") | {f"spark-core_2.13-{started}.jar"}
    [found] = checks.check_packages(replace(HEALTHY, jars=jars, packages=packages))
    assert found.name == "spark-versions"
    assert found.mend == f"{first}. {_OR_INSTALL} {install} {_GAPS}"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A Spark that starts nothing: its jars, a spark-submit, and a Java that tells its version."""
    home = tmp_path / "spark"
    for folder in ("bin", "jars", "conf", "java/bin"):
        (home / folder).mkdir(parents=True)
    for name in JARS:
        (home / "jars" / name).touch()
    (home / "conf" / "spark-defaults.conf").write_text("spark.pyspark.python python3.12\n")
    for program, said in (("bin/spark-submit", ""), ("java/bin/java", 'openjdk version "21.0.4" 2024-07-16')):
        path = home / program
        path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        path.chmod(0o755)
    return home


def test_what_a_machine_has_is_found_as_spark_submit_finds_it(spark_home: Path) -> None:
    environ = {"PATH": str(spark_home / "bin"), "JAVA_HOME": str(spark_home / "java"), "PYSPARK_PYTHON": "ignored"}
    started: list[str] = []

    def run(command: list[str]) -> str:
        started.append(command[0])
        return 'version "21.0.4"' if command[-1] == "-version" else "3.12\n"

    facts = gather(environ, {"spark.pyspark.driver.python": "/mine"}, run=run)
    assert started == [str(spark_home / "java/bin/java"), "/mine", "python3.12"]
    assert (facts.home, facts.jars, facts.java, facts.spark) == (spark_home, JARS, 21, "4.1.0")
    assert (facts.driver_python, facts.executor_python) == ("3.12", "3.12")
    assert gather(environ).java == 21, "the program itself, which writes to its error output"
    old = gather({**environ, "JAVA_HOME": ""}, run=lambda command: 'java version "1.8.0_412"')
    assert old.java == 8


def test_a_machine_without_anything(tmp_path: Path) -> None:
    facts = gather({"PATH": str(tmp_path), "PYSPARK_PYTHON": str(tmp_path / "python")})
    assert (facts.program, facts.home, facts.driver_python) == (None, None, None)
    assert names(checks.check_own_spark(facts)) == ["spark-missing"]


def versions(**installed: str | None) -> list[str]:
    have = {"apache-airflow": "3.3.2", "pyspark": "4.1.0", "boto3": "1.40", **installed}
    asked = ["apache-airflow<4,>=3.2", checks.PYSPARK, "boto3>=1.36", 'pyarrow>=21; extra == "state"']
    found = list(checks.check_versions(asked, have.get))
    assert set(names(found)) <= {"versions-unfit"}
    return [each.subject for each in found]


def test_versions_that_do_not_fit() -> None:
    assert versions() == []
    assert versions(**{"apache-airflow": "3.1.8", "boto3": None}) == ["apache-airflow", "boto3"]
    assert names(checks.check_features("3.2.2", whole=False)) == ["airflow-limited"]
    assert names(checks.check_features("3.3.0", whole=True)) == []
    assert versions(pyspark="5.0.0") == ["pyspark"]
    assert versions(pyspark=None) == ["pyspark"]
    assert versions(**{"pyspark": None, "pyspark-client": "4.1.0"}) == [], "all stages over Spark Connect"


def point(value: str) -> EntryPoint:
    return EntryPoint("cairn", value, "any")


def test_the_plugin_and_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, provider = point(checks.PLUGIN), point(checks.PROVIDER)
    assert names(checks.check_plugin([plugin], [provider])) == []
    assert names(checks.check_plugin([point("other:Plugin")], [provider])) == ["plugin-missing"]
    assert names(checks.check_plugin([plugin], [])) == ["provider-missing"]
    monkeypatch.setattr(checks, "PLUGIN", "airflow_cairn.plugin.no_such_module:CairnPlugin")
    assert names(checks.check_plugin([point(checks.PLUGIN)], [provider])) == ["plugin-broken"]


def settings(**changed: int) -> list[str]:
    usual = {"task_instance_heartbeat_timeout": 300, "min_heartbeat_interval": 5, "killed_task_cleanup_time": 60}
    numbers: Mapping[str, int] = {**usual, **changed}
    return names(checks.check_settings(lambda _section, option: numbers[option]))


def test_settings_that_break_recovery() -> None:
    assert settings() == []
    assert settings(task_instance_heartbeat_timeout=14) == ["heartbeat-short"]
    assert settings(min_heartbeat_interval=120) == ["heartbeat-short"]
    assert settings(task_instance_heartbeat_timeout=86_400) == ["heartbeat-long"]
    assert settings(killed_task_cleanup_time=2) == ["kill-time-short"]
    assert names(checks.check_executor("LocalExecutor", 32)) == []
    assert names(checks.check_executor("LocalExecutor", 1)) == ["parallelism-one"]


RUNS = {name: {"status": "healthy"} for name in ("metadatabase", "scheduler", "triggerer", "dag_processor")}


@pytest.fixture
def api(connections: Define) -> Iterator[dict[str, Answer]]:
    """An Airflow that is well; a test changes what it answers, by the path's end."""
    answers: dict[str, Answer] = {
        "/auth/token": (201, {"access_token": "t"}),
        "/dags?limit=1": (200, {"dags": []}),
        "/monitor/health": (200, RUNS),
        "/dags/flights": (200, {"is_paused": False}),
    }

    def answer(asked: Asked) -> Answer:
        return next((each for end, each in answers.items() if asked.path.endswith(end)), (404, {"detail": "no"}))

    with ApiStandIn(answer) as stand_in:
        who = {"conn_type": "generic", "host": stand_in.url, "login": "cairn", "password": "canary-12345"}
        connections("cairn_airflow_api", json.dumps(who))
        yield answers


def of_api(conn_id: str = "cairn_airflow_api", dag_id: str = "flights") -> list[str]:
    with AirflowApiHook(conn_id, sleep=lambda seconds: None) as hook:
        found = names(examine.check_api(hook))
        return found or names([*examine.check_components(hook), *examine.check_dag(hook, dag_id)])


@pytest.mark.parametrize("of_another", [False, True])
def test_an_airflow_that_is_well(api: dict[str, Answer], backend: Callable[[str], None], of_another: bool) -> None:
    """The connection may be that of another backend than the one that is away."""
    if of_another:
        backend("Away")
    assert of_api() == []


@pytest.mark.parametrize(
    ("path", "answer", "name"),
    [
        ("/auth/token", (401, {"detail": "no"}), "api-refused"),
        ("/dags?limit=1", (403, {"detail": "Forbidden"}), "api-refused"),
        ("/dags?limit=1", (500, {"detail": "broken"}), "api-unreachable"),
        ("/monitor/health", (200, {**RUNS, "triggerer": {"status": None}}), "airflow-unhealthy"),
        ("/monitor/health", (200, {**RUNS, "scheduler": {"status": "unhealthy"}}), "airflow-unhealthy"),
        ("/dags/flights", (404, {"detail": "no"}), "dag-missing"),
        ("/dags/flights", (200, {"is_paused": True}), "dag-paused"),
    ],
)
def test_an_illness_of_airflow_is_named_rightly(api: dict[str, Answer], path: str, answer: Answer, name: str) -> None:
    api[path] = answer
    assert of_api() == [name]


def test_a_connection_that_is_not_there_or_cannot_be_used(connections: Define) -> None:
    assert of_api("cairn_airflow_api") == ["connection-missing"]
    connections("no_user", json.dumps({"conn_type": "generic", "host": "http://127.0.0.1:9"}))
    assert of_api("no_user") == ["connection-broken"]


@pytest.mark.usefixtures("connections")
def test_the_api_is_asked_if_it_was_named_or_is_needed() -> None:
    """Most jobs clear no task, so that a fresh Airflow has no such connection, and is well."""
    skipped = examine_worker(s3=False).skipped
    assert skipped.pop("the cluster").startswith("it was not asked")
    assert skipped == {"airflow's API": "the connection cairn_airflow_api is not defined where this process looks"}
    for options in ({"dag_id": "flights"}, {"airflow_api_conn_id": "other"}):
        assert "connection-missing" in names(examine_worker(s3=False, **options).findings)  # type: ignore[arg-type]


class Away:
    """A secrets backend that does not answer."""

    def _set_connection_class(self, _: type) -> None:
        """Take Airflow's class, which this backend makes none of."""

    def get_connection(self, conn_id: str) -> None:
        """Fail, as a client of a vault does; its error may repeat what it was given."""
        raise ConnectionRefusedError(f"no vault answers for {conn_id}: token=canary-12345")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def use(name: str) -> None:
        monkeypatch.setattr("airflow.sdk.configuration._secrets_backend_cache", {})
        monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", f"{__name__}.{name}")

    return use


@pytest.mark.parametrize("options", [{}, {"dag_id": "flights"}, {"airflow_api_conn_id": "other"}])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Away", r"Away says ConnectionRefusedError: no vault answers for \w+: token=\*\*\*"),
        ("NoSuchBackend", 'Airflow says AirflowConfigException: .*check "backend" key in "secrets" section'),
    ],
    ids=["away", "not there"],
)
@pytest.mark.usefixtures("connections")
def test_a_connection_that_could_not_be_fetched_may_be_defined(
    backend: Callable[[str], None], options: dict[str, str], name: str, said: str
) -> None:
    """Airflow says of it that it is not defined."""
    backend(name)
    found = examine_worker(s3=False, **options)  # type: ignore[arg-type]
    [failed] = [each for each in found.findings if each.name == "check-failed"]
    assert failed.subject == "airflow's API"
    assert re.search(said, failed.what)
    assert "connection-missing" not in names(found.findings)
    assert [*found.skipped] == ["the cluster"]
    broken = [each for each in examine_worker(s3=False, cluster="lake_spark").findings if each.subject == "lake_spark"]
    assert [each.name for each in broken] == ["connection-broken"]
    assert re.search(said, broken[0].what)


@pytest.fixture
def machine(spark_home: Path, api: dict[str, Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has a Spark of the right version and an Airflow that is well."""
    facts = replace(HEALTHY, home=spark_home)
    monkeypatch.setattr(examine, "gather", lambda environ, conf: facts)
    # Airflow's defaults for tests are not those of a deployment.
    monkeypatch.setenv("AIRFLOW__CORE__KILLED_TASK_CLEANUP_TIME", "60")


def test_every_check_of_a_worker_that_is_well(machine: None) -> None:
    found = examine_worker(s3=True, dag_id="flights")
    assert (names(found.findings), [*found.skipped]) == ([], ["the cluster"])
    assert len(found.passed) == 12
    skipped = examine_worker(s3=False, airflow_api_conn_id=None).skipped
    assert skipped == {"airflow's API": "no connection is named", "the cluster": found.skipped["the cluster"]}


def healthy_storage(folder: Path) -> str:
    world = World(open_store(f"file://{folder / 'lake'}"))
    world.run_epoch("a")
    return world.store.uri


def test_the_operator(machine: None, api: dict[str, Answer], tmp_path: Path, said: Said) -> None:
    """The operator makes the checks of the command; `fail_on` says which findings fail it."""
    storage = healthy_storage(tmp_path)

    def doctor(**more: Any) -> dict[str, Any]:
        made = CairnDoctorOperator(task_id="doctor", storage=storage, dag_to_check="flights", **more)
        return made.execute(context(Ti(run_id="r")))

    assert doctor(fail_on="warning")["healthy"]
    with raises_code("unhealthy", match="checkpoint-old"):
        doctor(max_age=timedelta(hours=2))  # the clock of this world stands still in 2023
    api["/dags/flights"] = (200, {"is_paused": True})
    assert [each["name"] for each in doctor()["findings"]] == ["dag-paused"]
    assert "WARNING dag-paused: flights: the DAG is paused. Why it matters: no epoch begins. To mend it: " in said.text
    with raises_code("unhealthy", match=r"the doctor has found dag-paused \(flights\)"):
        doctor(fail_on="warning")
    api["/dags/flights"] = (404, {})
    with raises_code("unhealthy", match="dag-missing"):
        doctor()
    assert not doctor(fail_on="never")["healthy"]


def test_the_operator_refuses_at_parse_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="fail_on must be one of error, warning, never"):
        CairnDoctorOperator(task_id="doctor", storage="s3://lake", fail_on="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="max_age must be a timedelta of more than zero"):
        CairnDoctorOperator(task_id="doctor", storage="s3://lake", max_age=timedelta(0))
    with pytest.raises(InvalidConfigError, match="no storage is given"):
        CairnDoctorOperator(task_id="doctor", storage="")
    with pytest.raises(UnsupportedStorageError):
        CairnDoctorOperator(task_id="doctor", storage="ftp://lake")


def test_the_command(machine: None, api: dict[str, Answer], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = healthy_storage(tmp_path)
    assert main(["doctor", "--worker", "--storage", storage]) == 0
    assert capsys.readouterr().out.endswith("\nnothing is wrong; 22 checks passed, 1 not made\n")
    assert main(["doctor", "--dag", "other"]) == DAMAGED
    assert capsys.readouterr().out.startswith("ERROR dag-missing: other\n")
    assert main(["doctor"]) == FAILED
    assert "there is nothing to check: give --storage URI" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["doctor", "--worker", "--conf", "spark.jars"])
    assert "expected NAME=VALUE, found 'spark.jars'" in capsys.readouterr().err


def test_an_archive_of_classes_that_nobody_has_made_is_a_hint(
    machine: None,
    spark_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: Said,
) -> None:
    """A hint is no failure: the exit status is 0."""
    monkeypatch.setenv("SPARK_HOME", str(spark_home))
    (spark_home / "conf" / "spark-defaults.conf").unlink()
    command = "`python -m airflow_cairn.hooks.class_archive`"
    storage = healthy_storage(tmp_path)
    words = ["doctor", "--worker", "--storage", storage]
    assert main(words) == 0
    assert command in " ".join(capsys.readouterr().out.split())
    CairnDoctorOperator(task_id="doctor", storage=storage).execute(context(Ti()))
    assert "Hint: drivers on this machine start without an archive of classes" in said.text
    (spark_home / FILE).touch()
    assert main(words) == 0
    assert "hint" not in capsys.readouterr().out


def test_the_reference_has_each_finding_of_a_worker() -> None:
    files = [
        *(ROOT / "tasks" / "health").glob("*.py"),
        ROOT / "spark" / "pyspark_versions.py",
        ROOT / "tables" / "health.py",
    ]
    source = "".join(path.read_text() for path in files)
    made = set(re.findall(r'(?:error|warning|_tried)\(\s*"([a-z0-9-]+)"', source))
    assert len(made) > 20
    assert {each.name for each in hints.findings() if each.place != "storage"} == made


def test_findings_of_several_checks_are_put_together() -> None:
    one, other = Examination(), Examination()
    one.run("a", lambda: iter(()))
    other.run("b", lambda: checks.check_executor("LocalExecutor", 1))
    one.add(other)
    assert (one.passed, names(one.findings)) == (["a"], ["parallelism-one"])
