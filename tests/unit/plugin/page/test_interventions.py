"""Interventions from a page: their plan, the rights that they need, and their record (semantics O1)."""

import asyncio
import re
from collections.abc import Callable
from threading import Event
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.plugin.interventions.acts import plan_rewind
from airflow_cairn.plugin.interventions.plan import InterventionRefusedError
from airflow_cairn.plugin.page import intervention_routes
from airflow_cairn.plugin.page.intervention_routes import Confirmations
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.storage.port import ObjectStore
from scripts.harness.wait import wait_until
from tests.support.narrowing import known
from tests.support.page_world import busy_world
from tests.support.shut_down import shut_down
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import WrappedStore
from tests.unit.plugin.page.stand_in import NARROW, ONE, STORAGE, VIEWER, Page, StandIn, dag_of, one_job, words

T = TypeVar("T")
REWIND = f"{ONE}/interventions/rewind?checkpoint=1"
GIVE_UP = f"{ONE}/interventions/give-up?checkpoint=4"
RESUME = f"{ONE}/interventions/resume"


@pytest.fixture
def busy() -> World:
    """A job whose pending checkpoint has not expired: a plan settles what has (semantics D2)."""
    return busy_world(system_runtime().now_ms() - 20_000)


class Slow(WrappedStore):
    """Writes nothing before it is told to."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.go = Event()

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        assert self.go.wait(300)
        return call()


def confirmed_by(answer: httpx.Response) -> str:
    """Give the form that the page holds, as a browser sends it."""
    (text,) = re.findall('name="confirmed" value="([^"]+)"', answer.text)
    return f"confirmed={quote(text, safe='')}"


def done(world: World) -> list[tuple[str, str, int | None]]:
    return [(each.kind, each.actor, each.checkpoint) for each in world.coordinator().head().interventions]


@pytest.mark.parametrize(
    ("mode", "rows", "said"),
    [("append", 12, "append, 12 rows"), ("branch", 0, "branch"), ("unknown", None, "its metadata is unreadable")],
)
def test_a_rewind_says_what_becomes_of_tables(busy: World, mode: str, rows: int | None, said: str) -> None:
    change = {"checkpoint": 2, "table": "orders", "mode": mode, "rows": rows, "rolls_back": False, "give_up": None}
    plan = plan_rewind(busy.coordinator().head(), busy.coordinator().rewind_plan(1), [change])
    assert any(each.startswith(f"Checkpoint 2 and the table orders, {said}: it stays") for each in plan.effects)


def test_a_rewind_says_what_it_undoes_and_does_that(busy: World) -> None:  # semantics R5
    server = one_job(busy.memory)
    server.airflow.notes["b"] = "Ana: looked at"
    page = Page(server, base="/air")
    assert f'href="/air/cairn{REWIND}"' in page.get(f"{ONE}/checkpoints/1").text
    asked = page.get(REWIND)
    seen = words(asked.text)
    assert "Go back to checkpoint 1?" in seen
    assert "Undone: 2. Their files are deleted." in seen
    assert "To be run again, in this order: b (input 2026-01-02 to 2026-01-03)." in seen
    assert "Pending, and ended: 4; after the others, run again c (input 2026-01-03 to 2026-01-04)." in seen
    assert done(busy) == []
    answer = page.post(REWIND, confirmed_by(asked))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/air/cairn{ONE}")
    assert done(busy) == [("rewind", "admin", 1)]
    assert busy.coordinator().head().latest_id() == 1
    ((user, dag_id, event, facts),) = server.logged
    assert (user, dag_id, event, facts["job"], facts["checkpoint"]) == ("admin", "flights", "cairn.rewind", JOB, 1)
    assert "went back" in page.seen(f"{ONE}/failovers"), "what was remembered of the job is read anew"
    undone = "undone: `admin` took the job back to checkpoint 1 · clear this run to read its input again"
    assert server.airflow.notes == {"b": f"Ana: looked at\n\nCairn: {JOB}: {undone}"}


def test_nobody_who_looks_at_the_job_waits_for_the_notes(busy: World) -> None:
    """Airflow's API may take seconds for each run, of which there are up to twenty."""
    server = one_job(busy.memory)
    page = Page(server, SharedReads(fresh_s=1_000_000, patience_s=300))
    form = confirmed_by(page.get(REWIND))
    seen: list[str] = []

    class Notes(dict[str, str]):
        def __setitem__(self, run_id: str, note: str) -> None:
            """Have somebody look while a note is written."""
            super().__setitem__(run_id, note)
            seen.append(page.seen(f"{ONE}/failovers"))

    server.airflow.notes = Notes(b="Ana: looked at")
    assert page.post(REWIND, form).status_code == 303
    assert server.airflow.notes.keys() == {"b"}
    assert len(seen) == 1
    assert "went back" in seen[0]


def test_an_attempt_is_given_up(busy: World, page: Page) -> None:  # semantics D3
    assert GIVE_UP in page.get(f"{ONE}/checkpoints/4").text
    asked = page.get(GIVE_UP)
    assert "Attempt 2 of c (input 2026-01-03 to 2026-01-04) ends as failed." in words(asked.text)
    assert "The next try of a stage has the task that triggers run again" in words(asked.text)
    assert page.post(GIVE_UP, confirmed_by(asked)).status_code == 303
    assert done(busy) == [("give-up", "admin", 4)]
    ended = known(busy.coordinator().head().ended_by_id(4))
    assert (ended.reason, ended.detail) == ("CHECKPOINT_COORDINATOR_SUSPEND", "admin gave it up")
    busy.trigger("c")
    assert busy.pending_id("c") == 5, "as the page has said"


def test_a_job_goes_on(busy: World, page: Page) -> None:  # semantics S1
    shut_down(busy.coordinator())
    assert RESUME in page.get(ONE).text
    asked = page.get(RESUME)
    assert "The job is shut down. It takes requests again. The next run restores checkpoint 2." in words(asked.text)
    assert page.post(RESUME, confirmed_by(asked)).status_code == 303
    assert busy.coordinator().head().stopped is None
    assert RESUME not in page.get(ONE).text
    assert page.get(RESUME).status_code == 409


def test_what_takes_too_long_goes_on(busy: World) -> None:
    """The page says so, and does not blame the storage alone: Airflow's own API may be slow."""
    slow = Slow(busy.memory)
    server = StandIn([dag_of("flights", (STORAGE, JOB))], {STORAGE: slow})
    form = confirmed_by(Page(server).get(REWIND))
    try:
        answer = Page(server, SharedReads(patience_s=0.05)).post(REWIND, form)
        assert answer.status_code == 504
        seen = words(answer.text)
        assert "own API, has not answered in time. What you have confirmed goes on." in seen
        assert done(busy) == []
    finally:
        slow.go.set()
    wait_until(lambda: done(busy), 300, "the rewind to be done")
    assert done(busy) == [("rewind", "admin", 1)]


@pytest.mark.parametrize("path", [REWIND, f"/api/v1{REWIND}"])
def test_who_may_only_read_gets_neither_plan_nor_act(busy: World, path: str) -> None:
    server = StandIn([dag_of("flights", (STORAGE, JOB)), dag_of("other", (STORAGE, JOB))], {STORAGE: busy.memory})
    page = Page(server)
    form = confirmed_by(page.get(REWIND))
    for user, where in ((VIEWER, path), (NARROW, path.replace("/flights/", "/other/")), (None, path)):
        assert page.get(where, user=user).status_code == (401 if user is None else 403)
        assert page.post(where, form, user=user).status_code == (401 if user is None else 403)
    assert done(busy) == []
    assert server.logged == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", ""])
def test_another_sites_request_does_nothing(busy: World, site: str, server: StandIn, page: Page) -> None:
    form = confirmed_by(page.get(REWIND))
    answer = page.post(REWIND, form, sec_fetch_site=site)
    assert answer.status_code == 403
    assert "may be forged" in answer.text
    agreed = page.get(f"/api/v1{REWIND}").json()["agreed"]
    body = f'{{"checkpoint": 1, "agreed": "{agreed}"}}'
    path = f"/api/v1{REWIND}".partition("?")[0]
    assert page.post(path, body, sec_fetch_site=site, content_type="application/json").status_code == 403
    assert (done(busy), server.logged) == ([], [])


@pytest.mark.parametrize(("origin", "status"), [("http://airflow", 303), ("http://evil", 403), ("null", 403)])
def test_over_plain_http_the_origin_decides(busy: World, page: Page, origin: str, status: int) -> None:
    """Browsers send `Sec-Fetch-Site` only to what they trust, and always the origin."""
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": origin}
    asked = page.get(REWIND)
    answer = asyncio.run(page.ask("POST", REWIND, "admin", confirmed_by(asked), **headers))
    assert answer.status_code == status
    assert bool(done(busy)) == (status == 303)


def test_a_confirmation_is_for_one_person_one_job_and_one_act(busy: World) -> None:
    server = StandIn([dag_of("flights", (STORAGE, JOB)), dag_of("two", (STORAGE, JOB))], {STORAGE: busy.memory})
    page = Page(server)
    form = confirmed_by(page.get(REWIND))
    for path, body, user in (
        (REWIND, form, NARROW),
        (REWIND.replace("/flights/", "/two/"), form, "admin"),
        (GIVE_UP, form, "admin"),
        (REWIND, form[:-2], "admin"),
        (REWIND, "", "admin"),
        (REWIND, f"{form}&filler={'x' * 20_000}", "admin"),
    ):
        assert page.post(path, body, user=user).status_code == 409, (path, body[:40])
    assert (done(busy), server.logged) == ([], [])


def test_a_confirmation_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = Confirmations("secret")
    text = signs.sign(["ada"])
    signs.check(text, ["ada"])
    with pytest.raises(InterventionRefusedError, match="too old"):
        Confirmations("another deployment's").check(text, ["ada"])
    monkeypatch.setattr(intervention_routes, "VALID_S", -1)
    with pytest.raises(InterventionRefusedError, match="too old"):
        signs.check(text, ["ada"])


def test_a_job_that_has_changed_since_is_left_alone(busy: World, server: StandIn, page: Page) -> None:
    form = confirmed_by(page.get(REWIND))
    busy.coordinator().abort(4, Reason.CHECKPOINT_EXPIRED, "too slow")
    answer = page.post(REWIND, form)
    assert answer.status_code == 409
    assert "The job has changed since you looked, so nothing was done." in answer.text
    assert (done(busy), server.logged) == ([], [])


def test_a_program_agrees_to_the_plan_that_it_was_given(busy: World, page: Page) -> None:
    path = f"/api/v1{ONE}/interventions/rewind"
    plan: dict[str, Any] = page.get(f"{path}?checkpoint=1").json()
    assert plan["effects"][1] == "Undone: 2. Their files are deleted."

    def send(body: str, **headers: str) -> httpx.Response:
        return page.post(path, body, **{"content_type": "application/json", "sec_fetch_site": "", **headers})

    body = f'{{"checkpoint": 1, "agreed": "{plan["agreed"]}"}}'
    assert send(body).status_code == 403, "a cookie alone"
    token = {"authorization": "Bearer x"}
    assert send(body.replace(plan["agreed"], "0" * 32), **token).status_code == 409
    assert send('{"checkpoint": 1}', **token).status_code == 422
    assert send(body, **token, content_type="text/plain").status_code == 422
    assert done(busy) == []
    answer = send(body, **token)
    assert (answer.status_code, answer.json()["effects"]) == (200, plan["effects"])
    assert done(busy) == [("rewind", "admin", 1)]
    assert send(body, **token).status_code == 409, "it is there already"


def test_a_refusal_says_why_and_leads_back_to_the_job(busy: World) -> None:
    page = Page(one_job(busy.memory), base="/air")
    back = f'<a href="/air/cairn{ONE}">Back to the job</a>'
    rewind = f"{ONE}/interventions/rewind"
    for answer in (*map(page.get, (rewind, f"{rewind}?checkpoint=2", RESUME)), page.post(REWIND, "confirmed=x")):
        assert (answer.status_code, back in answer.text, "Nothing was done" in answer.text) == (409, True, True)
    form = confirmed_by(page.get(REWIND))
    busy.files.delete([page.get(f"/api/v1{ONE}/checkpoints/1/files").json()["files"][0]["path"]])
    damaged = page.post(REWIND, form)  # semantics R1
    assert (damaged.status_code, back in damaged.text) == (404, True)
    assert "the checkpoint is damaged" in damaged.text
    assert done(busy) == []
    for path, user in ((REWIND.replace(ONE, f"{ONE}x"), "admin"), (REWIND, VIEWER)):
        answer = page.get(path, user=user)
        assert (answer.status_code in (403, 404), "Back to the job" in answer.text) == (True, False)


def test_what_is_offered_can_be_done(page: Page) -> None:
    for path in (f"{ONE}/checkpoints/2", f"{ONE}/checkpoints/3"):
        assert "/interventions/" not in page.get(path).text
    assert re.findall(r"/interventions/([a-z-]+)", page.get(ONE).text) == ["checkpoint"]
    assert page.get(f"{ONE}/interventions/give-up?checkpoint=3").status_code == 404
    assert page.get(f"{ONE}/interventions/delete").status_code == 422
