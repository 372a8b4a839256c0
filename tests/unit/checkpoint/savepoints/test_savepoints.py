"""Savepoints of an idle job and of a running epoch, and what is refused (semantics P1, T4, T5, C2, C3, D2, D5)."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, Runtime
from airflow_cairn.checkpoint.answers import Declined, FilesProgress, Waiting
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.entries import SavepointEntry, Stopped
from airflow_cairn.checkpoint.documents.head import InvariantError, check_invariants
from airflow_cairn.checkpoint.errors import InvalidConfigError, NoCheckpointError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.savepoints.disposal import dispose
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA, REQUEST, folder_name
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.checkpoint.sources import files
from airflow_cairn.storage import (
    ForbiddenError,
    InvalidKeyError,
    UnavailableError,
    UnsupportedStorageError,
    WriteResult,
)
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.shut_down import shut_down
from tests.support.world.early import EarlyWorld
from tests.support.world.listed_folder import Job
from tests.support.world.savepoints import TARGET, Below, asked, assert_whole, folded, folder, standing, take
from tests.support.world.world import CONFIG, World
from tests.support.wrapped_stores import Fault, FaultyStore, InterleavingStore, RecordingStore

ALIKE = [b'["e1"]'] * 4


def test_of_an_idle_job(world: World) -> None:  # semantics P1, T5, C3
    world.run_epoch("e1")
    told: list[FilesProgress] = []
    entry = take(world, on_progress=told.append)
    found = assert_whole(world, entry)
    assert (entry.id, entry.folder) == (2, folder_name("flights", "by hand", storage=world.store.uri))
    assert [stage.uid for stage in found.stages] == ["clean", "routes", "airports", "report"]
    assert list(folded(world, entry).values()) == ALIKE
    keys = standing(world, entry)
    assert sorted(keys) == sorted([METADATA, REQUEST, *(file.key for file in found.files)])
    assert [key.rpartition("/")[0].rpartition("/")[2] for key in keys if "league" in key] == ["table.league"]
    assert not any("exchange" in key for key in keys)
    assert [each.files_done for each in told] == list(range(1, found.end.files + 1))
    assert told[-1] == FilesProgress(entry.files, entry.files, entry.size_bytes, entry.size_bytes)
    assert world.run_epoch("e2") == 3, "its id is used (T5)"
    world.run_epoch("e3", "e4")
    world.memory.delete([key for key in world.memory.all_keys() if key.startswith("flights/")])
    assert_whole(world, entry)  # it stands without the job


def test_the_same_request_is_the_same_savepoint(world: World) -> None:  # semantics P1
    world.run_epoch("e1")
    first = take(world)
    world.run_epoch("e2")
    revision = world.coordinator().head().revision
    assert take(world) == first
    assert world.coordinator().head().revision == revision
    with raises_code("savepoint_refused", match="asked for with this request id already, in another target"):
        take(world, asked(target="s3://elsewhere/other"))
    second = take(world, asked("another", parallel=8))
    assert (second.id, second.epoch) == (first.id + 2, "e2")
    assert set(standing(world, first)) & {METADATA}
    assert_whole(world, second)


def fail_over(world: World) -> None:
    world.submit("e2", "clean", "dies")
    world.coordinator().fail("e2", "clean", "dies", "the worker was lost")


@pytest.mark.parametrize(
    ("limit", "meanwhile"),
    [
        (0, lambda world: None),
        (0, fail_over),  # semantics F2
        (0, lambda world: world.coordinator().pause()),  # semantics S1
        (1, lambda world: world.coordinator().abort(2, Reason.CHECKPOINT_DECLINED, "no")),  # semantics D5
    ],
    ids=["nothing", "a later attempt", "a pause of the DAG", "a failure within the limit"],
)
def test_a_running_epoch_is_waited_for_whatever_happens(
    world: World, limit: int, meanwhile: Callable[[World], object]
) -> None:  # semantics T4, P1
    world.config = replace(CONFIG, tolerable_failed_checkpoints=limit)
    world.run_epoch("e1")
    world.trigger("e2")
    entry = take(world)
    assert (entry.waits, entry.epoch) == (True, "e2")
    meanwhile(world)
    assert take(world) == entry
    world.coordinator().unpause()
    world.run_epoch("e2")
    entry = take(world)
    assert assert_whole(world, entry).source.epoch == "e2"
    assert folded(world, entry)["report"] == b'["e1", "e2"]'


def test_its_checkpoint_is_kept_until_it_has_ended(world: World) -> None:  # semantics C3
    world.config = replace(CONFIG, retained=1)
    world.run_epoch("e1")
    world.trigger("e2")
    take(world)
    world.run_epoch("e2", "e3", "e4")
    pinned = known(take_source(world))
    assert pinned not in [each.id for each in world.coordinator().head().completed]
    entry = take(world)
    assert assert_whole(world, entry).source.checkpoint == pinned
    world.coordinator().clean()
    assert world.standing() == world.referred(), "nothing is kept for it any more"


def take_source(world: World) -> int | None:
    (entry,) = world.coordinator().head().savepoints
    return entry.source.checkpoint if entry.source else None


def restore_after_a_pause(world: World) -> None:
    world.coordinator().pause()
    assert take(world).waits
    world.coordinator().restore_latest()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (restore_after_a_pause, Reason.CHECKPOINT_COORDINATOR_SUSPEND),
        (lambda world: world.coordinator().abort(2, Reason.JOB_FAILURE, "the run failed"), Reason.JOB_FAILURE),
        (lambda world: world.coordinator().abort(2, Reason.CHECKPOINT_DECLINED, "no"), Reason.CHECKPOINT_DECLINED),
        (lambda world: world.coordinator().restore_latest(), Reason.CHECKPOINT_COORDINATOR_SUSPEND),
    ],
)
def test_it_fails_with_its_epoch(world: World, end: Callable[[World], object], reason: Reason) -> None:  # semantics P1
    world.run_epoch("e1")
    world.trigger("e2")
    take(world)
    end(world)
    world.coordinator().resume()
    entry = take(world)
    assert (entry.status, entry.reason) == (Status.FAILED, reason)
    assert entry.detail.startswith("checkpoint 2, which it waited for, did not complete")
    assert standing(world, entry) == []
    renewed = take(world, asked(renew=True))
    assert (renewed.id, renewed.epoch) == (4, "e1")
    assert renewed.folder != entry.folder, "nobody who empties the failed one's can do it harm"
    assert_whole(world, renewed)


def test_it_does_not_fail_with_another_epoch(world: World) -> None:  # semantics P1
    world.config = replace(CONFIG, max_concurrent_checkpoints=2)
    world.trigger("e1")
    world.trigger("e2")
    assert take(world).epoch == "e1"
    world.coordinator().abort(2, Reason.JOB_FAILURE, "the run failed")
    assert take(world).waits
    world.run_epoch("e1")
    assert_whole(world, take(world))


def test_it_ends_in_time(world: World) -> None:  # semantics D2, D5
    world.run_epoch("e1")
    world.trigger("e2")
    take(world, asked(timeout=timedelta(minutes=1)))
    world.clock.advance(timedelta(minutes=1))
    entry = known(world.coordinator().look_for_savepoint("by hand"))
    assert (entry.status, entry.reason) == (Status.FAILED, Reason.CHECKPOINT_EXPIRED)
    assert entry.detail == "not complete after 60 s"
    head = world.coordinator().head()
    assert (head.failures, len(head.pending)) == (0, 1), "the job does not notice"


def test_one_that_is_late_while_it_is_copied_leaves_nothing(world: World) -> None:  # semantics D2, D3, W4
    world.run_epoch("e1")
    entry = take(world, on_progress=lambda _: world.clock.advance(timedelta(hours=1)))
    # Nobody has looked by the time the metadata is written; its end is late, and counts.
    assert entry.status is Status.COMPLETED

    def look(_: FilesProgress) -> None:
        world.clock.advance(timedelta(hours=1))
        world.coordinator().look_for_savepoint("another")

    recording = RecordingStore(world.store)
    entry = take(world, asked("another"), store=recording, on_progress=look)
    assert (entry.status, entry.reason) == (Status.FAILED, Reason.CHECKPOINT_EXPIRED)
    assert not [each for each in recording.writes if each.verb == "create" and each.key.endswith(f"/{METADATA}")]
    assert standing(world, entry) == []


def test_whoever_empties_one_that_failed_leaves_the_next_alone(world: World) -> None:  # semantics P1
    world.run_epoch("e1")
    world.trigger("e2")
    failed = take(world)
    world.coordinator().abort(2, Reason.JOB_FAILURE, "the run failed")

    def meanwhile() -> None:
        assert_whole(world, take(world, asked(renew=True)))

    # The second request has seen that the savepoint failed, and is about to empty its folder.
    store = InterleavingStore(world.store, "delete", 0, meanwhile)
    assert take(world, store=store).id == failed.id
    (entry,) = world.coordinator().head().savepoints
    assert_whole(world, entry)


@pytest.mark.parametrize("anew", [False, True], ids=["disposed of", "and made anew"])
def test_one_that_was_disposed_of_while_a_slow_copier_went_on(world: World, anew: bool) -> None:  # semantics P3, W4
    world.run_epoch("e1")
    made: list[SavepointEntry] = []

    def meanwhile() -> None:
        dispose(world.store, folder(world, take(world)), Runtime(world.clock, world.new_token))
        made.extend([take(world)] if anew else [])

    # Request, head, six files: all of them stand, and the metadata comes next. The look before it was too early.
    slow = InterleavingStore(world.store, "create", 7, meanwhile)
    with raises_code("savepoint_refused", match="the head no longer knows this savepoint"):
        take(world, store=slow)
    assert world.coordinator().head().savepoints == tuple(made)
    assert anew or world.memory.all_keys("elsewhere/") == []
    assert_whole(world, made[0] if anew else take(world))


def test_it_commits_and_subsumes_nothing(world: World) -> None:  # semantics C2, C4
    world.listen("sink")
    world.run_epoch("e1")
    world.coordinator().deliver(world.ears)
    world.trigger("e2")
    before = world.coordinator().head()
    take(world)
    after = world.coordinator().head()
    for name in ("pending", "completed", "notices", "counters"):
        assert getattr(after, name) == getattr(before, name)


def _without_report(world: World, epoch: str) -> None:
    """Let an epoch complete although one stage lags."""
    world.config = CheckpointConfig(timeout=CONFIG.timeout, unaligned=True)
    world.ask(epoch)
    world.run_stage(epoch, "clean", "routes")
    world.coordinator().complete(world.pending_id(epoch))
    assert world.owed()["report"] == [epoch]


def test_what_is_not_whole_is_not_taken_as_it_is(world: World) -> None:  # semantics P1, T4, F6
    world.run_epoch("e1")
    _without_report(world, "e2")
    entry = take(world)
    assert (entry.waits, entry.waits_for_next, entry.epoch) == (True, True, "e2")
    said = world.coordinator().awaited_by(entry)
    assert said.startswith("the job's next run, because the newest checkpoint was made without airports, report, which")
    world.ask("e3")
    assert take(world).epoch == "e3", "it waits for the run that has begun"
    world.run_stage("e3", "clean", "routes")
    assert isinstance(world.coordinator().progress("e3"), Waiting), "nobody is left out of what it waits for"
    world.run_stage("e3", "airports", "report")
    world.coordinator().complete(world.pending_id("e3"))
    entry = take(world)
    found = assert_whole(world, entry)
    assert entry.epoch == "e3"
    assert not any("epoch." in name for stage in found.stages for name in stage.state), "nobody owes anything"
    assert not any("exchange.rows" in key for key in standing(world, entry)), "nothing is in flight"


def test_a_stop_of_what_is_not_whole_lets_one_more_run_begin(world: World) -> None:  # semantics P1, P2
    world.run_epoch("e1")
    _without_report(world, "e2")
    stop = asked("upgrade", stop=True)
    assert take(world, stop).waits_for_next
    world.trigger("e3")
    held = expect(Declined, world.coordinator().trigger(world.request("e4")))
    assert held.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    world.run_epoch("e3")
    entry = take(world, stop)
    assert_whole(world, entry)
    assert (entry.epoch, world.coordinator().head().stopped) == ("e3", Stopped.SHUTDOWN)


@pytest.mark.parametrize("idle", [True, False])
def test_a_job_that_reads_what_is_there_says_what_its_savepoint_owes(idle: bool) -> None:  # semantics P1, B2
    world = EarlyWorld()
    world.ask("a")
    world.run_stage("a", "routes")  # before `clean`, which it reads from
    world.run_stage("a", "clean", "airports", "report")
    if not idle:
        assert take(world).waits
    world.coordinator().complete(world.pending_id("a"))
    entry = take(world)
    found = assert_whole(world, entry)
    assert entry.owing == ("routes",)
    assert [stage.uid for stage in found.stages if "epoch.a" in stage.state] == ["routes"]
    assert sum("exchange.rows" in key for key in standing(world, entry)) == 1, "what clean wrote travels"
    world.run_epoch("b")
    assert take(world, asked("later")).owing == (), "who reads all owes nothing"


@pytest.fixture
def listing_job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that reads 40 files, whose lists are too long for a document here."""
    monkeypatch.setattr(files, "INLINE_BYTES", 512)
    job = Job(40)
    job.run("e1")
    return job


def test_the_lists_of_sources_travel(listing_job: Job) -> None:  # semantics T8, P1
    world = listing_job.world
    entry = take(world)
    found = assert_whole(world, entry)
    lists = listing_job.lists()
    assert lists
    assert lists <= {file.key for file in found.files}
    assert lists <= set(standing(world, entry))
    assert found.source.slice.positions
    assert found.source.slice.sources is None


def test_a_list_that_was_altered_fails_it(listing_job: Job) -> None:  # semantics C5
    world = listing_job.world
    piece = f"flights/{min(listing_job.lists())}"
    data = world.store.get(piece).data

    def alter() -> None:
        world.memory.put(piece, data[:-2] + b"!\n")

    # The checkpoint has been looked at by then, and is being copied.
    entry = take(world, store=InterleavingStore(world.store, "read_range", 0, alter, suffix=piece))
    assert entry.status is Status.FAILED
    assert "a file of the checkpoint was changed while it was being copied" in entry.detail


def test_the_head_remembers_a_bounded_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics P3
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_SAVEPOINTS", 3)
    world.run_epoch("e1")
    entries = [take(world, asked(f"request {number}")) for number in range(5)]
    assert world.coordinator().head().savepoints == tuple(entries[2:])
    assert_whole(world, entries[0])


def test_a_target_that_only_the_record_names_is_said_and_not_followed(world: World) -> None:  # semantics P1, W10
    world.config = replace(CONFIG, savepoint_target="s3a://elsewhere/nightly/")
    world.run_epoch("e1")
    recorded = r"has no target: name one\. The job's DAG has given the one below.*recorded=`s3://elsewhere/nightly`"
    for ask in (take, lambda world, request: world.coordinator().check_savepoint(request)):
        with pytest.raises(InvalidConfigError, match=recorded):
            ask(world, asked(target=None))
    assert_whole(world, take(world, asked(target="s3://elsewhere/nightly")))


def test_a_bad_default_is_refused_where_the_dag_is_parsed() -> None:  # semantics P1
    with pytest.raises(UnsupportedStorageError, match="no storage for the scheme ftp"):
        CheckpointConfig(savepoint_target="ftp://bucket/savepoints")


def test_those_under_way_are_never_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics P3
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_SAVEPOINTS", 2)
    world.run_epoch("e1")
    world.trigger("e2")
    waiting = [take(world, asked("request 0"))]
    take(world, asked("soon ended", timeout=timedelta(minutes=1)))
    world.clock.advance(timedelta(minutes=1))
    waiting.append(take(world, asked("request 1")))
    assert world.coordinator().head().savepoints == tuple(waiting)
    with raises_code("savepoint_refused", match=r"\(TOO_MANY_CHECKPOINT_REQUESTS\): so many are under way"):
        take(world, asked("one more"))
    world.run_epoch("e2")
    for entry in waiting:
        assert_whole(world, take(world, asked(entry.request)))


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda entry: (replace(entry, id=1),), "only new ids become savepoints"),
        (lambda entry: (entry, replace(entry, id=3)), "a request has one savepoint"),
        (lambda entry: (replace(entry, detail="?"),), "a savepoint's end never changes"),
    ],
)
def test_the_head_is_held_to_what_it_said(
    world: World, change: Callable[[SavepointEntry], tuple[SavepointEntry, ...]], broken: str
) -> None:  # semantics D3, T5, P1
    world.run_epoch("e1")
    entry = take(world)
    head = world.coordinator().head()
    with pytest.raises(InvariantError, match=broken):
        check_invariants(head, replace(head, next_id=head.next_id + 1, savepoints=change(entry)))
    with pytest.raises(InvariantError, match="what is forgotten is counted"):
        check_invariants(head, replace(head, savepoints=()))
    check_invariants(head, replace(head, savepoints=(), forgotten=1))


def test_one_under_way_stays_and_keeps_its_source(world: World) -> None:  # semantics C3
    world.run_epoch("e1")
    with pytest.raises(UnavailableError):
        take(world, store=FaultyStore(world.store, 3, Fault.FAILS))
    head = world.coordinator().head()
    (entry,) = head.savepoints
    with pytest.raises(InvariantError, match="a savepoint under way is not forgotten"):
        check_invariants(head, replace(head, savepoints=()))
    with pytest.raises(InvariantError, match="a savepoint's source never changes"):
        check_invariants(head, replace(head, savepoints=(replace(entry, source=None),)))


# Refusals, each with its text.


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("s3://memory/flights", "lies in the job's own folder, whose files are the"),
        ("s3a://memory/flights/savepoints/", "lies in the job's own folder, whose files are the"),
        ("s3://memory", "lies among the storage's jobs"),
        ("s3://memory/other", "lies among the storage's jobs"),
        ("s3://memory/other/savepoints", "lies among the storage's jobs"),
    ],
)
def test_a_target_in_a_job_is_refused(world: World, target: str, why: str) -> None:  # semantics P1, W1
    world.run_epoch("e1")
    world.memory.put("other/head.json", b"{}")
    before = world.memory.all_keys()
    with raises_code("savepoint_refused", match=f"the target {why}"):
        take(world, asked(target=target))
    assert world.memory.all_keys() == before
    assert_whole(world, take(world, asked(target="s3://memory/flights-savepoints")))


@pytest.mark.parametrize("found", ["readme.txt", METADATA, REQUEST])
def test_a_folder_with_something_in_it_is_refused(world: World, found: str) -> None:
    world.run_epoch("e1")
    place = Below(world.store, f"{TARGET}/{folder_name('flights', 'by hand', storage=world.store.uri)}")
    place.create(found, b"somebody else's")
    with raises_code("savepoint_refused", match="the savepoint's folder is not empty, and the job does not know"):
        take(world)
    assert world.coordinator().head().savepoints == ()
    assert place.get(found).data == b"somebody else's"


def test_a_folder_that_we_had_begun_is_fine(world: World) -> None:  # semantics P1
    world.run_epoch("e1")
    with pytest.raises(UnavailableError):
        take(world, store=FaultyStore(world.store, 1, Fault.FAILS))
    assert world.coordinator().head().savepoints == ()
    assert_whole(world, take(world))


def test_a_savepoint_that_the_head_has_forgotten_is_not_taken_for_another(world: World) -> None:
    world.run_epoch("e1")
    entry = take(world)
    other = World(world.store)
    head = json.loads(world.store.get("flights/head.json").data)
    world.memory.put("flights/head.json", json.dumps({**head, "savepoints": []}).encode())
    with raises_code("savepoint_refused", match="Take it under another request id"):
        take(other)
    assert_whole(world, entry)


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"target": "ftp://bucket/savepoints"}, UnsupportedStorageError, "no storage for the scheme ftp"),
        ({"target": "savepoints"}, InvalidKeyError, "it has no scheme"),
        ({"request": ""}, InvalidKeyError, "a request id has 1 to 500 char"),
        ({"timeout": timedelta(0)}, InvalidConfigError, "timeout must be a timedelta of more than zero"),
        ({"parallel": 0}, InvalidConfigError, "parallel"),
    ],
)
def test_a_bad_request_is_refused(change: dict[str, object], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        SavepointRequest(**{"target": TARGET, "request": "by hand", **change})  # type: ignore[arg-type]


def test_nothing_completed(world: World) -> None:
    with pytest.raises(NoCheckpointError, match="there is nothing to take a savepoint of: the job has completed no"):
        take(world)
    assert not world.memory.all_keys("elsewhere/")


def test_a_job_that_is_shut_down(world: World) -> None:  # semantics T1
    world.run_epoch("e1")
    shut_down(world.coordinator())
    with raises_code("savepoint_refused", match="CHECKPOINT_COORDINATOR_SHUTDOWN"):
        take(world)


def test_of_a_damaged_checkpoint(world: World) -> None:  # semantics R1, C5
    world.run_epoch("e1")
    damaged = next(key for key in world.memory.all_keys() if "state.totals" in key)
    world.memory.put(damaged, b"?")
    entry = take(world)
    assert (entry.status, entry.reason) == (Status.FAILED, Reason.IO_EXCEPTION)
    assert "the checkpoint that the savepoint is to be made from is damaged" in entry.detail
    assert damaged.removeprefix("flights/") in entry.detail
    assert standing(world, entry) == []


class ReadOnly(Below):
    """A folder that may be listed and not written to."""

    def create(self, key: str, data: bytes) -> WriteResult:
        raise ForbiddenError("the store refuses these credentials (AccessDenied)", key=key)


def test_without_a_right_to_write_nothing_is_opened(world: World) -> None:
    world.run_epoch("e1")
    with pytest.raises(ForbiddenError, match="refuses these credentials"):
        world.coordinator().savepoint(asked(), lambda uri: ReadOnly(world.store, uri))
    assert world.coordinator().head().savepoints == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (METADATA, "another savepoint's metadata is in the folder already"),
        ("state.lookup", "another file in the savepoint's folder has the name of one of its files"),
    ],
)
def test_something_else_under_a_name_in_its_folder(world: World, name: str, said: str) -> None:
    world.run_epoch("e1")
    kept = next((key for key in world.memory.all_keys() if name in key and name != METADATA), f"flights/{METADATA}")
    world.trigger("e2")
    folder(world, take(world)).create(kept.removeprefix("flights/"), b"not ours")
    world.run_epoch("e2")
    entry = take(world)
    assert (entry.status, entry.reason, standing(world, entry)) == (Status.FAILED, Reason.IO_EXCEPTION, [])
    assert said in entry.detail


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "it is gone"),
        (b"longer than it was before", "expected 6 bytes, found 25"),
        (b'["e!"]', "expected 1d01d1bc60982a97402d2da2e4a67517, found "),
    ],
)
def test_a_file_that_changes_during_the_copy(world: World, content: bytes | None, problem: str) -> None:  # semantics C5
    world.run_epoch("e1")
    last = [key for key in world.memory.all_keys() if "/state.totals" in key][-1]

    def change() -> None:
        world.memory.delete([last])
        if content is not None:
            world.memory.put(last, content)

    # Request, head, and the first file.
    entry = take(world, store=InterleavingStore(world.store, "create", 1, change))
    assert (entry.status, entry.reason) == (Status.FAILED, Reason.IO_EXCEPTION)
    assert f"a file of the checkpoint was changed while it was being copied: {problem}" in entry.detail
    assert standing(world, entry) == []
