"""The REST interface sends the documents that the command prints: both are made in one layer (semantics O1, O2)."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE
from airflow_cairn.cli.main import main
from airflow_cairn.plugin.page.responses import API
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import Runtime
from tests.support import jobs
from tests.support.page_world import busy_world
from tests.support.world.savepoints import Below, asked
from tests.support.world.world import JOB
from tests.unit.plugin.page.stand_in import ADMIN, Page, StandIn, dag_of

ONE = "/dags/{dag_id}/jobs/{job}"
SAME = {
    f"{ONE}/checkpoints": ("?limit=2", ["checkpoints", "--limit", "2"]),
    f"{ONE}/checkpoints/{{checkpoint}}": ("", ["show", "4", "--subtasks", "20", "--limit", "100"]),
    f"{ONE}/savepoints": ("", ["savepoints"]),
    f"{ONE}/servers": ("", ["servers"]),
    f"{ONE}/doctor": ("", ["doctor", "--read-only"]),
    ONE: ("", ["stats"]),
}
"""Query of each route, and the words of its command."""
PART = {f"{ONE}/servers": ("servers", "servers"), ONE: ("stats", None)}
"""Routes compared in part: the route's key, and that of the command's output (None: all that it prints)."""
OWN = {"/dags", "/jobs", "/dags/{dag_id}/jobs", "/openapi.json"} | {
    f"{ONE}/{rest}"
    for rest in (
        "configuration",
        *(f"checkpoints/{{checkpoint}}/{each}" for each in ("states", "rows", "files")),
        *("interventions/{kind}", "operations/{operation}"),
    )
}
"""Routes whose document no command prints."""


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A storage with a job that has all there is: checkpoints of each status, a savepoint, servers, damage."""
    now = system_runtime().now_ms()
    world = busy_world(now - 20_000, "s3://lake/savepoints")
    world.coordinator().open_savepoint(asked("page-of-this-test", actor=ADMIN), lambda uri: Below(world.memory, uri))
    register = ServerRegister(world.coordinator().files, Runtime(lambda: now, world.new_token))
    register.claim("a", ANYWHERE, "of_a_run")
    register.claim(None, ANYWHERE, "of_all")
    register.come_up("of_all", 15002, "worker-1")
    lost = next(key for key in sorted(world.referred()) if "/state" in key)
    world.memory.delete([f"{JOB}/{lost}"])
    return jobs.dump(world.memory, tmp_path)


def page_of(stored: str) -> Page:
    return Page(StandIn([dag_of("flights", (stored, JOB))], {stored: open_store(stored)}))


def test_every_route_is_compared_or_has_no_command(stored: str) -> None:
    paths = {each.path for each in page_of(stored).app.routes if isinstance(each, APIRoute)}
    assert {path.removeprefix(API) for path in paths if path.startswith(API)} == {*SAME, *OWN}


@pytest.mark.parametrize("route", SAME)
def test_a_route_sends_what_the_command_prints(stored: str, route: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked_for, (verb, *words) = SAME[route]
    path = route.format(dag_id="flights", job=JOB, checkpoint=4)
    sent: dict[str, Any] = page_of(stored).get(f"{API}{path}{asked_for}").json()
    about = {name: sent.pop(name) for name in ("dag_id", "storage")}
    assert about == {"dag_id": "flights", "storage": stored}
    assert main([verb, JOB, *words, "--storage", stored, "--json"]) in (0, 1)
    printed = json.loads(capsys.readouterr().out)
    if route in PART:
        of_route, of_command = PART[route]
        assert sent["job"] == JOB
        sent, printed = sent[of_route], printed if of_command is None else printed[of_command]
    elif "job" not in printed:
        assert sent.pop("job") == JOB
    if verb == "doctor":
        assert sent.pop("at_ms") > 0
        printed["passed"].remove("pyspark")  # of the machine at which the command is typed
    assert printed
    assert sent == printed
