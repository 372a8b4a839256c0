"""Checkpoints whose stages read what is there, and owe the rest edge by edge (semantics B2)."""

import random
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import EpochCompleted, Ready, Submit, TriggerRequest
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.checkpoint.rules.partial_completion import closed
from airflow_cairn.checkpoint.store import acks
from tests.support.errors import raises_code
from tests.support.world.early import EARLY, EarlyWorld
from tests.support.world.lagging import ALIGNMENT, UNALIGNED, complete_without, lose_a_file, random_job, run_some
from tests.support.world.world import CONFIG

pytestmark = pytest.mark.usefixtures("parsed_documents")

PAIR = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))


def early_pair() -> EarlyWorld:
    return EarlyWorld(stages=PAIR)


def run_early(world: EarlyWorld, epoch: str) -> int:
    """An epoch in which every stage runs before those that it reads from; gives the checkpoint."""
    world.trigger(epoch)
    for stage in reversed(world.stages):
        assert world.run_stage(epoch, stage.uid) is AckAnswer.SUCCESS
    checkpoint = world.pending_id(epoch)
    assert world.coordinator().complete(checkpoint) == EpochCompleted(epoch, checkpoint)
    world.coordinator().clean()
    return checkpoint


def test_a_document_of_exactly_once_says_nothing_of_it() -> None:  # semantics B2, C5
    world = EarlyWorld(config=CONFIG, stages=PAIR)
    world.run_epoch("a")
    bodies = [world.memory.get(key).data for key in world.memory.all_keys()]
    assert not any(b"at_least_once" in body or b"consumed" in body for body in bodies)


def test_what_is_owed_is_in_flight_until_it_is_read() -> None:  # semantics B2, C3
    early = early_pair()
    checkpoint = run_early(early, "a")
    assert early.reads(checkpoint)["routes"] == {"clean": []}
    assert [epoch for epoch, _ in early.owed_reads(checkpoint)["routes"]["clean"]] == ["a"]
    assert early.owed() == {"clean": [], "routes": []}, "nobody owes a slice"
    early.audit("a")
    assert [epoch for epoch, _ in early.reads(early.run_epoch("b"))["routes"]["clean"]] == ["a", "b"]
    assert early.owed_reads(early.run_epoch("c", "d")) == {"clean": {}, "routes": {}}, "who waits owes nothing"
    early.audit("a", "b", "c", "d")
    assert not [key for key in early.standing() if "exchange" in key], "read, so it is kept no longer"


def test_an_edge_owes_one_epoch_at_most() -> None:  # semantics B2
    early = early_pair()
    for epoch in ("a", "b", "c"):
        run_early(early, epoch)
    early.trigger("d")
    backlog = early.submit("d", "routes").handover.backlog
    assert [(each.epoch, each.slice, list(each.inputs)) for each in backlog] == [("c", None, ["clean"])]


def test_who_declined_cancels_nobody() -> None:  # semantics B2, B4
    early = early_pair()
    early.trigger("a")
    early.decline(early.submit("a", "clean").handover)
    assert isinstance(early.coordinator().begin("a", "routes", "try"), Submit)


def test_an_upstream_that_ran_again_is_read_twice() -> None:  # semantics B2
    """The DAG has changed the upstream after its reader had acknowledged the old output: the only such case."""
    early = early_pair()
    run_some(early, "a", "clean", "routes")
    early.stages = (replace(PAIR[0], parallelism=2), PAIR[1])
    early.trigger("a")
    assert early.run_stage("a", "routes") is None
    checkpoint = early.run_epoch("a")
    assert [epoch for epoch, _ in early.reads(checkpoint)["routes"]["clean"]] == ["a"]
    assert [epoch for epoch, _ in early.owed_reads(checkpoint)["routes"]["clean"]] == ["a"]


@pytest.mark.parametrize(("first", "then"), [(EARLY, CONFIG), (CONFIG, EARLY)])
def test_what_ran_in_one_mode_is_not_carried_into_the_other(
    first: CheckpointConfig, then: CheckpointConfig
) -> None:  # semantics B1, B2, F2
    early = EarlyWorld(config=first, stages=PAIR)
    run_some(early, "a", "routes" if first is EARLY else "clean")
    early.clock.advance(2 * first.timeout)
    early.config = then
    pending = early.trigger("a").pending
    assert {each.home for each in pending.executions.values()} == {pending.checkpoint}
    checkpoint = early.run_epoch("a")
    assert [epoch for epoch, _ in early.reads(checkpoint)["routes"]["clean"]] == ["a"]


def test_what_is_owed_may_not_lose_its_reader() -> None:  # semantics B2, R3
    early = early_pair()
    run_early(early, "a")
    early.stages = (StageSpec("clean"), StageSpec("routes"))
    with raises_code("non_restored_state", match="routes from clean"):
        early.trigger("b")
    early.stages = PAIR[:1]
    with raises_code("non_restored_state", match="no stage claims"):
        early.trigger("b")


def test_damage_to_what_is_in_flight_replays_the_epoch() -> None:  # semantics B2, R1
    early = early_pair()
    early.run_epoch("a")
    run_early(early, "b")
    lost = next(key for key in sorted(early.referred()) if "exchange" in key)
    early.store.delete([f"flights/{lost}"])
    answer = early.trigger("c")
    assert [each.epoch for each in answer.pending.replay] == ["b"]
    assert answer.pending.backlogs == {}
    checkpoint = early.run_epoch("c")
    assert [epoch for epoch, _ in early.reads(checkpoint)["routes"]["clean"]] == ["a", "b", "c"]


def test_a_stage_that_is_left_out_keeps_what_its_edges_owe() -> None:  # semantics B2, B3
    """The job's mode changes between two epochs."""
    early = early_pair()
    run_early(early, "a")
    early.config = replace(UNALIGNED, retained=1)
    listed = f"flights/{layout.epoch_list('a', 'files')}"
    early.memory.put(listed, b"")
    run_some(early, "b", "clean")
    complete_without(early, "b", "routes")
    assert listed not in early.memory.all_keys(), "the slice of a has been read; only an upstream's output is owed"
    early.trigger("c")
    early.run_stage("c", "clean")
    handover: Handover = early.submit("c", "routes").handover
    assert [(each.epoch, each.slice is None) for each in handover.backlog] == [("a", True), ("b", False)]
    checkpoint = early.run_epoch("c")
    assert [epoch for epoch, _ in early.reads(checkpoint)["routes"]["clean"]] == ["a", "b", "c"]
    early.audit("a", "b", "c")


# Options (semantics S3).


def test_a_job_whose_debts_would_not_fit_is_refused() -> None:  # semantics B2, S3, W5
    sources = tuple(StageSpec(f"source{number:03d}") for number in range(50))
    names = tuple(each.uid for each in sources)

    def request(readers: int) -> TriggerRequest:
        stages = (*sources, *(StageSpec(f"reader{number:03d}", names) for number in range(readers)))
        return replace(EarlyWorld(stages=stages).request("a"), stages=stages)

    request(40)
    with pytest.raises(InvalidConfigError, match="too many stages and edges for mode='at_least_once'"):
        request(80)


# Any sequence.


JUST_COMPLETE = replace(UNALIGNED, max_backlog=3, regional=RegionalCheckpoints(0.6, 2))


class _Life:
    """A random life of a job, whose mode differs from epoch to epoch: stages begin and acknowledge when they like."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = EarlyWorld(stages=random_job(self.chance, 5, 0.6))
        self.begun: dict[str, Handover] = {}
        self.late: list[AckDocument] = []
        self.done: list[str] = []
        self.again: set[tuple[str, str]] = set()
        self.owed = self.left_out = 0

    def epoch(self, name: str) -> None:
        """Run one epoch to its end, with whatever may happen on the way."""
        world, chance = self.world, self.chance
        modes = [EARLY, EARLY, JUST_COMPLETE, JUST_COMPLETE, UNALIGNED, CONFIG]
        world.config = replace(chance.choice(modes), retained=3)
        self.begun = {}
        world.trigger(name)
        for tries in range(60):
            for stage in chance.sample(world.stages, len(world.stages)):
                self.stage(name, stage)
                if chance.random() < 0.1:
                    world.coordinator().clean()
            if tries < 3 and chance.random() < 0.5:
                self.edit(name)
            world.clock.advance(ALIGNMENT * chance.choice([0, 0, 1, 1, 1, 11]))
            if world.coordinator().head().pending_of_epoch(name) is not None:
                again = world.read_again(name)
                progress = world.coordinator().progress(name)
                if isinstance(progress, Ready | EpochCompleted):
                    self.again |= again
                if isinstance(progress, Ready):
                    world.coordinator().complete(progress.checkpoint)
            answer = world.coordinator().trigger(world.request(name))
            if isinstance(answer, EpochCompleted):
                break
        else:
            raise AssertionError("the epoch never completes")
        self.done.append(name)
        self.left_out += bool(world.coordinator().head().completed[-1].left_out)
        while self.late and chance.random() < 0.5:
            ack = self.late.pop()
            # Of a checkpoint that left the store nobody can tell any more.
            retained = ack.epoch in {entry.epoch for entry in world.coordinator().head().completed}
            told = world.coordinator().acknowledge(ack)
            assert told is AckAnswer.DISCARDED or (told is AckAnswer.SUCCESS and not retained)
        world.coordinator().clean()
        self.check()

    def stage(self, epoch: str, stage: StageSpec) -> None:
        """Let one stage do something: begin, acknowledge, lag, fail for now or for good, decline, or nothing."""
        world, chance = self.world, self.chance
        fate = chance.choice(["begin", "run", "run", "run", "lag", "fail", "fail for good", "decline", "wait"])
        late = self.begun.pop(stage.uid, None)
        if fate == "run" and late is not None:
            assert world.drive(late) in (AckAnswer.SUCCESS, AckAnswer.DUPLICATE, AckAnswer.DISCARDED)
            return
        entry = world.coordinator().head().pending_of_epoch(epoch)
        if fate == "wait" or entry is None or world.clock() >= entry.expires_at_ms:
            return
        claimant = world.new_claimant()
        begun = world.coordinator().begin(epoch, stage.uid, claimant)
        if not isinstance(begun, Submit):
            return
        at = begun.handover
        if not at.at_least_once and not all(
            acks.has_acknowledged(world.files, uid, each) for uid, each in at.upstream.items()
        ):
            return
        if fate == "begin":
            self.begun[stage.uid] = at
        elif fate == "run":
            assert world.drive(at) is AckAnswer.SUCCESS
        elif fate == "lag":
            self.late.append(world.write(at))
        elif fate == "decline":
            world.decline(at)
        else:
            world.coordinator().fail(epoch, stage.uid, claimant, "killed", final=fate == "fail for good")

    def edit(self, epoch: str) -> None:
        """Change a stage that others read from in the DAG, so that it runs again."""
        world, uid = self.world, self.chance.choice(self.world.stages[:2]).uid
        world.stages = tuple(
            replace(each, parallelism=None if each.parallelism else 2) if each.uid == uid else each
            for each in world.stages
        )
        world.coordinator().trigger(world.request(epoch))

    def check(self) -> None:
        """In every retained checkpoint each edge has read, or owes, what its upstream has written, in order.

        Once, but for what was read of an upstream that ran again under its reader.
        """
        world = self.world
        head = world.coordinator().head()
        for entry in head.completed:
            folded, slices = world.folded(entry.id), world.owed(entry.id)
            upto = self.done[: self.done.index(entry.epoch) + 1]
            assert {uid: folded.get(uid, []) + slices[uid] for uid in slices} == {s.uid: upto for s in world.stages}
            assert closed(world.stages, entry.left_out) == set(entry.left_out)
            reads, owed = world.reads(entry.id), world.owed_reads(entry.id)
            for spec in world.stages:
                for uid in spec.upstream:
                    due = owed[spec.uid].get(uid, [])
                    every = [*reads[spec.uid].get(uid, []), *due]
                    once = [epoch for epoch, token in every if (spec.uid, token) not in self.again]
                    assert once == folded.get(uid, []), (spec.uid, uid)
                    self.owed += len(due)
        assert all(found.whole for found in world.coordinator().verify())
        if not head.pending:
            assert world.standing() == world.referred(), "no orphan, and nothing missing"


@pytest.mark.simulation
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in (1, 2, 3))])
def test_each_edge_reads_each_epoch_and_each_stage_folds_it_in_whatever_happens(part: int) -> None:
    """semantics B1, B2, B3, F2, F6, R1"""
    owed = again = left_out = 0
    for seed in range(part, 32, 4):
        life = _Life(seed)
        try:
            for number in range(7):
                life.epoch(f"e{number}")
                if life.chance.random() < 0.2:
                    lose_a_file(life.world, life.chance)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        owed += life.owed
        again += len(life.again)
        left_out += life.left_out
    assert owed > 10, "the lives are about readers that were early"
    assert again > 0, "some upstreams ran again under a reader"
    assert left_out > 8, "and about checkpoints that leave somebody out"
