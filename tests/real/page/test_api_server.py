"""Airflow's own app, users and database around the pages, in one process: no component of Airflow is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.setup.base import ROOT
from tests.real.page.one_dag import NARROW
from tests.support.world.world import JOB

BASES = ("", "/team/airflow")
"""Airflow's base paths."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of Airflow's app, by its base path."""
    folder = tmp_path_factory.mktemp("airflow")
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ada:admin,vera:viewer,nora:admin",
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.real.page.one_dag.OneDagAuthManager",
        "AIRFLOW__API__SECRET_KEY": "of-this-test",
        "AIRFLOW_API_APPS": "core",
        "AIRFLOW__API_AUTH__JWT_SECRET": "of-this-test-and-long-enough-for-a-signature-of-512-bits-by-its-rules",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(Path(__file__).with_name("api_server.py")), str(folder), *BASES]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("base", BASES)
def test_the_plugin_answers_in_airflows_own_app(answered: dict[str, Any], base: str) -> None:
    found = answered["of"][base]
    of_reader = {path: 404 if "no_such_dag" in path else 200 for path in found["statuses"]["ada"]}
    narrow = {path: 403 if "plain" in path or "no_such_dag" in path else 200 for path in of_reader}
    nobody = dict.fromkeys(of_reader, 401)
    assert found["statuses"] == {"ada": of_reader, "vera": of_reader, NARROW: narrow, "nobody": nobody}
    assert [view["destination"] for view in found["views"]] == ["nav", "dag", "dag_run", "task", "task_instance"]
    assert f'href="{base}/cairn/dags/flights/jobs/epoch0.trigger/history"' in found["page"]
    assert f'href="{base}/dags/flights"' in found["page"]
    assert (found["document"]["job"], found["document"]["stats"]["completed"]) == (JOB, 2)


@pytest.mark.parametrize("base", BASES)
def test_every_route_asks_airflow_for_the_right_to_its_dag(answered: dict[str, Any], base: str) -> None:
    """The narrow user may do everything with one DAG: no route about another answers, and no list has it."""
    found = answered["of"][base]
    gets, posts = (
        sum(n for each, n in found["walked"]["nobody"].items() if each.startswith(method)) for method in ("GET", "POST")
    )
    assert gets > 20
    assert posts > 0
    assert found["walked"]["nobody"] == found_only(401, gets, posts)
    assert found["walked"][NARROW] == found_only(403, gets, posts)
    assert found["walked"]["vera"]["POST 403"] == posts
    assert found["walked"]["vera"]["GET 403"] == 4, "rows and what says what would be done, as pages and by REST"
    assert not {"GET 403", "POST 403"} & set(found["walked"]["ada"])
    everything = ["flights", "other"]
    assert {user: (dags, sorted(set(shown))) for user, (dags, shown) in found["listed"].items()} == {
        "ada": (everything, everything),
        "vera": (everything, everything),
        NARROW: (["flights"], ["flights"]),
    }


def found_only(status: int, gets: int, posts: int) -> dict[str, int]:
    return {f"GET {status}": gets, f"POST {status}": posts}


def test_airflow_starts_and_answers_where_the_page_cannot_be_made(answered: dict[str, Any]) -> None:
    assert answered["without_the_page"] == {
        "/api/v2/version": 200,
        "/api/v2/pools": 200,
        "/api/v2/plugins": 200,
        "/cairn/": 503,
        "/cairn/api/v1/dags": 503,
    }


@pytest.mark.parametrize("base", BASES)
def test_airflows_own_api_answers_in_the_same_process_as_the_user(answered: dict[str, Any], base: str) -> None:
    """Airflow knows a run that the job does not, and knows none of another id."""
    found = answered["of"][base]["of_run"]
    for user in ("ada", "vera"):
        made, never_made = found[user]
        assert (made["status"], made["run_state"], made["run_id"]) == ("COMPLETED", "failed", "cairn__made")
        assert never_made["error"]["status"] == 404
    assert [each["error"]["status"] for each in found["nobody"]] == [401, 401]


def test_only_who_may_edit_runs_may_rewind_and_the_audit_log_has_it(answered: dict[str, Any]) -> None:
    first, second = (answered["of"][base]["confirmed"] for base in BASES)
    assert first == {"ada": [200, 303], "vera": [403, 403], "nobody": [401, 401]}
    assert second["ada"] == [409, 409], "the job is there already"
    assert answered["logged"] == [["ada", "flights", "cairn.rewind"]]
