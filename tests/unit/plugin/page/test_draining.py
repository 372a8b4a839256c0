"""A stop with a last run in which the stages emit what they hold back, asked for on a page (semantics P2)."""

from dataclasses import replace
from typing import Any

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.savepoint_request import drain_run
from airflow_cairn.plugin.page.airflow_server import OwnAirflowApi
from tests.support.world.savepoints import TARGET, Below, assert_whole, standing
from tests.support.world.world import CONFIG, World
from tests.unit.plugin.page.stand_in import ADMIN, ONE, VIEWER, Page, StandIn, words
from tests.unit.plugin.page.test_operations import API, STOP, TOKEN, ended, form_of, page, polled, server

__all__ = ["page", "server"]

DRAIN = f"{STOP}?drain=true"


@pytest.fixture
def idle() -> World:
    """A job with one completed checkpoint and a place for savepoints."""
    world = World(config=replace(CONFIG, savepoint_target=TARGET))
    world.clock.now_ms = system_runtime().now_ms() - 60_000
    world.read_days("a", "b")
    world.run_epoch("a")
    return world


class EndsBeforeTheRun(OwnAirflowApi):
    """Airflow's API in a process that ends before it asks for a run."""

    def start_run(self, dag_id: str, run_id: str, now_ms: int) -> bool:
        raise RuntimeError("as if the process had ended")


def drained(page: Page) -> str:
    """Have the job drained, and give the path of the operation."""
    answer = page.post(DRAIN, form_of(page.get(DRAIN)))
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"]).removeprefix("/cairn")


def cut_short(server: StandIn) -> str:
    """Begin a drain in a process that ends between the swap and the run; give the path of the operation."""
    form = form_of(polled(server).get(DRAIN))
    server.hook = EndsBeforeTheRun
    assert polled(server).post(DRAIN, form).status_code == 500
    server.hook = OwnAirflowApi
    assert server.airflow.runs == {}
    return polled(server).post(DRAIN, form).headers["location"].removeprefix("/cairn")


def run_last(world: World, page: Page, path: str) -> dict[str, Any]:
    """Run the last run's epoch, and give what its operation says then."""
    found: dict[str, Any] = page.get(f"/api/v1{path}").json()
    epoch = epoch_name(found["last_run"])
    world.read_days("a", epoch)
    world.run_epoch(epoch)
    coordinator = world.coordinator()
    for entry in coordinator.savepoints_to_go_on_with():  # as the task does that ends the epoch
        coordinator.go_on_with_savepoint(entry.request, TARGET, lambda uri: Below(world.memory, uri))
    return ended(page, f"/api/v1{path}")


def test_a_last_run_is_made_once_and_the_job_stops_behind_it(idle: World, server: StandIn, page: Page) -> None:
    assert DRAIN in page.get(f"{ONE}/savepoints").text  # semantics P2
    asked = page.get(DRAIN)
    seen = words(asked.text)
    assert "Drain the job and stop it with a savepoint?" in seen
    assert "Airflow makes one more run of flights now, the last one. Its stages emit what they hold back." in seen
    assert "If the last run or the savepoint fails, the job goes on from its checkpoint before that run." in seen
    assert f"Its files are copied into a new folder below {TARGET}." in seen
    assert server.airflow.runs == {}
    form = form_of(asked)
    (path,) = {page.post(DRAIN, form).headers["location"].removeprefix("/cairn") for _ in range(2)}
    ((run_id, state),) = server.airflow.runs.items()
    (entry,) = idle.coordinator().head().savepoints
    assert (run_id, state) == (drain_run(entry.request), "queued")
    assert (entry.stops, entry.drains, entry.epoch, entry.actor) == (True, True, epoch_name(run_id), "admin")
    waits = page.get(f"/api/v1{path}").json()
    assert (waits["status"], waits["last_run"]) == ("IN_PROGRESS", run_id)
    assert run_id in waits["waits_for"]
    assert f"It waits for {run_id} to complete" in page.seen(path)
    found = run_last(idle, page, path)
    assert (found["kind"], found["failure"]) == ("stop", None)
    head = idle.coordinator().head()
    assert_whole(idle, head.savepoints[0])
    assert (head.stopped, head.savepoints[0].epoch) == (Stopped.SHUTDOWN, epoch_name(run_id))
    assert [(event, facts["drain"]) for *_, event, facts in server.logged] == [("cairn.stop", True)]
    assert [(each.kind, each.actor) for each in head.interventions] == [("stop", "admin")]


def test_a_program_drains_by_a_word_of_its_own(idle: World, server: StandIn, page: Page) -> None:
    plan = page.get(f"{API}/interventions/stop?drain=true").json()
    assert plan["drain"] is True
    body = f'{{"agreed": "{plan["agreed"]}", "operation": "{plan["operation"]}"'
    assert page.post(f"{API}/interventions/stop", f"{body}}}", **TOKEN).status_code == 409, "agreed to another stop"
    assert idle.coordinator().head().savepoints == ()
    answer = page.post(f"{API}/interventions/stop", f'{body}, "drain": true}}', **TOKEN)
    assert answer.status_code == 202
    assert list(server.airflow.runs) == [answer.json()["last_run"]]
    for kind in ("savepoint", "resume", "checkpoint"):
        refused = page.get(f"{API}/interventions/{kind}?drain=true")
        assert (refused.status_code, "`drain` belongs to `stop`" in refused.text) == (409, True)


def test_what_was_not_confirmed_or_airflow_would_not_start_is_not_begun(
    idle: World, server: StandIn, page: Page
) -> None:
    assert page.post(DRAIN, form_of(page.get(STOP))).status_code == 409
    assert page.post(STOP, form_of(page.get(DRAIN))).status_code == 409
    server.airflow.paused.add("flights")
    answer = page.get(DRAIN)
    assert (answer.status_code, "The DAG is paused, so a run of it would not start" in answer.text) == (409, True)
    assert page.get(STOP).status_code == 200, "a stop makes no run"
    assert page.get(DRAIN, user=VIEWER).status_code == 403
    assert (idle.coordinator().head().savepoints, server.airflow.runs) == ((), {})


def test_where_airflow_refuses_the_run_the_job_goes_on(idle: World, server: StandIn, page: Page) -> None:
    server.airflow.declines = "the DAG takes no manual runs"  # semantics P2
    answer = page.post(DRAIN, form_of(page.get(DRAIN)))
    assert answer.status_code == 409
    assert "the DAG takes no manual runs. So the stop has failed, and the job goes on." in words(answer.text)
    (entry,) = idle.coordinator().head().savepoints
    assert (entry.status, "Airflow makes no last run" in entry.detail) == (Status.FAILED, True)
    assert standing(idle, entry) == []
    assert idle.run_epoch("b")


def test_a_person_has_the_run_made_where_the_process_ended_before_it(idle: World, server: StandIn) -> None:
    path = cut_short(server)  # semantics P2
    page = polled(server)
    for user in (VIEWER, ADMIN):
        found = page.get(f"/api/v1{path}", user=user).json()
        assert (found["status"], "makes it with Go on" in found["problem"]) == ("IN_PROGRESS", True)
    assert server.airflow.runs == {}, "who asks changes nothing"
    assert page.post(path, "", user=VIEWER).status_code == 403
    server.airflow.declines = "not now"
    assert "The last run has not been made" in words(page.post(path, "").text)
    server.airflow.declines = ""
    assert page.post(path, "").status_code == 303
    assert len(server.airflow.runs) == 1
    assert page.get(f"/api/v1{path}").json()["problem"] is None
    assert run_last(idle, page, path)["failure"] is None
    assert idle.coordinator().head().stopped is Stopped.SHUTDOWN


def test_no_run_is_made_once_the_stop_was_given_up(idle: World, server: StandIn) -> None:
    path = cut_short(server)
    idle.coordinator().resume()
    assert polled(server).post(path, "").status_code == 303
    assert polled(server).get(f"/api/v1{path}").json()["failure"] is not None
    assert server.airflow.runs == {}


def test_a_last_run_that_ended_without_its_checkpoint_fails_the_stop(idle: World, server: StandIn, page: Page) -> None:
    path = drained(page)  # semantics P2
    (run_id,) = server.airflow.runs
    server.airflow.runs[run_id] = "failed"
    before = idle.coordinator().head()
    for address in (path, f"/api/v1{path}"):
        assert "A person who may edit runs gives the stop up with Go on" in page.get(address).text
        assert page.post(address, "", user=VIEWER).status_code == 403
    assert idle.coordinator().head() == before, "who asks changes nothing"
    found = page.post(f"/api/v1{path}", "", **TOKEN).json()
    assert found["status"] == "COMPLETED"
    assert f"the DAG run {run_id} has ended" in found["failure"]["detail"]
    assert "The savepoint was not made. The job goes on." in page.seen(path)
    (entry,) = idle.coordinator().head().savepoints
    assert standing(idle, entry) == []
    assert idle.run_epoch("b")


def test_an_attempt_that_is_under_way_is_not_given_up(idle: World, server: StandIn, page: Page) -> None:
    path = drained(page)
    (run_id,) = server.airflow.runs
    idle.read_days("a", epoch_name(run_id))
    idle.trigger(epoch_name(run_id))
    server.airflow.runs[run_id] = "failed"
    assert page.post(f"/api/v1{path}", "", **TOKEN).json()["status"] == "IN_PROGRESS"
