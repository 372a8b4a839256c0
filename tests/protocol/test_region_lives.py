"""Random lives of random jobs with random exchanges: what must run again does, and nothing else (semantics F1, F2, F5).

Airflow is played by the book: a task starts once its upstreams have succeeded, has a new id at each try, is tried again
after it failed, and is cleared only if it still has the id that the coordinator names. Callbacks come not at all, once
or twice; who is to clear dies now and then. The oracle is the rule's own words, over what has begun and is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from airflow_cairn.checkpoint.acts import carry_over, claims
from airflow_cairn.checkpoint.answers import (
    EpochCompleted,
    Failed,
    FailedOver,
    Ready,
    Restarted,
    StageAcknowledged,
    Submit,
    UpstreamsNotReady,
    Waiting,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.storage import GoneError
from tests.support.world.world import TIMEOUT, World
from tests.unit.checkpoint.rules.test_regions import naive_regions, reads

pytestmark = pytest.mark.simulation

EPOCH = "a"
LIVES = 40
BATCH = 20


def _job(rng: Random) -> tuple[StageSpec, ...]:
    stages = []
    for number in range(rng.randint(2, 6)):
        upstream = [f"s{n}" for n in range(number) if rng.random() < 0.5]
        pipelined = [uid for uid in upstream if rng.random() < 0.4]
        stages.append(StageSpec(f"s{number}", tuple(upstream), pipelined=tuple(pipelined)))
    return tuple(stages)


class Life:
    """One epoch of one job, as Airflow and its drivers live it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(stages=_job(self.rng))
        self.world.run_epoch("z")
        self.world.trigger(EPOCH)
        self.stages = self.world.stages
        self.regions = naive_regions(self.stages)
        self.upstream = {spec.uid: spec.upstream for spec in self.stages}
        self.state = {spec.uid: "none" for spec in self.stages}
        self.id = {spec.uid: "" for spec in self.stages}
        self.running: dict[str, Handover] = {}
        self.zombies: list[Handover] = []
        self.begun: set[str] = set()
        self.acked: set[str] = set()
        self.damaged: set[str] = set()
        self.gone: set[str] = set()
        """Stages whose execution has declined or was told that it does not count."""
        self.runs = dict.fromkeys(self.state, 0)
        self.again = dict.fromkeys(self.state, 0)
        self.failovers = 0
        self.calm = False
        """Nothing fails any more."""

    def must_run_again(self, stage: str = "") -> set[str]:
        """The rule, word by word, where `stage` is to run (again) and what is gone is gone."""
        due = {region for region in self.regions if region & ({stage} | self.gone) & self.begun}
        readers = {stage} - {""} | self.gone
        for _ in self.stages:
            # Later readers are looked at too: what is lost for them has to be written anyway.
            readers |= {spec.uid for spec in self.stages if readers & set(spec.upstream)}
        for _ in self.regions:
            due |= {region for region in self.regions for each in due if reads(self.stages, region, each)}
            readers |= {uid for region in due for uid in region}
            lost = self.damaged & self.acked
            due |= {region for region in self.regions if reads(self.stages, readers, (region & lost) - readers)}
        return {uid for region in due for uid in region} & self.begun

    def note(self, before: int, expected: set[str]) -> None:
        """Compare what an operation restarted with what it had to."""
        history = self.world.coordinator().head().history
        ended = [each for each in history if each.epoch == EPOCH and each.id >= before]
        pending = self.world.coordinator().head().pending_of_epoch(EPOCH)
        followed = [each for each in ended if pending is not None and each.id < pending.id]
        found = {uid for each in followed for uid in each.restarted}
        assert found == expected, (found, expected, self.stages)
        if not followed:
            return
        self.failovers += 1
        for uid in found:
            self.again[uid] += 1
            if uid in self.running:
                self.zombies.append(self.running.pop(uid))
        self.begun -= found
        self.acked -= found
        self.damaged -= found
        self.gone -= found

    def newest(self) -> int:
        """The id from which on history is new to who acts now: the pending attempt's, or the last one's."""
        head = self.world.coordinator().head()
        entry = head.pending_of_epoch(EPOCH) or next(head.ended_of_epoch(EPOCH))
        return entry.id

    def clear(self, restarted: tuple[Restarted, ...]) -> None:
        """Compare and clear; now and then who should dies first."""
        if self.rng.random() < 0.3:
            return
        for each in restarted:
            if self.id[each.stage] == each.claimant:
                self.state[each.stage] = "none"
                self.id[each.stage] = self.world.new_claimant()

    def startable(self) -> list[str]:
        """Tasks that Airflow may start."""
        return [
            spec.uid
            for spec in self.stages
            if self.state[spec.uid] in ("none", "retry") and all(self.state[uid] == "success" for uid in spec.upstream)
        ]

    def live_attempt(self) -> int:
        """The number of the attempt that is pending and has not expired; 0: there is none."""
        entry = self.world.coordinator().head().pending_of_epoch(EPOCH)
        return entry.attempt if entry is not None and self.world.clock.now_ms < entry.expires_at_ms else 0

    def expected_of_start(self, uid: str) -> set[str]:
        """Stages that a try that begins has to restart before."""
        attempt, upstream = self.live_attempt(), set(self.upstream[uid])
        if not attempt:
            return self.must_run_again("" if uid in self.acked else uid)
        if uid in self.acked or (attempt > 1 and upstream - self.acked):
            return set()
        due = uid in self.begun or (attempt > 1 and upstream & self.damaged)
        return self.must_run_again(uid) if due else set()

    def start(self, uid: str) -> None:
        """A task starts."""
        self.id[uid] = claimant = self.world.new_claimant()
        before, expected = self.newest(), self.expected_of_start(uid)
        answer = self.world.coordinator().begin(EPOCH, uid, claimant)
        self.note(before, expected)
        if isinstance(answer, UpstreamsNotReady):
            self.clear(answer.restarted)
            self.state[uid] = "retry"
        elif isinstance(answer, StageAcknowledged):
            assert uid in self.acked
            self.state[uid] = "success"
            self.clear(answer.restarted)
        elif isinstance(answer, EpochCompleted):
            # The process that looks completes what all have acknowledged (semantics D2).
            assert self.acked == set(self.upstream)
            self.state[uid] = "success"
        else:
            assert isinstance(answer, Submit), answer
            self.state[uid] = "running"
            self.running[uid] = answer.handover
            self.begun.add(uid)
            self.runs[uid] += 1
            self.clear(answer.restarted)

    def end(self, uid: str) -> None:
        """A driver ends: well, killed, or with a decline that the sensor may see first."""
        handover = self.running.pop(uid, None)
        how = "well" if self.calm else self.rng.choice(("well", "well", "well", "killed", "declined"))
        if handover is not None and self.damaged & set(self.upstream[uid]):
            how = "declined"  # it cannot read what it is to read
        self.state[uid] = "retry"
        if handover is not None and how == "declined":
            self.world.decline(handover)
            self.gone.add(uid)
            if self.rng.random() < 0.5:
                self.world.coordinator().progress(EPOCH)
        elif handover is not None and how == "well":
            # The acknowledgement that makes all complete counts, however late it comes (semantics D2).
            pending = self.world.coordinator().head().pending_of_epoch(EPOCH) is not None
            counts = bool(self.live_attempt()) or (pending and self.acked | {uid} == set(self.upstream))
            assert self.world.drive(handover) is (AckAnswer.SUCCESS if counts else AckAnswer.DISCARDED)
            if counts:
                self.acked.add(uid)
                if self.calm or self.rng.random() < 0.8:
                    self.state[uid] = "success"
                else:  # its process dies after its driver has acknowledged: the next try has nothing to submit
                    self.callbacks(uid)
                return
            self.gone.add(uid)
        # Without a handover it was replaced under way; the task learns of it when its driver ends.
        self.callbacks(uid)

    def callbacks(self, uid: str) -> None:
        """The failed try is reported, by nobody or more than once."""
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            before = self.newest()
            holds = self.live_attempt() and uid not in self.acked and self.holder(uid) == self.id[uid]
            expected = self.must_run_again(uid) if holds else set()
            answer = self.world.coordinator().fail(EPOCH, uid, self.id[uid], "killed")
            self.note(before, expected)
            if isinstance(answer, FailedOver):
                assert not answer.created or uid not in {each.stage for each in answer.restarted}
                self.clear(answer.restarted)

    def holder(self, uid: str) -> str:
        """The try that holds the stage's current execution."""
        entry = self.world.coordinator().head().pending_of_epoch(EPOCH)
        assert entry is not None
        document = self.world.coordinator().pending_document(entry)
        assert document is not None
        execution = document.executions[uid]
        found = acks.marks(self.world.files, [execution.home], "handover")
        if acks.Mark(uid, execution.token) not in found:
            return ""
        handover, _ = self.world.files.read(Handover, layout.handover(execution.home, uid, execution.token))
        return handover.claimant

    def damage(self) -> None:
        """Somebody deletes what a stage wrote for its readers."""
        uid = self.rng.choice(sorted(self.acked - self.damaged))
        entry = self.world.coordinator().head().pending_of_epoch(EPOCH)
        document = self.world.coordinator().pending_document(entry) if entry else None
        if document is None:
            return
        ack = acks.read_ack(self.world.files, uid, document.executions[uid])
        self.world.files.delete([h.path for s in ack.subtasks for h in s.handles if h.output == "exchange.rows"])
        self.damaged.add(uid)

    def sensor(self) -> bool:
        """The process that waits looks; it clears what others should have."""
        progress = self.world.coordinator().progress(EPOCH)
        if isinstance(progress, Ready):
            self.world.coordinator().complete(progress.checkpoint)
            return True
        if isinstance(progress, Waiting):
            self.clear(progress.restarted)
        elif isinstance(progress, Failed) and set(self.state.values()) == {"success"}:
            self.state[self.rng.choice(sorted(self.state))] = "retry"  # a person clears a task
        return isinstance(progress, EpochCompleted)

    def live(self) -> None:
        """Until the epoch completes."""
        for step in range(600):
            self.calm = step > 60
            if self.zombies and self.rng.random() < 0.3:
                with suppress(GoneError):  # what it is to read may be gone, too
                    assert self.world.drive(self.zombies.pop()) is AckAnswer.DISCARDED
            dice = self.rng.random()
            if not self.calm and dice < 0.05 and self.acked - self.damaged:
                self.damage()
            elif not self.calm and dice < 0.08:
                self.world.clock.advance(TIMEOUT)
            elif dice < 0.25:
                if self.sensor():
                    return
            elif dice < 0.6 and self.startable():
                self.start(self.rng.choice(self.startable()))
            elif busy := [uid for uid, state in self.state.items() if state == "running"]:
                self.end(self.rng.choice(busy))
        raise AssertionError(f"it does not end: {self.state} {self.world.coordinator().progress(EPOCH)}")


@pytest.mark.parametrize("first", [0, pytest.param(BATCH, marks=pytest.mark.soak)])
def test_what_must_run_again_does_and_nothing_else(first: int) -> None:  # semantics F1, F2, F3, F5
    failovers = 0
    for seed in range(first, first + BATCH):
        life = Life(seed)
        try:
            life.live()
        except AssertionError as error:
            raise AssertionError(f"life {seed}: {error}") from error
        assert life.runs == {uid: 1 + life.again[uid] for uid in life.runs}, seed
        life.world.audit("z", EPOCH)
        failovers += life.failovers
    assert failovers > BATCH, "they are lively"


def _alone(stages: tuple[StageSpec, ...]) -> tuple[StageSpec, ...]:
    return tuple(replace(spec, pipelined=()) for spec in stages)


PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "readers stay": (
        carry_over,
        "affected",
        lambda it: lambda stages, failed, **_: it(stages, failed, consumers=False),
    ),
    "no regions": (carry_over, "affected", lambda it: lambda stages, *args, **kw: it(_alone(stages), *args, **kw)),
    "nothing is missing": (carry_over, "damaged_inputs", lambda _it: lambda *_: {}),
    "all run again": (carry_over, "_out", lambda _it: lambda _f, _b, stages, *_: frozenset(s.uid for s in stages)),
    "no look before a claim": (claims, "check_upstreams", lambda _it: lambda *_: None),
    "nobody who comes later is told": (carry_over, "restarts_waiting", lambda _it: lambda *_, **_more: ()),
    "who ran last is not recorded": (carry_over, "record_try", lambda _it: lambda *_: True),
    "who failed by itself is cleared": (
        carry_over,
        "restart_claimants",
        lambda it: lambda files, carried, executions: it(files, replace(carried, failed=frozenset()), executions),
    ),
}
"""Bugs: where, and what stands there instead."""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics F1, F2, F5
    where, name, instead = PLANTED[bug]
    monkeypatch.setattr(where, name, instead(getattr(where, name)))
    for seed in range(LIVES):
        life = Life(seed)
        try:
            life.live()
            assert life.runs == {uid: 1 + life.again[uid] for uid in life.runs}
        except (AssertionError, GoneError):  # or a driver finds that what it is to read has never been written
            return
    pytest.fail(f"not found within {LIVES} lives")
