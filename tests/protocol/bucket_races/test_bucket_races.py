"""Eight real processes a checkpoint on a server of buckets: one outcome, told to all, and no file too few (D3, C3).

Each round makes one checkpoint ready to complete. Two finishers, two aborters, two expirers (whose clocks are a day
ahead) and two cleaners then meet on it at a barrier. What is in the state says what was folded in, so a file that a
cleaner took too early, or an epoch that two outcomes put in twice, shows in the next rounds too.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import system_runtime
from scripts.harness.bucket_server import BucketServer
from tests.protocol.bucket_races.party import Said, party
from tests.support.world.world import JOB, TIMEOUT, World

pytestmark = [pytest.mark.s3, pytest.mark.timeout(1800)]

CHECKPOINTS = int(os.environ.get("CAIRN_CHECKPOINTS", "15"))
"""Number of checkpoints raced for; `make soak` races for 500."""
AT_MOST = 500
"""Greatest number, where one outcome has hardly come up among these."""
OFTEN = 4
"""Number of times that each outcome must come up for it to be a race."""
SEED = int(os.environ.get("CAIRN_SEED", "20261121"))
SOAK = pytest.mark.soak
ONLY = (StageSpec("airports"),)
"""The stage of the test world that names a file of an older checkpoint again: what a cleaner must never take."""


@pytest.mark.parametrize("cloud", ["s3", pytest.param("gcs", marks=SOAK), pytest.param("azure", marks=SOAK)])
def test_each_checkpoint_has_one_outcome_and_loses_no_file(  # semantics C1, C3, D2, D3, D4
    request: pytest.FixtureRequest, cloud: str
) -> None:
    server: BucketServer = request.getfixturevalue(f"{cloud}_server")
    uri = f"{server.new_root()}/lake"
    world = World(open_store(uri, options=server.options), CheckpointConfig(timeout=TIMEOUT, retained=2), ONLY)
    random, real = Random(SEED), system_runtime()
    outcomes: Counter[str] = Counter()
    folded: list[str] = []
    epoch = "e0"
    with party(server, uri, JOB) as contenders:
        while (taken := outcomes.total()) < CHECKPOINTS or (taken < AT_MOST and _rarest(outcomes) < OFTEN):
            world.clock.now_ms = real.now_ms()
            checkpoint = _ready(world, epoch)
            said = contenders.race(epoch, checkpoint, random)
            ended = world.coordinator().head().ended_by_id(checkpoint)
            assert ended is not None, f"checkpoint {checkpoint} was not settled; CAIRN_SEED={SEED}"
            outcome = f"COMPLETED {checkpoint}"
            if ended.status is not Status.COMPLETED:
                outcome = f"FAILED {checkpoint} {ended.reason}"
            _check(said, outcome)
            outcomes[outcome.replace(f" {checkpoint}", "")] += 1
            assert all(found.whole for found in world.coordinator().verify()), f"CAIRN_SEED={SEED}"
            if ended.status is Status.COMPLETED:
                folded.append(epoch)
                assert world.folded() == {"airports": folded}
                epoch = f"e{len(folded)}"
    print(f"\n{taken} checkpoints, {len(folded)} epochs: {dict(outcomes)}")
    # All have acknowledged: who comes long after the timeout completes it too (semantics D2).
    assert set(outcomes) == {"COMPLETED", "FAILED JOB_FAILURE"}, "each of them wins"
    assert _rarest(outcomes) >= OFTEN, "and often enough for a race"
    head = world.coordinator().head()
    assert head.next_id == taken + 1
    assert head.counters.completed == len(folded)
    assert head.counters.completed + head.counters.failed == head.counters.triggered == taken
    _check_nothing_is_left_over(world, epoch)


def _rarest(outcomes: Counter[str]) -> int:
    return min(outcomes[each] for each in ("COMPLETED", "FAILED JOB_FAILURE"))


def _ready(world: World, epoch: str) -> int:
    """Trigger the epoch again until a checkpoint is ready; what has acknowledged before is taken over (F2)."""
    answer = world.coordinator().trigger(world.request(epoch))
    assert isinstance(answer, Triggered), answer
    world.run_stage(epoch, "airports")
    return world.pending_id(epoch)


def _check(said: list[Said], outcome: str) -> None:
    why = f"{said}; CAIRN_SEED={SEED}"
    assert {each.outcome for each in said if each.role != "cleaner"} == {outcome}, why
    by_role = {role: [each.said for each in said if each.role == role] for role in ("finisher", "expirer", "cleaner")}
    assert by_role["finisher"] == by_role["expirer"] == [outcome] * 2, why
    assert by_role["cleaner"] == ["[]"] * 2, why
    aborted = sorted(each.said for each in said if each.role == "aborter")
    mine = ["False", "True"] if outcome.endswith("JOB_FAILURE") else ["False", "False"]
    assert aborted == mine, f"one of them, and it knows: {why}"


def _check_nothing_is_left_over(world: World, epoch: str) -> None:
    coordinator = world.coordinator()
    coordinator.complete(_ready(world, epoch))
    coordinator.clean()
    assert coordinator.clean().deleted == 0
    assert world.standing() == world.referred(), "no orphan"
    oldest = min(layout.checkpoint_of(key) or 0 for key in world.standing())
    assert oldest < coordinator.head().completed[0].id, "an old file is still named by the new ones"
