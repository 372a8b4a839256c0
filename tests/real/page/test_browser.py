"""The pages in a real Chromium: hostile texts, widths and colours, Airflow's frame, no JavaScript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from html import escape
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest
import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from airflow_cairn.checkpoint import FixedDelayRestart, system_runtime
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE
from airflow_cairn.hooks.airflow_api import AirflowApiHook
from airflow_cairn.plugin.drawings.stage_progress import TaskTry
from airflow_cairn.plugin.page.app import create_app
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from scripts.harness.ports import free_port
from scripts.harness.wait import wait_until
from tests.support import jobs
from tests.support.browser import found_by
from tests.support.memory_store import MemoryStore
from tests.support.page_world import busy_world
from tests.support.world.savepoints import Below, asked
from tests.support.world.world import CONFIG, JOB, World
from tests.support.wrapped_stores import WrappedStore
from tests.unit.cli.test_state import STAGE, job, keep, parquet
from tests.unit.plugin.page.stand_in import ADMIN, PATIENCE_S, STORAGE, StandIn, dag_of
from tests.unit.plugin.page.test_hostile import PAYLOADS

T = TypeVar("T")
SCRIPT = Path(__file__).parent / "browser.mjs"
ONE = "/cairn/dags/flights/jobs/epoch0.trigger"
STALE = "Not up to date since TIME: "
FRAME = """<!doctype html><html class="dark"><base href="/"><iframe width="1200" height="800"
sandbox="allow-scripts allow-same-origin allow-forms allow-downloads" src="cairn/dags/flights"></iframe></html>"""
"""As Airflow's UI shows an external view."""


class SignedIn(StandIn):
    """A server whose every reader is an admin: a browser sends no header of ours."""

    signed_in = staticmethod(lambda: ADMIN)
    may_read = staticmethod(lambda dag_id: None)
    may_edit = staticmethod(lambda dag_id: None)
    edits = staticmethod(lambda dag_id: True)

    def api(self, request: Request) -> AirflowApiHook:
        return self.hook(self.airflow.app, "", ADMIN, asyncio.get_running_loop())


class InTrouble(SignedIn):
    """A server whose requests fail as it is told."""

    def __init__(self, dags: list[dict[str, Any]], stores: dict[str, Any]) -> None:
        super().__init__(dags, stores)
        self.trouble = "none"
        self.signed_in = self._signed_in
        self.may_read = self._may_read

    def _signed_in(self) -> str:
        if self.trouble == "ended":
            raise HTTPException(401, "Not authenticated")
        return ADMIN

    def _may_read(self, dag_id: str) -> None:
        if self.trouble == "refused":
            raise HTTPException(403, "Forbidden")


class AwayStore(WrappedStore):
    """A store that is away as its server is told.

    Args:
        inner: the store.
        server: says whether it is away.
    """

    def __init__(self, inner: ObjectStore, server: InTrouble) -> None:
        super().__init__(inner)
        self._server = server

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if self._server.trouble == "away":
            raise UnavailableError("connect timeout")
        return call()


@contextmanager
def served(server: StandIn, world: World | None = None) -> Iterator[str]:
    """Serve the app on loopback; gives its address. `/step` lets the pending checkpoint of a world complete."""
    whole = FastAPI()

    @whole.get("/", response_class=HTMLResponse)
    def outer() -> str:
        return FRAME

    @whole.post("/step")
    def step() -> dict[str, Any]:
        assert world is not None
        epoch = world.coordinator().head().pending[0].epoch
        for stage in ("routes", "airports", "report"):
            world.run_stage(epoch, stage)
        world.coordinator().complete(world.pending_id(epoch))
        return {}

    @whole.post("/trouble/{kind}")
    def trouble(kind: str) -> dict[str, Any]:
        assert isinstance(server, InTrouble)
        server.trouble = kind
        return {}

    @whole.get("/forged", response_class=HTMLResponse)
    def forged(action: str, confirmed: str) -> str:
        field = f'<input name="confirmed" value="{escape(confirmed)}">'
        return f'<form method="post" action="{escape(action)}">{field}<button>Win a prize</button></form>'

    whole.mount("/cairn", create_app(server, SharedReads(fresh_s=0, patience_s=PATIENCE_S)))
    port = free_port()
    running = uvicorn.Server(uvicorn.Config(whole, host="127.0.0.1", port=port, log_level="warning"))
    thread = Thread(target=running.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: running.started, 60, "the app to be served")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(60)


@pytest.fixture
def half_way() -> World:
    """A completed checkpoint, and one that waits for three stages."""
    world = World()
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    return world


def hostile(payload: str) -> World:
    """Give a job in which this text stands wherever others write: runs, reasons, actors, folders."""
    world = World(config=replace(CONFIG, savepoint_target="s3://lake/savepoints"))
    first, failed = (layout.epoch_name(f"manual__{payload}{n}") for n in "12")
    world.run_epoch("a")
    world.run_epoch(first)
    world.trigger(failed)
    world.run_stage(failed, "clean")
    routes = world.submit(failed, "routes").handover
    world.coordinator().fail(failed, "routes", routes.claimant, payload)
    world.decline(world.submit(failed, "routes").handover, payload)
    request = asked("page-of-this-test", actor=payload)
    world.coordinator().open_savepoint(request, lambda uri: Below(world.memory, uri))
    return world


def with_rows() -> World:
    """Give a job with a state whose columns have these texts as their names, and as their values."""
    rows, columns = job(), {"k": ["x"], **{payload: [payload] for payload in PAYLOADS}}
    schema = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    keep(rows, "a", parquet(columns), schema=json.dumps({"type": "struct", "fields": schema}))
    return rows


@pytest.mark.soak  # tests/unit/plugin/page/test_hostile.py reads each page with each text
@pytest.mark.parametrize("every", [False, True], ids=["some", "each on each page"])
def test_no_script_of_others_runs(every: bool) -> None:
    dags, stores, paths = [dag_of("rows", ("s3://rows", JOB))], {"s3://rows": with_rows().memory}, ["/cairn/"]
    paths += [f"/cairn/dags/rows/jobs/{JOB}{each}" for each in ("/state", ROWS)]
    for number, payload in enumerate(PAYLOADS):
        stores[f"s3://s{number}"] = hostile(payload).memory
        # The names of the stages of `t…`, and so of their tasks, end with the text; a stored stage's cannot.
        drawn = dag_of(f"t{number}", (f"s3://s{number}", JOB), suffix=payload)
        dags += [dag_of(f"d{number}", (f"s3://s{number}", JOB)), drawn, dag_of(payload, (f"s3://x{payload}", payload))]
        pages = [
            f"d{number}",
            *(f"d{number}/jobs/{JOB}{each}" for each in HOSTILE),
            f"t{number}/jobs/{JOB}/checkpoints/3",
        ]
        paths += [f"/cairn/dags/{page}" for at, page in enumerate(pages) if every or at % 7 == number % 7]
    server = SignedIn(dags, stores)
    server.airflow.failed = [f"epoch.routes{payload}" for payload in PAYLOADS]
    with served(server) as base:
        found = found_by(SCRIPT, "walk", base, *paths)
    assert found["bad"] == []
    assert found["pages"] == len(paths)


ROWS = f"/checkpoints/1/rows?stage={STAGE}&name=totals"
PAGES = (
    *("/history", "/summary", "/failovers", "/state", "/doctor", "/configuration"),
    *("/checkpoints/2", "/checkpoints/3", "/checkpoints/1/files"),
)
HOSTILE = (
    *PAGES,
    *("/checkpoints/4", "/savepoints", "/operations/of-this-test", "/interventions/rewind?checkpoint=1"),
    "/interventions/clear?checkpoint=4&stage=routes",
)
PLANS = tuple(f"/interventions/{each}" for each in ("rewind?checkpoint=1", "savepoint", "stop", "checkpoint"))


@pytest.mark.soak  # each page at each width; the tests below open most of them
def test_every_page_fits_every_width_and_axe_finds_nothing() -> None:
    busy = busy_world(savepoint_target="s3://lake/savepoints")
    request = asked("page-of-this-test", actor=ADMIN)
    busy.coordinator().open_savepoint(request, lambda uri: Below(busy.memory, uri))
    ServerRegister(busy.coordinator().files, system_runtime()).claim(None, ANYWHERE, "of-this-test")
    wide = jobs.wide(MemoryStore(), 12)
    jobs.run(wide, "manual__1", 40)
    rows = job()
    keep(rows, "a", parquet({"k": ["A-B" * 40, "B-C"], "v": ["password=hunter2", None]}))
    dags = [
        dag_of("flights", (STORAGE, JOB)),
        dag_of("wide", ("s3://wide", JOB)),
        dag_of("rows", ("s3://rows", JOB)),
        dag_of("templated", ("{{ x }}", "j")),
        dag_of("plain"),
        dag_of("new", ("s3://new", "new")),
        dag_of("away", ("s3://away", "away")),
    ]
    stores: dict[str, Any] = {
        STORAGE: busy.memory,
        "s3://wide": wide.memory,
        "s3://rows": rows.memory,
        "s3://new": MemoryStore(),
        "s3://away": UnavailableError("connect timeout"),
    }
    paths = [
        "/cairn/",
        *(f"/cairn/dags/{dag['dag']['dag_id']}" for dag in dags),
        f"{ONE}/savepoints",
        f"{ONE}/operations/of-this-test",
    ]
    paths += [*(f"{ONE}{page}" for page in PAGES), "/cairn/dags/wide/jobs/flights/checkpoints/1"]
    paths += [f"/cairn/dags/rows/jobs/flights{ROWS}"]
    paths += [f"{ONE}{plan}" for plan in (*PLANS, "/interventions/clear?checkpoint=3&stage=routes")]
    server = SignedIn(dags, stores)
    server.airflow.failed = ["epoch.routes"]
    with served(server) as base:
        found = found_by(SCRIPT, "faces", base, *paths)
    assert found == {"looks": len(paths) * 3, "bad": []}


def test_in_airflows_frame_it_follows_and_leads(half_way: World) -> None:
    with served(SignedIn([dag_of("flights", (STORAGE, JOB))], {STORAGE: half_way.memory}), half_way) as base:
        found = found_by(SCRIPT, "frame", base)
    assert [found["dark"], found["light"]] == [["dark", "rgb(17, 17, 19)"], ["light", "rgb(255, 255, 255)"]]
    # The world's clock stands at 22:13:20 in UTC.
    shown, hover = found["time"]
    new_york, tokyo = "Nov 14, 2023, 5:13:20 PM EST", "Nov 15, 2023, 7:13:20 AM GMT+9"
    assert (" ".join(shown.split()), hover) == (new_york, "2023-11-14 22:13:20Z")
    assert found["zones"] == {
        '"Asia/Tokyo"': tokyo,
        '"UTC"': "Nov 14, 2023, 10:13:20 PM UTC",
        **dict.fromkeys(('"No/Such_Zone"', "no JSON", "7", "null"), new_york),
        "errors": [],
    }
    assert found["link"] == ["/dags/flights", 1, 1], "Airflow's router went there, its page was not loaded anew"
    assert found["live"] == [2, False], "nor was ours, and what is new has local times too"


def test_an_open_page_says_why_it_is_not_up_to_date(half_way: World) -> None:
    server = InTrouble([dag_of("flights", (STORAGE, JOB))], {})
    server.stores[STORAGE] = AwayStore(half_way.memory, server)
    with served(server, half_way) as base:
        found = found_by(SCRIPT, "stale", base, "ended", "away", "refused")
    away = "The storage does not answer. Reload this page in a minute."
    refused = "You may not do this. Ask an administrator of this Airflow for the right to read, or to edit, DAG runs."
    bars = 4  # of the checkpoint that is shown all the time
    assert found["troubles"] == {
        "ended": [f"{STALE}Your session has ended. Reload Airflow and sign in.", bars],
        "away": [f"{STALE}{away}", bars],
        "refused": [f"{STALE}{refused}", bars],
        "unreachable": [f"{STALE}Airflow does not answer. This page goes on when it does.", bars],
    }
    news = "there is news, which is shown when you leave what you have selected, opened or focused."
    assert found["inUse"] == [f"{STALE}{news}", bars]
    assert [found["first"], found["last"]] == ["", ""]


@pytest.mark.parametrize(
    ("path", "drawn"),
    [("/cairn/", 1), (ONE, 1), (f"{ONE}/checkpoints/3", 1)],
    ids=["how long a run takes", "when the next try begins", "how long a stage runs"],
)
def test_what_goes_on_by_itself_is_no_news(path: str, drawn: int) -> None:
    """Spans of time, and the bars that are drawn of them: who has the page in use reads no word of news."""
    world = World(config=replace(CONFIG, restart_strategy=FixedDelayRestart(3, delay=timedelta(minutes=5))))
    world.clock.now_ms = now_ms = system_runtime().now_ms() - 120_000
    world.trigger("a")
    world.clock.advance(timedelta(minutes=5))
    world.settle("a")
    world.clock.now_ms = now_ms
    world.trigger("b")
    world.coordinator().fail("b", "clean", world.submit("b", "clean").handover.claimant, "ValueError: bad row")
    world.submit("b", "clean")
    server = SignedIn([dag_of("flights", (STORAGE, JOB))], {STORAGE: world.memory})
    server.tried = [TaskTry("b", "epoch.clean", -1, 2, "running", now_ms + 1_000, None)]
    with served(server) as base:
        assert found_by(SCRIPT, "counting", base, path) == {"said": "", "drawn": drawn}


def test_without_javascript_it_is_whole(half_way: World) -> None:
    with served(SignedIn([dag_of("flights", (STORAGE, JOB))], {STORAGE: half_way.memory})) as base:
        found = found_by(SCRIPT, "plain", base)
    assert found == {"rows": 1, "heading": "Checkpoint 1 completed", "address": f"{ONE}/checkpoints/1"}


def test_a_person_confirms_and_another_site_cannot() -> None:
    world = busy_world(system_runtime().now_ms() - 20_000)
    server = SignedIn([dag_of("flights", (STORAGE, JOB))], {STORAGE: world.memory})
    with served(server) as base:
        found = found_by(SCRIPT, "confirm", base, base.replace("127.0.0.1", "foreign.test"))
    assert found == {
        "asked": "Go back to checkpoint 1?",
        "address": f"{ONE}/interventions/rewind?checkpoint=1",
        "forged": 403,
        "ends": ONE,
    }
    assert [each.actor for each in world.coordinator().head().interventions] == [ADMIN]
    assert len(server.logged) == 1


def test_the_keyboard_alone_leads_from_the_overview_to_a_confirmation() -> None:
    world = busy_world(system_runtime().now_ms() - 20_000)
    server = SignedIn([dag_of("flights", (STORAGE, JOB))], {STORAGE: world.memory})
    way = ("History", "status=completed", "Show", "1", "Go back to this checkpoint …", "Go back to checkpoint 1")
    with served(server) as base:
        found = found_by(SCRIPT, "keys", base, *way)
    assert (found["first"], found["skipped"], found["unseen"]) == ("Skip to the content", True, [])
    assert found["addresses"] == [
        f"{ONE}/history",
        f"{ONE}/history?status=COMPLETED&run=",
        f"{ONE}/checkpoints/1",
        f"{ONE}/interventions/rewind?checkpoint=1",
        ONE,
    ]
    assert [each.actor for each in world.coordinator().head().interventions] == [ADMIN]
