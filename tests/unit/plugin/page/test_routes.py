"""Every route there is: who may ask it, under which headers it answers, and that none is missing from the walk."""

from datetime import timedelta

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount

from airflow_cairn.checkpoint.documents.entries import InterventionKind
from airflow_cairn.plugin.interventions.plan import RunKind
from airflow_cairn.plugin.page.job_reader import SharedReads
from tests.support.world.savepoints import Below, asked
from tests.support.world.world import World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.plugin.page.stand_in import ADMIN, NARROW, STORAGE, VIEWER, Page, StandIn, dag_of, one_job

WITH = {
    "dag_id": "flights",
    "job": "epoch0.trigger",
    "checkpoint": "1",
    "name": "cairn.css",
    "kind": "rewind",
    "operation": "of-this-test",
}


@pytest.fixture
def page(busy: World) -> Page:
    busy.coordinator().open_savepoint(asked("page-of-this-test", actor=ADMIN), lambda uri: Below(busy.memory, uri))
    return Page(
        StandIn(
            [dag_of("flights", (STORAGE, "flights")), dag_of("other", (STORAGE, "flights"))], {STORAGE: busy.memory}
        )
    )


def routed(page: Page, method: str, **values: str) -> list[str]:
    """Give the path of each route of a method with values in it."""
    routes = [route for route in page.app.routes if isinstance(route, APIRoute)]
    assert len(routes) == len(page.app.routes) > 12  # a mounted folder would skip the app's dependencies
    assert {name for route in routes for name in route.methods} == {"GET", "POST"}
    return [route.path.format(**{**WITH, **values}) for route in routes if method in route.methods]


def paths(page: Page, **values: str) -> list[str]:
    """Give the path of each route that a reader of runs may ask, with values in it."""
    return [path for path in routed(page, "GET", **values) if "/interventions/" not in path and "/rows" not in path]


def test_without_a_user_every_route_answers_401(page: Page) -> None:
    for path in routed(page, "GET"):
        assert page.get(path, user=None).status_code == 401, path
    for path in routed(page, "POST"):
        assert page.post(path, "", user=None).status_code == 401, path


def test_a_reader_of_one_dag_is_refused_the_other(page: Page) -> None:
    of_dag = [path for path in paths(page, dag_id="other") if "/other" in path]
    assert len(of_dag) >= 10
    for path in of_dag:
        assert page.get(path, user=NARROW).status_code == 403, path
        assert page.get(path, user=ADMIN).status_code == 200, path
    assert page.get("/dags/other/jobs/no-such-job", user=NARROW).status_code == 403


def test_lists_hold_what_the_reader_may_read(page: Page) -> None:
    found = page.get("/api/v1/dags", user=NARROW).json()
    assert [dag["dag_id"] for dag in found["dags"]] == ["flights"]
    assert [dag["dag_id"] for dag in page.get("/api/v1/dags").json()["dags"]] == ["flights", "other"]
    assert "other" not in page.get("/", user=NARROW).text
    assert "/dags/other/jobs/" in page.get("/").text


def test_every_answer_has_the_headers(page: Page) -> None:
    for path in [*paths(page), "/nothing", "/dags/none"]:
        for user in (ADMIN, None):
            answer = page.get(path, user=user)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_whatever_changes_a_job_requires_the_right_to_edit(page: Page) -> None:
    asks = [path for path in routed(page, "GET") if "/interventions/" in path]
    operations = [path for path in routed(page, "GET") if "/operations/" in path]
    assert sorted([*asks, *operations]) == sorted(routed(page, "POST"))
    for path in operations:
        assert page.post(path, "", user=VIEWER).status_code == 403, path
    for path in asks:
        assert page.get(path, user=VIEWER).status_code == 403, path
        assert page.post(path, "", user=VIEWER).status_code == 403, path
        assert page.get(path).status_code == 409, path
    for path in paths(page):
        assert page.get(path, user=VIEWER).status_code == 200, path


def test_a_look_changes_nothing(busy: World) -> None:  # semantics W10
    for number, stop in enumerate((False, True)):
        busy.coordinator().open_savepoint(
            asked(f"page-{number}", actor=ADMIN, stop=stop, timeout=timedelta(hours=1)),
            lambda uri: Below(busy.memory, uri),
        )
    store, server = RecordingStore(busy.memory), one_job(busy.memory)
    server.stores[STORAGE] = store
    page = Page(server, SharedReads(fresh_s=0, patience_s=300))
    before = {key: busy.memory.get(key).data for key in busy.memory.all_keys()}
    for kind in (*InterventionKind, *RunKind):
        for operation in ("0", "1"):
            for path in routed(page, "GET", kind=kind, operation=operation, checkpoint="2"):
                page.get(path)
    assert store.requests.total() > 20
    assert (store.writes, server.airflow.runs, server.airflow.cleared) == ([], {}, [])
    assert {key: busy.memory.get(key).data for key in busy.memory.all_keys()} == before


@pytest.mark.parametrize(
    ("dag_id", "deployment", "asks"), [("flights", "", "other"), ("flights", "https://staging.example.com", "flights")]
)
def test_a_job_is_seen_and_changed_through_its_owner_alone(
    page: Page, busy: World, dag_id: str, deployment: str, asks: str
) -> None:  # semantics W8
    """Rights are asked for the DAG in the address, and any DAG may declare any job"""
    busy.coordinator().ownership.adopt(dag_id, deployment, abort_pending=True)
    before = busy.coordinator().head()
    declared = ("/configuration", f"/api/v1/dags/{asks}/jobs", "/api/v1/dags", "/static/cairn.css")
    of_job = [path for path in routed(page, "GET", dag_id=asks) if f"/dags/{asks}" in path]
    seen = [path for path in of_job if not path.endswith(declared) or not path.startswith("/api/")]
    assert len(seen) >= 20
    for path in seen:
        answer = page.get(f"{path}?checkpoint=1&stage=routes&name=totals")
        assert answer.status_code == 403, path
        assert f"cairn adopt flights --dag {asks} --storage {STORAGE}" in answer.text, path
    body = '{"agreed": "' + "0" * 32 + '", "checkpoint": 1}'
    for path in routed(page, "POST", dag_id=asks):
        sent = body if path.startswith("/api/") else "confirmed=x&operation=y"
        kind = "application/json" if path.startswith("/api/") else "application/x-www-form-urlencoded"
        answer = page.post(f"{path}?checkpoint=1", sent, content_type=kind)
        assert (answer.status_code, "cairn adopt" in answer.text) == (403, True), path
    assert busy.coordinator().head() == before
    if not deployment:
        assert page.get(f"/dags/{dag_id}").status_code == 200


def test_below_a_base_path_all_links_lie_below_it(busy: World) -> None:
    page = Page(one_job(busy.memory), base="/team/airflow")
    for path in ("/", "/dags/flights", "/dags/flights/jobs/epoch0.trigger/history", "/dags/none"):
        text = page.get(path).text
        links = [part.split('"')[0] for part in text.replace('src="', 'href="').split('href="')[1:]]
        inside = [link for link in links if link != "#main"]
        assert inside
        assert all(link.startswith(("/team/airflow/cairn/", "/team/airflow/dags/")) for link in inside), links


@pytest.mark.parametrize("name", ["app.py", "..%2fapp.py", "%2e%2e%2fapp.py", ".", "cairn.css.map", "%00.css"])
def test_no_other_file_is_given(page: Page, name: str) -> None:
    assert page.get(f"/static/{name}").status_code == 404


def test_files_have_their_types(page: Page) -> None:
    kinds = {
        name: page.get(f"/static/{name}").headers["content-type"] for name in ("cairn.js", "cairn.css", "icon.svg")
    }
    assert kinds["cairn.js"].startswith("text/javascript")
    assert kinds["cairn.css"].startswith("text/css")
    assert kinds["icon.svg"].startswith("image/svg+xml")


def test_the_description_names_every_route_of_the_interface(page: Page) -> None:
    described = page.get("/api/v1/openapi.json").json()["paths"]
    assert set(described) == {path for route in page.app.routes if "/api/" in (path := getattr(route, "path", ""))}
    assert not [route for route in page.app.routes if isinstance(route, Mount)]
