"""The pages in Airflow's own UI, below a prefix: its tabs, and all that a person may have a job do, by REST too.

The API server is a real one, below a prefix, and so are its users, database and UI. No other part of Airflow runs: the
runs that people make stay queued, and the tests' world plays their stages in the store.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.entries import InterventionKind, Stopped
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.plugin.interventions.plan import RunKind
from airflow_cairn.plugin.interventions.runs import run_of
from airflow_cairn.storage import open_store
from scripts.harness.airflow_home import USERNAME, AirflowHome
from scripts.harness.wait import wait_until
from tests.support.browser import Browser, open_browser
from tests.support.people import program, signed_in
from tests.support.tabs import expected_in_the_ui, seen_in_the_ui
from tests.support.world.world import CONFIG, World

pytestmark = [
    pytest.mark.timeout(1200),  # on a machine as busy as can be
    # In `make test` test_api_server.py asks Airflow for each route's right, tests/real/airflow/test_page.py has a job
    # drained and resumed, and tests/unit/plugin/page/ does each act.
    pytest.mark.soak,
]

HERE = Path(__file__).parent
LOOKS = "looks"
PREFIX = "/team/airflow"
DAG, STAGE = "flights", "routes"
COMPLETED = "COMPLETED"
JOB = f"/dags/{DAG}/jobs/{DAG}"

BEGIN = frozenset({"checkpoint", "savepoint", "stop"})
"""Acts that begin an operation."""
OF_PAGE = {"accept": "text/html", "sec-fetch-site": "same-origin"}
"""Headers of a browser's request that a page of Airflow's own address sends."""


@dataclass(frozen=True)
class Act:
    """Act that a person wants."""

    kind: str
    tab: str = ""
    """The page of the job on which it is offered."""
    checkpoint: int | None = None
    stage: str = ""
    drain: bool = False

    @property
    def about(self) -> dict[str, Any]:
        """Object of the act, as REST has it."""
        about: dict[str, Any] = {} if self.checkpoint is None else {"checkpoint": self.checkpoint}
        return about | ({"stage": self.stage} if self.stage else {}) | ({"drain": True} if self.drain else {})

    @property
    def address(self) -> str:
        """Address of the act, below the job's interventions."""
        return f"{self.kind}?{httpx.QueryParams(self.about)}" if self.about else self.kind


@dataclass(frozen=True)
class People:
    """A person who may edit the DAG's runs and another who may look, each with a program of theirs."""

    airflow: AirflowHome
    world: World
    browser: Browser
    admin: httpx.Client
    editor: httpx.Client
    """The program of the admin."""
    viewer: httpx.Client
    reader: httpx.Client
    """The program of the viewer."""
    nobody: httpx.Client

    def by_rest(self, act: Act) -> dict[str, Any]:
        """Be refused all that is to be refused, then have a program do it; gives the answer."""
        path, plan = self._planned(act)
        self._refused(act, plan)
        agreed = {**act.about, "agreed": plan["agreed"]}
        agreed |= {"operation": plan["operation"]} if act.kind in BEGIN else {}
        answers = [self.editor.post(path, json=agreed) for _ in range(2 if act.kind in BEGIN else 1)]
        wanted = 202 if act.kind in BEGIN else 200
        assert {each.status_code for each in answers} == {wanted}, [each.text for each in answers]
        if act.kind in BEGIN:
            place = answers[0].headers["location"].removeprefix(f"{PREFIX}/cairn")
            assert self.editor.get(place).json()["operation"] == plan["operation"]
        return dict(answers[0].json())

    def asked(self, act: Act) -> dict[str, Any]:
        """Be refused as a viewer, then open what an admin is asked before it is done; gives that."""
        _, plan = self._planned(act)
        refused = self.browser.ask("look", user=LOOKS, tab=act.tab, act=act.address)
        assert refused["heading"] == "You may not do this"
        self.browser.ask("look", user=USERNAME, tab=act.tab, act=act.address)
        spoilt = self.browser.ask("press", user=USERNAME, spoilt=True)
        assert (spoilt["heading"], "too old to be confirmed" in spoilt["text"]) == ("Nothing was done", True)
        found = self.browser.ask("look", user=USERNAME, tab=act.tab, act=act.address)
        assert all(effect in found["text"] for effect in plan["effects"]), (found, plan)
        return found

    def pressed(self) -> str:
        """Have the admin press the button; gives the address of the page that comes, below the job's."""
        return str(self.browser.ask("press", user=USERNAME, spoilt=False)["address"])

    def by_page(self, act: Act) -> str:
        """Have the admin do it by the page."""
        self.asked(act)
        return self.pressed()

    def not_now(self, *acts: Act, status: int = 409) -> None:
        """Be told that the job's state does not allow it, by REST and by the page."""
        for act in acts:
            before = self._seen()
            path = f"{JOB}/interventions/{act.kind}"
            sent = {**act.about, "agreed": "x" * 32}
            for answer in (
                self.editor.get(f"/api/v1{path}", params=act.about),
                self.editor.post(f"/api/v1{path}", json=sent),
                self.admin.get(path, params=act.about, headers=OF_PAGE),
                self.admin.post(path, params=act.about, data={"confirmed": "x"}, headers=OF_PAGE),
            ):
                assert answer.status_code == status, (act, answer.request.method, answer.text)
            assert self._seen() == before, act

    def _planned(self, act: Act) -> tuple[str, dict[str, Any]]:
        path = f"/api/v1{JOB}/interventions/{act.kind}"
        plan = self.editor.get(path, params=act.about).raise_for_status().json()
        assert (plan["kind"], plan["checkpoint"]) == (act.kind, act.checkpoint)
        return path, plan

    def _refused(self, act: Act, plan: dict[str, Any]) -> None:
        """Be refused as a viewer, signed out, from another site, and with a confirmation of something else."""
        before = self._seen()
        page, rest = f"{JOB}/interventions/{act.kind}", f"/api/v1{JOB}/interventions/{act.kind}"
        sent = {**act.about, "agreed": plan["agreed"]}
        form = {"confirmed": "x", "operation": "of-no-form"}
        for who, status in ((self.viewer, 403), (self.nobody, 401)):
            assert who.get(page, params=act.about, headers=OF_PAGE).status_code == status
            assert who.post(page, params=act.about, data=form, headers=OF_PAGE).status_code == status
        for who, status in ((self.reader, 403), (self.nobody, 401)):
            assert who.get(rest, params=act.about).status_code == status
            assert who.post(rest, json=sent).status_code == status
        for other in ({}, {"sec-fetch-site": "cross-site"}, {"origin": "http://elsewhere.test"}):
            assert self.admin.post(page, params=act.about, data=form, headers=other).status_code == 403
            assert self.admin.post(rest, json=sent, headers=other).status_code == 403, "a cookie alone"
        assert self.admin.post(page, params=act.about, data=form, headers=OF_PAGE).status_code == 409
        assert self.admin.post(page, params=act.about, headers=OF_PAGE).status_code == 409
        assert self.editor.post(rest, json={**sent, "agreed": "0" * 32}).status_code == 409
        assert self.editor.post(rest, json=act.about).status_code == 422
        assert self._seen() == before

    def _seen(self) -> tuple[int, int]:
        """Give what changes with whatever is done: the head's revision, and how often the audit log has ours."""
        return self.world.coordinator().head().revision, sum(logged(self.airflow).values())

    def fails(self, run: str) -> None:
        """Let a stage's task of a run have failed, as far as Airflow knows."""
        path = f"/dags/{DAG}/dagRuns/{run}/taskInstances/epoch.{STAGE}"
        self.airflow.api.request("PATCH", path, json={"new_state": "failed"})

    def cleared(self, run: str) -> bool:
        """Tell whether that task is to run again, with a word of who wants it."""
        task = self.airflow.api.task(DAG, run, f"epoch.{STAGE}")
        return task.state is None and f"asked for by `{USERNAME}`" in (task.raw["note"] or "")

    def ended(self, address: str) -> dict[str, Any]:
        """Wait until an operation has ended, and see that it has not failed."""
        found: dict[str, Any] = {}

        def ended() -> bool:
            found.update(self.editor.get(f"/api/v1{JOB}{address}").raise_for_status().json())
            return bool(found["status"] == COMPLETED)

        wait_until(ended, 600, f"{address} to end", details=lambda: f"{found}", interval=1)
        assert found["failure"] is None, found
        return found


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """An API server with the job, and those who have signed in, the persons in one browser."""
    folder = tmp_path_factory.mktemp("acts")
    storage = f"file://{folder / 'store'}"
    config = replace(CONFIG, retained=3, timeout=timedelta(hours=2), savepoint_target=f"{storage}-savepoints")
    world = World(open_store(storage), config)
    world.clock.now_ms = system_runtime().now_ms()
    env = {"CAIRN_TEST_STORAGE": storage}
    home = AirflowHome(folder / "airflow", env=env, users={LOOKS: "viewer"}, only=["api-server"], prefix=PREFIX)
    shutil.copytree(HERE / "dags", home.dags_folder, dirs_exist_ok=True)
    with home as airflow, ExitStack() as stack:
        airflow.command("dags", "reserialize")
        assert airflow.api.import_errors() == []
        airflow.api.unpause(DAG)
        browser = stack.enter_context(open_browser(HERE / "acts.mjs", airflow.url, DAG))
        persons = [stack.enter_context(signed_in(airflow, user)) for user in (USERNAME, LOOKS, None)]
        programs = [stack.enter_context(program(airflow, user)) for user in (USERNAME, LOOKS)]
        for user in (USERNAME, LOOKS):
            browser.ask("sign-in", user=user, password=airflow.passwords[user])
        yield People(airflow, world, browser, persons[0], programs[0], persons[1], programs[1], persons[2])


def logged(airflow: AirflowHome) -> Counter[tuple[str, str]]:
    """Count what Airflow's audit log has of ours about the DAG, by who and what."""
    ours = [f"cairn.{kind}" for kind in (*InterventionKind, *RunKind)]
    written = airflow.api.request("GET", "/eventLogs", params={"dag_id": DAG, "included_events": ours, "limit": 100})
    assert written["total_entries"] < 100
    return Counter((each["owner"], each["event"]) for each in written["event_logs"])


def test_each_act_by_rest_and_by_the_page_and_its_refusal(people: People) -> None:
    world, head = people.world, lambda: people.world.coordinator().head()
    people.not_now(Act("savepoint"), Act("stop"), Act("resume"), Act("rewind"))
    absent = [Act(kind, checkpoint=1, stage=stage) for kind, stage in (("give-up", ""), ("clear", STAGE))]
    people.not_now(*absent, Act("dispose", checkpoint=1), Act("rewind", checkpoint=1), status=404)

    # Checkpoint now: by REST, then by the page.
    first = people.by_rest(Act("checkpoint"))
    world.run_epoch(layout.epoch_name(first["run_id"]))
    assert people.ended(f"/operations/{first['operation']}")["checkpoint"] == 1
    run = run_of(people.asked(Act("checkpoint"))["operation"])
    assert people.pressed() == f"/history?run={run}"
    assert {each["dag_run_id"] for each in people.airflow.api.runs(DAG)} == {first["run_id"], run}

    # Give up an attempt, and clear the region of its stage.
    epoch = layout.epoch_name(run)
    people.not_now(Act("rewind", checkpoint=1))
    for checkpoint in (2, 3):
        world.trigger(epoch)
        world.run_stage(epoch, "clean")
        assert world.pending_id(epoch) == checkpoint
        people.not_now(Act("clear", checkpoint=checkpoint, stage=STAGE))
        give_up = Act("give-up", f"/checkpoints/{checkpoint}", checkpoint)
        assert people.by_rest(give_up) if checkpoint == 2 else people.by_page(give_up) == ""
        people.fails(run)
        clear = Act("clear", f"/checkpoints/{checkpoint}", checkpoint, STAGE)
        assert people.by_rest(clear) if checkpoint == 2 else people.by_page(clear) == f"/checkpoints/{checkpoint}"
        assert people.cleared(run)
    assert world.run_epoch(epoch) == 4
    people.not_now(Act("give-up", checkpoint=4), status=404)
    assert world.run_epoch("third") == 5

    # Take savepoints, stop and go on.
    one = people.ended(f"/operations/{people.by_rest(Act('savepoint'))['operation']}")
    two = people.ended(people.by_page(Act("savepoint", "/savepoints")))
    kept = people.ended(f"/operations/{people.by_rest(Act('stop'))['operation']}")
    assert head().stopped is Stopped.SHUTDOWN
    people.not_now(Act("checkpoint"), Act("stop"))
    people.by_rest(Act("resume"))
    assert head().stopped is None
    last = people.ended(people.by_page(Act("stop", "/savepoints")))
    assert head().stopped is Stopped.SHUTDOWN
    assert people.by_page(Act("resume")) == ""
    assert head().stopped is None
    people.not_now(Act("resume"))

    # Dispose of two, and go back twice.
    ids = {each.uri: each.id for each in head().savepoints}
    people.by_rest(Act("dispose", checkpoint=ids[one["location"]]))
    assert people.by_page(Act("dispose", "/savepoints", ids[two["location"]])) == ""
    people.not_now(Act("dispose", checkpoint=ids[one["location"]]), status=404)
    assert {each.uri for each in head().savepoints} == {kept["location"], last["location"]}
    people.not_now(Act("rewind", checkpoint=5))
    people.by_rest(Act("rewind", checkpoint=4))
    assert people.by_page(Act("rewind", "/checkpoints/1", 1)) == ""
    assert head().latest_id() == 1

    # Drain: the stop waits for one more run.
    place = people.by_page(Act("stop", "/savepoints", drain=True))
    last_run = people.editor.get(f"/api/v1{JOB}{place}").raise_for_status().json()["last_run"]
    assert (head().stopped, people.airflow.api.run_state(DAG, last_run)) == (None, "queued")
    drained = world.run_epoch(layout.epoch_name(last_run))
    # No task ends this epoch, so a person has the API server go on; a look changes nothing (semantics W10).
    assert people.reader.post(f"/api/v1{JOB}{place}").status_code == 403
    people.editor.post(f"/api/v1{JOB}{place}").raise_for_status()
    taken = integrity.load(open_store(people.ended(place)["location"]))
    assert taken.source.checkpoint == drained
    assert head().stopped is Stopped.SHUTDOWN
    people.by_rest(Act("resume"))

    in_head = ("give-up", "give-up", "savepoint", "savepoint", "stop", "resume", "stop", "resume", "dispose", "dispose")
    kinds = [(each.kind, each.actor) for each in head().interventions]
    assert kinds == [(kind, USERNAME) for kind in (*in_head, "rewind", "rewind", "stop", "resume")]
    written = Counter({(USERNAME, f"cairn.{kind}"): 2 for kind in ("checkpoint", "clear")}) + Counter(
        (who, f"cairn.{kind}") for kind, who in kinds
    )
    assert logged(people.airflow) == written


def test_the_tabs_open_below_a_prefix(people: People) -> None:
    run = "looked-at"
    people.airflow.api.trigger(DAG, run)
    people.world.run_epoch(layout.epoch_name(run))
    seen = seen_in_the_ui(people.airflow, DAG, run, "epoch.clean", LOOKS)
    assert seen == expected_in_the_ui(DAG, LOOKS, prefix=PREFIX)
