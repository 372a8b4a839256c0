"""A server's look at its record and its job, look by look (semantics V1)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.server_record import KEY, ServersDocument, ServerState
from airflow_cairn.checkpoint.rules.server import LEASE_MS, RENEW_MS, Activity, Limits, StartIt, TakeIt
from airflow_cairn.spark.remote import session_driver
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.spark.remote.server import ServerTask
from airflow_cairn.spark.remote.session_driver import SILENCE_MS, ServerLife
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.storage.open import open_store
from airflow_cairn.storage.port import ObjectStore
from tests.support.shut_down import shut_down
from tests.support.world.world import World
from tests.support.wrapped_stores import T, WrappedStore

IDLE_MS = 600_000


class Mute(WrappedStore):
    """A store that does not answer while a test says so."""

    mute = False

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if self.mute:
            raise UnavailableError("nothing answers")
        self.asked.append(f"{verb} {key}")
        return call()

    _write = _read


@dataclass
class Server:
    """A server that is up, on the store and the clock of a world."""

    world: World
    store: Mute
    activity: Activity = field(default_factory=lambda: Activity(1, 1, 0, 0, 0))
    told: list[bool] = field(default_factory=list)
    """At each look, whether the server takes no more stages."""
    heads: list[Head] = field(default_factory=list)
    """Heads by which the sessions of executions that are over were to be closed."""

    def register(self, store: ObjectStore | None = None) -> ServerRegister:
        coordinator = self.world.coordinator(store or self.world.store)
        return ServerRegister(coordinator.files, Runtime(self.world.clock, lambda: "unused"))

    def life(self) -> ServerLife:
        limits = Limits(idle_ms=IDLE_MS, max_age_ms=10**9, max_sessions=10)
        task = ServerTask("file:///x", "flights", "first", limits, "/x")
        coordinator = self.world.coordinator(self.store)
        return ServerLife(task, coordinator, self.register(self.store), self.look, self.heads.append, self.world.clock)

    def look(self, *, ends: bool) -> Activity:
        self.told.append(ends)
        return self.activity

    def wait(self, ms: int) -> None:
        self.world.clock.now_ms += ms

    def states(self) -> dict[str, ServerState]:
        record, _ = self.world.coordinator().files.read(ServersDocument, KEY)
        return {each.nonce: each.state for each in record.servers}


@pytest.fixture
def server(world: World) -> Server:
    world.run_epoch("e1")
    it = Server(world, Mute(world.store))
    it.register().claim(None, "here", "first")
    it.register().come_up("first", 15002)
    return it


def test_it_renews_its_lease_while_it_serves(server: Server) -> None:
    life = server.life()
    for _ in range(10):
        server.wait(RENEW_MS)
        assert life.goes_on()
    assert isinstance(server.register().claim(None, "here", "second"), TakeIt)
    server.wait(LEASE_MS)
    assert isinstance(server.register().claim(None, "here", "second"), StartIt), "no stage looks any more"


@pytest.mark.parametrize(("waits_ms", "verbs"), [(1, ["get"]), (RENEW_MS, ["get", "replace"])])
def test_a_look_reads_the_record_once_and_so_does_one_that_renews(
    server: Server, waits_ms: int, verbs: list[str]
) -> None:
    life = server.life()
    assert life.goes_on()
    server.store.asked.clear()
    server.wait(waits_ms)
    assert life.goes_on()
    asked = (each.split("_")[0] for each in server.store.asked if each.endswith(f" flights/{KEY}"))
    assert [each.split(" ")[0] for each in asked] == verbs


def test_an_idle_one_first_takes_no_more_stages_and_ends_at_the_next_look(server: Server) -> None:
    life = server.life()
    server.activity = Activity(0, 1, IDLE_MS, 0, 0)
    assert life.goes_on()
    assert server.states() == {"first": ServerState.ENDING}
    assert not life.goes_on()
    assert life.why == "no stage has used it for 600 seconds"
    assert server.told == [False, True]


def test_one_that_was_replaced_goes_on_until_its_last_session_is_released(server: Server) -> None:
    life = server.life()
    server.register().claim(None, "here", "second", gone="first")
    for _ in range(3):
        assert life.goes_on()
    server.activity = replace(server.activity, open_sessions=0)
    assert not life.goes_on()
    assert life.why == "another server has replaced it"
    assert list(server.states()) == ["second"]


def test_each_look_closes_what_is_over_while_a_session_is_open(server: Server) -> None:  # semantics V2
    life = server.life()
    assert life.goes_on()
    server.register().claim(None, "here", "second", gone="first")
    assert life.goes_on()
    assert life.goes_on(), "it takes no more stages, and waits for the last session"
    assert [head.revision for head in server.heads] == [server.world.coordinator().head().revision] * 3
    server.activity = replace(server.activity, open_sessions=0)
    life.goes_on()
    assert len(server.heads) == 3


def test_it_ends_with_its_job(server: Server) -> None:
    life = server.life()
    shut_down(server.world.coordinator())
    server.activity = replace(server.activity, open_sessions=0)
    assert life.goes_on()
    assert not life.goes_on()
    assert life.why == "its job was drained or stopped"


def test_it_ends_with_the_jobs_folder_and_does_not_make_it_anew(server: Server) -> None:
    life = server.life()
    store = server.world.store
    store.delete([each.key for each in store.list("flights/")])
    server.wait(RENEW_MS)
    server.activity = replace(server.activity, open_sessions=0)
    assert not life.goes_on()
    assert life.why == "its job is not there any more"
    assert not [*store.list("flights/")]


def test_a_store_that_does_not_answer_ends_it_only_after_ten_minutes(server: Server) -> None:
    life = server.life()
    server.store.mute = True
    server.activity = replace(server.activity, open_sessions=0)
    for _ in range(SILENCE_MS // RENEW_MS - 1):
        server.wait(RENEW_MS)
        assert life.goes_on()
    server.store.mute = False
    assert life.goes_on(), "and it goes on where the store answers again"
    server.store.mute = True
    server.wait(SILENCE_MS)
    assert not life.goes_on()
    assert life.why == "the store has not answered for ten minutes"


@pytest.mark.parametrize("is_up", [False, True])
def test_a_server_failing_before_it_is_up_leaves_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool
) -> None:
    """Without it that stage would find its server replaced, before it sees `spark-submit` end, and start another."""

    given: list[Any] = []

    def breaks(*args: Any) -> None:
        given.extend(args)
        if is_up:
            register.come_up("first", 15002)
            args[-1].set()
        raise ValueError("there is no such plugin")

    monkeypatch.setattr(session_driver, "_serve", breaks)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    storage = tmp_path.as_uri()
    register = ServerRegister(Coordinator(open_store(storage), "flights").files, system_runtime())
    register.claim(None, "here", "first")
    task = ServerTask(storage, "flights", "first", Limits(IDLE_MS, 10**9, 10), str(tmp_path / "server"))
    with pytest.raises(ValueError, match="no such plugin"):
        session_driver.main(task.to_json())
    given[-1].set()  # ends the thread that keeps the lease
    found = register.find("first")
    assert (found and found.state) == (None if is_up else ServerState.STARTING)
