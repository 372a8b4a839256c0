"""The loop that swaps the head: which version is fresh enough, and what comes before each swap (semantics W2)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.head import WRITE_LOG, Head, InvariantError
from airflow_cairn.checkpoint.store.head_store import Decision, HeadStore
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import ObjectStore, UnavailableError
from airflow_cairn.storage.clock import Runtime
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore


class Job:
    """A job of which two processes know the head; the store counts what the first one asks."""

    def __init__(self) -> None:
        self.world = World()
        self.store = RecordingStore(self.world.store)
        self.swapped: list[int] = []
        runtime = Runtime(self.world.clock, self.world.new_token)
        self.heads = HeadStore(JobFiles(self.store, JOB), runtime, self._before)
        self.other = HeadStore(self.world.files, runtime, lambda old, new, now_ms: new)
        self.heads.ensure()
        self.store.requests.clear()
        self.swapped.clear()

    def _before(self, old: Head, new: Head, now_ms: int) -> Head:
        self.swapped.append(old.revision)
        return new


def counted(head: Head, now_ms: int) -> Decision[int]:
    """Change something, and say which version it was decided on."""
    return Decision(head.revision, replace(head, forgotten=head.forgotten + 1))


def seen(head: Head, now_ms: int) -> Decision[int]:
    """Change nothing, and say which version was seen."""
    return Decision(head.revision)


@pytest.fixture
def job() -> Job:
    """A job whose head is at revision 1."""
    return Job()


def test_what_is_changed_needs_no_fresh_version(job: Job) -> None:  # semantics W2
    assert job.heads.update(counted, known=True)[1] == 1
    assert job.store.requests == {"replace": 1}


def test_what_lands_on_no_outdated_version_is_decided_anew(job: Job) -> None:  # semantics W2
    job.other.update(counted)
    head, decided_on = job.heads.update(counted, known=True)
    assert (decided_on, head.forgotten) == (2, 2)


def test_what_changes_nothing_counts_on_a_version_read_in_the_call(job: Job) -> None:  # semantics W2
    job.other.update(counted)
    assert job.heads.update(seen, known=True)[1] == 2


def test_what_fails_on_an_outdated_version_is_decided_anew(job: Job) -> None:  # semantics W2
    def fails_on_the_first(head: Head, now_ms: int) -> Decision[int]:
        if head.revision == 1:
            raise UnavailableError("what it refers to is gone")
        return Decision(head.revision)

    with pytest.raises(UnavailableError):
        job.heads.update(fails_on_the_first)
    job.other.update(counted)
    assert job.heads.update(fails_on_the_first, known=True)[1] == 2


def test_what_comes_before_a_swap_is_done_for_each_version(job: Job) -> None:  # semantics W2
    job.other.update(counted)
    job.heads.update(counted, known=True)
    assert job.swapped == [1, 2]


def test_what_fails_before_a_swap_swaps_nothing(job: Job) -> None:  # semantics W2
    def refuses(old: Head, new: Head, now_ms: int) -> Head:
        raise InvariantError("it must not follow")

    runtime = Runtime(job.world.clock, job.world.new_token)
    with pytest.raises(InvariantError):
        HeadStore(JobFiles(job.store, JOB), runtime, refuses).update(counted)
    assert job.heads.load().revision == 1


class Told:
    """Two processes that write one head, and every swap that either of them was told of, as (from, to)."""

    def __init__(self) -> None:
        self.world = World()
        self.swaps: list[tuple[int, int]] = []
        self.process().ensure()

    def process(self, store: ObjectStore | None = None) -> HeadStore:
        """Give a process' own view of the head."""
        return HeadStore(
            JobFiles(store or self.world.store, JOB),
            Runtime(self.world.clock, self.world.new_token),
            lambda old, new, now_ms: new,
            lambda old, new: self.swaps.append((old.revision, new.revision)),
        )

    def faulty(self, fault: Fault, others: int = 0) -> HeadStore:
        """Give a process whose next write has a fault; so many swaps of another one follow before it learns of it."""

        def meanwhile() -> None:
            other = self.process()
            for _ in range(others):
                other.update(counted)

        return self.process(FaultyStore(self.world.store, 0, fault, meanwhile))


def test_each_swap_is_told_by_the_process_that_has_won_it() -> None:  # semantics W2
    told = Told()
    one, other = told.process(), told.process()
    one.load()
    other.update(counted)
    one.update(counted, known=True)  # loses the swap from 1 to 2 first
    one.update(seen)
    assert told.swaps == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("others", [0, 3])
def test_a_swap_whose_answer_was_lost_is_told_once(others: int) -> None:  # semantics W2
    told = Told()
    told.faulty(Fault.ANSWER_LOST, others).update(counted)
    assert sorted(told.swaps) == [(number, number + 1) for number in range(others + 2)]


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_swap_whose_process_dies_is_told_by_no_one(fault: Fault) -> None:  # semantics W2
    told = Told()
    with pytest.raises(Crashed):
        told.faulty(fault).update(counted)
    revision = told.process().load().revision
    assert told.swaps == [(0, 1)]
    told.process().update(counted)
    assert told.swaps == [(0, 1), (revision, revision + 1)]


def test_a_swap_that_the_log_of_writes_has_forgotten_is_not_told_twice() -> None:  # semantics W2
    told = Told()
    told.faulty(Fault.ANSWER_LOST, WRITE_LOG + 1).update(counted)
    swaps = [swap for swap in told.swaps if swap != (1, 2)]  # the lost one: nothing says whose it was
    assert (1, 2) not in told.swaps
    assert len(swaps) == len(set(swaps)) == WRITE_LOG + 3
