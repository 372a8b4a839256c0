"""Savepoints, stops and disposals from a page: begun once, made by whichever process comes by (P1 to P3)."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.plugin.page.declared_jobs import declared_jobs
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.plugin.page.operations import KEPT, Copies
from airflow_cairn.storage.errors import ForbiddenError
from scripts.harness.wait import wait_until
from tests.support.narrowing import known
from tests.support.page_world import busy_world
from tests.support.world.savepoints import TARGET, Below, asked, assert_whole, folder, standing, take
from tests.support.world.world import CONFIG, JOB, World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.plugin.page.stand_in import ONE, STORAGE, VIEWER, Page, StandIn, dag_of, one_job, words

SAVEPOINT, STOP = f"{ONE}/interventions/savepoint", f"{ONE}/interventions/stop"
API = f"/api/v1{ONE}"
TOKEN = {"authorization": "Bearer x", "content_type": "application/json", "sec_fetch_site": ""}


@pytest.fixture
def idle() -> World:
    """A job with two completed checkpoints and a place for savepoints."""
    world = World(config=replace(CONFIG, savepoint_target=TARGET))
    world.clock.now_ms = system_runtime().now_ms() - 60_000
    world.read_days("a", "b", "c")
    world.run_epoch("a", "b")
    return world


def form_of(answer: httpx.Response) -> str:
    """Give the form that a page holds, as a browser sends it."""
    fields = re.findall('name="([a-z]+)" value="([^"]+)"', answer.text)
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields)


def ended(page: Page, address: str) -> dict[str, Any]:
    """Poll an operation until it has ended."""
    found: dict[str, Any] = {}

    def has_ended() -> bool:
        found.update(page.get(address).json())
        return found["status"] == "COMPLETED"

    wait_until(has_ended, 100, "the operation to end")
    return found


def polled(server: StandIn) -> Page:
    """Give a page that looks each time."""
    return Page(server, SharedReads(fresh_s=0, patience_s=300))


@pytest.fixture
def server(idle: World) -> StandIn:
    return one_job(idle.memory)


@pytest.fixture
def page(server: StandIn) -> Page:
    return polled(server)


def test_a_savepoint_says_what_it_will_hold_and_is_made(idle: World, server: StandIn, page: Page) -> None:
    assert SAVEPOINT in page.get(f"{ONE}/savepoints").text  # semantics P1, O1
    asked_for = page.get(SAVEPOINT)
    seen = words(asked_for.text)
    assert "Take a savepoint?" in seen
    assert "The savepoint is made of checkpoint 2, which holds everything up to b" in seen
    assert f"Its files are copied into a new folder below {TARGET}." in seen
    assert idle.coordinator().head().savepoints == ()
    answer = page.post(SAVEPOINT, form_of(asked_for))
    assert answer.status_code == 303
    operation = answer.headers["location"].removeprefix(f"/cairn{ONE}/operations/")
    found = ended(page, f"{API}/operations/{operation}")
    entry = idle.coordinator().head().savepoints[0]
    assert_whole(idle, entry)
    assert (found["kind"], found["actor"], found["location"], found["failure"]) == (
        ("savepoint", "admin", entry.uri, None)
    )
    assert [each[2] for each in server.logged] == ["cairn.savepoint"]
    assert [(each.kind, each.checkpoint) for each in idle.coordinator().head().interventions] == [("savepoint", 3)]
    shown = page.seen(f"{ONE}/operations/{operation}")
    assert "The savepoint is complete, and holds everything up to run b" in shown
    assert "asked for by admin" in shown


def test_a_form_is_for_one_operation(idle: World, server: StandIn, page: Page) -> None:
    form = form_of(page.get(SAVEPOINT))
    for path, sent in ((SAVEPOINT, re.sub("operation=[^&]+", "operation=another", form)), (STOP, form)):
        assert page.post(path, sent).status_code == 409
    assert idle.coordinator().head().savepoints == ()
    for path in (SAVEPOINT, STOP):
        form = form_of(page.get(path))
        assert len({page.post(path, form).headers["location"] for _ in range(2)}) == 1
    assert len(idle.coordinator().head().savepoints) == len(server.logged) == 2


def test_a_program_gets_an_address_to_poll(idle: World, page: Page) -> None:
    """The target is the job's own: the right to edit runs lets nobody write wherever the server's credentials reach."""
    plan = page.get(f"{API}/interventions/savepoint").json()

    def send(**more: str) -> httpx.Response:
        body = json.dumps({"agreed": plan["agreed"], **more})
        return page.post(f"{API}/interventions/savepoint", body, **TOKEN)

    assert send(target="file:///etc").status_code == 422
    answers = [send(operation=plan["operation"]) for _ in range(2)]
    assert [each.status_code for each in answers] == [202, 202]
    (address,) = {each.headers["location"] for each in answers}
    assert address == f"/cairn{API}/operations/{plan['operation']}"
    assert answers[0].json()["status"] in {"IN_PROGRESS", "COMPLETED"}
    assert ended(page, address.removeprefix("/cairn"))["location"].startswith(TARGET)
    assert len(idle.coordinator().head().savepoints) == 1
    assert send().status_code == 202
    assert len(idle.coordinator().head().savepoints) == 2, "each request without an id begins another"


def test_a_stop_holds_the_job_until_the_epoch_has_completed(idle: World, page: Page) -> None:  # semantics P2
    idle.trigger("c")
    asked_for = page.get(STOP)
    seen = words(asked_for.text)
    assert "The savepoint waits until c" in seen
    assert "No other run begins from now on." in seen
    address = page.post(STOP, form_of(asked_for)).headers["location"].removeprefix("/cairn")
    waits = page.get(f"/api/v1{address}").json()
    assert (waits["status"], waits["location"]) == ("IN_PROGRESS", None)
    assert waits["waits_for"].startswith("c (input ")
    assert "You may close this page" in page.seen(address)
    assert page.get(STOP).status_code == 409, "it is being stopped already"
    idle.finish("c")
    assert page.get(f"/api/v1{address}").json()["waits_for"] is None
    another_process = idle.coordinator()
    (entry,) = another_process.savepoints_to_go_on_with()
    another_process.go_on_with_savepoint(entry.request, TARGET, lambda uri: Below(idle.memory, uri))
    assert ended(page, f"/api/v1{address}")["kind"] == "stop"
    assert idle.coordinator().head().stopped is Stopped.SHUTDOWN


def test_an_operation_that_fails_says_why(idle: World, page: Page) -> None:
    idle.trigger("c")
    address = page.post(STOP, form_of(page.get(STOP))).headers["location"].removeprefix("/cairn")
    idle.coordinator().resume()
    found = page.get(f"/api/v1{address}").json()
    assert (found["status"], found["location"]) == ("COMPLETED", None)
    assert "the job was resumed before it had stopped" in found["failure"]["detail"]
    assert "The savepoint was not made. The job goes on." in page.seen(address)


def test_any_process_goes_on_at_a_persons_request(idle: World) -> None:
    """The process of the confirmation has ended: nothing is lost with it. A mere question changes nothing (W10)."""
    entry = idle.coordinator().open_savepoint(
        asked("page-x", timeout=timedelta(hours=1), actor="ada"), lambda uri: Below(idle.memory, uri)
    )
    store = RecordingStore(idle.memory)
    page, path = polled(one_job(store)), f"{ONE}/operations/x"
    for address in (path, f"/api/v1{path}"):
        asked_for = page.get(address)
        assert asked_for.status_code == 200
        assert page.post(address, "", user=VIEWER).status_code == 403
        assert page.post(address, "", sec_fetch_site="cross-site").status_code == 403
    assert "Go on" in page.seen(path)
    assert store.writes == []
    assert page.post(path, "").status_code == 303
    assert ended(page, f"/api/v1{path}")["location"] == entry.uri
    assert_whole(idle, idle.coordinator().head().savepoints[0])
    assert page.post(f"/api/v1{path}", "", **TOKEN).json()["status"] == "COMPLETED", "twice does no harm"
    assert "Go on" not in page.seen(path)


def test_what_stopped_a_process_is_said_and_it_tries_again(idle: World) -> None:
    idle.coordinator().open_savepoint(asked("page-x", actor="ada"), lambda uri: Below(idle.memory, uri))
    server = one_job(ForbiddenError("no right to list", password="hunter2"))
    (job,) = declared_jobs(dag_of("flights", (STORAGE, JOB)))
    copies = Copies(server.open_store)
    for problem in ("no right to list", None):
        thread = known(copies.go_on(job, "x"))
        thread.join(300)
        said = copies.problem(job, "x")
        assert (problem is None) == (said is None)
        assert "hunter2" not in (said or "")
        assert problem is None or problem in (said or "")
        server.stores[STORAGE] = idle.memory
    assert idle.coordinator().head().savepoints[0].status is Status.COMPLETED


def test_a_process_remembers_so_many_of_its_own() -> None:
    (job,) = declared_jobs(dag_of("flights", (STORAGE, JOB)))
    copies = Copies(one_job(ForbiddenError("no right to list")).open_store)
    for number in range(KEPT + 1):
        thread = known(copies.go_on(job, str(number)))
        thread.join(300)
    assert (copies.problem(job, "0"), copies.problem(job, "1")) == (None, "no right to list")


def test_a_savepoint_is_disposed_of(idle: World, server: StandIn, page: Page) -> None:  # semantics P3, O1
    entry = take(idle)
    path = f"{ONE}/interventions/dispose?checkpoint={entry.id}"
    assert path in page.get(f"{ONE}/savepoints").text
    asked_for = page.get(path)
    assert f"Deleted, and cannot come back: {entry.files} files," in words(asked_for.text)
    assert page.post(path, form_of(asked_for)).status_code == 303
    assert standing(idle, entry) == []
    head = idle.coordinator().head()
    assert head.savepoints == ()
    assert [(each.kind, each.actor, each.checkpoint) for each in head.interventions] == [("dispose", "admin", entry.id)]
    assert page.get(path).status_code == 404
    assert [each[2] for each in server.logged] == ["cairn.dispose"]


def test_one_elsewhere_is_not_disposed_of(idle: World, server: StandIn, page: Page) -> None:  # semantics P3, W10
    entry = take(idle, asked(target="s3://theirs"))
    path = f"{ONE}/interventions/dispose?checkpoint={entry.id}"
    assert path not in page.get(f"{ONE}/savepoints").text
    answer = page.get(path)
    assert (answer.status_code, f"type cairn dispose {entry.uri}" in words(answer.text)) == (409, True)
    assert page.post(path, "confirmed=x").status_code == 409
    assert {storage for storage, _ in server.opened} == {STORAGE}
    assert_whole(idle, entry)


def test_one_that_is_needed_or_is_being_made_is_not_disposed_of(idle: World, page: Page) -> None:  # semantics P3
    entry = take(idle)
    for checkpoint in idle.coordinator().head().completed:
        keys = [key for key in idle.memory.all_keys() if key.startswith(f"{JOB}/chk-{checkpoint.id:010}/state/")]
        idle.memory.delete(keys)
    answer = page.get(f"{ONE}/interventions/dispose?checkpoint={entry.id}")
    assert (answer.status_code, "has no other way back" in answer.text) == (409, True)
    waits = idle.coordinator().open_savepoint(asked("x", actor="ada"), lambda uri: Below(idle.memory, uri))
    assert page.get(f"{ONE}/interventions/dispose?checkpoint={waits.id}").status_code == 409
    assert standing(idle, entry) != []
    assert list(folder(idle, waits).list("")) != []


def test_without_a_place_for_savepoints_it_says_what_to_add() -> None:
    world = busy_world(system_runtime().now_ms() - 20_000)
    assert world.config.savepoint_target is None
    answer = polled(one_job(world.memory, target=None)).get(SAVEPOINT)
    assert answer.status_code == 409
    assert "CheckpointConfig(savepoint_target=…)" in answer.text


def test_a_reader_sees_how_far_it_is_and_begins_none(page: Page) -> None:
    address = page.post(SAVEPOINT, form_of(page.get(SAVEPOINT))).headers["location"].removeprefix("/cairn")
    for path in (address, f"/api/v1{address}"):
        assert page.get(path, user=VIEWER).status_code == 200
    for path in (SAVEPOINT, f"{API}/interventions/savepoint"):
        assert page.get(path, user=VIEWER).status_code == 403
        assert page.post(path, "{}", user=VIEWER).status_code == 403
    assert page.get(f"{ONE}/operations/none").status_code == 404
    assert page.get(f"{ONE}/operations/..%2f..").status_code in {404, 422}
