"""Every write of the record of a job's servers, and what can go wrong at it: at most one server serves (V1, W2).

A stage starts a server, the server comes up, renews its lease, takes no more stages and goes. Whatever happens at a
write, the next stage gets one server, at once or after a lease, and no two stages get different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.documents.server_record import KEY, ServersDocument, ServerState
from airflow_cairn.checkpoint.rules.server import LEASE_MS, ClaimAnswer, StartIt, TakeIt
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from tests.support.covering import covering
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect
from tests.support.world.places import CLOUDS, MEMORY, new_store
from tests.support.world.world import Clock
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore

pytestmark = pytest.mark.large


@dataclass
class Machine:
    """A store, a clock, and who uses them."""

    store: ObjectStore
    clock: Clock

    def register(self, store: ObjectStore | None = None) -> ServerRegister:
        return ServerRegister(JobFiles(store or self.store, "flights"), Runtime(self.clock, lambda: "unused"))

    def claim(self, nonce: str, store: ObjectStore | None = None, gone: str = "") -> ClaimAnswer:
        return self.register(store).claim(None, "here", nonce, gone)

    def record(self) -> ServersDocument:
        return JobFiles(self.store, "flights").read(ServersDocument, KEY)[0]


Step = Callable[[Machine, ObjectStore | None], object]


def _renew(it: Machine, store: ObjectStore | None = None) -> object:
    it.clock.now_ms += LEASE_MS // 2
    return it.register(store).renew("first")


STEPS: dict[str, tuple[tuple[str, ...], Step]] = {
    "start": ((), lambda it, store: it.claim("first", store)),
    "come up": (("start",), lambda it, store: it.register(store).come_up("first", 15002)),
    "renew": (("start", "come up"), _renew),
    "replace": (("start", "come up"), lambda it, store: it.claim("second", store, gone="first")),
    "retire": (("start", "come up"), lambda it, store: it.register(store).retire("first")),
    "drop": (("start", "come up", "retire"), lambda it, store: it.register(store).drop("first")),
}
"""Each with those before it."""

OTHERS: dict[str, Callable[[Machine], object] | None] = {
    "nobody": None,
    "another starter": lambda it: it.claim("other"),
    "who found it gone": lambda it: it.claim("other", gone="first"),
    "the server itself": lambda it: it.register().come_up("first", 15002),
}


def prepared(name: str) -> tuple[Machine, Step]:
    before, step = STEPS[name]
    it = Machine(new_store(), Clock())
    for each in before:
        STEPS[each][1](it, None)
    return it, step


def test_each_step_is_one_write() -> None:
    for name in STEPS:
        it, step = prepared(name)
        recording = RecordingStore(it.store)
        step(it, recording)
        assert [str(each) for each in recording.writes] == [
            f"{'create' if name == 'start' else 'replace'} flights/{KEY}"
        ], name


CASES = [*product(STEPS, Fault, OTHERS)]


def _shows(case: tuple[str, str, Fault, str]) -> Iterator[Hashable]:
    """Yield what `make test` shows on the clouds."""
    cloud, name, fault, other = case
    yield from ((cloud, name), (cloud, fault), (cloud, other))


ON_CLOUDS = covering([(cloud, *case) for case in CASES for cloud in CLOUDS], _shows)


@pytest.mark.parametrize(
    ("place", "name", "fault", "other"), [*((MEMORY, *case) for case in CASES), *ON_CLOUDS], indirect=["place"]
)
def test_the_next_stages_get_one_server(place: str, name: str, fault: Fault, other: str) -> None:  # semantics V1, W2
    it, step = prepared(name)
    come = OTHERS[other]
    faulty = FaultyStore(it.store, 0, fault, (lambda: come(it)) if come else None)
    try:
        step(it, faulty)
    except (Crashed, UnavailableError):
        assert fault is not Fault.ANSWER_LOST, "a lost answer is settled by what is there"
    assert faulty.struck
    # No process renews the lease any more: the next stage waits for the rest of it at most.
    it.clock.now_ms += LEASE_MS
    starts = it.claim("third")
    assert isinstance(starts, StartIt)
    it.register().come_up("third", 15003)
    took = it.claim("fourth")
    assert expect(TakeIt, took).entry.nonce == "third"
    serving = [each for each in it.record().servers if each.state is not ServerState.ENDING]
    assert [each.nonce for each in serving] == ["third"]


@pytest.mark.parametrize("name", STEPS)
def test_a_lost_answer_changes_no_answer(name: str) -> None:  # semantics W2
    (one, step), (two, _) = prepared(name), prepared(name)
    assert step(two, FaultyStore(two.store, 0, Fault.ANSWER_LOST)) == step(one, None)
    assert two.record().servers == one.record().servers


def test_two_starters_give_one_server() -> None:  # semantics V1
    it = Machine(MemoryStore(), Clock())
    faulty = FaultyStore(it.store, 0, Fault.ANSWER_LOST, lambda: it.claim("other"))
    first = it.claim("first", faulty)
    answers = [first, it.claim("other")]
    assert [type(each).__name__ for each in answers] == ["StartIt", "WaitForIt"]
    assert len(it.record().servers) == 1


def test_a_server_that_was_replaced_while_it_started_learns_it() -> None:  # semantics V1
    it = Machine(MemoryStore(), Clock())
    it.claim("first")
    it.clock.now_ms += LEASE_MS
    it.claim("second")
    assert it.register().come_up("first", 15002) is None
    assert it.register().renew("first") is None
    assert [each.nonce for each in it.record().servers] == ["second"]


def test_a_record_that_is_gone_is_not_made_anew_by_a_server_that_goes() -> None:
    it = Machine(MemoryStore(), Clock())
    register = it.register()
    register.claim(None, "here", "first")
    it.store.delete([f"flights/{KEY}"])
    register.drop("first")
    assert not [*it.store.list("flights/")]
