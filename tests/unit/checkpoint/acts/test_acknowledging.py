"""Acknowledging: each answer, what becomes of state and marker, many subtasks a marker, races (A1 to A6, W4)."""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import Ready, Waiting
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, AckMetrics, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Execution, StageSpec
from airflow_cairn.checkpoint.documents.metadata import HandleLine, StageLine
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidStateError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.store import acks, metadata_file
from airflow_cairn.storage import DocumentError, OutcomeUnknownError
from tests.support.acking import ack_of, wide_ack
from tests.support.narrowing import expect
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore, RecordingStore, WrappedStore


def _folder(ack: AckDocument) -> str:
    return layout.execution_folder(ack.checkpoint, ack.stage, ack.attempt, ack.token)


def test_an_ack_that_lies_about_its_epoch_deletes_no_other_epoch_s_state(world: World) -> None:  # semantics A2, C3
    world.run_epoch("a")
    world.trigger("b")
    ended = world.coordinator().head().completed[-1]
    execution = next(key for key in world.referred() if "/state/clean/" in key)
    token, run = execution.split("/")[3].partition("-")[2], execution.split("/")[4]
    lie = AckDocument(ended.id, "b", 1, token, JOB, "clean", run, 1, subtasks=(SubtaskAck(0),))
    assert world.coordinator().acknowledge(lie) is AckAnswer.DISCARDED
    assert all(found.whole for found in world.coordinator().verify())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda ack: replace(ack, subtasks=ack.subtasks[:1]), "subtasks 0 to 1 in order"),
        (lambda ack: replace(ack, subtasks=ack.subtasks[::-1]), "in order"),
        (lambda ack: replace(ack, subtasks=(*ack.subtasks, SubtaskAck(1))), "each once"),
        (lambda ack: replace(ack, outputs=ack.outputs[:1]), "an output that it does not name"),
        (lambda ack: replace(ack, outputs=(*ack.outputs, ack.outputs[0])), "an output twice"),
    ],
)
def test_an_ack_that_does_not_fit_together_is_refused(
    world: World, change: object, problem: str
) -> None:  # semantics A1
    world.trigger("a")
    ack = world.write(world.submit("a", "clean").handover)
    before = world.memory.all_keys()
    with pytest.raises(InvalidStateError, match=problem):
        world.coordinator().acknowledge(change(ack))  # type: ignore[operator]
    assert world.memory.all_keys() == before


def test_a_lost_answer_deletes_nothing(world: World) -> None:  # semantics A2, W2
    class NeverAnswers(WrappedStore):
        def create(self, key: str, data: bytes) -> object:  # type: ignore[override]
            self.inner.create(key, data)
            raise OutcomeUnknownError("the store is told to lose this answer", key=key)

        def get(self, key: str, *, max_bytes: int | None = None) -> object:  # type: ignore[override]
            raise OutcomeUnknownError("the store is told to lose this answer", key=key)

    world.trigger("a")
    ack = world.write(world.submit("a", "clean").handover)
    with pytest.raises(OutcomeUnknownError):
        world.coordinator(NeverAnswers(world.store)).acknowledge(ack)
    assert isinstance(world.coordinator().progress("a"), Waiting)
    assert world.coordinator().acknowledge(ack) is AckAnswer.SUCCESS, "asking again settles it"
    assert world.coordinator().progress("a") == Waiting(1, 1, ("clean",), ("airports", "report", "routes"))
    world.run_epoch("a")
    world.audit("a")


@pytest.mark.parametrize("later", [0, 1, 3], ids=["cleaned", "retained still", "subsumed since"])
def test_the_last_ack_may_be_judged_after_completing_and_cleaning(world: World, later: int) -> None:
    """semantics A2, C3: others see the marker, complete and clean, all before the driver has read the head."""
    world.trigger("a")
    world.run_stage("a", "clean", "routes", "airports")
    ack = world.write(world.submit("a", "report").handover)
    epochs = [f"b{n}" for n in range(later)]

    def everyone() -> None:
        assert world.coordinator().progress("a") == Ready(1)
        world.coordinator().complete(1)
        world.coordinator().clean()
        for epoch in epochs:
            world.run_epoch(epoch)

    store = InterleavingStore(world.store, "get", 0, everyone, suffix="head.json")
    assert world.coordinator(store).acknowledge(ack) is AckAnswer.SUCCESS
    world.audit("a", *epochs)


def test_a_cleaned_document_is_no_proof_that_nothing_lends(world: World) -> None:  # A2, D3
    """Found by `tests/protocol/model`: the next attempt had carried the execution that was then told to delete."""
    world.trigger("a")
    ack = world.write(world.submit("a", "clean").handover)
    token = world.coordinator().head().pending[0].token
    world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")

    def others() -> None:
        world.trigger("a")
        world.coordinator().clean()

    store = InterleavingStore(world.store, "get", 0, others, suffix=f"pending-{token}.json")
    assert world.coordinator(store).acknowledge(ack) is AckAnswer.SUCCESS
    world.run_epoch("a")
    world.audit("a")


def test_who_was_told_discarded_is_never_carried_over(world: World) -> None:  # semantics A2, F2
    """The discarded files are gone: an attempt that took their marker for an ack would refer to nothing."""
    world.trigger("a")
    ack = world.write(world.submit("a", "clean").handover)
    world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert world.coordinator().head().history[-1].rejected == (ack.token,)
    world.memory.put(f"{JOB}/{layout.ack(1, 'clean', ack.token)}", b"a stalled client writes it again")
    assert world.trigger("a").pending.executions["clean"].token != ack.token
    world.run_epoch("a")
    world.audit("a")


def test_a_take_up_and_a_late_ack_agree(world: World) -> None:  # semantics A2, D3
    """Whichever swap of the head comes first decides, and the other party learns it."""
    for first in ("the ack", "the take-up"):
        twin = World()
        twin.run_epoch("z")
        twin.trigger("a")
        twin.run_stage("a", "clean")
        ack = twin.write(twin.submit("a", "airports").handover)
        twin.clock.advance(TIMEOUT)
        if first == "the ack":
            store = InterleavingStore(twin.store, "replace", 0, lambda: twin.coordinator().acknowledge(ack))  # noqa: B023
            twin.coordinator(store).begin("a", "routes", "try-9")
            assert acks.has_acknowledged(twin.files, "airports", Execution(ack.token, 2, 1)) is False
        else:
            store = InterleavingStore(twin.store, "replace", 0, lambda: twin.submit("a", "routes"))  # noqa: B023
            assert twin.coordinator(store).acknowledge(ack) is AckAnswer.SUCCESS
        twin.run_epoch("a")
        twin.audit("z", "a")


def test_no_state_is_acknowledged_before_it_is_durable(world: World) -> None:  # semantics A5
    """That a crash between these writes does no harm `tests/protocol/test_crash_points.py` shows."""
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    recording = RecordingStore(world.store)
    world.drive(handover, recording)
    *states, marker = [write.key for write in recording.writes]
    assert marker == f"{JOB}/{layout.ack(1, 'clean', handover.token)}"
    assert all("/state/" in key for key in states)


def _wide(ack: AckDocument, subtasks: int, each: int) -> AckDocument:
    folder = f"{_folder(ack)}{ack.run}/state.totals"
    handles = (
        tuple(StateHandle("state.totals", f'{folder}/part-{i:05d}-{n}-ü"{"x" * 80}', n, "e" * 32) for n in range(each))
        for i in range(subtasks)
    )
    return replace(
        ack, parallelism=subtasks, subtasks=tuple(SubtaskAck(index, handle) for index, handle in enumerate(handles))
    )


@pytest.mark.parametrize(("subtasks", "each"), [(1, 9000), (9000, 1), (3, 4000)])
def test_one_marker_carries_many_subtasks_in_parts_below_the_cap(
    world: World, subtasks: int, each: int
) -> None:  # semantics A6, W5
    world.trigger("a")
    ack = _wide(world.write(world.submit("a", "clean").handover), subtasks, each)
    recording = RecordingStore(world.store)
    assert world.coordinator(recording).acknowledge(ack) is AckAnswer.SUCCESS
    written = [write.key for write in recording.writes]
    sizes = [world.store.stat(key).size_bytes for key in written]
    assert max(sizes) <= 1024 * 1024
    assert 3 <= len(sizes) <= 2 + sum(sizes) // 500_000, "requests grow with bytes, not with subtasks"
    marker = acks.read_ack(world.files, "clean", Execution(ack.token, 1, 1))
    read: dict[int, list[StateHandle]] = {}
    for subtask in acks.subtasks_of(world.files, marker):
        read.setdefault(subtask.index, []).extend(subtask.handles)
    assert [tuple(read[index]) for index in sorted(read)] == [subtask.handles for subtask in ack.subtasks]


def test_a_part_that_was_altered_or_lost_fails_the_checkpoint_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W5, D1
    monkeypatch.setattr(acks, "MARKER_BYTES", 200)
    for damage in ("altered", "altered with sense", "gone", "another's"):
        twin = World()
        twin.run_stages("a")
        part = next(key for key in twin.standing() if "/acks/clean/" in key and key.endswith("-00000.json"))
        other = next(key for key in twin.standing() if "/acks/routes/" in key and key.endswith("-00000.json"))
        if damage == "gone":
            twin.store.delete([f"{JOB}/{part}"])
        else:
            source = other if damage == "another's" else part
            data = twin.memory.get(f"{JOB}/{source}").data
            if damage == "altered":
                data = data[:-9]
            if damage == "altered with sense":
                data = re.sub(rb'"size_bytes":[0-9]+', b'"size_bytes":17', data)
            twin.memory.put(f"{JOB}/{part}", data)
        with pytest.raises(CheckpointFailedError, match="the acknowledgement of clean cannot be used"):
            twin.coordinator().complete(1)
        twin.run_epoch("a")
        twin.audit("a")


def test_an_ack_names_who_acknowledges_what_and_at_what_cost(world: World) -> None:  # semantics A1, W4
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    metrics = AckMetrics(start_delay_ms=5, sync_ms=7, async_ms=11, state_bytes=13, end_to_end_ms=17)
    ack = replace(world.write(handover), metrics=metrics)
    world.coordinator().acknowledge(ack)
    marker = json.loads(world.memory.get(f"{JOB}/{layout.ack(1, 'clean', handover.token)}").data)
    said = [marker[name] for name in ("job", "checkpoint", "stage", "token", "attempt", "parallelism")]
    assert said == [JOB, 1, "clean", handover.token, 1, 2]
    assert marker["metrics"] == asdict(metrics)
    assert [subtask["index"] for subtask in marker["subtasks"]] == [0, 1]
    for handle in marker["subtasks"][0]["handles"]:
        found = world.files.stat(handle["path"])
        assert (handle["size_bytes"], handle["checksum"]) == (found.size_bytes, found.etag)
    named = [(output["kind"], output["name"]) for output in marker["outputs"]]
    assert named == [("state", "totals"), ("exchange", "rows")]
    with pytest.raises(DocumentError, match="of another execution"):
        acks.read_ack(world.files, "clean", Execution(ack.token, 1, 2))


def test_small_state_travels_inside_the_ack_and_makes_no_file(world: World) -> None:  # semantics A4
    world.stages = (StageSpec("clean"),)
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    world.coordinator().acknowledge(ack_of(handover, values={"high_water": 17}))
    world.coordinator().complete(1)
    assert not [key for key in world.standing() if "/state/" in key], "no bytes: no file"
    (completed,) = world.coordinator().head().completed
    lines = list(metadata_file.read(world.files, completed.metadata))
    assert [line.values for line in lines if isinstance(line, StageLine)] == [{"high_water": 17}]
    assert not [line for line in lines if isinstance(line, HandleLine)], "and no handle"


def test_the_cost_of_an_ack_does_not_grow_with_its_subtasks(world: World) -> None:  # semantics A6
    costs = []
    for subtasks in (1, 1000):
        twin = World()
        twin.trigger("a")
        ack = replace(
            twin.write(twin.submit("a", "clean").handover),
            parallelism=subtasks,
            outputs=(),
            subtasks=tuple(map(SubtaskAck, range(subtasks))),
        )
        recording = RecordingStore(twin.store)
        assert twin.coordinator(recording).acknowledge(ack) is AckAnswer.SUCCESS
        costs.append(recording.total)
    assert costs[0] == costs[1]


def test_a_thousand_stages_are_polled_with_as_many_requests_as_one() -> None:  # semantics A6
    costs = []
    for count in (1, 1000):
        world = World(stages=tuple(StageSpec(f"s{number}") for number in range(count)))
        world.trigger("a")
        recording = RecordingStore(world.store)
        assert isinstance(world.coordinator(recording).progress("a"), Waiting)
        costs.append(recording.total)
    assert costs[1] - costs[0] == 1, "their document is too large for the head"


@pytest.mark.parametrize("indices", [(0, 2), (1, 2), (0, 1, 0, 2), (2, 1, 0)], ids=str)
def test_a_marker_that_leaves_a_subtask_out_is_refused(world: World, indices: tuple[int, ...]) -> None:  # semantics A1
    marker = AckDocument(1, "a", 1, "t", JOB, "clean", "r", 3, subtasks=tuple(map(SubtaskAck, indices)))
    with pytest.raises(DocumentError, match="does not hold its subtasks in order"):
        list(acks.subtasks_of(world.files, marker))


@pytest.mark.parametrize("wrong", [{"epoch": "b"}, {"attempt": 2}, {"checkpoint": 1}], ids=str)
def test_an_ack_with_the_right_token_that_says_otherwise_does_not_count(world: World, wrong: dict[str, Any]) -> None:
    """semantics A2, W4: told DISCARDED, it leaves no marker behind; the right one comes after it and counts."""
    world.run_epoch("z")
    world.trigger("a")
    right = world.write(world.submit("a", "clean").handover)
    assert world.coordinator().acknowledge(replace(right, **wrong)) == "DISCARDED"
    assert expect(Waiting, world.coordinator().progress("a")).acknowledged == ()
    assert world.coordinator().acknowledge(right) == "SUCCESS"
    world.run_epoch("a")
    world.audit("z", "a")


def _current(world: World) -> AckDocument:
    return world.write(world.submit("a", "clean").handover)


def _second_driver(world: World) -> AckDocument:
    handover = world.submit("a", "clean").handover
    world.drive(handover)
    return world.write(handover)


def _second_driver_after_completion(world: World) -> AckDocument:
    handover = world.submit("a", "clean").handover
    world.drive(handover)
    world.run_epoch("a")
    return world.write(handover)


def _after(act: Callable[[World, AckDocument], object]) -> Callable[[World], AckDocument]:
    """Let something happen between a driver's work and its acknowledgement."""

    def make(world: World) -> AckDocument:
        ack = _current(world)
        act(world, ack)
        return ack

    return make


def _fail_a_sibling(world: World, _: AckDocument) -> None:
    claim = world.submit("a", "airports").handover
    world.coordinator().fail("a", "airports", claim.claimant, "killed")


def _complete_with(world: World, ack: AckDocument) -> None:
    world.coordinator().acknowledge(ack)
    world.run_epoch("a")


def _unknown(**other: object) -> Callable[[World], AckDocument]:
    return lambda world: world.write(replace(world.submit("a", "clean").handover, **other))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """One row."""

    make: Callable[[World], AckDocument]
    answer: AckAnswer
    kept: bool = True
    """Whether the driver's state, and its marker, stay."""
    log: tuple[int, str] | None = None


LATE: Any = (AckAnswer.DISCARDED, False, (logging.WARNING, "Acknowledged late"))
UNKNOWN = (logging.DEBUG, "Never expected")

CASES = {
    "the first of an expected execution": Case(_current, AckAnswer.SUCCESS),
    "the same one again": Case(_after(lambda world, ack: world.coordinator().acknowledge(ack)), AckAnswer.SUCCESS),
    "of an execution that a failover of others carried over": Case(_after(_fail_a_sibling), AckAnswer.SUCCESS),
    "of the execution that the epoch completed with": Case(_after(_complete_with), AckAnswer.SUCCESS),
    "of a second driver": Case(_second_driver, AckAnswer.DUPLICATE, log=(logging.INFO, "left to the cleaner")),
    "of a second driver, when the first one's marker has been cleaned": Case(
        _second_driver_after_completion, AckAnswer.SUCCESS
    ),
    "of one that a retry replaced": Case(_after(lambda world, _: world.submit("a", "clean")), *LATE),
    "of an aborted attempt": Case(
        _after(lambda world, _: world.coordinator().abort(world.pending_id("a"), Reason.JOB_FAILURE, "by hand")), *LATE
    ),
    "of an expired attempt": Case(_after(lambda world, _: world.clock.advance(TIMEOUT)), *LATE),
    "of one that the epoch completed without, when it has been cleaned": Case(
        _after(lambda world, _: world.run_epoch("a")), *LATE
    ),
    "of a stage that nobody expects": Case(_unknown(stage="weather"), AckAnswer.UNKNOWN, log=UNKNOWN),
    "of the next id": Case(_unknown(checkpoint=3), AckAnswer.UNKNOWN, kept=False, log=UNKNOWN),
    "of an id that was never handed out": Case(_unknown(checkpoint=77), AckAnswer.UNKNOWN, kept=False, log=UNKNOWN),
}


def _of(world: World, ack: AckDocument, kind: str) -> list[str]:
    """Give what stands of the driver's state, or of its execution's marker."""
    if kind == "marker":
        return [key for key in world.standing() if key == layout.ack(ack.checkpoint, ack.stage, ack.token)]
    folder = layout.execution_folder(ack.checkpoint, ack.stage, ack.attempt, ack.token)
    return [key for key in world.standing() if key.startswith(f"{folder}{ack.run}/")]


@pytest.mark.parametrize("name", CASES)
def test_each_ack_is_told_what_it_is_and_its_state_meets_its_fate(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:  # semantics A2, A3
    case = CASES[name]
    world.run_epoch("z")
    world.trigger("a")
    ack = case.make(world)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "airflow_cairn"):
        assert world.coordinator().acknowledge(ack) is case.answer
    assert bool(_of(world, ack, "state")) == bool(_of(world, ack, "marker")) == case.kept
    head = world.coordinator().head()
    assert head.ended_by_id(ack.checkpoint) or case.answer is not AckAnswer.DISCARDED, "also an expiry is settled"
    said = [(each.levelno, each.getMessage()) for each in caplog.records if "execution" in each.getMessage()]
    assert [level for level, _ in said] == ([case.log[0]] if case.log else [])
    if case.log:
        assert case.log[1] in said[0][1]
        assert f"stage {ack.stage}, execution {ack.token}" in said[0][1]
    world.run_epoch("a")
    world.coordinator().clean()
    world.audit("z", "a")
    if case.answer is not AckAnswer.SUCCESS:
        assert not _of(world, ack, "state"), "the cleaner takes what was left to it"


def test_an_ack_of_another_job_changes_nothing_at_all(world: World) -> None:  # semantics A3
    world.trigger("a")
    ack = _current(world)
    before = world.memory.all_keys()
    recording = RecordingStore(world.store)
    with pytest.raises(InvalidStateError, match="of another job") as caught:
        world.coordinator(recording).acknowledge(replace(ack, job="weather"))
    assert (caught.value.fields["expected"], caught.value.fields["found"]) == (JOB, "weather")
    assert recording.total == 0
    assert world.memory.all_keys() == before


@pytest.mark.parametrize(("many", "files", "a_request"), [(100_000, 0, 10_000), (10_000, 10_000, 2_000)])
def test_many_subtasks_cost_a_request_for_thousands_of_them(
    many: int, files: int, a_request: int
) -> None:  # semantics A6
    costs: dict[int, tuple[int, int]] = {}
    for subtasks in (1, many):
        world = World(stages=(StageSpec("wide"),))
        world.trigger("a")
        ack = wide_ack(world.submit("a", "wide").handover, subtasks, min(files, subtasks))
        acknowledging, polling = RecordingStore(world.store), RecordingStore(world.store)
        assert world.coordinator(acknowledging).acknowledge(ack) is AckAnswer.SUCCESS
        assert world.coordinator(polling).progress("a") == Ready(1)
        assert polling.requests["read_range"] == 0, "progress lists markers and reads none"
        costs[subtasks] = acknowledging.total, polling.total
    assert 0 < costs[many][0] - costs[1][0] <= many // a_request, "what grows is parts of 768 KiB"
    assert costs[many][1] == costs[1][1]
