"""The pages in a real API server: who sees what, of which job, and what Airflow itself adds."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.layout import run_id_of
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.storage import open_store
from scripts.harness.airflow_home import USERNAME, AirflowHome
from scripts.harness.wait import wait_until
from scripts.setup.venv import VENV
from tests.real.airflow.conftest import HERE, LOOKS, Gates
from tests.real.airflow.scenario import COMPLETED, FAILOVER, Scenario, kill_driver
from tests.real.airflow.store import JobStore
from tests.support.browser import found_by
from tests.support.people import program, signed_in
from tests.support.tabs import expected_in_the_ui, seen_in_the_ui

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

BROWSER = {"accept": "text/html"}


def test_the_page_shows_a_job_to_those_who_may_read_its_dag(airflow: AirflowHome, storage: str) -> None:
    api = airflow.api
    for dag_id in ("page", "page_templated"):
        api.trigger(dag_id, "e1")
    plugins = {each["name"]: each for each in api.request("GET", "/plugins")["plugins"]}
    views = plugins["cairn"]["external_views"]
    assert {view["destination"] for view in views} == {"nav", "dag", "dag_run", "task", "task_instance"}
    for dag_id in ("page", "page_templated"):
        api.wait_for_run(dag_id, "e1")
        assert api.run_state(dag_id, "e1") == "success", api.explain(dag_id, "e1")

    with signed_in(airflow, None) as nobody:
        for path in ("/", "/dags/page", "/api/v1/dags", "/static/icon.svg"):
            assert nobody.get(path, headers=BROWSER).status_code == 401, path

    for user in (USERNAME, LOOKS):
        with signed_in(airflow, user) as reader:
            for view in views:
                if view["destination"] == "nav":
                    continue
                facts = {"DAG_ID": "page", "RUN_ID": "e1", "TASK_ID": "epoch.read", "MAP_INDEX": "-1"}
                address = view["href"].removeprefix("cairn").format(**facts)
                answer = reader.get(address, headers=BROWSER)
                assert answer.status_code == 200, answer.text
                assert "e1" in answer.text
                assert "default-src 'none'" in answer.headers["content-security-policy"]
            found = reader.get("/api/v1/dags/page/jobs/page").raise_for_status().json()
            assert (found["storage"], found["stats"]["completed"], found["owner"]["dag_id"]) == (storage, 1, "page")
            assert found["latest_completed"]["run_id"] == "e1"
            options = reader.get("/api/v1/dags/page/jobs/page/configuration").json()["config"]
            assert options["retained"] == 2

            templated = reader.get("/api/v1/dags/page_templated/jobs/page_templated").raise_for_status().json()
            assert (templated["storage"], templated["stats"]["completed"]) == (storage, 1)
            assert "no checkpointed group" in reader.get("/dags/page_plain", headers=BROWSER).text
            assert reader.get("/dags/no_such_dag", headers=BROWSER).status_code == 404
            dags = {dag["dag_id"] for dag in reader.get("/api/v1/dags").json()["dags"]}
            assert {"page", "page_templated"} <= dags
            assert "page_plain" not in dags
    drained_and_resumed(airflow, storage)
    listed_by_connection(airflow, storage)


def drained_and_resumed(airflow: AirflowHome, storage: str) -> None:
    """Have the job of the page drained by REST, see the last run and its savepoint, and let the job go on."""
    job = "/api/v1/dags/page/jobs/page"
    stop, resume = f"{job}/interventions/stop", f"{job}/interventions/resume"
    with program(airflow, LOOKS) as reader:
        assert reader.get(stop, params={"drain": True}).status_code == 403
        assert reader.post(stop, json={"drain": True, "agreed": "x"}).status_code == 403
    with program(airflow, USERNAME) as admin:
        plan = admin.get(stop, params={"drain": True}).raise_for_status().json()
        assert (plan["kind"], plan["drain"]) == ("stop", True)
        agreed = {"drain": True, "agreed": plan["agreed"], "operation": plan["operation"]}
        begun = [admin.post(stop, json=agreed) for _ in range(2)]
        assert [each.status_code for each in begun] == [202, 202], [each.text for each in begun]
        address = begun[0].headers["location"].removeprefix("/cairn")
        last_run = begun[0].json()["last_run"]
        found: dict[str, Any] = {}

        def ended() -> bool:
            found.update(admin.get(address).raise_for_status().json())
            return bool(found["status"] == "COMPLETED")

        wait_until(ended, 600, "the job to stop", details=lambda: f"{found}", interval=1)
        assert (found["failure"], found["actor"], found["last_run"]) == (None, USERNAME, last_run), found
        airflow.api.wait_for_run("page", last_run)
        assert airflow.api.run_state("page", last_run) == "success", airflow.api.explain("page", last_run)
        assert [run["dag_run_id"] for run in airflow.api.runs("page")] == ["e1", last_run]
        head = JobStore(storage, "page").coordinator.head()
        latest = head.latest_completed()
        assert latest is not None
        assert (head.stopped, run_id_of(latest.epoch)) == (Stopped.SHUTDOWN, last_run)
        assert integrity.load(open_store(found["location"])).source.checkpoint == latest.id

        plan = admin.get(resume).raise_for_status().json()
        assert admin.post(resume, json={"agreed": plan["agreed"]}).status_code == 200
        head = JobStore(storage, "page").coordinator.head()
        assert (head.stopped, [each.kind for each in head.interventions]) == (None, ["stop", "resume"])
    written = airflow.api.request("GET", "/eventLogs?dag_id=page")["event_logs"]
    assert {each["event"] for each in written if each["owner"] == USERNAME} >= {"cairn.stop", "cairn.resume"}


def listed_by_connection(airflow: AirflowHome, storage: str) -> None:
    """Have the command line find the storage by a connection that only Airflow's database has."""
    told = {"connection_id": "of_page", "conn_type": "cairn", "extra": json.dumps({"storage": storage})}
    airflow.api.request("POST", "/connections", json=told)
    command = [str(VENV / "bin" / "cairn"), "jobs", "--conn", "of_page", "--json"]
    listed = subprocess.run(command, env=airflow.env, cwd=airflow.home, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert "page" in {row["job"] for row in json.loads(listed.stdout)["jobs"]}


@pytest.mark.side_by_side(90)
@pytest.mark.soak  # tests/real/page/test_acts.py opens the same tabs, below a prefix
def test_the_tabs_open_in_airflows_own_ui(airflow: AirflowHome) -> None:
    """To one who may only look and to an admin; who has not signed in sees Airflow's own question for a name."""
    dag, run = "page_looked_at", "ui"
    airflow.api.trigger(dag, run)
    airflow.api.wait_for_run(dag, run)
    seen = seen_in_the_ui(airflow, dag, run, "epoch.read", LOOKS, USERNAME)
    assert seen == expected_in_the_ui(dag, LOOKS, USERNAME)


@pytest.mark.soak  # tests/unit/hooks/test_connections.py has what it asks
def test_the_button_of_a_connection_probes_the_storage_that_it_names(airflow: AirflowHome, storage: str) -> None:
    """Airflow 3.3.2 refuses a connection without a port: docs/how-to/credentials.md says so, and what to do.

    When another Airflow makes this fail because it does not refuse, take that sentence out.
    """
    whole = json.dumps({"storage": f"{storage}-of-button"})
    tested = {"whole_of_page": (whole, 0), "empty_of_page": ("{}", 0), "portless_of_page": (whole, None)}
    for name, (extra, port) in tested.items():
        told = {"connection_id": name, "conn_type": "cairn", "extra": extra, "port": port}
        airflow.api.request("POST", "/connections", json=told)
    assert found_by(HERE / "buttons.mjs", airflow.url, USERNAME, airflow.passwords[USERNAME], *tested) == {
        "whole_of_page": [
            "Test Connection Successful",
            f"{storage}-of-button (local files) passes the probe: its conditional writes hold",
        ],
        "empty_of_page": [
            "Test Connection Failed",
            "the connection names no storage to be tested: fill in Storage, such as s3://lake/cairn",
        ],
        "portless_of_page": ["Test Connection Failed", "Bad Request"],
    }


@pytest.mark.side_by_side(60)
@pytest.mark.soak  # tests/real/page/test_browser.py has an open page that follows a checkpoint
def test_an_epoch_is_watched_from_its_trigger_to_its_completion(
    airflow: AirflowHome, gates: Gates, storage: str
) -> None:
    """semantics F1, F2: a → b, b's driver is killed. The page is opened once, before the run, and not loaded anew."""
    watched = Scenario(airflow, gates, JobStore(storage, "page_watched"))
    seen = gates.folder / "said_to_who_watches"
    seen.touch()

    def shown(*words: str) -> None:
        wait_until(
            lambda: any(all(word in line for word in words) for line in seen.read_text().splitlines()),
            600,
            f"the page to say {words}",
            details=seen.read_text,
        )

    words = (airflow.url, LOOKS, airflow.passwords[LOOKS], watched.name, str(seen), "completed 2", "failed 1")
    with ThreadPoolExecutor(1) as pool:
        browser = pool.submit(found_by, HERE / "watched.mjs", *words, timeout=1500)
        try:
            shown("This job has no checkpoint yet")
            watched.hold("e1", 2, "b")
            (driver,) = watched.stopped_at("e1", "b")
            shown("Checkpoint 1 in progress", "a: acknowledged", "b: running for")
            kill_driver(driver)
            shown("Checkpoint 2 in progress", "a: kept from 1", "b: ", "failed 1")
            watched.reached("e1", 2, "b")
            watched.release("e1", 2, "b")
            assert browser.result() == {"mark": 1}
        finally:
            seen.with_name(f"{seen.name}.stop").touch()  # else leaving the pool would wait, and hide what failed
    watched.check("e1", tries={"a": 1, "b": 2}, outcomes=[(1, 1, FAILOVER), (2, 2, COMPLETED)])
