"""A checkpoint now, and a region that runs again: by Airflow's own API, as the person (T2, F1)."""

from typing import Any

import httpx
import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.plugin.page.declared_jobs import declared_jobs
from tests.support.page_world import busy_world
from tests.support.shut_down import shut_down
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import NARROW, ONE, STORAGE, VIEWER, Page, StandIn, dag_of, words
from tests.unit.plugin.page.test_operations import TOKEN, form_of, polled

CHECKPOINT = f"{ONE}/interventions/checkpoint"
CLEAR = f"{ONE}/interventions/clear?checkpoint=4&stage=routes"
API = f"/api/v1{ONE}"


@pytest.fixture
def busy() -> World:
    """A job whose pending checkpoint has not expired."""
    return busy_world(system_runtime().now_ms() - 20_000)


@pytest.fixture
def page(server: StandIn) -> Page:
    """Pages that look each time."""
    return polled(server)


def test_airflow_makes_a_run_once(busy: World, server: StandIn, page: Page) -> None:  # semantics T2
    assert CHECKPOINT in page.get(ONE).text
    asked = page.get(CHECKPOINT)
    assert "Airflow makes a run of flights now." in words(asked.text)
    assert "Under way now: c (input 2026-01-03 to 2026-01-04)." in words(asked.text)
    assert server.airflow.runs == {}
    form = form_of(asked)
    (address,) = {page.post(CHECKPOINT, form).headers["location"] for _ in range(2)}
    ((run_id, state),) = server.airflow.runs.items()
    assert (address, state) == (f"/cairn{ONE}/history?run={run_id}", "queued")
    assert run_id.startswith("cairn__")
    assert [each[2] for each in server.logged] == ["cairn.checkpoint"]
    assert busy.coordinator().head().interventions == ()


def test_a_program_polls_the_run_until_its_checkpoint_has_completed(busy: World, page: Page) -> None:
    plan = page.get(f"{API}/interventions/checkpoint").json()
    body = f'{{"agreed": "{plan["agreed"]}", "operation": "{plan["operation"]}"}}'

    def send() -> httpx.Response:
        return page.post(f"{API}/interventions/checkpoint", body, **TOKEN)

    answer = send()
    assert (answer.status_code, answer.json()["status"], answer.json()["run_state"]) == (202, "IN_PROGRESS", "queued")
    assert send().headers["location"] == answer.headers["location"]
    address = answer.headers["location"].removeprefix("/cairn")
    run_id = answer.json()["run_id"]
    busy.coordinator().abort(4, Reason.CHECKPOINT_EXPIRED, "too slow")
    checkpoint = busy.run_epoch(epoch_name(run_id))
    found: dict[str, Any] = page.get(address).json()
    assert (found["status"], found["checkpoint"], found["failure"]) == ("COMPLETED", checkpoint, None)
    assert page.get(address.removeprefix("/api/v1")).headers["location"].endswith(f"history?run={run_id}")


def test_a_run_that_failed_says_so(server: StandIn, page: Page) -> None:
    server.airflow.runs["cairn__x"] = "failed"
    found = page.get(f"{API}/operations/x").json()
    assert (found["status"], found["checkpoint"]) == ("COMPLETED", None)
    assert found["failure"] == {"reason": None, "detail": "the DAG run has ended: failed"}
    assert page.get(f"{API}/operations/y").status_code == 404


def test_what_would_not_begin_says_why(busy: World, server: StandIn, page: Page) -> None:
    server.airflow.paused.add("flights")
    answer = page.get(CHECKPOINT)
    assert (answer.status_code, "unpause it" in answer.text) == (409, True)
    server.airflow.paused.clear()
    shut_down(busy.coordinator())
    answer = page.get(CHECKPOINT)
    assert (answer.status_code, "Let it go on first" in answer.text) == (409, True)
    assert CHECKPOINT not in page.get(ONE).text


@pytest.mark.parametrize(
    ("user", "declines", "status", "said"),
    [
        (NARROW, "", 403, "Airflow refuses this"),
        ("admin", "DAG flights is not valid now", 502, "own API did not do this"),
    ],
)
def test_airflow_has_the_last_word(
    server: StandIn, page: Page, user: str, declines: str, status: int, said: str
) -> None:
    """The right to edit runs need not include the right to make one. No advice is given about a connection."""
    form = form_of(page.get(CHECKPOINT, user=user))
    server.airflow.declines = declines
    answer = page.post(CHECKPOINT, form, user=user)
    assert (answer.status_code, said in answer.text) == (status, True)
    assert f"Airflow answers {400 if declines else 403}: {declines or 'Forbidden'}" in answer.text
    assert "connection" not in answer.text
    assert server.airflow.runs == {}
    assert page.get(CHECKPOINT, user=VIEWER).status_code == 403


def test_a_confirmation_is_of_all_tasks_though_not_all_are_shown(busy: World, server: StandIn, page: Page) -> None:
    busy.coordinator().abort(4, Reason.CHECKPOINT_EXPIRED, "too slow")  # semantics F1
    server.airflow.failed = [f"epoch.task_{number:02}" for number in range(50)]
    asked = page.get(CLEAR)
    assert "and 30 more" in words(asked.text)
    server.airflow.failed[-1] = "epoch.task_99"
    assert "and 30 more" in page.seen(CLEAR)
    assert page.post(CLEAR, form_of(asked)).status_code == 409
    assert [each for each in server.airflow.cleared if not each["dry_run"]] == []


def test_a_region_runs_again(busy: World, server: StandIn, page: Page) -> None:  # semantics F1
    busy.coordinator().abort(4, Reason.CHECKPOINT_EXPIRED, "too slow")
    server.airflow.failed = ["epoch.report", "epoch.routes", "epoch.wait_for_checkpoint"]
    assert "/interventions/clear?checkpoint=4&amp;stage=routes" in page.get(f"{ONE}/checkpoints/4").text
    asked = page.get(CLEAR)
    seen = words(asked.text)
    assert "Let routes run again?" in seen
    assert "so that they run again: epoch.report, epoch.routes, epoch.wait_for_checkpoint." in seen
    assert page.post(CLEAR, form_of(asked)).headers["location"] == f"/cairn{ONE}/checkpoints/4"
    *looks, cleared = server.airflow.cleared
    assert [each["dry_run"] for each in looks] == [True, True]
    assert (cleared["dry_run"], cleared["only_failed"], cleared["include_downstream"]) == (False, True, True)
    assert (cleared["dag_run_id"], cleared["task_ids"]) == ("c", ["epoch.routes"])
    assert cleared["note"] == "Cairn: the region of `routes` runs again, asked for by `admin`"
    assert [each[2] for each in server.logged] == ["cairn.clear"]


def test_a_region_that_somebody_else_has_cleared_is_left_alone(server: StandIn, page: Page) -> None:
    server.airflow.failed = ["epoch.routes"]
    form = form_of(page.get(CLEAR))
    server.airflow.failed = []
    assert page.post(CLEAR, form).status_code == 409
    assert [each["dry_run"] for each in server.airflow.cleared] == [True, True]
    answer = page.get(CLEAR)
    assert (answer.status_code, "None of these tasks has failed" in answer.text) == (409, True)
    for path in (f"{ONE}/interventions/clear?checkpoint=4&stage=none", f"{ONE}/interventions/clear?stage=routes"):
        assert page.get(path).status_code == 409
    assert page.get(f"{ONE}/interventions/clear?checkpoint=99&stage=routes").status_code == 404


def test_the_region_is_the_one_that_the_dag_declares() -> None:
    (job,) = declared_jobs(dag_of("flights", (STORAGE, JOB)))
    assert {uid: [str(task) for task in tasks] for uid, tasks in job.region("routes").items()} == {
        "routes": ["epoch.routes"]
    }
    assert job.region("none") == {}
