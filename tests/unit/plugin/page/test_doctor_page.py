"""The doctor's findings about a job, as a page and by REST: no write, and one look for all readers."""

import asyncio

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.plugin.page.declared_jobs import declared_jobs
from airflow_cairn.plugin.page.job_reader import EXAMINED_S, JobReader, SharedReads
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import known
from tests.support.page_world import busy_world
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.plugin.page.stand_in import NARROW, ONE, PATIENCE_S, STORAGE, VIEWER, Page, one_job, words

DOCTOR = f"{ONE}/doctor"


@pytest.fixture
def well() -> World:
    """A job with completed checkpoints and one that is in progress, now."""
    return busy_world(system_runtime().now_ms() - 20_000)


def fresh(store: MemoryStore) -> Page:
    """Give a page each of whose readers may look anew."""
    return Page(one_job(store), SharedReads(fresh_s=0, patience_s=PATIENCE_S))


def lost(world: World) -> str:
    """Lose the metadata of the newest completed checkpoint, and give its id as the page says it."""
    latest = known(world.coordinator().head().latest_completed())
    world.memory.delete([f"{JOB}/{latest.metadata.key}"])
    return f"checkpoint {latest.id} of {JOB}"


def test_a_healthy_job_has_no_findings(well: World) -> None:
    page = fresh(well.memory)
    found = page.get(f"/api/v1{DOCTOR}", user=VIEWER).json()
    assert (found["healthy"], found["findings"]) == (True, [])
    assert {"storage", f"{JOB}: files", f"{JOB}: head"} <= set(found["passed"])
    assert {each["check"] for each in found["skipped"]} >= {"rights", "conditional writes"}
    seen = page.seen(DOCTOR, user=VIEWER)
    assert "Nothing is wrong, as far as it was looked at." in seen
    assert "rights: nothing was to be written" in seen


def test_what_is_wrong_is_said_with_what_mends_it(well: World) -> None:
    subject = lost(well)
    page = fresh(well.memory)
    found = page.get(f"/api/v1{DOCTOR}").json()
    (damage,) = [each for each in found["findings"] if each["name"] == "checkpoint-damaged"]
    assert (damage["severity"], damage["subject"]) == ("error", subject)
    answer = page.get(DOCTOR)
    assert answer.status_code == 200
    seen = words(answer.text)
    assert f"Error {subject} : {damage['what']}" in seen
    assert "`" in damage["mend"]
    assert "`" not in seen
    mends = seen.partition("to mend it")[2].partition("finding")[0]
    assert mends.split() == damage["mend"].replace("`", " ").split()


def test_it_writes_nothing_and_looks_once_a_minute(well: World) -> None:
    store, server = RecordingStore(well.memory), one_job(well.memory)
    server.stores = {STORAGE: store}
    now = [0.0]
    reader = JobReader(server.open_store, SharedReads(fresh_s=0, patience_s=PATIENCE_S), lambda: now[0])
    (job,) = declared_jobs(server.dags["flights"])

    def looked() -> int:
        before = store.total
        assert asyncio.run(reader.examined(job)).found.healthy
        return store.total - before

    assert looked() > 0
    assert [looked() for _ in range(20)] == [0] * 20, "a page that stays open does not examine each five seconds"
    now[0] += EXAMINED_S
    assert looked() > 0
    assert store.writes == []


def test_of_another_job_it_says_nothing(well: World) -> None:
    """The storage has more jobs than the reader may see."""
    well.memory.create("salaries/head.json", b"no JSON")
    page = fresh(well.memory)
    for path in (DOCTOR, f"/api/v1{DOCTOR}"):
        assert "salaries" not in page.get(path, user=NARROW).text
    others = MemoryStore()
    others.create("salaries/head.json", b"no JSON")
    answer = fresh(others).get(DOCTOR)
    assert answer.status_code == 404
    assert "salaries" not in answer.text


def test_a_secret_in_a_finding_is_masked(well: World) -> None:
    well.memory.put(f"{JOB}/chk-notes/password=hunter2", b"x")
    page = fresh(well.memory)
    (finding,) = page.get(f"/api/v1{DOCTOR}").json()["findings"]
    assert finding["name"] == "foreign-files"
    for path in (DOCTOR, f"/api/v1{DOCTOR}"):
        assert "hunter2" not in page.get(path).text
