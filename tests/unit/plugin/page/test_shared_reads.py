"""Readers do not multiply what is asked of a store, and a store that hangs holds up only its own readers."""

import asyncio
from threading import Barrier, Event

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.views.overview import Overview, overview
from airflow_cairn.plugin.page import job_reader
from airflow_cairn.plugin.page.declared_jobs import declared_jobs, spelled
from airflow_cairn.plugin.page.job_reader import REOPENED_S, JobReader, SharedReads
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.storage.port import Blob
from scripts.harness.wait import wait_until
from tests.support.memory_store import MemoryStore
from tests.support.world.world import World
from tests.support.wrapped_stores import RecordingStore, WrappedStore
from tests.unit.plugin.page.stand_in import PATIENCE_S, STORAGE, Page, StandIn, dag_of, one_job


class Now:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Hangs(WrappedStore):
    """Answers no read before it is let go."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.go = Event()

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        assert self.go.wait(300)
        return super().get(key, max_bytes=max_bytes)


def ask(page: Page, path: str, times: int) -> list[int]:
    async def all_at_once() -> list[int]:
        return [each.status_code for each in await asyncio.gather(*(page.ask("GET", path) for _ in range(times)))]

    return asyncio.run(all_at_once())


@pytest.mark.parametrize(
    ("path", "a_look"),
    [
        # The head, and three kinds of markers in the folders of two attempts; on the overview the record of servers
        # too, and the head again before it: who owns the job.
        ("/dags/flights", 9),
        ("/dags/flights/jobs/epoch0.trigger/history", 7),
    ],
)
def test_a_hundred_readers_cost_what_one_costs(busy: World, path: str, a_look: int) -> None:
    store = RecordingStore(busy.memory)
    now = Now()
    page = Page(one_job(store), SharedReads(now, 2.0, PATIENCE_S))
    assert ask(page, path, 1) == [200]
    of_one = store.total
    page, before = Page(one_job(store), SharedReads(now, 2.0, PATIENCE_S)), store.total
    assert ask(page, path, 100) == [200] * 100
    assert store.total - before == of_one
    now.seconds += 1.9
    before = store.total
    assert ask(page, path, 100) == [200] * 100
    assert store.total == before
    now.seconds += 0.1
    assert ask(page, path, 100) == [200] * 100
    assert store.total - before == a_look


def test_what_is_new_is_read(busy: World) -> None:
    now = Now()
    page = Page(one_job(busy.memory), SharedReads(now, 2.0, PATIENCE_S))
    path = "/api/v1/dags/flights/jobs/epoch0.trigger"
    assert page.get(path).json()["stats"]["completed"] == 2
    busy.run_stage("c", "routes", "airports", "report")
    now.seconds += 2
    acks = page.get(path).json()["pending"][0]["checkpoint"]["acks"]
    assert acks == 4
    busy.coordinator().complete(busy.pending_id("c"))
    now.seconds += 2
    assert page.get(path).json()["stats"]["completed"] == 3


def test_a_change_during_a_look_is_seen_by_the_next(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    server = one_job(busy.memory)
    (job,) = declared_jobs(server.dags["flights"])
    reader = JobReader(server.open_store, SharedReads(Now(), 0, PATIENCE_S))
    busy.run_stage("c", "routes", "airports", "report")
    pending = busy.pending_id("c")

    def slow(coordinator: Coordinator) -> Overview:
        found = overview(coordinator)
        busy.coordinator().complete(pending)
        return found

    monkeypatch.setattr(job_reader, "overview", slow)
    assert [asyncio.run(reader.overview(job)).stats.completed for _ in range(2)] == [2, 3]


def test_after_an_act_that_failed_the_job_is_read_anew() -> None:
    """The act may have failed after its swap had landed."""
    shared, values = SharedReads(fresh_s=1_000_000, patience_s=PATIENCE_S), iter(("before", "after"))

    def fail() -> None:
        raise UnavailableError("the store did not answer")

    async def asked() -> list[str]:
        before = await shared.get(STORAGE, "job", lambda _: next(values))
        with pytest.raises(UnavailableError):
            await shared.once(STORAGE, fail)
        return [before, await shared.get(STORAGE, "job", lambda _: next(values))]

    assert asyncio.run(asked()) == ["before", "after"]


def test_a_store_that_hangs_is_told_in_time_and_holds_up_no_other(busy: World) -> None:
    hangs = Hangs()
    dags = [dag_of("flights", (STORAGE, "flights")), dag_of("stuck", ("s3://stuck/cairn", "stuck"))]
    server = StandIn(dags, {STORAGE: busy.memory, "s3://stuck/cairn": hangs})
    page = Page(server, SharedReads(patience_s=0.05, fresh_s=0))
    try:
        assert ask(page, "/dags/stuck", 20) == [504] * 20
        # The reader goes on waiting, and is the only one: the twenty have shared it.
        wait_until(lambda: server.opened, 300, "the reader's thread to begin")
        assert server.opened == [("s3://stuck/cairn", None)]
        patient = Page(server, SharedReads(patience_s=PATIENCE_S))
        assert patient.get("/dags/flights").status_code == 200
        assert "does not answer" in page.get("/dags/stuck").text
    finally:
        hangs.go.set()


def test_sixteen_jobs_of_one_storage_are_read_at_once() -> None:
    """The list reads one head a job: four at a time, a hundred jobs of a store that takes 50 ms took 1.4 s."""
    reads, together = SharedReads(patience_s=PATIENCE_S), Barrier(16)

    async def all_of_them() -> list[int]:
        jobs = range(together.parties)
        return await asyncio.gather(*(reads.get(STORAGE, job, lambda _: together.wait(PATIENCE_S)) for job in jobs))

    assert sorted(asyncio.run(all_of_them())) == list(range(16))


def test_a_job_is_opened_once_and_anew_after_a_while(busy: World) -> None:
    """A connection that was changed since is used then."""
    now, server = Now(), one_job(busy.memory)
    (job,) = declared_jobs(server.dags["flights"])
    reader = JobReader(server.open_store, SharedReads(now, 0, PATIENCE_S), now)
    for _ in range(3):
        asyncio.run(reader.overview(job))
    assert server.opened == [(STORAGE, None)]
    now.seconds += REOPENED_S
    asyncio.run(reader.overview(job))
    assert len(server.opened) == 2


def test_what_was_asked_for_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_reader, "KEPT", 2)
    monkeypatch.setattr(job_reader, "STORAGES", 1)
    shared = SharedReads(fresh_s=1_000_000, patience_s=PATIENCE_S)
    asked: list[str] = []

    async def get(key: str) -> str:
        def read(_: str | None) -> str:
            asked.append(key)
            return key

        return await shared.get(key, key, read)

    async def all_of(keys: str) -> list[str]:
        return [await get(key) for key in keys]

    assert asyncio.run(all_of("abacaba")) == list("abacaba")
    assert "".join(asked) == "abcb"


def test_a_read_that_failed_is_made_again(busy: World) -> None:
    now = Now()
    server = one_job(UnavailableError("connect timeout"))
    page = Page(server, SharedReads(now, 2.0, PATIENCE_S))
    assert page.get("/dags/flights").status_code == 504
    server.stores[STORAGE] = busy.memory
    now.seconds += 2
    assert page.get("/dags/flights").status_code == 200


@pytest.mark.parametrize(
    ("declared", "known_as"),
    [
        ("s3a://lake/cairn/", "s3://lake/cairn"),
        ("file:/lake/cairn", "file:///lake/cairn"),
        ("{{ var.value.lake }}/", "{{ var.value.lake }}/"),
        ("gs://lake", "gs://lake"),
    ],
)
def test_a_storage_is_remembered_under_one_name(declared: str, known_as: str) -> None:
    """However DAGs spell it: what is done by the page of the one is seen on that of the other."""
    (job,) = declared_jobs(dag_of("flights", (declared, "flights")))
    assert job.storage == spelled(declared) == known_as
