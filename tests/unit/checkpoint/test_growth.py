"""Work of a job: linear in its stages and in what it retains, and not quadratic."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from airflow_cairn.checkpoint.config import check_stages
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.rules.failures import consumers, producers, regions_of
from tests.support.acking import ack_of
from tests.support.steps import steps
from tests.support.world.world import CONFIG, World

RETAINED = int(os.environ.get("CAIRN_RETAINED", "8"))
"""`make soak` sets 250: a job of 1,000 retained epochs takes two minutes to make."""
LINEAR = 4.4
"""Bound on the work for four times as many, as a multiple."""


def chained(count: int) -> tuple[StageSpec, ...]:
    """Each reads from the two before it, and so from all."""
    return tuple(
        StageSpec(f"s{number}", upstream=tuple(f"s{before}" for before in range(max(0, number - 2), number)))
        for number in range(count)
    )


def of_stages(count: int) -> Mapping[str, int]:
    """Count what each party does for an epoch of so many stages, in which one fails, and for the next epoch."""
    world = World(stages=chained(count))
    *others, last = (stage.uid for stage in world.stages)
    work = {"trigger": steps(lambda: world.trigger("a"))}
    for uid in others:
        world.coordinator().acknowledge(ack_of(world.submit("a", uid).handover))
    work["claim"] = steps(lambda: world.submit("a", last, "lost"))
    work["fail over"] = steps(lambda: world.coordinator().fail("a", last, "lost", "boom"))
    work["look"] = steps(lambda: world.coordinator().go_on("a"))
    work["claim again"] = steps(lambda: world.submit("a", last, "again"))
    handover = world.submit("a", last, "again").handover
    work["acknowledge"] = steps(lambda: world.coordinator().acknowledge(ack_of(handover)))
    work["complete"] = steps(lambda: world.coordinator().complete_if_last("a", last))
    work["clean"] = steps(lambda: world.coordinator().clean())
    work["trigger the next"] = steps(lambda: world.trigger("b"))
    return work


def of_retained(count: int) -> Mapping[str, int]:
    """Count what each party does for an epoch of a job that retains so many."""
    world = World(config=replace(CONFIG, retained=count), stages=chained(2))
    for number in range(count + 1):
        _complete(world, f"e{number}")
    work = {"trigger": steps(lambda: world.trigger("a"))}
    for uid in (stage.uid for stage in world.stages):
        work["claim"] = steps(partial(world.submit, "a", uid, "one"))
        acknowledgement = ack_of(world.submit("a", uid, "one").handover)
        work["acknowledge"] = steps(partial(world.coordinator().acknowledge, acknowledgement))
    work["look"] = steps(lambda: world.coordinator().go_on("a"))
    work["complete"] = steps(lambda: world.coordinator().complete_if_last("a", world.stages[-1].uid))
    work["clean"] = steps(lambda: world.coordinator().clean())
    return work


def _complete(world: World, epoch: str) -> None:
    world.trigger(epoch)
    for stage in world.stages:
        world.coordinator().acknowledge(ack_of(world.submit(epoch, stage.uid).handover))
    world.coordinator().complete_if_last(epoch, world.stages[-1].uid)


@pytest.mark.parametrize(
    ("work_of", "few_of_them"),
    [
        pytest.param(of_stages, 12, id="stages"),
        pytest.param(of_stages, 60, id="240 stages", marks=[pytest.mark.large, pytest.mark.soak]),
        pytest.param(of_retained, RETAINED, id="retained epochs"),
    ],
)
def test_four_times_as_many_are_four_times_the_work(
    work_of: Callable[[int], Mapping[str, int]], few_of_them: int
) -> None:
    work_of(2)  # what is made once in a process
    few, many = work_of(few_of_them), work_of(4 * few_of_them)
    assert {name: round(many[name] / few[name], 2) for name in many if many[name] > LINEAR * few[name]} == {}


@pytest.mark.parametrize(
    "question",
    [
        lambda stages: check_stages(stages, CONFIG),
        lambda stages: consumers(stages, [stages[0].uid]),
        lambda stages: producers(stages, stages[-1].uid),
        regions_of,
    ],
    ids=["check", "consumers", "producers", "regions"],
)
def test_edges_are_followed_once(question: Callable[[tuple[StageSpec, ...]], object]) -> None:
    few, many = (steps(partial(question, chained(count))) for count in (25, 100))
    assert many <= LINEAR * few
