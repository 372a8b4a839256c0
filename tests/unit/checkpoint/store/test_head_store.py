"""Writing the head, and its loop: lost answers, contention, which version is fresh enough (semantics W1 to W4)."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import pytest

from airflow_cairn.checkpoint.answers import EpochCompleted, FailedOver, Submit, Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.head import WRITE_LOG, Head, InvariantError
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidStateError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason, Status
from airflow_cairn.checkpoint.rules.admission import RunState
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.checkpoint.store.head_store import MAX_TRIES, Decision, HeadStore, open_heads
from airflow_cairn.checkpoint.store.job_files import JobFiles, encode
from airflow_cairn.storage import (
    Blob,
    ConditionFailed,
    DeleteFailure,
    DocumentError,
    ForbiddenError,
    ObjectStore,
    OutcomeUnknownError,
    PendingUpload,
    UnavailableError,
    WriteResult,
    Written,
    ensure_probed,
)
from airflow_cairn.storage.clock import Runtime
from airflow_cairn.storage.errors import GoneError
from airflow_cairn.storage.port import DeleteFailures
from tests.support.errors import raises_code
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore, RecordingStore, WrappedStore

T = TypeVar("T")


def _heads(world: World, store: ObjectStore | None = None) -> HeadStore:
    return open_heads(JobFiles(store or world.store, JOB), Runtime(world.clock, world.new_token))


def _swap_once(world: World) -> None:
    """Somebody else's swap that changes nothing but the revision."""
    _heads(world).update(lambda head, now_ms: Decision(None, head))


def test_a_version_that_this_process_knows_is_not_sent_and_read_again(world: World) -> None:  # semantics W2
    class Conditional(WrappedStore):
        answers: list[bool]

        def get_if_changed(self, key: str, etag: str, *, max_bytes: int | None = None) -> Blob | None:
            found = self.inner.get_if_changed(key, etag, max_bytes=max_bytes)
            self.answers.append(found is not None)
            return found

    world.trigger("a")
    store = Conditional(world.store)
    store.answers = []
    heads = _heads(world, store)
    assert heads.has_changed(), "it knows none"
    first = heads.load()
    assert heads.load() is first
    assert (heads.has_changed(), heads.revision) == (False, first.revision)
    _swap_once(world)
    assert heads.has_changed()
    assert heads.load() == replace(first, revision=first.revision + 1, writes=heads.load().writes)
    assert store.answers == [False, False, True, False, False]


def test_a_job_without_a_head_has_news_once_another_has_made_one(world: World) -> None:
    heads = _heads(world)
    heads.load()
    assert (heads.has_changed(), heads.revision) == (False, 0)
    world.trigger("a")
    assert heads.has_changed()
    heads.update(lambda head, now_ms: Decision(None, head))
    assert not heads.has_changed(), "what this process wrote itself is no news"
    assert heads.load() == _heads(world).load(), "as it would be read back"


def _swapped(world: World, swaps: int) -> Callable[[], None]:
    def others() -> None:
        for _ in range(swaps):
            _swap_once(world)

    return others


@pytest.mark.parametrize("swaps", range(33))
def test_a_lost_answer_is_settled_however_many_swaps_came_after(world: World, swaps: int) -> None:  # semantics W2
    world.run_epoch("z")
    checkpoint = world.trigger("a").pending.checkpoint
    store = FaultyStore(world.store, 0, Fault.ANSWER_LOST, _swapped(world, swaps))
    assert world.coordinator(store).abort(checkpoint, Reason.JOB_FAILURE, "by hand"), "this call ended it"
    assert store.struck
    head = world.coordinator().head()
    assert [entry.id for entry in head.history if entry.status is Status.FAILED] == [checkpoint]


@pytest.mark.parametrize("swaps", range(33))
def test_one_that_did_not_land_is_made_again(world: World, swaps: int) -> None:  # semantics W2
    """The write never arrives, and others swap: their revisions are no sign of ours."""

    class NeverArrives(WrappedStore):
        struck = False

        def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
            if not self.struck:
                self.struck = True
                _swapped(world, swaps)()
                raise OutcomeUnknownError("the store is told to lose this request", key=key)
            return self.inner.replace(key, data, expected_etag=expected_etag)

    checkpoint = world.trigger("a").pending.checkpoint
    assert world.coordinator(NeverArrives(world.store)).abort(checkpoint, Reason.JOB_FAILURE, "by hand")
    assert len(world.coordinator().head().history) == 1


def test_beyond_the_write_log_the_decision_recognises_its_own_outcome(world: World) -> None:  # semantics W2
    others = _swapped(world, WRITE_LOG + 1)
    answer = world.coordinator(FaultyStore(world.store, 2, Fault.ANSWER_LOST, others)).trigger(world.request("a"))
    assert isinstance(answer, Triggered)
    assert (answer.pending.checkpoint, answer.created) == (1, False)
    world.submit("a", "clean", "try-1")
    failing = FaultyStore(world.store, 1, Fault.ANSWER_LOST, others)
    failed = expect(FailedOver, world.coordinator(failing).fail("a", "clean", "try-1", "boom"))
    assert (failing.struck, failed.created, failed.pending.checkpoint) == (True, False, 2)
    world.run_stages("a")
    checkpoint = world.pending_id("a")
    completing = FaultyStore(world.store, 1, Fault.ANSWER_LOST, others)
    assert world.coordinator(completing).complete(checkpoint) == EpochCompleted("a", checkpoint)
    assert completing.struck
    assert world.coordinator().head().revision > WRITE_LOG
    world.coordinator().clean()
    world.audit("a")


def test_a_client_that_sends_twice_does_not_lose_to_itself(world: World) -> None:  # semantics W2
    """The first try lands, its answer is lost, and the second is told 412."""

    class SendsTwice(WrappedStore):
        def create(self, key: str, data: bytes) -> WriteResult:
            self.inner.create(key, data)
            return self.inner.create(key, data)

        def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
            self.inner.replace(key, data, expected_etag=expected_etag)
            return self.inner.replace(key, data, expected_etag=expected_etag)

    double = SendsTwice(world.store)
    first = expect(Triggered, world.coordinator(double).trigger(world.request("a")))
    assert first.created
    answer = expect(Submit, world.coordinator(double).begin("a", "clean", "try-1"))
    assert world.coordinator(double).acknowledge(world.write(answer.handover)) is AckAnswer.SUCCESS
    assert world.coordinator().head().counters.triggered == 1


@pytest.mark.parametrize(
    ("lost", "code", "said", "least", "most"),
    [
        (True, OutcomeUnknownError.code, "whether it landed is not known", 2, 16),  # semantics W2
        (False, "too_much_contention", "nothing was written, try again", MAX_TRIES, MAX_TRIES),
    ],
)
def test_losing_again_and_again_ends(world: World, lost: bool, code: str, said: str, least: int, most: int) -> None:
    class Loses(WrappedStore):
        sent = 0

        def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
            self.sent += 1
            if lost:
                raise OutcomeUnknownError("the store is told to lose this request", key=key)
            return ConditionFailed("another")

    world.trigger("a")
    store = Loses(world.store)
    with raises_code(code, match=said):
        world.coordinator(store).abort(1, Reason.JOB_FAILURE, "by hand")
    assert least <= store.sent <= most


def test_a_store_that_fails_after_a_lost_answer_leaves_the_outcome_unknown(world: World) -> None:  # semantics W2
    class FailsThen(WrappedStore):
        lost = False

        def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
            self.inner.replace(key, data, expected_etag=expected_etag)
            self.lost = True
            raise OutcomeUnknownError("the store is told to lose this answer", key=key)

        def _read(self, verb: str, key: str, call: Callable[[], object]) -> object:  # type: ignore[override]
            if self.lost:
                raise UnavailableError("the store is told to fail", key=key)
            return call()

    checkpoint = world.trigger("a").pending.checkpoint
    with pytest.raises(OutcomeUnknownError):
        world.coordinator(FailsThen(world.store)).abort(checkpoint, Reason.JOB_FAILURE, "by hand")
    assert world.coordinator().head().pending == ()


def test_the_revision_grows_with_every_swap_and_no_body_repeats(world: World) -> None:  # semantics W2
    world.trigger("a")
    etags, revisions = set(), []
    for _ in range(80):
        _swap_once(world)
        etags.add(world.store.stat(f"{JOB}/head.json").etag)
        revisions.append(world.coordinator().head().revision)
    assert len(etags) == 80
    assert revisions == list(range(revisions[0], revisions[0] + 80))
    assert len(world.coordinator().head().writes) == WRITE_LOG


def test_what_fails_on_an_outdated_head_is_tried_on_the_newer_one(world: World) -> None:  # semantics W4, C3
    """A cleaner deletes what the newer head no longer needs, under the eyes of who reads by the older one."""
    world.bulky = True
    world.trigger("a")
    world.submit("a", "clean", "try-1")

    token = world.coordinator().head().pending[0].token
    for act in ("progress", "begin", "fail"):
        twin = world.fork()
        store = InterleavingStore(twin.store, "get", 0, lambda: _fail_and_clean(twin), suffix=f"{token}.json")  # noqa: B023
        coordinator = twin.coordinator(store)
        if act == "progress":
            assert coordinator.progress("a").checkpoint == 2
        elif act == "begin":
            assert coordinator.begin("a", "clean", "try-2").handover.checkpoint == 2  # type: ignore[union-attr]
        else:
            assert type(coordinator.fail("a", "clean", "try-1", "boom")).__name__ == "NothingToDo"


def _fail_and_clean(world: World) -> None:
    world.coordinator().fail("a", "clean", "try-1", "boom")
    # Objects that the failover replaced are kept for people, until enough others have failed.
    world.coordinator().clean()
    world.memory.delete([key for key in world.memory.all_keys() if "/chk-0000000001/" in key])


def test_a_real_failure_is_not_tried_for_ever(world: World) -> None:
    world.bulky = True
    pending = world.trigger("a").pending
    world.memory.put(f"{JOB}/{layout.pending(1, pending.token)}", b"{")
    recording = RecordingStore(world.store)
    with pytest.raises(DocumentError):
        world.coordinator(recording).progress("a")
    assert recording.total <= 4


def test_an_invariant_that_would_break_writes_nothing(world: World) -> None:  # semantics T5, D3
    world.run_epoch("z")
    world.trigger("a")
    heads = _heads(world)
    head = heads.load()
    entry, done = head.pending[0], head.completed[0]
    broken: dict[str, Head] = {
        "the job never changes": replace(head, job="weather"),
        "ids never go back": replace(head, next_id=1),
        "every id was handed out": replace(head, pending=(replace(entry, checkpoint=9),)),
        "only new ids become pending": replace(head, pending=(*head.pending, replace(entry, checkpoint=1, epoch="z"))),
        "what is pending never changes": replace(head, pending=(replace(entry, token="x"),)),
        "completed and pending exclude each other": replace(
            head, completed=(*head.completed, replace(done, checkpoint=2))
        ),
        "one pending attempt": replace(head, next_id=4, pending=(entry, replace(entry, checkpoint=3))),
        "what has completed never changes": replace(head, completed=(replace(done, acks=99),)),
        "an outcome never changes": replace(head, history=(replace(head.history[0], status=Status.FAILED),)),
        "pending or has an outcome": replace(head, pending=()),
        "only what was pending completes": replace(
            head, next_id=4, completed=(*head.completed, replace(done, checkpoint=3))
        ),
        "no epoch completes twice": replace(head, next_id=4, pending=(entry, replace(entry, checkpoint=3, epoch="z"))),
        "the history is bounded": replace(head, restores=head.restores * 30),
    }
    for name, wrong in broken.items():
        with pytest.raises(InvariantError, match=name):
            heads.update(lambda head, now_ms: Decision(None, wrong))  # noqa: B023
    assert heads.load() == head


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ForbiddenError("the store is told to forbid"), ForbiddenError.code),
        (GoneError("the bucket does not exist", code="bucket_gone"), "storage_lost"),
    ],
    ids=["forbidden", "the bucket is gone"],
)
@pytest.mark.parametrize("epochs", ["", "a"], ids=["a new job", "a job"])
def test_a_head_that_cannot_be_read_is_not_missing(
    world: World, error: GoneError | ForbiddenError, code: str, epochs: str
) -> None:  # semantics W3
    class Refuses(WrappedStore):
        def _read(self, verb: str, key: str, call: Callable[[], object]) -> object:  # type: ignore[override]
            raise error

    for epoch in epochs:
        world.run_epoch(epoch)
    before = world.memory.all_keys()
    with raises_code(code):
        world.coordinator(Refuses(world.store)).trigger(world.request("b"))
    assert world.memory.all_keys() == before


def test_a_create_whose_answer_was_lost_knows_its_own_from_another_s(world: World) -> None:  # semantics W2
    files = JobFiles(FaultyStore(world.store, 0, Fault.ANSWER_LOST), JOB)
    assert isinstance(files.create_bytes("chk-0000000001/x", b"mine"), Written)

    class OthersCome(WrappedStore):
        def create(self, key: str, data: bytes) -> WriteResult:
            self.inner.create(key, self.other)
            raise OutcomeUnknownError("the store is told to lose this request", key=key)

        other = b""

    for other in (b"short", b"somebody else's, and longer"):
        store = OthersCome(world.store)
        store.other = other
        assert isinstance(JobFiles(store, JOB).create_bytes(f"chk-0000000001/{len(other)}", b"mine"), ConditionFailed)


def test_a_head_that_would_outgrow_its_reader_is_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W5
    world.run_epoch("a")
    size = len(encode(world.coordinator().head()))
    monkeypatch.setattr("airflow_cairn.checkpoint.documents.codec.MAX_HEAD_BYTES", size + 10)
    with pytest.raises(InvalidStateError, match="head would grow larger"):
        world.trigger("b")


def test_pending_uploads_of_dead_attempts_are_aborted(world: World) -> None:  # semantics W7
    world.trigger("a")
    dead = world.submit("a", "clean").handover
    alive = world.submit("a", "clean").handover
    folders = [
        layout.output_folder(each.checkpoint, "clean", each.attempt, each.token, "r", "state.totals")
        for each in (dead, alive)
    ]
    for folder in folders:
        world.memory.begin_upload(f"{JOB}/{folder}part-0")
    world.memory.begin_upload(f"{JOB}/chk-0000000009/state/clean/1-x/r/o/part-0")
    world.memory.begin_upload("another/chk-0000000001/state/clean/1-x/r/o/part-0")
    assert world.coordinator().clean().uploads_aborted == 1
    left = [upload.key for upload in world.memory.uploads("")]
    assert left == [
        f"{JOB}/{folders[1]}part-0",
        f"{JOB}/chk-0000000009/state/clean/1-x/r/o/part-0",
        "another/chk-0000000001/state/clean/1-x/r/o/part-0",
    ]


def test_what_may_not_be_deleted_is_reported_and_fails_nothing(world: World) -> None:  # semantics W7
    class Locked(WrappedStore):
        def delete(self, keys: Iterable[str]) -> DeleteFailures:
            wanted = list(keys)
            self.inner.delete(wanted[1:])
            return [DeleteFailure(wanted[0], "AccessDenied: object lock")]

        def abort_upload(self, upload: PendingUpload) -> None:
            raise ForbiddenError("no right to abort", key=upload.key)

    world.run_stages("a")
    world.coordinator().complete(1)
    world.memory.begin_upload(f"{JOB}/chk-0000000001/state/clean/1-dead/r/o/part-0")
    report = world.coordinator(Locked(world.store)).clean()
    locked, unaborted = report.failures
    assert locked.reason == "AccessDenied: object lock"
    assert "no right to abort" in unaborted.reason
    assert (report.uploads_aborted, report.deleted > 0) == (0, True)
    world.coordinator().clean()
    world.audit("a")


@pytest.mark.parametrize("epochs", ["a", "abc"], ids=["retained still", "subsumed since"])
def test_a_stalled_writer_that_makes_a_cleaned_name_again_has_no_effect(
    world: World, epochs: str
) -> None:  # semantics W4
    """The writer slept before its marker until all it knew was cleaned; then its create wins, and means nothing."""
    world.trigger("a")
    stalled = world.write(world.submit("a", "clean").handover)
    world.run_epoch(*epochs)
    assert {key.split("/")[1] for key in world.standing() if stalled.token in key} == {"handover"}, "of the record"
    head = world.coordinator().head()
    assert acks.write_ack(world.files, stalled), "the name is free again"
    world.coordinator().acknowledge(stalled)
    after = world.coordinator().head()
    told = tuple(replace(each, late=()) for each in after.history)
    assert replace(after, history=told, revision=head.revision, writes=head.writes) == head, "for people alone"
    world.coordinator().clean()
    world.audit(*epochs)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../weather/head.json", "s3://other/chk-0000000001/x", "file:///x"])
def test_a_key_outside_the_prefix_is_refused_first(world: World, path: str) -> None:  # semantics W5
    """A marker names it; the finisher refuses the marker, and asks the store for nothing outside the job."""
    world.run_stages("a")
    key = next(key for key in world.memory.all_keys() if "/acks/clean/" in key)
    data = world.memory.get(key).data
    path_of_it = json.loads(data)["subtasks"][0]["handles"][0]["path"]
    world.memory.put(key, data.replace(path_of_it.encode(), path.encode()))
    asked: list[str] = []

    class Notes(WrappedStore):
        def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
            asked.append(key)
            return call()

        def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
            asked.append(key)
            return call()

    coordinator = world.coordinator(Notes(world.store))
    with pytest.raises(CheckpointFailedError, match="the acknowledgement of clean cannot be used"):
        coordinator.complete(1)
    coordinator.clean()
    assert all(each.startswith(f"{JOB}/") and ".." not in each for each in asked if each)


def test_a_storage_is_probed_once_by_sixteen_writers_started_together(world: World) -> None:  # semantics W6
    recording = RecordingStore(MemoryStore())
    ensure_probed(recording, nonce="n")
    racing = Counter(write.key for write in recording.writes if "/probe/" in write.key and write.verb != "delete")
    raced = {key: count for key, count in racing.items() if count >= 16}
    assert len([key for key in raced if "create-" in key]) == 2, "two rounds of creates"
    assert len([key for key in raced if "swap-" in key]) == 2, "and two of swaps"
    before = recording.total
    ensure_probed(recording, nonce="m")
    assert recording.total == before + 1, "it is remembered in the storage"


def test_two_airflows_that_share_a_job_do_not_end_each_others_checkpoints(world: World) -> None:  # semantics W8
    """Production and staging have the same DAG, schedule, run ids and storage root."""
    production, staging = (Owner("flights", "e1", f"https://{each}.example.com") for each in ("airflow", "staging"))
    world.coordinator().trigger(world.request("e1", production))
    with raises_code("job_owned"):
        world.coordinator().trigger(world.request("e1", staging), lambda owner: RunState.ENDED)
    assert world.coordinator().head().pending_of_epoch("e1") is not None


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
    assert job.swapped == [1, 2], "what comes before a swap is done for each version"


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


KEY = "chk-0000000001/acks/clean/t.json"


class LandsLate(WrappedStore):
    """The first create's answer is lost; something lands just before the second."""

    def __init__(self, inner: MemoryStore, landed: bytes) -> None:
        super().__init__(inner)
        self._landed = landed
        self.asked = 0

    def create(self, key: str, data: bytes) -> WriteResult:
        self.asked += 1
        if self.asked == 1:
            raise OutcomeUnknownError("the store is told to lose this answer", key=key)
        self.inner.create(key, self._landed)
        return self.inner.create(key, data)


@pytest.mark.parametrize(("landed", "ours"), [(b"mine", True), (b"not!", False), (b"longer than mine", False)])
def test_what_lands_before_the_second_try_counts_if_it_is_the_same(landed: bytes, ours: bool) -> None:  # semantics W2
    store = LandsLate(MemoryStore(), landed)
    answer = JobFiles(store, JOB).create_bytes(KEY, b"mine")
    assert store.asked == 2
    assert isinstance(answer, Written if ours else ConditionFailed)


def test_without_a_lost_answer_what_stands_is_another_ones() -> None:  # semantics W2
    """Two who write the same content are told apart: only one of them has made it."""
    files = JobFiles(MemoryStore(), JOB)
    assert isinstance(files.create_bytes(KEY, b"mine"), Written)
    assert isinstance(files.create_bytes(KEY, b"mine"), ConditionFailed)
