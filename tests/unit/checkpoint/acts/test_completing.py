"""Completing: order, subsuming, retaining, metadata, what cannot be finalized (semantics C1 to C3, C5, C6)."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import EpochCompleted, Failed, Submit
from airflow_cairn.checkpoint.documents import codec, head, layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.head import MAX_HISTORY
from airflow_cairn.checkpoint.documents.metadata import HandleLine, MetadataHeader, StageLine
from airflow_cairn.checkpoint.errors import CheckpointFailedError, CheckpointNotReadyError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.views.stats import StoreCost, stats
from airflow_cairn.storage import DeleteFailure
from airflow_cairn.storage.port import DeleteFailures
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.world.lagging import REGIONAL
from tests.support.world.listeners import Listener, complete_told, trigger_told
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore, RecordingStore, WrappedStore


def test_completing_too_early_says_who_is_missing_and_changes_nothing(world: World) -> None:  # semantics C1
    world.run_epoch("z")
    world.trigger("a")
    world.run_stage("a", "clean")
    before = world.coordinator().head()
    with pytest.raises(CheckpointNotReadyError) as caught:
        world.coordinator().complete(2)
    assert caught.value.fields["stage"] == "routes"
    for unknown in (3, 9):
        with pytest.raises(CheckpointFailedError, match="there is no such checkpoint yet"):
            world.coordinator().complete(unknown)
    assert world.coordinator().head() == before


def test_completing_subsumes_older_pending_checkpoints_and_no_newer(world: World) -> None:  # semantics C2
    world.config = CheckpointConfig(timeout=TIMEOUT, max_concurrent_checkpoints=3)
    for epoch in ("a", "b", "c"):
        world.trigger(epoch)
    world.run_stages("b")
    world.coordinator().complete(2)
    head = world.coordinator().head()
    assert [(entry.id, entry.reason) for entry in head.history] == [(2, None), (1, Reason.CHECKPOINT_SUBSUMED)]
    assert [entry.id for entry in head.pending] == [3]


def test_the_newest_are_retained_and_the_older_files_that_they_refer_to(world: World) -> None:  # semantics C3
    for epoch in "abcdef":
        world.run_epoch(epoch)
        assert world.standing() == world.referred()
    assert [entry.epoch for entry in world.coordinator().head().completed] == ["e", "f"]
    (lookup,) = [key for key in world.referred() if "state.lookup" in key]
    assert lookup.startswith("chk-0000000001/"), "written once, carried by reference ever since"
    assert json.loads(world.files.get(lookup, max_bytes=100).data) == "written once"
    world.audit(*"abcdef")


@pytest.mark.parametrize("where", ["another's file", "another's folder", "the file of a checkpoint long gone"])
def test_a_stage_may_refer_only_to_its_own_and_the_restored_files(world: World, where: str) -> None:  # semantics C3, W5
    """Nothing else is kept from the cleaner while the checkpoint is pending."""
    world.run_epoch("z")
    world.trigger("a")
    world.run_stage("a", "clean")
    ack = world.write(world.submit("a", "routes").handover)
    mine, *others = ack.subtasks[0].handles
    path = "chk-0000000001/state/routes/1-dead/x/state.totals/part-0"
    if where == "another's file":
        path = next(key for key in world.standing() if key.startswith("chk-0000000002/state/clean"))
    if where == "another's folder":
        folder = layout.folder(2) + "state/clean/"
        broken = replace(ack, outputs=(replace(ack.outputs[0], folder=folder), *ack.outputs[1:]))
    else:
        broken = replace(
            ack, subtasks=(replace(ack.subtasks[0], handles=(replace(mine, path=path), *others)), *ack.subtasks[1:])
        )
    world.coordinator().acknowledge(broken)
    world.run_stage("a", "airports", "report")
    with pytest.raises(CheckpointFailedError, match="neither its own nor the restored checkpoint's"):
        world.coordinator().complete(2)
    world.run_epoch("a")
    world.audit("z", "a")


def test_the_metadata_describes_itself(world: World) -> None:  # semantics C5
    world.run_epoch("a", "b")
    entry = world.coordinator().head().completed[-1]
    header, *lines = metadata_file.read(world.files, entry.metadata)
    assert header == MetadataHeader(
        JOB, 2, "b", 1, world.request("b").slice, ("clean", "routes", "airports", "report"), restored_from=1
    )
    stages = [line for line in lines if isinstance(line, StageLine)]
    assert [line.stage for line in stages] == ["clean", "routes", "airports", "report"]
    assert [sorted(output.id for output in line.outputs) for line in stages] == [
        ["state.totals"],
        ["state.totals"],
        ["state.lookup", "state.totals"],
        ["state.totals", "table.league"],
    ], "an exchange is dropped when its epoch completes"
    handles = [line.handle for line in lines if isinstance(line, HandleLine)]
    assert entry.size_bytes == sum(handle.size_bytes for handle in handles)
    assert (entry.acks, len(entry.tables)) == (4, 1)
    assert entry.tables["league"].endswith("/table.league/")
    assert entry.table_files == {"league": 1}


def test_other_metadata_under_its_name_fails_the_checkpoint(world: World) -> None:  # semantics C6
    complete_told(world, "z")
    trigger_told(world, "a")
    world.run_stage("a")
    entry = world.coordinator().head().pending[0]
    world.memory.put(f"{JOB}/{layout.metadata(2, entry.token)}", b"somebody else's")
    with pytest.raises(CheckpointFailedError, match="FINALIZE_CHECKPOINT_FAILURE"):
        world.coordinator().complete(2)
    listener = Listener()
    world.coordinator().deliver([listener])
    assert listener.told == [(1, "complete", 1), (2, "FINALIZE_CHECKPOINT_FAILURE", 1)]
    twin = world.fork()
    twin.run_epoch("b")
    assert twin.standing() - twin.lent() == twin.referred(), "nothing can carry its state over any more"
    assert world.trigger("a").pending.executions["clean"].home == 2, "the acknowledgements were sound, and carry over"
    world.run_epoch("a")
    world.audit("z", "a")


def test_the_next_completion_fails_without_the_restored_checkpoint(world: World) -> None:  # semantics C6, R1
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=3)
    world.run_epoch("y", "z")
    world.run_stages("a")
    metadata_of_z = world.coordinator().head().completed[-1].metadata.key
    world.store.delete([f"{JOB}/{metadata_of_z}"])
    with pytest.raises(
        CheckpointFailedError, match=r"the checkpoint that this one started.*FINALIZE_CHECKPOINT_FAILURE"
    ):
        world.coordinator().complete(3)
    assert [each.epoch for each in world.trigger("a").pending.replay] == ["z"], "and the attempt after starts before it"
    world.run_epoch("a")
    assert world.folded()["clean"] == ["y", "z", "a"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "it may be truncated"),
        (lambda data: data.replace(b'"format":2', b'"format":99'), "written by a newer Cairn"),
        (lambda data: data.replace(b'"job":"flights"', b'"job":"weather"'), "belongs to another job"),
        (lambda data: data.replace(b'"epoch":"a"', b'"epoch":"b"'), "cannot be used"),
        (lambda data: data.replace(b'"parallelism":2', b'"parallelism":3'), "does not hold all its subtasks"),
        (lambda data: data.replace(b"chk-0000000001/state", b"chk-0000000001/../other"), "cannot be used"),
        (lambda data: data + b" " * 1024 * 1024, "larger than it may be"),
    ],
)
def test_a_broken_marker_fails_the_checkpoint_and_is_not_carried(
    world: World, damage: object, message: str
) -> None:  # semantics W5, D1
    world.run_stages("a")
    marker = next(key for key in world.memory.all_keys() if "/acks/clean/" in key)
    whole = world.memory.get(marker).data
    world.memory.put(marker, damage(whole))  # type: ignore[operator]
    assert world.memory.get(marker).data != whole
    with pytest.raises(CheckpointFailedError, match=message):
        world.coordinator().complete(1)
    failed = expect(Failed, world.coordinator().progress("a"))
    assert failed.reason is Reason.IO_EXCEPTION
    assert world.trigger("a").pending.executions["clean"].home == 2, "it would fail every later attempt"
    world.run_epoch("a")
    world.audit("a")


def test_a_stage_of_another_parallelism_than_declared_fails_the_checkpoint(world: World) -> None:  # semantics A1
    world.trigger("a")
    world.run_stage("a", "clean", "routes", "airports")
    ack = world.write(world.submit("a", "report").handover)
    world.coordinator().acknowledge(replace(ack, parallelism=1, subtasks=ack.subtasks[:1]))
    with pytest.raises(CheckpointFailedError, match="it has parallelism 1, expected 2"):
        world.coordinator().complete(1)


def test_two_stages_cannot_publish_one_table(world: World) -> None:  # semantics C4
    world.trigger("a")
    world.run_stage("a", "clean")
    for stage in ("routes", "airports", "report"):
        ack = world.write(world.submit("a", stage).handover)
        world.coordinator().acknowledge(_publishing(ack))
    with pytest.raises(CheckpointFailedError, match="publishes the table 'league', which routes publishes too"):
        world.coordinator().complete(1)


def _publishing(ack: AckDocument) -> AckDocument:
    table = replace(ack.outputs[0], kind="table", name="league")
    outputs = (*(output for output in ack.outputs if output.id != table.id), table)
    return replace(ack, outputs=outputs)


@pytest.fixture
def short_history(monkeypatch: pytest.MonkeyPatch) -> int:
    """A head that remembers 10 ended checkpoints instead of 100, so that a test need not make as many."""
    assert MAX_HISTORY == 100
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 10)
    return 10


def test_the_history_is_bounded_and_no_epoch_is_forgotten(world: World, short_history: int) -> None:  # semantics O1, T9
    world.stages = world.stages[:1]
    epochs = [f"e{number:03d}" for number in range(short_history + 5)]
    world.run_epoch(*epochs)
    head = world.coordinator().head()
    assert len(head.history) == short_history
    assert [each.epoch for each in head.noted] == epochs[:5], "noted when the history forgets them, and not before"
    assert not [key for key in world.memory.all_keys() if "/epochs/completed/" in key], "and without an object each"
    for epoch in (epochs[0], epochs[4], epochs[5], epochs[-1]):
        assert world.coordinator().trigger(world.request(epoch)) == EpochCompleted(epoch, epochs.index(epoch) + 1)
        assert world.coordinator().progress(epoch) == EpochCompleted(epoch, epochs.index(epoch) + 1)
    assert world.coordinator().head() == head
    assert world.coordinator().complete(1) == EpochCompleted(epochs[0], 1), "the list in the head knows"


def test_a_stale_trigger_does_not_fold_twice(world: World, short_history: int) -> None:  # semantics T9, W2
    """A trigger loses its answer; before it looks, the epoch completes and falls out of the history."""
    world.stages = world.stages[:1]
    world.run_epoch("z")
    epochs = [f"e{number:03d}" for number in range(short_history + 1)]

    def a_year_goes_by() -> None:
        world.run_epoch("a", *epochs)

    store = InterleavingStore(world.store, "replace", 0, a_year_goes_by)
    assert world.coordinator(store).trigger(world.request("a")) == EpochCompleted("a", 2)
    assert world.folded()["clean"].count("a") == 1


@pytest.mark.parametrize("silent", [False, True], ids=["expires", "completes"])
def test_what_an_expiry_makes_the_head_forget_has_completed_all_the_same(
    world: World, short_history: int, silent: bool
) -> None:  # semantics T9, D2, F6
    """Found by the simulation: who settles what has expired asks a head that is not written yet."""
    world.config = replace(REGIONAL if silent else world.config, retained=1)
    world.stages = world.stages[:2]
    last = "last" if silent else f"e{short_history - 1:03d}"
    epochs = ["a", *(f"e{number:03d}" for number in range(short_history - 1))]
    if silent:  # only the store still remembers it, until the next one completes
        world.run_epoch("a")
        for _ in range(short_history):
            world.trigger(last)
            world.coordinator().abort(world.pending_id(last), Reason.JOB_FAILURE, "by hand")
    else:
        world.run_epoch(*epochs)
    world.trigger(last)
    world.run_stage(last, "clean")
    world.clock.advance(TIMEOUT)
    assert world.coordinator().trigger(world.request("a")) == EpochCompleted("a", 1)
    reason = None if silent else Reason.CHECKPOINT_EXPIRED
    assert world.coordinator().head().history[-1].reason is reason


def test_a_finisher_that_slept_as_long_learns_the_outcome_too(
    world: World, short_history: int
) -> None:  # semantics W2, D3
    world.stages = world.stages[:1]
    world.run_stages("a")

    def a_year_goes_by() -> None:
        world.run_epoch("a", *(f"e{number:03d}" for number in range(short_history + 1)))

    store = InterleavingStore(world.store, "replace", 0, a_year_goes_by)
    assert world.coordinator(store).complete(1) == EpochCompleted("a", 1)


def test_what_a_checkpoint_costs(world: World) -> None:
    """Requests grow with stages, not with subtasks or files (design: O(S + N/1000))."""
    world.run_epoch("z")
    costs: dict[str, int] = {}

    def cost(name: str, act: object) -> None:
        recording = RecordingStore(world.store)
        act(recording)  # type: ignore[operator]
        costs[name] = recording.total

    cost("trigger", lambda store: world.trigger("a", store))
    cost("begin", lambda store: world.coordinator(store).begin("a", "clean", "try-1"))
    ack = world.write(world.submit("a", "clean", "try-1").handover)
    cost("acknowledge", lambda store: world.coordinator(store).acknowledge(ack))
    cost("progress", lambda store: world.coordinator(store).progress("a"))
    world.run_stage("a", "routes", "airports", "report")
    twin = world.fork()
    cost("complete", lambda store: world.coordinator(store).complete(2))
    cost("clean", lambda store: world.coordinator(store).clean())
    both = RecordingStore(twin.store)
    finisher = twin.coordinator(both)
    finisher.complete(2)
    finisher.clean()
    assert twin.standing() == world.standing(), "who has completed it cleans as well as who reads what it is"
    print(costs)
    stages = len(world.stages)
    assert costs["begin"] <= 2
    assert costs["acknowledge"] <= 2
    assert costs["progress"] <= 3
    assert costs["trigger"] <= 5, "one listing for all that one checkpoint holds"
    assert costs["complete"] <= 4 + stages
    assert costs["clean"] <= 6
    assert both.total <= costs["complete"] + costs["clean"] - 2, "it knows the head, and the metadata that it wrote"


def test_what_a_later_epoch_of_four_stages_costs(world: World) -> None:
    """One restores two checkpoints' files; its last stage completes it, and the task that waits cleans."""
    world.run_epoch("x", "y", "z")
    store = RecordingStore(world.store)
    world.trigger("a", store)
    for stage in world.stages:
        task, driver = world.coordinator(store), world.coordinator(store)
        answer = expect(Submit, task.begin("a", stage.uid, f"{stage.uid}-1", after_success=True))
        ack = world.write(answer.handover)
        driver.acknowledge(ack)
        task.complete_if_last("a", stage.uid, own=ack)
    task.clean(spares_looks=True)
    assert world.coordinator().head().completed[-1].epoch == "a"
    assert store.requests["list"] <= 2, "one by the trigger, one by the cleaner: a store takes for one as for a write"
    assert store.requests["create"] + store.requests["replace"] == 12
    assert store.total <= 30, store.requests
    cost = expect(StoreCost, stats(world.coordinator().head()).store_cost)
    dear = sum(store.requests[each] for each in ("create", "replace", "list", "uploads"))
    assert dear == cost.writes, "what cairn stats says of it"
    assert store.total - dear <= cost.reads


def test_a_deletion_that_fails_does_not_fail_the_new_checkpoint(world: World) -> None:  # semantics C3
    class Keeps(WrappedStore):
        def delete(self, keys: Iterable[str]) -> DeleteFailures:
            return [DeleteFailure(key, "AccessDenied") for key in keys]

    world.run_epoch("a", "b")
    world.run_stages("c")
    keeper = world.coordinator(Keeps(world.store))
    assert keeper.complete(3) == EpochCompleted("c", 3)
    assert keeper.clean().failures
    assert [entry.id for entry in world.coordinator().head().completed] == [2, 3]
    world.coordinator().clean()
    world.audit("a", "b", "c")


def test_a_job_of_an_older_format_is_written_in_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # semantics C5
    world = World()  # without what the fixture remembers of documents, whatever the format
    with monkeypatch.context() as older:
        older.setattr(codec, "FORMAT", 1)
        world.run_epoch("a", "b")
        assert _formats(world) == (1, 1)
    formats = {_format(data) for key in world.memory.all_keys() if (data := world.memory.get(key).data)[:1] == b"{"}
    assert formats - {None} == {1}, "no document is newer"
    world.run_epoch("c")
    assert _formats(world) == (codec.FORMAT, codec.FORMAT)
    assert [each.checkpoint for each in world.coordinator().verify(deep=True) if each.whole] == [3, 2]
    world.audit("a", "b", "c")
    assert world.folded()["routes"] == ["a", "b", "c"], "what the older one has written is restored"
    # The other direction: the older one reads nothing of it, and says which formats it is about.
    monkeypatch.setattr(codec, "FORMAT", 1)
    with raises_code("newer_format", match=r"written by a newer Cairn; upgrade this one.*reads_up_to=`1` found=`2`"):
        world.coordinator().head()
    with raises_code("newer_format", match=r"reads_up_to=`1` found=`2`"):
        world.trigger("d")


def _formats(world: World) -> tuple[int, int]:
    """The formats of the head and of the newest metadata."""
    keys = (f"{JOB}/head.json", f"{JOB}/{world.coordinator().head().completed[-1].metadata.key}")
    head, metadata = (_format(world.memory.get(key).data) for key in keys)
    assert head is not None
    assert metadata is not None
    return head, metadata


def _format(data: bytes) -> int | None:
    """The format that a document names, or its first line; None where it is no document of ours."""
    found: int | None = json.loads(data.splitlines()[0]).get("format")
    return found
